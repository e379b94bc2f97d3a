"""Reference of hard/07_w4a16_gemm: bf16 activations times 4-bit weights with a scale and a zero point per group.

Written from the specification. The grader assigns ``M``, ``N`` and ``K`` before it calls the functions below. The
constructor seeds PyTorch's global generator from the shape, so the weights are the same in every process.
"""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

M, N, K = 1, 12288, 4096
GROUP_SIZE = 128
STRUCTURAL_SHAPE = 0
STRUCTURAL_TOLERANCE = (1e-3, 0.02)


class Model(nn.Module):
    """Dequantise the whole weight to bf16, then one bf16 product."""

    def __init__(self, M: int, N: int, K: int, group_size: int = GROUP_SIZE) -> None:
        super().__init__()
        self.group_size = group_size
        torch.manual_seed(0xC0DE ^ (M * 1315423911 + N * 2654435761 + K))
        packed, scales, zeros = quantise(torch.randn(K, N) * 0.02, group_size)
        self.register_buffer("w_q", packed)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", zeros)

    def forward(self, x: Tensor) -> Tensor:
        return x @ dequantise(self.w_q, self.scales, self.zeros, self.group_size)


def quantise(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return packed nibbles, scales and zero points of a (K, N) weight; even rows take the low nibble."""
    grouped = weight.reshape(-1, group_size, weight.shape[1])
    low, high = grouped.amin(dim=1, keepdim=True), grouped.amax(dim=1, keepdim=True)
    scale = (high - low).clamp_min(1e-8) / 15
    zero = (-low / scale).round().clamp(0, 15)
    levels = (grouped / scale + zero).round().clamp(0, 15).to(torch.uint8).reshape(weight.shape)
    packed = levels[0::2] | (levels[1::2] << 4)
    return packed.contiguous(), scale.squeeze(1).bfloat16(), zero.squeeze(1).bfloat16()


def dequantise(packed: Tensor, scales: Tensor, zeros: Tensor, group_size: int) -> Tensor:
    """Return the bf16 (K, N) weight; only the product with the scale rounds."""
    levels = torch.stack((packed & 15, packed >> 4), dim=1).reshape(-1, packed.shape[1])
    group = torch.arange(levels.shape[0], device=packed.device) // group_size
    return (levels.bfloat16() - zeros[group]) * scales[group]


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments; the group size is the default."""
    return [M, N, K]


def get_inputs() -> list[Tensor]:
    """Draw the activations."""
    return [torch.randn(M, K, dtype=torch.bfloat16)]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield one-hot rows: the answer is one row of the weight, of either nibble and of the last group."""
    rows, columns = inputs[0].shape
    row = torch.arange(rows, device=inputs[0].device)
    even = 2 * rng.randrange(columns // 2)
    for name, first in (("even_row", even), ("odd_row", even + 1), ("last_row", columns - 1)):
        x = torch.zeros_like(inputs[0])
        x[row, (first + 2 * row) % columns] = 1
        yield name, [x]
