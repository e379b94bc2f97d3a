"""Lists for machines: cells and runs that match, in a total order that a cursor can continue."""

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, F, FloatField, Q, QuerySet, When

from leaderboard import selection
from leaderboard.boards.cells import Cell
from leaderboard.boards.marks import is_verified, with_mark
from leaderboard.boards.runs import list_runs, shown_filter
from leaderboard.models import Run

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
NUMBER_SORTS = frozenset({"rank", "score", "share_of_best"})
RUN_SORTS = ("run_id", "score")
_CELL_FILTERS: dict[str, Callable[[Cell], str | None]] = {
    "deck": lambda cell: cell.deck,
    "gpu": lambda cell: cell.gpu,
    "problem": lambda cell: cell.problem,
    "model": lambda cell: cell.entrant.model_slug,
    "lab": lambda cell: cell.entrant.lab,
    "harness": lambda cell: cell.entrant.harness,
    "effort": lambda cell: cell.entrant.effort,
    "status": lambda cell: cell.status,
    "verdict": lambda cell: cell.audit.verdict if cell.audit else None,
}
_RUN_COLUMNS = {"lab": "entrant__model__lab", "effort": "entrant__effort"}


@dataclass(frozen=True, slots=True)
class Position:
    """Where a list stopped: the last row's sort value (None where it had none) and its id."""

    value: Key
    id: str


def filter_cells(cells: Iterable[Cell], filters: Mapping[str, Any]) -> list[Cell]:
    """Return the cells that match every filter given; a filter that is None does not count.

    filters  any of the names in `_CELL_FILTERS`, reason (a code), framework (a word of
             `FRAMEWORKS`), verified (true or false), since (a time; runs started then or later)
    """
    wanted = [(_CELL_FILTERS[name], filters[name]) for name in _CELL_FILTERS if filters.get(name) is not None]
    reason, since, framework, verified = (filters.get(name) for name in ("reason", "since", "framework", "verified"))
    return [
        cell
        for cell in cells
        if all(read(cell) == value for read, value in wanted)
        and (reason is None or any(held.code == reason for held in cell.reasons))
        and (verified is None or is_verified(cell.verification) == verified)
        and (framework is None or framework in (cell.framework or ""))
        and (since is None or (cell.started_at is not None and cell.started_at >= since))
    ]


def sort_cells(cells: Sequence[Cell], sort: str) -> list[Cell]:
    """Return cells by a key of `CELL_SORTS`, with ``-`` before it descending; a missing value is last either way."""
    read, sign = CELL_SORTS[sort.lstrip("-")], sort.startswith("-")
    valued = sorted((cell for cell in cells if read(cell) is not None), key=lambda cell: cell.id)
    valued.sort(key=lambda cell: read(cell), reverse=sign)  # type: ignore[arg-type, return-value]
    return valued + sorted((cell for cell in cells if read(cell) is None), key=lambda cell: cell.id)


def cells_after(ordered: Sequence[Cell], sort: str, position: Position) -> list[Cell]:
    """Return the cells of a sorted list that stand after a position, whether or not its row is still there."""
    read, is_descending = CELL_SORTS[sort.lstrip("-")], sort.startswith("-")

    def is_after(cell: Cell) -> bool:
        value = read(cell)
        if value == position.value:
            return cell.id > position.id
        if value is None or position.value is None:
            return value is None
        return (value < position.value) if is_descending else (value > position.value)  # type: ignore[operator]

    return [cell for cell in ordered if is_after(cell)]


def select_runs(filters: Mapping[str, Any], at: datetime.datetime) -> QuerySet[Run]:
    """Return the visible runs that match, each with `shown_score`, which is null unless the score may be shown.

    filters  what `list_runs` takes, and lab, effort (also empty), reason (a finding's code),
             since
    """
    texts = {name: value for name, value in filters.items() if isinstance(value, str)}
    runs = list_runs(texts, at).annotate(
        shown_score=Case(When(shown_filter(at), then="assessment__score"), default=None, output_field=FloatField())
    )
    if filters.get("verified") is not None:
        runs = with_mark(runs, is_wanted=filters["verified"])
    for name, column in _RUN_COLUMNS.items():
        if filters.get(name) is not None:
            runs = runs.filter(**{column: filters[name]})
    if filters.get("reason") is not None:
        runs = runs.filter(_has_reason(filters["reason"], at)).exclude(shown_filter(at))
    if filters.get("since") is not None:
        runs = runs.filter(started_at__gte=filters["since"])
    return runs


def _has_reason(code: str, at: datetime.datetime) -> Q:
    """Return which runs that are not shown give a code among their reasons, as `selection.reason_codes` does."""
    if code == selection.WITHDRAWN:
        return Q(publication__state="withdrawn")
    if code == selection.REJECTED:
        return Q(publication__state="rejected")
    if code == selection.EXPIRED:
        return Q(assessment__valid_until__lte=at, assessment__blockers=[])
    return Q(assessment__blockers__icontains=f'"{code}"')


def sort_runs(runs: QuerySet[Run], sort: str) -> QuerySet[Run]:
    """Return runs by run id or by the score that is shown; what has none is last either way."""
    is_descending, key = sort.startswith("-"), sort.lstrip("-")
    if key == "score":
        column = F("shown_score")
        first = column.desc(nulls_last=True) if is_descending else column.asc(nulls_last=True)
        return runs.order_by(first, "run_id", "deck", "gpu")
    return runs.order_by(*(["-run_id"] if is_descending else ["run_id"]), "deck", "gpu")


def runs_after(runs: QuerySet[Run], sort: str, position: Position) -> QuerySet[Run]:
    """Return the runs of a sorted list that stand after a position whose id is ``run_id|deck|gpu``."""
    is_descending, key = sort.startswith("-"), sort.lstrip("-")
    run_id, deck, gpu = (*position.id.split("|"), "", "")[:3]
    same = Q(run_id=run_id, deck__gt=deck) | Q(run_id=run_id, deck=deck, gpu__gt=gpu)
    if key == "run_id":
        return runs.filter(same | (Q(run_id__lt=run_id) if is_descending else Q(run_id__gt=run_id)))
    tied = same | Q(run_id__gt=run_id)
    if not isinstance(position.value, float):
        return runs.filter(Q(shown_score=None) & tied)
    beyond = Q(shown_score__lt=position.value) if is_descending else Q(shown_score__gt=position.value)
    return runs.filter(beyond | (Q(shown_score=position.value) & tied) | Q(shown_score=None))
