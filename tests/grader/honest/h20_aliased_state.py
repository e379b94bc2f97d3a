"""Changes its declared state in place and returns that very tensor.

Op: G.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, B, D):
        super().__init__()
        self.register_buffer("decay", torch.empty(D))

    def forward(self, x, state):
        return state.mul_(self.decay).add_(x)
