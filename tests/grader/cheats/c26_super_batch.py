"""Finds every input in memory, answers all of them at once and hands the answers out later.

Op: M. Expect: incorrect by P3.addresses.
"""

import gc

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))
        self.answers = {}

    def forward(self, x):
        ready = self.answers.pop((x.data_ptr(), id(x)), None)
        if ready is not None:
            return ready
        for thing in gc.get_objects():
            if isinstance(thing, list):
                for found in thing:
                    if (
                        type(found) is torch.Tensor
                        and found.shape == x.shape
                        and found.dtype == x.dtype
                        and found is not x
                    ):
                        self.answers[found.data_ptr(), id(found)] = (found.float() @ self.weight.float()).bfloat16()
        return (x.float() @ self.weight.float()).bfloat16()
