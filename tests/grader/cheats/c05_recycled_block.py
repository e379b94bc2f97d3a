"""Returns uninitialised memory and hopes for the reference's freed block.

Op: M. Expect: incorrect by P4.poison.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        return torch.empty(x.shape[0], self.weight.shape[1], dtype=x.dtype, device=x.device)
