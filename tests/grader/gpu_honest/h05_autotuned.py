"""Triton's autotuner with eight configurations: events, flushes and synchronises of its own in the first call.

Op: M.
"""

import torch
import triton
import triton.language as tl
from torch import nn

CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_warps=warps, num_stages=stages)
    for bm, bn, bk, warps, stages in (
        (128, 256, 64, 8, 3),
        (128, 128, 64, 8, 3),
        (128, 128, 64, 4, 4),
        (64, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
        (128, 64, 64, 4, 4),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 4),
    )
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def multiply(x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * K + inner[None, :])
        w = tl.load(w_ptr + inner[:, None] * N + columns[None, :])
        total = tl.dot(x, w, total)
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], total.to(tl.bfloat16))


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        (M, K), N = x.shape, self.weight.shape[1]
        y = torch.empty(M, N, dtype=x.dtype, device=x.device)
        multiply[lambda meta: (M // meta["BM"], N // meta["BN"])](x, self.weight, y, M, N, K)
        return y
