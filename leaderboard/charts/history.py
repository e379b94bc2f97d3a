"""A problem's results over time, and how they spread: both from published cells, with the baselines as lines."""

import datetime
from dataclasses import dataclass
from statistics import median

from grading.problem import Metric
from leaderboard.boards.cells import Cell
from leaderboard.boards.problems import Standings
from leaderboard.charts.common import Plot, Table, Tick, round_end, round_values

LEFT, RIGHT, TOP, BOTTOM = 52.0, 606.0, 22.0, 250.0
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Dot:
    """One published cell. `is_first` says that it was the best when it was run."""

    label: str
    day: datetime.date
    score: float
    x: float
    y: float
    is_first: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A baseline: its score, and where its line and its name stand."""

    label: str
    score: float
    at: float
    text_at: float


@dataclass(frozen=True, slots=True)
class FrontierChart:
    """The best published score over time."""

    dots: tuple[Dot, ...]
    lines: tuple[Line, ...]
    path: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    unit: str
    summary: str
    title: str = "Best over time"
    template: str = "_svg_frontier.html"

    @property
    def table(self) -> Table:
        """The same as numbers."""
        rows = tuple((dot.day.isoformat(), dot.label, dot.score, "yes" if dot.is_first else "no") for dot in self.dots)
        return Table(("date of run", "entrant", self.unit, "best then"), rows)

    @property
    def plot(self) -> Plot:
        """The same for Plotly."""
        firsts = [dot for dot in self.dots if dot.is_first]
        days = [self.dots[0].day.isoformat(), self.dots[-1].day.isoformat()]
        best = {
            "type": "scatter", "mode": "lines", "name": "best so far", "line": {"shape": "hv", "color": "token:draw"},
            "x": [*(dot.day.isoformat() for dot in firsts), days[1]],
            "y": [*(dot.score for dot in firsts), firsts[-1].score], "hoverinfo": "skip",
        }  # fmt: skip
        dots = {
            "type": "scatter", "mode": "markers", "name": "published", "marker": {"color": "token:bar", "size": 9},
            "x": [dot.day.isoformat() for dot in self.dots], "y": [dot.score for dot in self.dots],
            "text": [dot.label for dot in self.dots],
        }  # fmt: skip
        lines = [
            {"type": "scatter", "mode": "lines", "name": line.label, "x": days, "y": [line.score] * 2,
             "line": {"dash": "dash", "color": "token:ink-2"}}
            for line in self.lines
        ]  # fmt: skip
        layout = {"xaxis": {"type": "date"}, "yaxis": {"title": {"text": self.unit}, "rangemode": "tozero"}}
        return {"data": [best, dots, *lines], "layout": layout}


@dataclass(frozen=True, slots=True)
class SpreadChart:
    """All published scores on one axis."""

    dots: tuple[Dot, ...]
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    height: float
    unit: str
    summary: str
    title: str = "Spread of published scores"
    template: str = "_svg_spread.html"

    @property
    def table(self) -> Table:
        """The same as numbers."""
        rows = [(dot.label, dot.score, "") for dot in self.dots] + [
            (line.label, line.score, "yes") for line in self.lines
        ]
        return Table(("entrant", self.unit, "baseline"), tuple(rows))

    @property
    def plot(self) -> Plot:
        """The same for Plotly."""
        box = {
            "type": "box", "name": "published", "x": [dot.score for dot in self.dots], "boxpoints": "all",
            "jitter": 0.4,
            "text": [dot.label for dot in self.dots], "marker": {"color": "token:bar"}, "line": {"color": "token:draw"},
        }  # fmt: skip
        marks = {
            "type": "scatter", "mode": "markers+text", "name": "baselines", "x": [line.score for line in self.lines],
            "y": ["baselines"] * len(self.lines), "text": [line.label for line in self.lines],
            "textposition": "top center",
            "marker": {"symbol": "line-ns", "size": 20, "line": {"width": 2, "color": "token:ink"}},
        }  # fmt: skip
        layout = {"xaxis": {"title": {"text": self.unit}, "rangemode": "tozero"}, "yaxis": {"automargin": True}}
        return {"data": [box, marks], "layout": layout}


def frontier_chart(metric: Metric, standing: Standings) -> FrontierChart | None:
    """Return the chart of the best score over time, or None where fewer than two entrants have one."""
    cells = sorted((cell for cell in standing.ranked if not cell.entrant.is_baseline), key=lambda c: (_day(c), c.id))
    if len(cells) < 2:
        return None
    first, last = _day(cells[0]), _day(cells[-1])
    days = max((last - first).days, 1)
    top = round_end(max(cell.score or 0.0 for cell in standing.ranked))
    dots: list[Dot] = []
    best: float | None = None
    for cell in cells:
        score = cell.score or 0.0
        is_first = best is None or (score > best if metric.higher_is_better else score < best)
        best = score if is_first else best
        x = _along((_day(cell) - first).days / days)
        dots.append(Dot(cell.entrant.label, _day(cell), score, x, _height(score, top), is_first))
    return FrontierChart(
        dots=tuple(dots),
        lines=_lines(standing, top, is_across=False),
        path=_steps([dot for dot in dots if dot.is_first]),
        x_ticks=tuple(Tick(_along(part), _date_label(first, days * part)) for part in (0, 0.5, 1)),
        y_ticks=tuple(Tick(_height(value, top), f"{value:g}") for value in round_values(top)),
        unit=metric.unit,
        summary=_frontier_summary(dots, metric) + _mark(standing),
    )


def spread_chart(metric: Metric, standing: Standings) -> SpreadChart | None:
    """Return the chart of how published scores spread, or None where fewer than three entrants have one."""
    cells = [cell for cell in standing.ranked if not cell.entrant.is_baseline]
    if len(cells) < 3:
        return None
    top = round_end(max(cell.score or 0.0 for cell in standing.ranked))
    dots = tuple(
        Dot(cell.entrant.label, _day(cell), cell.score or 0.0, _across(cell.score or 0.0, top), 46.0, index == 0)
        for index, cell in enumerate(cells)
    )
    lines = _lines(standing, top, is_across=True)
    ticks = tuple(Tick(_across(value, top), f"{value:g}") for value in round_values(top))
    return SpreadChart(dots, lines, ticks, 84.0 + 18 * len(lines), metric.unit, _spread_summary(cells, lines, metric))


def _day(cell: Cell) -> datetime.date:
    """Return the date of a cell's run: when it started, or else the stamp in its id."""
    if cell.started_at is not None:
        return cell.started_at.date()
    return datetime.date(int(cell.run_id[:4]), int(cell.run_id[4:6]), int(cell.run_id[6:8]))


