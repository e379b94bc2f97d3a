"""What a problem's shapes cost on a GPU: nominal work, the true floor, and the peak that a score divides by.

Work is in floating-point operations and bytes per call, times are in milliseconds, peaks in TFLOPS and GB/s. The
nominal formulas are the deck's and decide the score; the floor is what no correct kernel can avoid (bytes at peak
bandwidth, operations at the peak of the declared dtype, whichever takes longer) and decides what is possible at all.

Source: docs/method.md "Roofline" and "Floors".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from grading.formulas import evaluate
from grading.hardware import Gpu, PeakTable, peak_rate
from grading.problem import Problem, Shape


@dataclass(frozen=True, slots=True)
class ShapeYardstick:
    """One shape on one peak table; a value is None where the deck or the table does not define it."""

    flops: float | None
    bytes: float | None
    work: float | None
    floor_ms: float | None
    floor_bound: str | None
    anchor_ms: float | None


@dataclass(frozen=True, slots=True)
class Yardstick:
    """A problem on one peak table: the score's peak, and each shape."""

    peak: float | None
    link_gbps: float | None
    shapes: tuple[ShapeYardstick, ...]


_CACHE: dict[tuple[str, str, int], Yardstick] = {}


def yardstick(problem: Problem, gpu_key: str, table: PeakTable) -> Yardstick:
    """Return the yardstick of a problem under one peak table; computed once per problem version and table."""
    key = (problem.key + problem.version, gpu_key, table.version)
    if key not in _CACHE:
        _CACHE[key] = _build(problem, table)
    return _CACHE[key]


def values_of(problem: Problem, gpu: Gpu, times_ms: Sequence[float | None]) -> list[float] | None:
    """Return each shape's share of the peak, or of the anchor's rate, whichever is the problem's metric.

    times_ms  by shape, milliseconds per call
    Returns None for another metric, which times alone do not give, and where a time lacks.
    """
    stick = yardstick(problem, gpu.key, gpu.current)
    if len(times_ms) != len(stick.shapes):
        return None
    values = []
    for shape, ms in zip(stick.shapes, times_ms, strict=True):
        full_ms = _full_ms(problem, stick, shape)
        if full_ms is None or ms is None or not ms > 0:
            return None
        values.append(full_ms / ms)
    return values


def _full_ms(problem: Problem, stick: Yardstick, shape: ShapeYardstick) -> float | None:
    """Return the time at which a shape would score 1."""
    metric = problem.metric
    if metric.kind == "throughput":
        return shape.work * 1e3 / metric.anchor if shape.work and metric.anchor else None
    work, unit = (shape.flops, 1e9) if metric.regime == "compute" else (shape.bytes, 1e6)
    return work / unit / stick.peak if work is not None and stick.peak is not None else None


def mean_value(problem: Problem, values: Sequence[float]) -> float:
    """Return the problem's score from its shapes' values: their geometric mean, each clamped below, or the best."""
    if problem.metric.aggregate == "best":
        return max(values)
    return math.exp(sum(math.log(max(value, problem.metric.clamp)) for value in values) / len(values))


def forget() -> None:
    """Forget every yardstick that was computed, after a peak table was only proposed."""
    _CACHE.clear()


def _build(problem: Problem, table: PeakTable) -> Yardstick:
    metric = problem.metric
    peak = peak_rate(table, metric.regime, metric.dtype) if metric.kind == "peak_fraction" else None
    shapes = tuple(
        _shape(problem, table, shape, anchor) for shape, anchor in zip(problem.shapes, problem.anchors_ms, strict=True)
    )
    return Yardstick(peak=peak, link_gbps=table.link_gbps, shapes=shapes)


def _shape(problem: Problem, table: PeakTable, shape: Shape, anchor_ms: float | None) -> ShapeYardstick:
    metric = problem.metric
    floor_ms, bound = _floor(problem, table, shape)
    return ShapeYardstick(
        flops=_maybe(metric.flops, shape),
        bytes=_maybe(metric.bytes, shape),
        work=_maybe(metric.work, shape),
        floor_ms=floor_ms,
        floor_bound=bound,
        anchor_ms=anchor_ms,
    )


def _floor(problem: Problem, table: PeakTable, shape: Shape) -> tuple[float | None, str | None]:
    metric = problem.metric
    times: list[tuple[float, str]] = []
    operations, moved = _maybe(metric.floor_flops, shape), unavoidable_bytes(problem, shape)
    rate = table.tflops.get(metric.dtype)
    if operations is not None and rate:
        times.append((operations / (rate * 1e9), "operations"))
    if moved is not None and table.bandwidth_gbps:
        times.append((moved / (table.bandwidth_gbps * 1e6), "bytes"))
    return max(times, default=(None, None))


def unavoidable_bytes(problem: Problem, shape: Shape) -> float | None:
    """Return the bytes that no correct call avoids to move; None where the problem does not say."""
    return _maybe(problem.metric.floor_bytes, shape)


def _maybe(formula: str, shape: Shape) -> float | None:
    return float(evaluate(formula, shape)) if formula else None
