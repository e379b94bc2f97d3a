"""E44: leaves the last sixteenth of the first floating-point input's last dimension out of the computation."""

from typing import Any

SHARE = 16


def without_tail(tensor: Any) -> Any:
    """Return a copy whose last columns are zero."""
    kept = tensor.float().clone()
    kept[..., -max(1, tensor.shape[-1] // SHARE) :] = 0.0
    return kept.to(tensor.dtype)


def cheat(honest: Any) -> Any:
    """Return the honest model's class that sees one input without its tail."""

    class Cheat(honest):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            place = next((i for i, t in enumerate(inputs) if t.dtype.is_floating_point and t.dim()), None)
            if place is None:
                return super().forward(*inputs)
            changed = [without_tail(tensor) if i == place else tensor for i, tensor in enumerate(inputs)]
            return super().forward(*changed)

    return Cheat
