"""E24: gives zeros of the right form, in the hope that an absolute tolerance lets small numbers pass."""

from typing import Any

import torch


def cheat(honest: Any) -> Any:
    """Return the honest model's class with its answers emptied."""

    class Cheat(honest):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            answer = super().forward(*inputs)
            if isinstance(answer, torch.Tensor):
                return torch.zeros_like(answer)
            return tuple(torch.zeros_like(part) for part in answer)

    return Cheat
