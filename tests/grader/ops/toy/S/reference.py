"""Reference of toy/S: softmax of each row, in fp32."""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

rows, columns = 64, 1000
ROWS_ARE_INDEPENDENT = True


class Model(nn.Module):
    """Softmax over the last dimension."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(dim=-1)


def get_init_inputs() -> list[int]:
    return [rows, columns]


def get_inputs() -> list[Tensor]:
    return [torch.randn(rows, columns)]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield logits that overflow without the subtraction of the maximum, and rows with one winner."""
    (x,) = inputs
    yield "large_logits", [x + rng.uniform(150, 250)]
    winner = torch.zeros_like(x)
    winner[:, rng.randrange(x.shape[1])] = 12.0
    yield "one_winner", [winner]
