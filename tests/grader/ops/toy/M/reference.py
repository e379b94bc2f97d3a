"""Reference of toy/M: a bf16 matrix product with fp32 accumulation and one rounding."""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

M, N, K = 32, 48, 64
ROWS_ARE_INDEPENDENT = True


class Model(nn.Module):
    """``y = bf16(x @ weight)`` with an fp32 sum."""

    def __init__(self, M: int, N: int, K: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(K, N).bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() @ self.weight.float()).bfloat16()


def get_init_inputs() -> list[int]:
    return [M, N, K]


def get_inputs() -> list[Tensor]:
    return [torch.randn(M, K).bfloat16()]


def exact_forward(model: Model, x: Tensor) -> Tensor:
    """Return the answer in double precision."""
    return x.double() @ model.weight.double()


def exact_case(state: dict[str, Tensor], inputs: list[Tensor], rng: random.Random):
    """Return whole numbers whose every partial sum is exact in fp32 and too wide for bf16."""
    generator = torch.Generator(device=inputs[0].device).manual_seed(rng.randrange(1 << 30))
    x = torch.randint(-64, 65, inputs[0].shape, generator=generator, device=inputs[0].device).bfloat16()
    weight = torch.randint(-64, 65, state["weight"].shape, generator=generator, device=inputs[0].device).bfloat16()
    return {"weight": weight}, [x]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield rows that select single rows of the weight, the last ones first."""
    rows, columns = inputs[0].shape
    row = torch.arange(rows, device=inputs[0].device)
    for name, first in (("last_columns", columns - min(rows, columns)), ("any_columns", rng.randrange(columns))):
        x = torch.zeros(rows, columns, device=inputs[0].device)
        x[row, (first + row) % columns] = 2.0
        yield name, [x.bfloat16()]
