# expect: incorrect
"""Takes the high nibble as the even row. Every weight is in range and well scaled, but in the wrong row."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K, group_size=128):
        super().__init__()
        for name, rows, kind in (
            ("w_q", K // 2, torch.uint8),
            ("scales", K // group_size, torch.bfloat16),
            ("zeros", K // group_size, torch.bfloat16),
        ):
            self.register_buffer(name, torch.zeros(rows, N, dtype=kind))

    def forward(self, x):
        pairs = torch.stack((self.w_q >> 4, self.w_q & 15), dim=1)
        levels = pairs.view(self.scales.shape[0], -1, self.w_q.shape[1]).bfloat16()
        return x @ ((levels - self.zeros[:, None]) * self.scales[:, None]).view(-1, self.w_q.shape[1])
