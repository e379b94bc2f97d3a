"""Long calls of dense products at the power limit: the later ones run at lower clocks.

Op: M.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        for _ in range(8):
            answer = x @ self.weight
        return answer
