"""Keeps a private copy of the state by the tensor's address and version, also after the tensor died.

Op: G. Expect: incorrect by P3.renewed.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, B, D):
        super().__init__()
        self.register_buffer("decay", torch.empty(D))
        self.buffers = {}

    def forward(self, x, state):
        key = (state.data_ptr(), state._version)
        if key not in self.buffers:
            self.buffers[key] = state.clone()
        fresh = self.buffers[key] * self.decay + x
        state.copy_(fresh)
        return fresh
