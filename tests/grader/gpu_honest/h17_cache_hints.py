"""Cache hints within one call: the first pass over a row keeps it, the second lets it go.

Op: S.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_rows(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    top = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        place = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + first + place, mask=place < columns, other=-float("inf"), eviction_policy="evict_last")
        top = tl.maximum(top, x)
    highest = tl.max(top, axis=0)
    parts = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        place = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + first + place, mask=place < columns, other=-float("inf"), eviction_policy="evict_last")
        parts += tl.exp(x - highest)
    total = tl.sum(parts, axis=0)
    for start in range(0, columns, BLOCK):
        place = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + first + place, mask=place < columns, other=-float("inf"), eviction_policy="evict_first")
        tl.store(y_ptr + first + place, tl.exp(x - highest) / total, mask=place < columns)


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        y = torch.empty_like(x)
        softmax_rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096, num_warps=8)
        return y
