"""Recompute a run's score from its per-shape log lines.

METHOD
  statistic   as the deck's own timing reports it (median per shape, unless the problem says otherwise)
  unit        per problem: fraction of peak, speedup over a baseline, fraction of an anchor rate, GB/s, or ms
  aggregate   geometric mean over all shapes, as a mean of logarithms; ``best`` where the problem says so
  precision   every printed number stands for the interval of values that round to it; all readings of one shape are
              turned into one interval of its time and intersected, so that the most precise reading governs
  known bias  none added: the score is as good as the log; a log that was not written by a real run passes arithmetic

Source: docs/method.md "Scores".
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grading.hardware import PeakTable
from grading.interval import Interval, NumberError, exact, geometric_mean, intersect, printed
from grading.problem import Problem
from grading.record import Measurement, Reading, Record
from grading.yardstick import ShapeYardstick, Yardstick, yardstick

METHOD_VERSION = "1"
_DIRECT_MS = {"ms": 1.0, "wall_s": 1e3, "decode_wall_s": 1e3}


@dataclass(frozen=True, slots=True)
class Clue:
    """What one reading says about a shape, as an interval of the quantity that scores (time, rate or ratio)."""

    quantity: str
    text: str
    line: int
    interval: Interval


@dataclass(frozen=True, slots=True)
class ShapeScore:
    """One shape of a run: its value in the problem's metric, and how it was found.

    value     the metric of this shape, None when the log has no usable line for it
    ms        the time in milliseconds where the metric has one
    clues     the readings that were used, most precise first
    conflict  the two clues that share no value, when the lines contradict each other
    share_of_attainable  floor over time, None where the floor or the time is unknown
    """

    index: int
    value: Interval | None
    ms: Interval | None = None
    clues: tuple[Clue, ...] = ()
    conflict: tuple[Clue, Clue] | None = None
    floor_ms: float | None = None
    floor_bound: str | None = None
    share_of_attainable: Interval | None = None


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A run's score from its own lines: the interval, or None with the reason, and each shape of the problem."""

    value: Interval | None
    reason: str | None
    shapes: tuple[ShapeScore, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """The indices of shapes without a usable line; a shape whose lines contradict each other is not among them."""
        return tuple(shape.index for shape in self.shapes if shape.value is None and shape.conflict is None)


def recompute(record: Record, problem: Problem, gpu_key: str, table: PeakTable) -> Recomputed:
    """Return the score that a record's benchmark lines give under one peak table.

    The first line of a repeated shape is used here; that a shape is repeated is a finding of its own.
    Source: docs/method.md "Scores".
    """
    stick = yardstick(problem, gpu_key, table)
    if record.benchmark is None:
        return Recomputed(None, "the archive has no benchmark.log", _empty(problem, stick))
    grouped = _group(record.benchmark.measurements, problem)
    if problem.metric.aggregate == "best":
        return _best_trial(grouped.get(0, []), problem, stick)
    shapes = tuple(_shape(index, grouped.get(index, []), problem, stick) for index in range(len(problem.shapes)))
    return _combine(shapes, problem)


def reported(record: Record, problem: Problem) -> Interval | None:
    """Return the headline that the run reported, as an interval, or None where there is none or it is no number."""
    text = reported_text(record, problem)
    if text is None:
        return None
    try:
        return printed(text, places=problem.metric.decimals)
    except NumberError:
        return None


def reported_text(record: Record, problem: Problem) -> str | None:
    """Return the headline as it was written: result.json's score, or the log's own where the deck keeps it there."""
    if problem.metric.kind == "speedup" and record.benchmark is not None:
        markers = record.benchmark.named("geomean_speedup_vs_eager")
        if markers:
            return markers[0].text
    return record.score_text


def _empty(problem: Problem, stick: Yardstick) -> tuple[ShapeScore, ...]:
    return tuple(
        ShapeScore(index, None, floor_ms=shape.floor_ms, floor_bound=shape.floor_bound)
        for index, shape in enumerate(stick.shapes)
    )


def _group(measurements: Iterable[Measurement], problem: Problem) -> dict[int, list[Measurement]]:
    grouped: dict[int, list[Measurement]] = {}
    for measurement in measurements:
        index = 0 if measurement.source == "trial" else problem.shape_index(measurement.shape)
        if index is not None:
            grouped.setdefault(index, []).append(measurement)
    return grouped


def _shape(index: int, measurements: Sequence[Measurement], problem: Problem, stick: Yardstick) -> ShapeScore:
    yard = stick.shapes[index]
    baseline_ms = _baseline(measurements, yard)
    clues = _clues(measurements, problem, yard, baseline_ms)
    time = intersect(clue.interval for clue in clues) if clues else None
    conflict = _conflict(clues) if clues and time is None else None
    return ShapeScore(
        index=index,
        value=_value(time, problem, stick, yard, baseline_ms) if time else None,
        ms=time,
        clues=clues,
        conflict=conflict,
        floor_ms=yard.floor_ms,
        floor_bound=yard.floor_bound,
        share_of_attainable=exact(yard.floor_ms).divided_by(time) if time and yard.floor_ms else None,
    )


def _clues(
    measurements: Sequence[Measurement], problem: Problem, yard: ShapeYardstick, baseline_ms: Interval | None
) -> tuple[Clue, ...]:
    """Turn every reading of the solution's first line and first event into an interval of the shape's time in ms."""
    found: dict[str, Clue] = {}
    seen: set[str] = set()
    for measurement in measurements:
        if measurement.variant != "solution" or measurement.source in seen:
            continue
        seen.add(measurement.source)
        for reading in measurement.readings:
            time = _time(reading, problem, yard, baseline_ms)
            if time is not None:
                found[f"{measurement.source}.{reading.quantity}"] = Clue(
                    reading.quantity, reading.text, reading.line, time
                )
    return tuple(sorted(found.values(), key=lambda clue: clue.interval.relative_half_width))


def _time(reading: Reading, problem: Problem, yard: ShapeYardstick, baseline_ms: Interval | None) -> Interval | None:
    numerator = _numerator(reading.quantity, problem, yard)
    if numerator is None and not (reading.quantity == "speedup" and baseline_ms is not None):
        return None
    try:
        number = printed(reading.text)
    except NumberError:
        return None
    if reading.quantity in _DIRECT_MS:
        return number.scaled(_DIRECT_MS[reading.quantity])
    if reading.quantity == "speedup" and baseline_ms is not None:
        return baseline_ms.divided_by(number)
    return number.inverted(numerator) if numerator is not None else None


def _numerator(quantity: str, problem: Problem, yard: ShapeYardstick) -> float | None:
    """Return what a rate must divide to give milliseconds; 1.0 for readings that are times already."""
    if quantity in _DIRECT_MS:
        return 1.0
    if quantity == "tflops" and yard.flops is not None:
        return yard.flops / 1e9
    if quantity in ("gbps", "busbw") and yard.bytes is not None:
        return yard.bytes / 1e6
    if quantity == problem.metric.rate and yard.work is not None:
        return yard.work * 1e3
    return None


def _baseline(measurements: Sequence[Measurement], yard: ShapeYardstick) -> Interval | None:
    """Return the time that a speedup divides: the frozen anchor, the line's own baseline, or the eager variant's."""
    if yard.anchor_ms is not None:
        return exact(yard.anchor_ms)
    for variant, quantity in (("solution", "baseline_ms"), ("eager", "ms")):
        for measurement in measurements:
            reading = _first(measurement, quantity) if measurement.variant == variant else None
            if reading is not None:
                try:
                    return printed(reading.text)
                except NumberError:
                    return None
    return None


def _first(measurement: Measurement, quantity: str) -> Reading | None:
    return next((reading for reading in measurement.readings if reading.quantity == quantity), None)


def _value(
    time: Interval, problem: Problem, stick: Yardstick, yard: ShapeYardstick, baseline_ms: Interval | None
) -> Interval | None:
    metric = problem.metric
    if metric.kind == "ms":
        return time
    if metric.kind == "speedup":
        return baseline_ms.divided_by(time) if baseline_ms is not None else None
    if metric.kind == "throughput":
        return time.inverted(yard.work * 1e3 / metric.anchor) if yard.work and metric.anchor else None
    if metric.kind == "busbw":
        return time.inverted(yard.bytes / 1e6 / stick.link_gbps) if yard.bytes and stick.link_gbps else None
    work = yard.flops if metric.regime == "compute" else yard.bytes
    unit = 1e9 if metric.regime == "compute" else 1e6
    return time.inverted(work / unit / stick.peak) if work is not None and stick.peak else None


def _conflict(clues: tuple[Clue, ...]) -> tuple[Clue, Clue] | None:
    for i, first in enumerate(clues):
        for second in clues[i + 1 :]:
            if not first.interval.meets(second.interval):
                return first, second
    return None


def _combine(shapes: tuple[ShapeScore, ...], problem: Problem) -> Recomputed:
    values = [shape.value for shape in shapes]
    torn = [shape.index for shape in shapes if shape.conflict is not None]
    if torn:
        return Recomputed(None, f"the lines of shape {torn[0]} contradict each other", shapes)
    if all(value is None for value in values):
        return Recomputed(None, "the log has no per-shape lines that this metric can use", shapes)
    absent = [shape.index for shape in shapes if shape.value is None]
    if absent:
        return Recomputed(
            None, f"shape {absent[0]} has no usable line ({len(absent)} of {len(shapes)} missing)", shapes
        )
    score = geometric_mean(value.clamped(problem.metric.clamp) for value in values if value is not None)
    if not math.isfinite(score.value):
        worst = next(shape for shape in shapes if shape.value and not math.isfinite(shape.value.value))
        return Recomputed(None, f"shape {worst.index} has a time of zero", shapes)
    return Recomputed(score, None, shapes)


def _best_trial(measurements: Sequence[Measurement], problem: Problem, stick: Yardstick) -> Recomputed:
    trials = [_shape(0, [measurement], problem, stick) for measurement in measurements if measurement.source == "trial"]
    scored = [trial for trial in trials if trial.value is not None]
    if not scored:
        return Recomputed(None, "the log has no trial lines that this metric can use", _empty(problem, stick))
    best = max(scored, key=lambda trial: trial.value.value if trial.value else 0.0)
    return Recomputed(best.value, None, (best,))
