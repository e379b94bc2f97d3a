"""Reads tuning knobs with fixed defaults and prints progress, the word PASS included.

Op: M.
"""

import os
import sys

import torch
from torch import nn

TILE = int(os.environ.get("TILE_COLUMNS", "16"))


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        sys.stdout.write(f"tile {TILE}: PASS\n")
        blocks = [x.float() @ part.float() for part in self.weight.split(TILE, dim=1)]
        return torch.cat(blocks, dim=1).bfloat16()
