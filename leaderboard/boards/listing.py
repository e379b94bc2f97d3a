"""Lists for machines: cells and runs that match, in a total order that a cursor can continue."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db.models import Case, F, FloatField, Q, QuerySet, Value, When

from leaderboard.boards.cells import Cell, read_cells
from leaderboard.boards.runs import list_runs, shown_filter
from leaderboard.boards.state import State
from leaderboard.models import Release, ReleasedCell, Run

Key = float | str | None
CELL_SORTS: dict[str, Callable[[Cell], Key]] = {
    "id": lambda cell: cell.id,
    "deck": lambda cell: cell.deck,
    "gpu": lambda cell: cell.gpu,
    "problem": lambda cell: cell.problem,
    "model": lambda cell: cell.entrant.model_slug,
    "run_id": lambda cell: cell.run_id,
    "rank": lambda cell: float(cell.rank[0]) if cell.rank else None,
    "score": lambda cell: cell.score,
    "share_of_best": lambda cell: cell.share_of_best,
}
RUN_SORTS = ("run_id", "score")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a list stopped: the last row's sort value (None = it had none) and its id."""

    value: Key
    id: str


class CellMemory:
    """The cells of the last few releases asked for, each under the state it was read in; a new state reads anew."""

    def __init__(self) -> None:
        self._read = lru_cache(maxsize=4)(self._read_now)
        self._at = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def read(self, state: State, release: Release | None, at: datetime.datetime) -> tuple[Cell, ...]:
        """Return all cells of a release as the state has them."""
        return self._read(state.token, release.pk if release else None, _Moment(at))

    @staticmethod
    def _read_now(token: str, release: int | None, moment: "_Moment") -> tuple[Cell, ...]:
        found = Release.objects.filter(pk=release).first() if release is not None else None
        return tuple(read_cells(found, moment.at))


class _Moment:
    """A time that does not count in a cache key: the state's token already tells what has expired."""

    def __init__(self, at: datetime.datetime) -> None:
        self.at = at

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Moment)

    def __hash__(self) -> int:
        return 0


