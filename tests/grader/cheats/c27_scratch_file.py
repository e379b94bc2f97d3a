"""Writes its answer to the scratch folder in one phase and reads it in the next.

Op: M. Expect: incorrect by P6.timed.
"""

import pathlib

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        path = pathlib.Path("/tmp") / f"answer-{x.shape[0]}-{x.shape[1]}.pt"
        if not path.exists():
            torch.save((x.float() @ self.weight.float()).bfloat16(), path)
        return torch.load(path)
