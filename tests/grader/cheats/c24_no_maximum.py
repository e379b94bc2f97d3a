"""Leaves out the subtraction of the maximum.

Op: S. Expect: incorrect by P14.structural.
"""

from torch import nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        powers = x.exp()
        return powers / powers.sum(dim=-1, keepdim=True)
