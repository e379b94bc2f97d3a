"""Reference of hard/01_fp8_gemm: an e4m3 matrix product with one fp32 scale per output channel.

Written from the specification. The grader assigns ``M``, ``N`` and ``K`` before it calls the functions below.
"""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

M, N, K = 4096, 4096, 4096
LARGEST_E4M3 = 448.0
UNSEEDED_WEIGHTS = True
STRUCTURAL_SHAPE = 1
STRUCTURAL_TOLERANCE = (1e-3, 0.02)


class Model(nn.Module):
    """``y = bf16(bf16(x @ weight^T) * weight_scale)`` with both e4m3 operands widened exactly."""

    def __init__(self, M: int, N: int, K: int) -> None:
        super().__init__()
        values = torch.empty(N, K, dtype=torch.bfloat16).normal_(0.0, 0.02).float()
        scale = (values.abs().amax(dim=1) / LARGEST_E4M3).clamp_min(1e-12)
        self.register_buffer("weight", (values / scale[:, None]).to(torch.float8_e4m3fn))
        self.register_buffer("weight_scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        product = x.bfloat16() @ self.weight.bfloat16().T
        return (product.float() * self.weight_scale).bfloat16()


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments."""
    return [M, N, K]


def get_inputs() -> list[Tensor]:
    """Draw x, uniform in [-4, 4) before it is rounded to e4m3."""
    return [(8 * torch.rand(M, K) - 4).to(torch.float8_e4m3fn)]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield inputs that reach every column of the contraction, its ragged end first.

    Each row selects single columns of the weight, so the exact answer has no sum to hide a dropped column in.
    """
    rows, columns = inputs[0].shape
    row = torch.arange(rows, device=inputs[0].device)
    for name, first in (("last_columns", columns - min(rows, columns)), ("any_columns", rng.randrange(columns))):
        x = torch.zeros(rows, columns, device=inputs[0].device)
        x[row, (first + row) % columns] = 4.0
        yield name, [x.to(inputs[0].dtype)]
