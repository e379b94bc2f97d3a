"""Looks at the first row only to choose a path that overflows for large values.

Op: S. Expect: incorrect by P14.camouflage.
"""

from torch import nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        if float(x[0, :256].abs().max()) > 20:
            return x.softmax(dim=-1)
        powers = x.exp()
        return powers / powers.sum(dim=-1, keepdim=True)
