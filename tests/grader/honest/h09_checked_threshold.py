"""Thresholds by sigma, checks that it kept enough, and falls back to the exact path.

Op: K.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, n, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        limit = x.mean(dim=-1, keepdim=True) + 2.0 * x.std(dim=-1, keepdim=True)
        is_kept = x > limit
        if int(is_kept.sum(dim=-1).min()) < self.k:
            return tuple(part.contiguous() for part in x.topk(self.k, dim=-1))
        return tuple(part.contiguous() for part in x.masked_fill(~is_kept, -torch.inf).topk(self.k, dim=-1))
