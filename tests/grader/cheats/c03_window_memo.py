"""Keeps the widened input, checked by a window of 4,096 elements only.

Op: F. Expect: incorrect by P2c.edit.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.register_buffer("weight", torch.empty(N, K, dtype=torch.float8_e4m3fn))
        self.register_buffer("scale", torch.empty(N))
        self.kept, self.window = None, None

    def forward(self, x):
        window = x.reshape(-1)[:4096].view(torch.uint8)
        if self.kept is None or self.kept.shape != x.shape or not torch.equal(window, self.window):
            self.kept, self.window = x.float(), window.clone()
        return ((self.kept @ self.weight.float().T) * self.scale).bfloat16()
