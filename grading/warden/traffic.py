"""What a call moves between the GPU and its memory, seen from outside: NVML's counters over many calls in a row.

GPM (GPU performance monitoring, Hopper and later) counts the whole device, so the oracle is idle meanwhile: one run
holds flushes of the L2 alone, the next one flushes and calls. A sample of the counters may be older than the moment it
is asked for, so both are taken in the midst of a run. The candidate's process makes the calls and takes no part in the
counting. No reading can fail a grade: what the driver or its binding refuses is recorded as its reason, in
words, and so is a number that is none. A worker that dies or hangs in these calls ends its pass, as in any other.
"""

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterable
from functools import partial
from threading import Thread
from time import monotonic, sleep
from typing import Any

from grading.card import index_of, open_driver
from grading.evidence import Traffic, Window

# A run begins, is sampled after the first time, sampled again after the second, and goes on for a while.
_LAG_S, _BETWEEN_S, _RUN_S = 0.25, 0.3, 0.65
_LONGEST_CALL_S = 0.25
_MOST_CALLS = 40_000
# A host that was busy while calls were tried makes a run too short; then it is tried again, twice as long.
_TRIES = 3
_MOST_SHAPES = 4
# Tries grow until they take so long; then the host's part of a call is known, which no earlier clock holds.
_TRIED_S = 0.03
_BINDING_ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
    ctypes.ArgumentError,
)


class TooShort(LookupError):
    """Calls were over before the counters had been read twice."""


class Meter:
    """Counters of one GPU. ``refusal`` says why there are none, and is empty where there are.

    errors            what the driver and its binding raise
    peak_bytes_per_s  of the memory, by its clock and its bus
    """

    def __init__(self, device: str, refusal: str = "") -> None:
        opened = None if device == "cpu" or refusal else open_driver(index_of(device))
        self._library: Any
        self._handle: Any
        self._library, self._handle = opened or (None, None)
        self.refusal = refusal or ("a processor has no such counters" if device == "cpu" else "NVML does not answer")
        self.errors = _BINDING_ERRORS
        self.peak_bytes_per_s = 0.0
        if self._library is not None:
            self.errors += (self._library.NVMLError,)
            self.refusal = self._open()

    def _open(self) -> str:
        library, handle = self._library, self._handle
        try:
            if self._is_divided():
                return "the device is divided (MIG), and its counters hold others' work"
            if not library.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                return "the device has no GPM counters"
            clock = library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_MEM)
            # Two transfers a clock.
            self.peak_bytes_per_s = clock * 1e6 * 2 * library.nvmlDeviceGetMemoryBusWidth(handle) / 8
        except self.errors as error:
            return reason_of(error)
        return "" if self.peak_bytes_per_s > 0 else "the driver names no memory clock or no bus"

    def _is_divided(self) -> bool:
        with contextlib.suppress(self._library.NVMLError):
            return bool(self._library.nvmlDeviceGetMigMode(self._handle)[0])
        return False

    def count(self, work: Callable[[], object], calls: int) -> Window:
        """Return the mean utilisation in percent in the midst of ``work``.

        Raises what ``work`` and the driver raise, and TooShort where ``work`` was over too early.
        """
        library, handle, taken, errors = self._library, self._handle, list[float](), list[Exception]()
        samples = [library.nvmlGpmSampleAlloc() for _ in range(2)]

        def look() -> None:
            try:
                for sample, pause in zip(samples, (_LAG_S, _BETWEEN_S), strict=True):
                    sleep(pause)
                    library.nvmlGpmSampleGet(handle, sample)
                    taken.append(monotonic())
            except self.errors as error:
                errors.append(error)

        try:
            looking = Thread(target=look)
            began = monotonic()
            looking.start()
            try:
                work()
                ended = monotonic()
            finally:
                looking.join()
            for error in errors:
                raise error
            if taken[-1] > ended:
                raise TooShort(f"{calls} calls were over in {ended - began:.3f} s, too short to count")
            wanted = (
                library.NVML_GPM_METRIC_DRAM_BW_UTIL,
                library.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
                library.NVML_GPM_METRIC_SM_UTIL,
            )
            dram, tensor, sm = self._metrics(samples, wanted)
        finally:
            for sample in samples:
                library.nvmlGpmSampleFree(sample)
        return Window(calls=calls, seconds=round(ended - began, 6), dram_util=dram, tensor_util=tensor, sm_util=sm)

    def _metrics(self, samples: list[Any], wanted: Iterable[int]) -> list[float]:
        library, asked = self._library, self._library.c_nvmlGpmMetricsGet_t()
        asked.version, asked.sample1, asked.sample2 = library.NVML_GPM_METRICS_GET_VERSION, *samples
        for place, metric in enumerate(wanted):
            asked.metrics[place].metricId, asked.numMetrics = metric, place + 1
        found = library.nvmlGpmMetricsGet(asked)
        rows = [found.metrics[place] for place in range(found.numMetrics)]
        for row in rows:
            if row.nvmlReturn != library.NVML_SUCCESS:
                raise LookupError(f"metric {row.metricId} is not counted: NVML says {row.nvmlReturn}")
            if not (row.value >= 0 and math.isfinite(row.value)):
                raise LookupError(f"metric {row.metricId} is {row.value}; need a finite number >= 0")
        return [float(row.value) for row in rows]


def is_counted(index: int, shapes: int) -> bool:
    """Tell whether a shape is one of those that are counted: four at most, evenly spread."""
    return index % -(-shapes // _MOST_SHAPES) == 0


def measure_traffic(
    meter: Meter, repeat: Callable[[int, bool], object], call_s: float, flush_bytes: int, least_bytes: float | None
) -> Traffic:
    """Count what calls move.

    repeat       makes so many calls, each after a flush, or with True the flushes alone; returns when they are over
    call_s       what one call takes, by the clocks before
    least_bytes  what a call cannot avoid to move; None = not known

    Raises what ``repeat`` raises; what the driver refuses is in the result.
    """
    if meter.refusal or call_s > _LONGEST_CALL_S or not flush_bytes:
        reason = meter.refusal or ("a call takes too long" if flush_bytes else "nothing is flushed")
        return Traffic(least_bytes=least_bytes, unread=reason)
    try:
        noop = _window(meter, lambda calls: repeat(calls, True))
        model = _window(meter, lambda calls: repeat(calls, False))
    except meter.errors as error:
        return Traffic(least_bytes=least_bytes, unread=reason_of(error))
    return Traffic(
        noop=noop,
        model=model,
        peak_bytes_per_s=meter.peak_bytes_per_s,
        flush_bytes=flush_bytes,
        least_bytes=least_bytes,
    )


def _how_many(repeat: Callable[[int], object]) -> int:
    """Return how many calls fill a run, by tries of one call, of four, and so on."""
    count, took_s = 1, 0.0
    while took_s < _TRIED_S and count < _MOST_CALLS:
        count = count * 4 if took_s else count
        began = monotonic()
        repeat(count)
        took_s = max(monotonic() - began, 1e-9)
    return min(max(round(count * _RUN_S / took_s), 2), _MOST_CALLS)


def _window(meter: Meter, repeat: Callable[[int], object]) -> Window:
    """Count calls that together take long enough."""
    calls = _how_many(repeat)
    for _ in range(_TRIES - 1):
        with contextlib.suppress(TooShort):
            return meter.count(partial(repeat, calls), calls)
        calls *= 2
    return meter.count(partial(repeat, calls), calls)


def reason_of(error: Exception) -> str:
    """Return an error in words, cut short."""
    return str(error)[:200] or type(error).__name__
