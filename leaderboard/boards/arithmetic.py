"""A run's score written out: each shape's reading, time, rate and value, and how they become the headline."""

from dataclasses import dataclass
from typing import Any

from grading.hardware import PeakTable, load_gpus, peak_rate
from grading.problem import Metric, Problem
from grading.score import reported_text
from grading.yardstick import ShapeYardstick, yardstick
from leaderboard.boards.runs import RunView

Span = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """One shape of a run. A `Span` is (value, low, high).

    reading   the most precise printed number, as printed, with its quantity and line in `Arithmetic.log`
    rate      work over time in `Arithmetic.rate_unit`
    """

    index: int
    label: str
    quantity: str | None
    text: str | None
    line: int | None
    more_readings: int
    ms: Span | None
    rate: float | None
    value: Span | None
    floor_ms: float | None
    floor_bound: str | None
    share_of_attainable: Span | None
    is_consistent: bool


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a score follows from a log.

    rule      what a shape's value is, in words
    divisor   the peak, anchor or link rate with its unit, in words; empty where nothing is divided by
    """

    log: str | None
    rule: str
    formula: str
    divisor: str
    rate_unit: str
    peak_version: int
    peak_source: str
    shapes: tuple[ShapeRow, ...]
    score: Span | None
    reported: str | None
    agrees: bool | None
    reason: str | None
    decimals: int
    unit: str
    aggregate: str

    @property
    def values(self) -> tuple[float, ...]:
        """The shapes' values, for the formula; empty unless every shape has one."""
        found = [row.value[0] for row in self.shapes if row.value is not None and row.value[0] is not None]
        return tuple(found) if len(found) == len(self.shapes) else ()


def read_arithmetic(view: RunView) -> Arithmetic:
    """Return a run's score written out under the peak table that its assessment used."""
    metric, assessment = view.problem.metric, view.assessment
    table = _table(view.summary.gpu, assessment.peak_version)
    stick = yardstick(view.problem, view.summary.gpu, table)
    rows = tuple(_row(shape, metric, stick.shapes[shape["index"]]) for shape in assessment.shapes)
    rule, formula, rate_unit = _words(metric)
    return Arithmetic(
        log=view.record.benchmark.file if view.record.benchmark else None,
        rule=rule,
        formula=formula,
        divisor=_divisor(view.problem, table),
        rate_unit=rate_unit,
        peak_version=table.version,
        peak_source=table.source,
        shapes=rows,
        score=_span([assessment.score, assessment.score_low, assessment.score_high]),
        reported=reported_text(view.record, view.problem),
        agrees=assessment.agrees,
        reason=assessment.reason,
        decimals=metric.decimals,
        unit=metric.unit,
        aggregate=metric.aggregate,
    )


def _table(gpu: str, version: int) -> PeakTable:
    tables = load_gpus()[gpu].peaks
    return next((table for table in tables if table.version == version), tables[-1])


def _row(shape: dict[str, Any], metric: Metric, yard: ShapeYardstick) -> ShapeRow:
    reading = shape["readings"][0] if shape["readings"] else None
    ms = _span(shape["ms"])
    return ShapeRow(
        index=shape["index"],
        label=shape["label"],
        quantity=reading["quantity"] if reading else None,
        text=reading["text"] if reading else None,
        line=reading["line"] if reading else None,
        more_readings=max(0, len(shape["readings"]) - 1),
        ms=ms,
        rate=_rate(metric, yard, ms[0] if ms else None),
        value=_span(shape["value"]),
        floor_ms=shape["floor_ms"],
        floor_bound=shape["floor_bound"],
        share_of_attainable=_span(shape["share_of_attainable"]),
        is_consistent=shape["is_consistent"],
    )


def _span(values: list[float | None] | None) -> Span | None:
    return (values[0], values[1], values[2]) if values and values[0] is not None else None


def _rate(metric: Metric, yard: ShapeYardstick, ms: float | None) -> float | None:
    if not ms:
        return None
    if metric.kind == "peak_fraction":
        work = yard.flops if metric.regime == "compute" else yard.bytes
        return work / ms / (1e9 if metric.regime == "compute" else 1e6) if work else None
    if metric.kind == "throughput":
        return yard.work * 1e3 / ms if yard.work else None
    if metric.kind == "busbw":
        return yard.bytes / ms / 1e6 if yard.bytes else None
    return None


def _words(metric: Metric) -> tuple[str, str, str]:
    """Return the rule in words, the formula of the work, and the unit of a rate."""
    if metric.kind == "peak_fraction" and metric.regime == "compute":
        return "operations ÷ time ÷ dense peak", metric.flops, "TFLOPS"
    if metric.kind == "peak_fraction":
        return "bytes ÷ time ÷ peak bandwidth", metric.bytes, "GB/s"
    if metric.kind == "throughput":
        return "work ÷ time ÷ anchor rate", metric.work, "per second"
    if metric.kind == "busbw":
        return "bytes ÷ time ÷ link rate", metric.bytes, "GB/s"
    if metric.kind == "speedup":
        return "baseline time ÷ time", "", ""
    return "time", "", ""


def _divisor(problem: Problem, table: PeakTable) -> str:
    metric = problem.metric
    if metric.kind == "peak_fraction":
        peak = peak_rate(table, metric.regime, metric.dtype)
        unit = f"TFLOPS ({metric.dtype}, dense)" if metric.regime == "compute" else "GB/s"
        return f"{peak:,g} {unit}" if peak else ""
    if metric.kind == "throughput" and metric.anchor:
        return f"{metric.anchor:,g} per second"
    if metric.kind == "busbw" and table.link_gbps:
        return f"{table.link_gbps:,g} GB/s"
    return ""
