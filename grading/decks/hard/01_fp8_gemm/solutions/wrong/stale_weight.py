# expect: incorrect
"""Packs the weight at the first call and never looks at it again, so a weight rewritten in place is not seen."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.register_buffer("weight", torch.zeros(N, K, dtype=torch.float8_e4m3fn))
        self.register_buffer("weight_scale", torch.ones(N))
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.weight.to(torch.bfloat16).T.contiguous()
        return ((x.to(torch.bfloat16) @ self.packed).float() * self.weight_scale).to(torch.bfloat16)
