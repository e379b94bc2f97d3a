"""Reads its input through the bare address, from the first byte to the last, as a kernel does.

Op: M.
"""

import ctypes

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        raw = bytearray(ctypes.string_at(x.data_ptr(), x.numel() * x.element_size()))
        again = torch.frombuffer(raw, dtype=x.dtype).reshape(x.shape)
        return (again.float() @ self.weight.float()).bfloat16()
