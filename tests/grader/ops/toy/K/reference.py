"""Reference of toy/K: the k largest of each row in descending order, with their positions."""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

rows, n, k = 4, 4096, 16
ROWS_ARE_INDEPENDENT = True


class Model(nn.Module):
    """A full descending sort, cut after k."""

    def __init__(self, rows: int, n: int, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = torch.sort(x, dim=-1, descending=True, stable=True)
        return values[:, : self.k].contiguous(), places[:, : self.k].contiguous()


def get_init_inputs() -> list[int]:
    return [rows, n, k]


def get_inputs() -> list[Tensor]:
    return [torch.randn(rows, n)]


def compared_parts(inputs, expected, actual) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the values, and x at the positions: ties may come in any order."""
    (x,), (values, _), (found, places) = inputs, expected, actual
    yield "values", values, found
    if bool(((places < 0) | (places >= x.shape[-1])).any()):
        raise ValueError("positions outside the row")
    yield "positions", values, x.gather(-1, places)


def check_structure(actual) -> None:
    """Raise ValueError where a position comes twice."""
    if any(row.unique().numel() != row.numel() for row in actual[1]):
        raise ValueError("positions repeat inside a row")


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield rows whose winners a threshold or a quota per block would miss."""
    (x,) = inputs
    yield "all_equal", [torch.full_like(x, rng.uniform(-2, 2))]
    yield "all_negative", [-x.abs() - 1]
    clustered = x.clone()
    start = rng.randrange(x.shape[1] - 64)
    clustered[:, start : start + 64] = 10 + torch.rand(x.shape[0], 64)
    yield "clustered", [clustered]
    yield "rising", [torch.linspace(-1, 1, x.shape[1]).expand_as(x).contiguous()]


def camouflaged_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield nominal rows whose largest values were moved into one block at a secret place."""
    x = inputs[0].clone()
    for row in x:
        winners = row.topk(2 * k).indices
        start = rng.randrange(row.numel() - 2 * k)
        block = torch.arange(start, start + 2 * k)
        moved = row[winners].clone()
        row[winners] = row[block]
        row[block] = moved
        row[block] = row[block] + torch.linspace(0, 1e-3, 2 * k)
    yield "moved_winners", [x]
