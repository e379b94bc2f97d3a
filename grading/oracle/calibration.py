"""The calibration kernel: one fixed product and one fixed copy, timed before and after a pass.

It says whether the device was the same at both ends; its unit is milliseconds for one product and one copy together.
All operands are zeros. With ones the product read 0.158 to 0.172 ms on an H200, by what ran before it, with random
numbers 0.178 to 0.197, while the copy read 0.1284 every time: that looks like the cap on power, and zeros draw least.
Ten of each stand in one timed batch, so that launches do not enter; the least of the batches' medians counts,
since a disturbance can only slow a device down. A device that stood idle while the solution was built can take longer
than the warm-up to come up to speed (read on H200s: up to 5 % too slow in one reading of seven), so batches go on
until some have brought nothing.
"""

import statistics
from collections.abc import Callable
from typing import Any

SIZE = 4096
COPY_BYTES = 256 << 20
WARMUP, BATCHES, IN_BATCH = 20, 5, 10
# Groups of batches: so many without a lower median end the reading, at the latest so many in all (1.5 s on an H200).
_STEADY_GROUPS, _MOST_GROUPS = 12, 100
# What a lower median must at least be lower by: the last digits of a reading always find a lower one.
_LOWER = 0.999


def calibrate(device: str) -> float | None:
    """Return the time of the product and the copy together, or None on a processor."""
    if device == "cpu":
        return None
    import torch

    event: Any = torch.cuda.Event
    left = torch.zeros(SIZE, SIZE, dtype=torch.bfloat16, device=device)
    product = torch.empty_like(left)
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def batch() -> float:
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        for _ in range(IN_BATCH):
            torch.mm(left, left, out=product)
            target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / IN_BATCH

    for _ in range(WARMUP):
        batch()
    return settled_least(lambda: statistics.median(batch() for _ in range(BATCHES)))


def settled_least(take: Callable[[], float]) -> float:
    """Return the least of a series of readings that has ceased to fall."""
    least, since, taken = take(), 0, 1
    while since < _STEADY_GROUPS and taken < _MOST_GROUPS:
        found = take()
        since = 0 if found < least * _LOWER else since + 1
        least, taken = min(least, found), taken + 1
    return least
