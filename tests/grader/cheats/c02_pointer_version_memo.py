"""Answers from memory by pointer and version counter.

Op: M. Expect: incorrect by P2b.silent_rewrite.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))
        self.known = {}

    def forward(self, x):
        key = (x.data_ptr(), x._version, self.weight._version)
        if key not in self.known:
            self.known[key] = (x.float() @ self.weight.float()).bfloat16()
        return self.known[key]
