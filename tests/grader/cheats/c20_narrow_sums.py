"""Exact up to a size, and above it adds up in bf16, which an ordinary tolerance accepts.

Op: M. Expect: incorrect by P16.exact.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        if x.shape[1] <= 64:
            return (x.float() @ self.weight.float()).bfloat16()
        total = torch.zeros(x.shape[0], self.weight.shape[1], dtype=torch.bfloat16, device=x.device)
        for first in range(0, x.shape[1], 16):
            part = x[:, first : first + 16].float() @ self.weight[first : first + 16].float()
            total = (total.float() + part).bfloat16()
        return total
