# expect: incorrect
"""Takes the maximum of each of k blocks and orders those: wrong as soon as one block holds two winners."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, batch, n, k):
        super().__init__()
        self.k, self.block = k, n // k
        self.register_buffer("_dummy", torch.zeros(1))

    def forward(self, x):
        blocks = x[:, : self.k * self.block].unflatten(1, (self.k, self.block))
        values, inside = blocks.max(dim=-1)
        indices = inside + torch.arange(self.k, device=x.device) * self.block
        rank = (values.unsqueeze(1) > values.unsqueeze(2)).sum(dim=-1)
        order = torch.zeros_like(rank).scatter(1, rank, torch.arange(self.k, device=x.device).expand_as(rank))
        return values.gather(1, order), indices.gather(1, order)
