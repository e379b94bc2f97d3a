"""Charts: one function gives typed data, the template draws it as a small SVG that reads without JavaScript."""

from dataclasses import dataclass

from leaderboard.boards.arithmetic import Arithmetic

LEFT, RIGHT, TOP, ROW, BAR = 8.0, 712.0, 26.0, 44.0, 14.0


@dataclass(frozen=True, slots=True)
class Tick:
    """One line of an axis, with its label."""

    x: float
    label: str


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


@dataclass(frozen=True, slots=True)
class ShapeChart:
    """Per-shape values as bars against the ceiling; `summary` says in words what it shows."""

    bars: tuple[ShapeBar, ...]
    ticks: tuple[Tick, ...]
    height: float
    unit: str
    summary: str


def shape_chart(arithmetic: Arithmetic) -> ShapeChart | None:
    """Return the chart of a run's shapes, or None where fewer than two shapes have a value."""
    rows = [row for row in arithmetic.shapes if row.value is not None and row.value[0] is not None]
    if len(rows) < 2:
        return None
    top = _ceiling(max(row.value[2] or row.value[0] or 0.0 for row in rows if row.value))
    scale = (RIGHT - LEFT) / top
    bars = []
    for position, row in enumerate(rows):
        value, low, high = row.value or (0.0, None, None)
        value = value or 0.0
        share = row.share_of_attainable[0] if row.share_of_attainable else None
        attainable = value / share if share else None
        bars.append(
            ShapeBar(
                label=row.label,
                y=TOP + position * ROW,
                width=value * scale,
                low=LEFT + (low if low is not None else value) * scale,
                high=LEFT + (high if high is not None else value) * scale,
                value=value,
                attainable=LEFT + attainable * scale if attainable and attainable <= top else None,
            )
        )
    return ShapeChart(tuple(bars), _ticks(top, scale), TOP + len(bars) * ROW + 4, arithmetic.unit, _summary(bars))


def _ceiling(highest: float) -> float:
    """Return a round end of the axis: 1 where all values are fractions near enough to it, else just above."""
    for end in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0):
        if highest <= end:
            return end
    return highest * 1.1


def _ticks(top: float, scale: float) -> tuple[Tick, ...]:
    return tuple(Tick(LEFT + top * part / 4 * scale, f"{top * part / 4:g}") for part in range(5))


def _summary(bars: list[ShapeBar]) -> str:
    best, worst = max(bars, key=lambda bar: bar.value), min(bars, key=lambda bar: bar.value)
    return (
        f"{len(bars)} shapes. Best: {best.label} with {best.value:.4g}. Weakest: {worst.label} with {worst.value:.4g}."
    )
