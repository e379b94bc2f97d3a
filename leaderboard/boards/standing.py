"""Where a run stands on its board: its place where it backs the cell, or the run that does."""

import datetime
from dataclasses import dataclass

from leaderboard.boards.cells import Cell, latest_release, read_cells
from leaderboard.boards.runs import RunView


@dataclass(frozen=True, slots=True)
class Standing:
    """A run's cell in the latest release.

    cell     the cell of the run's entrant, masked
    is_own   whether this run backs that cell
    ranked   how many published cells the column has
    """

    cell: Cell
    is_own: bool
    ranked: int


def read_standing(view: RunView, at: datetime.datetime) -> Standing | None:
    """Return a run's place on its board, or None where its entrant has no cell there; three queries."""
    run = view.summary
    column = read_cells(latest_release(), at, deck=run.deck, gpu=run.gpu, problem=run.problem)
    cell = next((cell for cell in column if cell.entrant.slug == run.entrant.slug), None)
    if cell is None:
        return None
    return Standing(cell, cell.run_id == run.run_id, sum(1 for other in column if other.is_published))
