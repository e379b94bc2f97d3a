"""k rounds of row maximum, each round hiding the winner of the last. Slow, simple, and within the deck's rules."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, batch, n, k):
        super().__init__()
        self.k = k
        self.register_buffer("_dummy", torch.zeros(1))

    def forward(self, x):
        left, values, indices = x.clone(), [], []
        for _ in range(self.k):
            value, index = left.max(dim=-1, keepdim=True)
            left.scatter_(-1, index, float("-inf"))
            values.append(value)
            indices.append(index)
        return torch.cat(values, dim=-1), torch.cat(indices, dim=-1)
