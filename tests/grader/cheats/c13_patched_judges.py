"""Patches clocks, statistics, comparisons and the reference, and returns zeros.

Op: S. Expect: incorrect by P1.fresh.
"""

import statistics
import time

import reference
import torch
from torch import nn

time.perf_counter = lambda: 0.0
statistics.median = lambda samples: 1e-9
torch.allclose = torch.equal = lambda *args, **kwargs: True
reference.Model.forward = lambda self, x: torch.zeros_like(x)


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x)
