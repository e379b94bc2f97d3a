"""Filters over boards and lists: which rows remain, and what may be chosen."""

import datetime
import re
from dataclasses import dataclass

from grading.hardware import load_gpus
from grading.problem import load_decks
from leaderboard.boards.cells import Cell
from leaderboard.boards.matrix import Board, BoardRow
from leaderboard.boards.memo import Memo
from leaderboard.boards.runs import visible_runs

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
STATUSES = ("published", "withheld", "failed")


@dataclass(frozen=True, slots=True)
class Choice:
    """One filter of a form: its parameter, label and (value, text) options."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]


_choices: Memo[tuple[Choice, ...]] = Memo(2)


@dataclass(frozen=True, slots=True)
class FilteredBoard:
    """The rows of a board that remain, and the filters over all its rows. Ranks stay those of the whole board."""

    rows: tuple[BoardRow, ...]
    options: tuple[Choice, ...]


def filter_board(board: Board, *, lab: str, harness: str, since: str = "") -> FilteredBoard:
    """Return a board's rows of one lab and one harness with a run since a date; an empty text means all.

    since  ``2026-07-01``; what is no date means all. A run without a start is dated by the stamp in its id.
    """
    labs = sorted({row.entrant.lab for row in board.rows if row.entrant.lab})
    harnesses = sorted({row.entrant.harness for row in board.rows})
    stamp = since.replace("-", "") if _DATE.fullmatch(since) else ""
    rows = tuple(
        row
        for row in board.rows
        if lab in ("", row.entrant.lab)
        and harness in ("", row.entrant.harness)
        and any(cell is not None and _stamp(cell) >= stamp for cell in row.cells)
    )
    return FilteredBoard(rows, (_same("lab", "Lab", labs), _same("harness", "Harness", harnesses)))


def _stamp(cell: Cell) -> str:
    return cell.started_at.strftime("%Y%m%d") if cell.started_at else cell.run_id[:8]


def run_choices(at: datetime.datetime, *, is_staff: bool = False) -> tuple[Choice, ...]:
    """Return the filters of the list of runs, over runs that this reader may know of; one query, two at most."""
    return _read_choices(at, True) if is_staff else _choices.get(at, None, lambda: _read_choices(at, False))


def _read_choices(at: datetime.datetime, is_staff: bool) -> tuple[Choice, ...]:
    runs = visible_runs(at, is_staff=is_staff).order_by()
    columns = ("entrant__model__slug", "entrant__model__name", "entrant__harness", "assessment__verdict")
    rows = set(runs.values_list(*columns).distinct())
    models = {(slug, name) for slug, name, _, _ in rows}
    problems = [(problem.id, problem.key) for deck in load_decks().values() for problem in deck.problems.values()]
    return (
        Choice("deck", "Deck", tuple((deck.id, deck.title) for deck in load_decks().values())),
        Choice("gpu", "GPU", tuple((gpu.key, gpu.name) for gpu in load_gpus().values())),
        Choice("problem", "Problem", tuple(problems)),
        Choice("model", "Model", tuple(sorted(models, key=lambda pair: str(pair[1]).casefold()))),
        _same("harness", "Harness", sorted({harness for _, _, harness, _ in rows})),
        _same("verdict", "Audit", sorted({verdict for *_, verdict in rows if verdict})),
        _same("status", "Status", [*STATUSES, "pending"] if is_staff else list(STATUSES)),
    )


def _same(name: str, label: str, values: list[str]) -> Choice:
    return Choice(name, label, tuple((value, value) for value in values))
