"""Pads odd activations on every call into a workspace that is kept by shape.

Op: F.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.register_buffer("weight", torch.empty(N, K, dtype=torch.float8_e4m3fn))
        self.register_buffer("scale", torch.empty(N))
        self.space = None

    def forward(self, x):
        width = -(-x.shape[1] // 16) * 16
        if self.space is None or self.space.shape != (x.shape[0], width):
            self.space = torch.zeros(x.shape[0], width, device=x.device)
        self.space[:, : x.shape[1]] = x.float()
        weight = nn.functional.pad(self.weight.float(), (0, width - x.shape[1]))
        return ((self.space @ weight.T) * self.scale).bfloat16()