def _height(score: float, top: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * min(score / top, 1.0)


def _along(part: float) -> float:
    return LEFT + 10 + (RIGHT - LEFT - 20) * part


def _across(score: float, top: float) -> float:
    return 16 + 588 * min(score / top, 1.0)


def _date_label(first: datetime.date, days: float) -> str:
    return (first + datetime.timedelta(days=round(days))).isoformat()


def _lines(standing: Standings, top: float, *, is_across: bool) -> tuple[Line, ...]:
    """Return the baselines, their names kept apart from each other."""
    cells = sorted((cell for cell in standing.ranked if cell.entrant.is_baseline), key=lambda c: -(c.score or 0.0))
    lines: list[Line] = []
    for index, cell in enumerate(cells):
        score = cell.score or 0.0
        at = _across(score, top) if is_across else _height(score, top)
        text_at = 96.0 + 18 * index if is_across else max(at - 4, lines[-1].text_at + 13 if lines else TOP + 8)
        lines.append(Line(cell.entrant.model_name, score, at, text_at))
    return tuple(lines)


def _steps(firsts: list[Dot]) -> str:
    path = f"M{firsts[0].x:.1f} {firsts[0].y:.1f}"
    for dot in firsts[1:]:
        path += f"H{dot.x:.1f}V{dot.y:.1f}"
    return f"{path}H{RIGHT:.0f}"


def _frontier_summary(dots: list[Dot], metric: Metric) -> str:
    firsts = [dot for dot in dots if dot.is_first]
    first, last = (f"{dot.score:.{metric.decimals}f} ({dot.label}, {dot.day})" for dot in (firsts[0], firsts[-1]))
    if len(firsts) == 1:
        return f"No later published run beat the first one, {first}."
    return f"{len(firsts)} published runs set a new best: from {first} to {last}."


def _spread_summary(cells: list[Cell], lines: tuple[Line, ...], metric: Metric) -> str:
    scores = [cell.score or 0.0 for cell in cells]
    low, high, middle = (f"{value:.{metric.decimals}f}" for value in (min(scores), max(scores), median(scores)))
    text = f"{len(scores)} published entrants between {low} and {high}; the median is {middle}."
    return text + (" Dashed: baselines." if lines else "")


def _mark(standing: Standings) -> str:
    return " Dashed: baselines." if any(cell.entrant.is_baseline for cell in standing.ranked) else ""
