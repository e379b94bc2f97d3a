"""One call under the profiler: which operations and kernels ran, and what share of the time each took.

Never used for the score. On a GPU an operation's time is that of the kernels which it launched itself: its host's part
says nothing about a call. Both are then shares of one total, and a kernel of the solution's own has no operation.
"""

from collections.abc import Callable
from typing import Any

_MOST = 40


def take_census(call: Callable[[], object], device: str) -> list[dict[str, Any]]:
    """Return the operations of one call by self time, the longest first: name, kind, count and share of the time."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + ([] if device == "cpu" else [ProfilerActivity.CUDA])
    with profile(activities=activities, acc_events=True) as recorded:
        call()
        if device != "cpu":
            torch.cuda.synchronize()
    rows: list[dict[str, Any]] = []
    for event in recorded.key_averages():
        is_kernel = str(event.device_type).endswith("CUDA")
        spent = event.self_cpu_time_total if device == "cpu" else event.self_device_time_total
        row = {"name": event.key[:120], "kind": "kernel" if is_kernel else "op", "count": event.count, "time_us": spent}
        rows.append(row)
    counted = "op" if device == "cpu" else "kernel"
    total = sum(row["time_us"] for row in rows if row["kind"] == counted) or 1.0
    for row in rows:
        row["share"] = round(row["time_us"] / total, 4)
    return sorted(rows, key=lambda row: -row["share"])[:_MOST]
