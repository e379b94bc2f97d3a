"""A run's shapes as bars against the ceiling, with the interval of the printed digits and what the floor allows."""

from dataclasses import dataclass

from grading.words import counted
from leaderboard.boards.arithmetic import Arithmetic, ShapeRow
from leaderboard.charts.common import Plot, Table, Tick, round_end, round_values

LEFT, RIGHT, TOP, ROW = 8.0, 712.0, 26.0, 44.0
_FAR = 8.0


@dataclass(frozen=True, slots=True)
class ShapeBar:
    """One shape: what the run reached and what the floor allows, as shares of the ceiling."""

    label: str
    y: float
    width: float
    low: float
    high: float
    value: float
    attainable: float | None
    range: tuple[float, float]
    attainable_value: float | None


@dataclass(frozen=True, slots=True)
class ShapeChart:
    """Per-shape values as bars against the ceiling; `summary` says in words what it shows."""

    bars: tuple[ShapeBar, ...]
    ticks: tuple[Tick, ...]
    height: float
    unit: str
    summary: str
    title: str = "Each shape against its floor"
    template: str = "_svg_shapes.html"

    @property
    def key(self) -> tuple[str, ...]:
        """What the signs mean."""
        return (f"Bar: {self.unit}", "Needle: interval of the printed digits", "Dashed: what the floor allows there")

    @property
    def table(self) -> Table:
        """The same as numbers."""
        columns = ("shape", self.unit, "low", "high", "attainable")
        return Table(columns, tuple((bar.label, bar.value, *bar.range, bar.attainable_value) for bar in self.bars))

    @property
    def plot(self) -> Plot:
        """The same for Plotly."""
        labels, values = [bar.label for bar in self.bars], [bar.value for bar in self.bars]
        floors = [bar for bar in self.bars if bar.attainable_value is not None]
        trace = {
            "type": "bar", "orientation": "h", "name": self.unit, "y": labels, "x": values,
            "marker": {"color": "token:bar"},
            "error_x": {
                "type": "data", "symmetric": False, "color": "token:needle",
                "array": [bar.range[1] - bar.value for bar in self.bars],
                "arrayminus": [bar.value - bar.range[0] for bar in self.bars],
            },
        }  # fmt: skip
        marks = {
            "type": "scatter", "mode": "markers", "name": "attainable", "y": [bar.label for bar in floors],
            "x": [bar.attainable_value for bar in floors],
            "marker": {"symbol": "line-ns", "size": 22, "line": {"width": 2, "color": "token:ink"}},
        }  # fmt: skip
        layout = {"xaxis": {"title": {"text": self.unit}}, "yaxis": {"autorange": "reversed", "automargin": True}}
        return {"data": [trace, marks], "layout": layout}


def shape_chart(arithmetic: Arithmetic) -> ShapeChart | None:
    """Return the chart of a run's shapes, or None where fewer than two shapes have a value."""
    rows = [row for row in arithmetic.shapes if row.value is not None and row.value[0] is not None]
    if len(rows) < 2:
        return None
    top = _top(rows)
    scale = (RIGHT - LEFT) / top
    bars = []
    for position, row in enumerate(rows):
        value, low, high = row.value or (0.0, None, None)
        value = value or 0.0
        attainable = _attainable(row)
        bars.append(
            ShapeBar(
                label=row.label,
                y=TOP + position * ROW,
                width=value * scale,
                low=LEFT + (low if low is not None else value) * scale,
                high=LEFT + (high if high is not None else value) * scale,
                value=value,
                attainable=LEFT + attainable * scale if attainable and attainable <= top else None,
                range=(low if low is not None else value, high if high is not None else value),
                attainable_value=attainable,
            )
        )
    return ShapeChart(
        tuple(bars),
        tuple(Tick(LEFT + value * scale, f"{value:g}") for value in round_values(top)),
        TOP + len(bars) * ROW + 4,
        arithmetic.unit,
        _summary(bars),
    )


def _top(rows: list[ShapeRow]) -> float:
    """Return the end of the axis: above all values, and above what the floor allows unless that is far away."""
    highest = max(row.value[2] or row.value[0] or 0.0 for row in rows if row.value)
    allowed = [value for row in rows if (value := _attainable(row)) is not None and value <= highest * _FAR]
    return round_end(max([highest, *allowed]))


def _attainable(row: ShapeRow) -> float | None:
    value, share = row.value[0] if row.value else None, row.share_of_attainable[0] if row.share_of_attainable else None
    return value / share if value and share else None


def _summary(bars: list[ShapeBar]) -> str:
    best, worst = max(bars, key=lambda bar: bar.value), min(bars, key=lambda bar: bar.value)
    shapes = counted(len(bars), "shape")
    return f"{shapes}. Best: {best.label} with {best.value:.4g}. Weakest: {worst.label} with {worst.value:.4g}."
