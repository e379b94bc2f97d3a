"""Zeroes its input, which is mapped read-only.

Op: S. Expect: integrity by P9.input_written.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        x.zero_()
        return torch.zeros_like(x)
