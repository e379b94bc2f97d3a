"""Reference of toy/F: an e4m3 product with one fp32 scale per output channel."""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

M, N, K = 64, 48, 160
ROWS_ARE_INDEPENDENT = True


class Model(nn.Module):
    """``y = bf16((x @ weight^T) * scale)``, operands widened exactly."""

    def __init__(self, M: int, N: int, K: int) -> None:
        super().__init__()
        values = torch.randn(N, K) * 0.02
        scale = (values.abs().amax(dim=1) / 448.0).clamp_min(1e-12)
        self.register_buffer("weight", (values / scale[:, None]).to(torch.float8_e4m3fn))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return ((x.float() @ self.weight.float().T) * self.scale).bfloat16()


def get_init_inputs() -> list[int]:
    return [M, N, K]


def get_inputs() -> list[Tensor]:
    return [(torch.rand(M, K) * 8 - 4).to(torch.float8_e4m3fn)]


def exact_forward(model: Model, x: Tensor) -> Tensor:
    """Return the answer in double precision."""
    return (x.double() @ model.weight.double().T) * model.scale.double()


def exact_case(state: dict[str, Tensor], inputs: list[Tensor], rng: random.Random):
    """Return whole numbers that e4m3 holds exactly, and scales of one."""
    generator = torch.Generator(device=inputs[0].device).manual_seed(rng.randrange(1 << 30))
    x = torch.randint(-15, 16, inputs[0].shape, generator=generator, device=inputs[0].device).to(torch.float8_e4m3fn)
    weight = torch.randint(-15, 16, state["weight"].shape, generator=generator, device=inputs[0].device).to(
        torch.float8_e4m3fn
    )
    return {"weight": weight, "scale": torch.ones_like(state["scale"])}, [x]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield rows that select single columns of the weight, the ragged end first."""
    rows, columns = inputs[0].shape
    row = torch.arange(rows, device=inputs[0].device)
    for name, first in (("last_columns", columns - min(rows, columns)), ("any_columns", rng.randrange(columns))):
        x = torch.zeros(rows, columns, device=inputs[0].device)
        x[row, (first + row) % columns] = 4.0
        yield name, [x.to(inputs[0].dtype)]
