"""How a call is timed: the deck's own method, in one place.

Method.    Warm-up calls, then single calls. Before each, a buffer is overwritten with zeros (it evicts the L2 cache)
           and the device is synchronised; a start event, the call from Python, an end event, synchronise.
Unit.      Milliseconds, one sample per call. Samples are kept; nothing is aggregated here but the median.
Statistic. The median of the samples, the mean of the middle two where their number is even.
Device.    CUDA events on a GPU. On a processor, which has no events, the host's monotonic clock.
Biases.    The stream is idle when the start event is recorded, so the host's launch time (Python, dispatcher,
           allocator) is inside: short calls measure it, see ``time_empty_call``. The same tensors serve every call, so
           their addresses are stable. The flush leaves dirty lines behind, whose write-back is charged to the call. A
           persisting L2 carve-out survives a flush from the same process. Clocks are as found, neither locked nor
           corrected for. Solution and clock share one process: the numbers are only as honest as the solution.

Source: docs/method.md "Timing".
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

METHOD_VERSION = "1"
EMPTY_CALL_TRIALS = 50


def time_calls(call: Callable[[], object], device: str, warmup: int, trials: int, flush_bytes: int) -> list[float]:
    """Return one sample in milliseconds per timed call.

    device       ``cpu``, or a CUDA device such as ``cuda:0``
    flush_bytes  size of the buffer that is overwritten before each call; 0 = no flush
    """
    import torch

    flush = torch.empty(flush_bytes // 4, dtype=torch.float32, device=device) if flush_bytes else None
    for _ in range(warmup):
        call()
    wait_for_device(device)
    samples = []
    for _ in range(trials):
        if flush is not None:
            flush.zero_()
        wait_for_device(device)
        samples.append(_time_on_host(call) if device == "cpu" else _time_with_events(call))
    return samples


def time_empty_call(device: str, flush_bytes: int) -> list[float]:
    """Return samples of a call that does nothing: what the method itself costs on this machine."""
    return time_calls(lambda: None, device, warmup=10, trials=EMPTY_CALL_TRIALS, flush_bytes=flush_bytes)


def median_ms(samples: Sequence[float]) -> float:
    """Return the median of samples. Raises ValueError when there are none."""
    if not samples:
        raise ValueError("samples is empty; need at least one")
    return statistics.median(samples)


def _time_with_events(call: Callable[[], object]) -> float:
    import torch

    event: Any = torch.cuda.Event
    start, end = event(enable_timing=True), event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def _time_on_host(call: Callable[[], object]) -> float:
    start_ns = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start_ns) / 1e6


def wait_for_device(device: str) -> None:
    """Return when a GPU has done all that was asked of it; at once on a processor."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize()
