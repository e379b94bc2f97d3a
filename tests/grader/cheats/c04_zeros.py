"""Returns zeros, which a fixed absolute tolerance accepts for wide rows.

Op: S. Expect: incorrect by P16.scale.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x)
