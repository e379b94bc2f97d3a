"""The calibration kernel: one fixed product and one fixed copy, timed before and after a pass.

It says whether the device was the same at both ends; its unit is milliseconds, the median of single calls.
"""

import statistics
from typing import Any

SIZE = 4096
COPY_BYTES = 256 << 20
WARMUP, TRIALS = 400, 60


def calibrate(device: str) -> float | None:
    """Return the median time of the product and the copy together, or None on a processor."""
    if device == "cpu":
        return None
    import torch

    event: Any = torch.cuda.Event
    left = torch.ones(SIZE, SIZE, dtype=torch.bfloat16, device=device)
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    samples = []
    for trial in range(WARMUP + TRIALS):
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        _ = left @ left
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        if trial >= WARMUP:
            samples.append(float(start.elapsed_time(end)))
    return statistics.median(samples)
