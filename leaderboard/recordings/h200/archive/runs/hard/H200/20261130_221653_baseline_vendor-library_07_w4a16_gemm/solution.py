"""The vendor library's bf16 product with a weight that was dequantised once and is kept as bf16.

It reads four times the bytes of the 4-bit weight. The kept copy is made again whenever one of the three buffers is
another tensor or has been written to.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K, group_size=128):
        super().__init__()
        self.register_buffer("w_q", torch.zeros(K // 2, N, dtype=torch.uint8))
        self.register_buffer("scales", torch.ones(K // group_size, N, dtype=torch.bfloat16))
        self.register_buffer("zeros", torch.zeros(K // group_size, N, dtype=torch.bfloat16))
        self.kept, self.made_from = None, None

    def weight(self):
        sources = (self.w_q, self.scales, self.zeros)
        state = tuple((t.data_ptr(), t._version) for t in sources)
        if state != self.made_from:
            levels = torch.stack((self.w_q % 16, self.w_q // 16), dim=1).unflatten(0, (self.scales.shape[0], -1))
            self.kept = ((levels.flatten(1, 2).bfloat16() - self.zeros[:, None]) * self.scales[:, None]).flatten(0, 1)
            self.made_from = state
        return self.kept

    def forward(self, x):
        return x @ self.weight()
