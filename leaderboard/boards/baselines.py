"""Baselines of a problem: kernels that no language model wrote, and how many models beat each."""

from dataclasses import dataclass

from leaderboard.boards.cells import Cell
from leaderboard.boards.problems import Standings


@dataclass(frozen=True, slots=True)
class BaselineLine:
    """One published baseline. `beaten_by` counts models beyond doubt, `level` those whose interval touches its own."""

    cell: Cell
    models: int
    beaten_by: int
    level: int


def list_baselines(standing: Standings) -> tuple[BaselineLine, ...]:
    """Return the published baselines on a GPU, best first; nothing where no model stands beside them."""
    models = [cell for cell in standing.ranked if not cell.entrant.is_baseline]
    if not models:
        return ()
    return tuple(_line(cell, models) for cell in standing.ranked if cell.entrant.is_baseline)


def _line(baseline: Cell, models: list[Cell]) -> BaselineLine:
    sign = 1.0 if baseline.metric.higher_is_better else -1.0
    low, high = _span(baseline, sign)
    spans = [_span(cell, sign) for cell in models]
    beaten = sum(1 for span in spans if span[0] > high)
    level = sum(1 for span in spans if span[0] <= high and span[1] >= low)
    return BaselineLine(baseline, len(models), beaten, level)


def _span(cell: Cell, sign: float) -> tuple[float, float]:
    ends = (sign * (cell.low or 0.0), sign * (cell.high or 0.0))
    return min(ends), max(ends)
