# op: S
# expect: incorrect
# rule: P16.scale
"""Returns zeros, which a fixed absolute tolerance accepts for wide rows."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x)
