"""Reads the memory behind its input, where another call's input may lie, and would use what it finds there.

Op: M. Expect: inconclusive by grade.worker_ended.
"""

import ctypes

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))
        self.found = b""

    def forward(self, x):
        end = x.data_ptr() + x.numel() * x.element_size()
        self.found = ctypes.string_at(end, x.element_size())
        return (x.float() @ self.weight.float()).bfloat16()
