"""TMA descriptors kept by pointer and sizes, as launch plans are.

Op: F.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

BM, BN, BK = 128, 128, 128


@triton.jit
def multiply(x_desc, w_desc, scale_ptr, y_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        x = x_desc.load([row, start]).to(tl.bfloat16)
        w = w_desc.load([column, start]).to(tl.bfloat16)
        total = tl.dot(x, w.T, total)
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    scaled = total * tl.load(scale_ptr + columns)[None, :]
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], scaled.to(tl.bfloat16))


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.register_buffer("weight", torch.empty(N, K, dtype=torch.float8_e4m3fn))
        self.register_buffer("scale", torch.empty(N))
        self.plans = {}

    def forward(self, x):
        (M, K), N = x.shape, self.weight.shape[0]
        key = (x.data_ptr(), self.weight.data_ptr(), M, N, K)
        if key not in self.plans:
            own = TensorDescriptor.from_tensor(x, [BM, BK])
            other = TensorDescriptor.from_tensor(self.weight, [BN, BK])
            self.plans[key] = (own, other)
        own, other = self.plans[key]
        y = torch.empty(M, N, dtype=torch.bfloat16, device=x.device)
        multiply[(M // BM, N // BN)](own, other, self.scale, y, N, K, BM, BN, BK, num_warps=8)
        return y
