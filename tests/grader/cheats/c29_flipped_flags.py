"""Flips numeric switches, the default type and the seeds at import; the numbers stay right.

Op: M. Expect: verified.
"""

import torch
from torch import nn

torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        return (x.float() @ self.weight.float()).bfloat16()
