# baseline: uses calls that the deck forbids to submissions
"""The vendor library's FP8 product through torch._scaled_mm, with one scale per row and column and fast accumulation.

The library needs K to be a multiple of 16: where it is not, both operands are padded with zeros inside every call.
torch._scaled_mm is forbidden to submissions of this problem; this is a baseline.
"""

import torch
import torch.nn.functional as F
from torch import nn


def padded(matrix):
    missing = -matrix.shape[1] % 16
    return F.pad(matrix.view(torch.uint8), (0, missing)).view(matrix.dtype) if missing else matrix


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.register_buffer("weight", torch.zeros(N, K, dtype=torch.float8_e4m3fn))
        self.register_buffer("weight_scale", torch.ones(N))
        self.register_buffer("unit", torch.ones(M, 1), persistent=False)

    def forward(self, x):
        return torch._scaled_mm(
            padded(x),
            padded(self.weight).T,
            scale_a=self.unit,
            scale_b=self.weight_scale[None, :],
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
