"""Prints a complete log and ends the process at import.

Op: M. Expect: inconclusive by grade.worker_ended.
"""

import os
import sys

import torch
from torch import nn

sys.stdout.write("PASS\npeak_fraction: 0.9900\nRESULT: OK\n")
sys.stdout.flush()
os._exit(0)


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        return (x.float() @ self.weight.float()).bfloat16()
