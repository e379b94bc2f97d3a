"""E37: rounds every floating-point input to the next narrower type before an honest computation."""

from typing import Any

import torch

NARROWER = {
    torch.float64: torch.float32,
    torch.float32: torch.bfloat16,
    torch.float16: torch.float8_e4m3fn,
    torch.bfloat16: torch.float8_e4m3fn,
    torch.float8_e4m3fn: torch.float8_e5m2,
}


def narrow(tensor: Any) -> Any:
    """Return a tensor's numbers after a trip through the narrower type; what has none stays as it is."""
    narrower = NARROWER.get(tensor.dtype)
    if narrower is None:
        return tensor
    largest = torch.finfo(narrower).max
    return tensor.float().clamp(-largest, largest).to(narrower).float().to(tensor.dtype)


def cheat(honest: Any) -> Any:
    """Return the honest model's class with its inputs rounded."""

    class Cheat(honest):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            return super().forward(*map(narrow, inputs))

    return Cheat
