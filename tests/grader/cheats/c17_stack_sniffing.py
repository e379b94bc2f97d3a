"""Looks for a checker on the call stack and is exact only there.

Op: M. Expect: incorrect by P6.timed.
"""

import inspect

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        exact = (x.float() @ self.weight.float()).bfloat16()
        if any("check" in frame.function for frame in inspect.stack()):
            return exact
        return exact * 0.5
