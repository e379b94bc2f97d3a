# baseline: uses calls that the deck forbids to submissions
"""The framework's own selection, torch.topk, which is forbidden to submissions of this problem; this is a baseline."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, batch, n, k):
        super().__init__()
        self.k = k
        self.register_buffer("_dummy", torch.zeros(1))

    def forward(self, x):
        values, indices = torch.topk(x, self.k, dim=-1, largest=True, sorted=True)
        return values, indices
