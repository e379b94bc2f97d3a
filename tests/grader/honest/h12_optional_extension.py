"""Tries to build an extension and falls back where it cannot.

Op: M.
"""

import torch
from torch import nn

try:
    from torch.utils.cpp_extension import CUDA_HOME

    if CUDA_HOME is None:
        raise RuntimeError("no toolkit")
    kernel = None
except (ImportError, RuntimeError):
    kernel = None


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        return (x.float() @ self.weight.float()).bfloat16() if kernel is None else kernel(x, self.weight)
