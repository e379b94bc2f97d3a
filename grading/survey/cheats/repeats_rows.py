"""E40: computes all but the last eighth of an answer's rows, and repeats earlier ones there."""

from typing import Any

import torch

SHARE = 8


def repeat(part: Any) -> Any:
    """Return a part of an answer whose last rows are those before them; of a single row, its columns."""
    if not part.dim():
        return part
    along = 0 if part.shape[0] > 1 else part.dim() - 1
    count = max(1, part.shape[along] // SHARE)
    if part.shape[along] < 2 * count:
        return part
    kept = part.narrow(along, 0, part.shape[along] - count)
    return torch.cat((kept, kept.narrow(along, kept.shape[along] - count, count)), dim=along)


def cheat(honest: Any) -> Any:
    """Return the honest model's class with rows repeated."""

    class Cheat(honest):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            answer = super().forward(*inputs)
            return repeat(answer) if isinstance(answer, torch.Tensor) else tuple(map(repeat, answer))

    return Cheat
