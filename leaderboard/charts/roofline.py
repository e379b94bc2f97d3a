"""The roofline of a problem on a GPU: the best published rate on each shape under the roof of current peaks."""

import math
from dataclasses import dataclass

from grading.hardware import PeakTable, load_gpus
from grading.problem import Problem
from leaderboard.boards.problems import Standings
from leaderboard.charts.common import Plot, Table, Tick
from leaderboard.charts.labels import place_labels

FRAME = (56.0, 12.0, 606.0, 274.0)


@dataclass(frozen=True, slots=True)
class RoofPoint:
    """The best published rate on one shape, in drawing units; `roof` is the ceiling above it.

    text_x, text_y  where its number stands: near its point and on no other, since shapes often share an intensity
    """

    number: int
    label: str
    x: float
    y: float
    roof: float
    text_x: float
    text_y: float
    share_of_roof: float
    shape: str
    intensity: float
    rate: float
    ceiling: float


@dataclass(frozen=True, slots=True)
class RooflineChart:
    """Best published rates under a GPU's roof, on two logarithmic axes."""

    points: tuple[RoofPoint, ...]
    roof: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    summary: str
    width: int = 620
    height: int = 320
    left: int = 56
    right: int = 606
    top: int = 22
    bottom: int = 274
    title: str = "Roofline"
    template: str = "_svg_roofline.html"
    corners: tuple[tuple[float, float], ...] = ()

    @property
    def table(self) -> Table:
        """The same as numbers."""
        columns = ("number", "shape", "operations per byte", "TFLOPS", "roof TFLOPS", "share of roof")
        rows = ((p.number, p.shape, p.intensity, p.rate, p.ceiling, p.share_of_roof) for p in self.points)
        return Table(columns, tuple(rows))

    @property
    def plot(self) -> Plot:
        """The same for Plotly."""
        roof = {
            "type": "scatter", "mode": "lines", "name": "roof", "x": [x for x, _ in self.corners],
            "y": [y for _, y in self.corners], "line": {"color": "token:ink", "width": 2},
        }  # fmt: skip
        points = {
            "type": "scatter", "mode": "markers+text", "name": "best published",
            "x": [p.intensity for p in self.points],
            "y": [p.rate for p in self.points], "text": [str(p.number) for p in self.points],
            "hovertext": [p.label for p in self.points], "hoverinfo": "text", "textposition": "top center",
            "marker": {"color": "token:needle", "size": 11},
        }  # fmt: skip
        layout = {
            "xaxis": {"type": "log", "title": {"text": "operations per byte, nominal"}},
            "yaxis": {"type": "log", "title": {"text": "TFLOPS"}},
        }
        return {"data": [roof, points], "layout": layout}


@dataclass(frozen=True, slots=True)
class _Axes:
    """Decimal logarithms of the ends of both axes."""

    x: tuple[float, float]
    y: tuple[float, float]

    def place(self, intensity: float, rate: float) -> tuple[float, float]:
        """Return the drawing position of operations per byte and TFLOPS."""
        across = (math.log10(intensity) - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(rate) - self.y[0]) / (self.y[1] - self.y[0])
        return 56 + across * 550, 274 - up * 252


def roofline_chart(problem: Problem, standing: Standings) -> RooflineChart | None:
    """Return the roofline of a problem's best shapes on a GPU, or None where the metric has no two ceilings."""
    metric, table = problem.metric, load_gpus()[standing.gpu].current
    peak, bandwidth = table.tflops.get(metric.dtype), table.bandwidth_gbps
    if metric.kind != "peak_fraction" or not (metric.flops and metric.bytes and peak and bandwidth):
        return None
    found = []
    for index, winner in enumerate(standing.winners):
        shape = problem.shapes[index]
        if winner.ms and problem.flops(shape) > 0 and problem.bytes(shape) > 0:
            found.append((index, problem.flops(shape) / problem.bytes(shape), problem.flops(shape) / (winner.ms * 1e9)))
    if not found:
        return None
    ridge = peak * 1e3 / bandwidth
    axes = _axes([ridge, *(x for _, x, _ in found)], [peak, *(y for _, _, y in found)])
    places = [axes.place(x, y) for _, x, y in found]
    labels = place_labels(places, [str(index + 1) for index, _, _ in found], FRAME)
    points = tuple(
        _roof_point(index, (x, y), label, problem, table, axes)
        for (index, x, y), label in zip(found, labels, strict=True)
    )
    corners = _corners(peak, bandwidth, ridge, axes)
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in (axes.place(*corner) for corner in corners))
    return RooflineChart(points, path, *_log_ticks(axes), _roof_summary(points, problem), corners=corners)


def _axes(intensities: list[float], rates: list[float]) -> _Axes:
    x, y = (
        (math.log10(min(values) / margin), math.log10(max(values) * margin))
        for values, margin in ((intensities, 3.0), (rates, 1.8))
    )
    return _Axes(x, y)


def _roof_point(
    index: int,
    measured: tuple[float, float],
    text: tuple[float, float],
    problem: Problem,
    table: PeakTable,
    axes: _Axes,
) -> RoofPoint:
    intensity, rate = measured
    ceiling = min(table.tflops[problem.metric.dtype], intensity * (table.bandwidth_gbps or 0.0) / 1e3)
    x, y = axes.place(intensity, rate)
    label = f"{problem.shape_label(index)}: {rate:.4g} of {ceiling:.4g} TFLOPS"
    return RoofPoint(
        number=index + 1,
        label=label,
        x=x,
        y=y,
        roof=axes.place(intensity, ceiling)[1],
        text_x=text[0],
        text_y=text[1],
        share_of_roof=rate / ceiling,
        shape=problem.shape_label(index),
        intensity=intensity,
        rate=rate,
        ceiling=ceiling,
    )


def _corners(peak: float, bandwidth: float, ridge: float, axes: _Axes) -> tuple[tuple[float, float], ...]:
    """Return the corners of the roof, cut at the edges of the drawing."""
    first = max(10.0 ** axes.x[0], 10.0 ** axes.y[0] * 1e3 / bandwidth)
    return (first, first * bandwidth / 1e3), (ridge, peak), (10.0 ** axes.x[1], peak)


def _log_ticks(axes: _Axes) -> tuple[tuple[Tick, ...], tuple[Tick, ...]]:
    x_ticks = (Tick(axes.place(value, 1.0)[0], f"{value:g}") for value in _round_values(*axes.x))
    y_ticks = (Tick(axes.place(1.0, value)[1], f"{value:g}") for value in _round_values(*axes.y))
    return tuple(x_ticks), tuple(y_ticks)


def _round_values(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between two logarithms, only the powers where they would crowd."""
    steps = (1, 2, 5) if high - low < 3 else (1,)
    values = [step * 10.0**power for power in range(math.floor(low), math.ceil(high)) for step in steps]
    return [value for value in values if low <= math.log10(value) <= high]


def _roof_summary(points: tuple[RoofPoint, ...], problem: Problem) -> str:
    best, worst = max(points, key=lambda point: point.share_of_roof), min(points, key=lambda point: point.share_of_roof)
    return (
        f"Best published rate on each shape, numbered as in the table, under the roof of current peaks. "
        f"Nearest: shape {best.number} at {best.share_of_roof:.0%} of its roof; farthest: shape {worst.number} at "
        f"{worst.share_of_roof:.0%}."
        + (
            " Rates count the deck's nominal work, of which a kernel may skip some."
            if problem.metric.may_exceed_one
            else ""
        )
    )
