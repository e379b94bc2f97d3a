"""Reference of hard/05_topk_bitonic: the k largest of each row in descending order, with their positions.

Written from the specification. The grader assigns ``batch``, ``n`` and ``k`` before it calls the functions below.
"""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

batch, n, k = 1, 131072, 64
BLOCK = 1024
STRUCTURAL_SHAPE = 0
STRUCTURAL_TOLERANCE = (1e-4, 1e-4)
CANONICAL = {"partition": 3, "offset": 17, "extra": 8, "baseline": 4}
PARAMETERS = {"partition": range(128), "offset": range(128), "extra": range(1, 33), "baseline": range(2, 7)}


class Model(nn.Module):
    """A full descending sort, cut after k."""

    def __init__(self, batch: int, n: int, k: int) -> None:
        super().__init__()
        self.k = k
        self.register_buffer("_dummy", torch.zeros(1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = torch.sort(x, dim=-1, descending=True, stable=True)
        return values[:, : self.k].contiguous(), indices[:, : self.k].contiguous()


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments."""
    return [batch, n, k]


def get_inputs() -> list[Tensor]:
    """Draw normal rows."""
    return [torch.randn(batch, n)]


def compared_parts(
    inputs: list[Tensor], expected: tuple[Tensor, Tensor], actual: tuple[Tensor, Tensor]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield what the grader compares: the values, and x gathered at the indices, since ties may come in any order.

    Raises ValueError for indices outside the row.
    """
    (x,), (values, _), (found, positions) = inputs, expected, actual
    yield "values", values, found
    if positions.shape != values.shape:
        raise ValueError(f"shape mismatch: ref={tuple(values.shape)} sol={tuple(positions.shape)}")
    places = positions.long()
    if bool(((places < 0) | (places >= x.shape[-1])).any()):
        raise ValueError(f"indices out of range 0..{x.shape[-1] - 1}")
    yield "indices (gather mismatch)", values, x.gather(-1, places)


def check_structure(actual: tuple[Tensor, Tensor]) -> None:
    """Raise ValueError unless the positions of each row are int64 and distinct."""
    if actual[1].dtype != torch.int64:
        raise ValueError(f"indices are {actual[1].dtype}; need torch.int64")
    ordered = actual[1].sort(dim=-1).values
    if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
        raise ValueError("indices repeat inside a row")


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield the fixed case and three drawn ones in which all winners sit inside one aligned block."""
    yield "canonical", clustered_inputs(inputs, **CANONICAL)
    for number in range(3):
        drawn = {name: rng.choice(values) for name, values in PARAMETERS.items()}
        yield f"drawn_{number}", clustered_inputs(inputs, **drawn)


def clustered_inputs(inputs: list[Tensor], *, partition: int, offset: int, extra: int, baseline: int) -> list[Tensor]:
    """Return constant rows but for a falling run of k + extra values inside one block of 1024.

    baseline  the constant, in quarters
    """
    run = k + extra
    x = torch.full_like(inputs[0], baseline / 4)
    start = partition % max(1, x.shape[1] // BLOCK) * BLOCK + offset % (min(BLOCK, x.shape[1]) - run + 1)
    x[:, start : start + run] = baseline / 4 + torch.linspace(1.0, 0.25, run, device=x.device)
    return [x]
