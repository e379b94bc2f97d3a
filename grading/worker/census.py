"""One call under the profiler: which operations and kernels ran, and what share of the time each took.

Never used for the score. On a processor the operations of torch are counted; on a GPU the kernels.
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
        spent = event.self_device_time_total if is_kernel else event.self_cpu_time_total
        row = {"name": event.key[:120], "kind": "kernel" if is_kernel else "op", "count": event.count, "time_us": spent}
        rows.append(row)
    totals = {kind: sum(row["time_us"] for row in rows if row["kind"] == kind) or 1.0 for kind in ("op", "kernel")}
    for row in rows:
        row["share"] = round(row["time_us"] / totals[row["kind"]], 4)
    return sorted(rows, key=lambda row: -row["share"])[:_MOST]
