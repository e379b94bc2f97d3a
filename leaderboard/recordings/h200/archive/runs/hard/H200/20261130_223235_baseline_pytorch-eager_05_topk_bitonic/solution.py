# baseline: uses calls that the deck forbids to submissions
"""PyTorch in the reference's form: a full descending torch.sort, cut after k.

torch.sort is forbidden to submissions of this problem; this is a baseline.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, batch, n, k):
        super().__init__()
        self.k = k
        self.register_buffer("_dummy", torch.zeros(1))

    def forward(self, x):
        values, indices = torch.sort(x, dim=-1, descending=True)
        return values[:, : self.k].contiguous(), indices[:, : self.k].contiguous()
