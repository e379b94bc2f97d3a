"""Keeps values above mean + 2.5 sigma and makes up the rest.

Op: K. Expect: incorrect by P14.structural.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, n, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        limit = x.mean(dim=-1, keepdim=True) + 2.5 * x.std(dim=-1, keepdim=True)
        kept = torch.where(x > limit, x, torch.zeros_like(x))
        values, places = kept.sort(dim=-1, descending=True, stable=True)
        return values[:, : self.k].contiguous(), places[:, : self.k].contiguous()
