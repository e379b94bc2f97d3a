"""Answers from memory when the same tensor object comes again.

Op: M. Expect: incorrect by P2b.silent_rewrite.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))
        self.x, self.y = None, None

    def forward(self, x):
        if x is self.x:
            return self.y
        self.x, self.y = x, (x.float() @ self.weight.float()).bfloat16()
        return self.y
