"""The calibration kernel: one fixed product and one fixed copy, timed before and after a pass.

It says whether the device was the same at both ends; its unit is milliseconds for one product and one copy together.
Ten of each stand in one timed batch, so that launches do not enter; the least of the batches' medians counts,
since a disturbance can only slow a device down.
"""

import statistics
from typing import Any

SIZE = 4096
COPY_BYTES = 256 << 20
WARMUP, GROUPS, BATCHES, IN_BATCH = 20, 4, 5, 10


def calibrate(device: str) -> float | None:
    """Return the time of the product and the copy together, or None on a processor."""
    if device == "cpu":
        return None
    import torch

    event: Any = torch.cuda.Event
    left = torch.ones(SIZE, SIZE, dtype=torch.bfloat16, device=device)
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
    return min(statistics.median(batch() for _ in range(BATCHES)) for _ in range(GROUPS))
