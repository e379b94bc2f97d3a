"""Reference of toy/G: one step of a recurrence whose state is changed in place."""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

B, D = 8, 256
IN_PLACE = ("state",)


class Model(nn.Module):
    """``state = state * decay + x``, in place; the answer is the new state."""

    def __init__(self, B: int, D: int) -> None:
        super().__init__()
        self.register_buffer("decay", torch.rand(D))

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        state.mul_(self.decay).add_(x)
        return state.clone()


def get_init_inputs() -> list[int]:
    return [B, D]


def get_inputs() -> list[Tensor]:
    return [torch.randn(B, D), torch.randn(B, D)]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield a step whose answer comes from the state alone, and one where it comes from x alone."""
    x, state = inputs
    yield "state_only", [torch.zeros_like(x), state]
    yield "input_only", [x, torch.zeros_like(state)]
