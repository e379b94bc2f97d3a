"""Filters over boards and lists: which rows remain, and what may be chosen."""

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Exists, OuterRef

from grading.hardware import load_gpus
from grading.problem import load_decks
from grading.source.framework import FRAMEWORKS
from leaderboard.boards.cells import Cell
from leaderboard.boards.marks import is_verified
from leaderboard.boards.matrix import Board, BoardRow
from leaderboard.boards.memo import Memo
from leaderboard.boards.runs import visible_assessments, visible_runs
from leaderboard.models import Assessment, Entrant

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
BOARD_FILTERS = ("lab", "harness", "framework", "verified", "since")
STATUSES = ("published", "withheld", "failed")


@dataclass(frozen=True, slots=True)
class Choice:
    """One filter of a form: its parameter, label and (value, text) options."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]


VERIFIED = Choice("verified", "Verified by us", (("true", "yes"), ("false", "no")))
_choices: Memo[tuple[Choice, ...]] = Memo(2)


@dataclass(frozen=True, slots=True)
class FilteredBoard:
    """The rows of a board that remain, and the filters over all its rows. Ranks stay those of the whole board."""

    rows: tuple[BoardRow, ...]
    options: tuple[Choice, ...]


def filter_board(
    board: Board, *, lab: str, harness: str, framework: str = "", verified: str = "", since: str = ""
) -> FilteredBoard:
    """Return the rows of one lab and one harness that have a cell which matches the rest; an empty text means all.

    framework  a word of `FRAMEWORKS`
    verified   ``true`` or ``false``: whether the cell carries our mark
    since      ``2026-07-01``; what is no date means all. A run without a start is dated by the stamp in its id
    """
    labs = sorted({row.entrant.lab for row in board.rows if row.entrant.lab})
    harnesses = sorted({row.entrant.harness for row in board.rows})
    stamp = since.replace("-", "") if _DATE.fullmatch(since) else ""
    rows = tuple(
        row
        for row in board.rows
        if lab in ("", row.entrant.lab)
        and harness in ("", row.entrant.harness)
        and any(_is_wanted(cell, framework, verified, stamp) for cell in row.cells if cell is not None)
    )
    named = _same("lab", "Lab", labs), _same("harness", "Harness", harnesses)
    return FilteredBoard(rows, (*named, _frameworks(_held(board)), VERIFIED))


def _is_wanted(cell: Cell, framework: str, verified: str, stamp: str) -> bool:
    is_marked = verified not in ("true", "false") or is_verified(cell.verification) == (verified == "true")
    return is_marked and framework in (cell.framework or "") and _stamp(cell) >= stamp


def _held(board: Board) -> set[str]:
    return {cell.framework for row in board.rows for cell in row.cells if cell is not None and cell.framework}


def _frameworks(held: Iterable[str]) -> Choice:
    """Return the choice among the single words of what runs are written in."""
    words = {word for text in held for word in text.split("+")}
    return _same("framework", "Written in", [word for word in FRAMEWORKS if word in words])


def _stamp(cell: Cell) -> str:
    return cell.started_at.strftime("%Y%m%d") if cell.started_at else cell.run_id[:8]


def run_choices(at: datetime.datetime, *, is_staff: bool = False) -> tuple[Choice, ...]:
    """Return the filters of the list of runs, over runs that this reader may know of; two queries, three at most."""
    return _read_choices(at, True) if is_staff else _choices.get(at, None, lambda: _read_choices(at, False))


def _read_choices(at: datetime.datetime, is_staff: bool) -> tuple[Choice, ...]:
    runs = visible_runs(at, is_staff=is_staff).filter(entrant=OuterRef("pk"))
    named = Entrant.objects.filter(Exists(runs)).values_list("model__slug", "model__name", "harness")
    entrants = set(named.order_by())
    judged = Assessment.objects.all() if is_staff else visible_assessments()
    said = set(judged.values_list("verdict", "framework").distinct().order_by())
    models = {(slug, name) for slug, name, _ in entrants}
    problems = [(problem.id, problem.key) for deck in load_decks().values() for problem in deck.problems.values()]
    return (
        Choice("deck", "Deck", tuple((deck.id, deck.title) for deck in load_decks().values())),
        Choice("gpu", "GPU", tuple((gpu.key, gpu.name) for gpu in load_gpus().values())),
        Choice("problem", "Problem", tuple(problems)),
        Choice("model", "Model", tuple(sorted(models, key=lambda pair: str(pair[1]).casefold()))),
        _same("harness", "Harness", sorted({harness for *_, harness in entrants})),
        _frameworks(framework for _, framework in said if framework),
        VERIFIED,
        _same("verdict", "Audit", sorted({verdict for verdict, _ in said if verdict})),
        _same("status", "Status", [*STATUSES, "pending"] if is_staff else list(STATUSES)),
    )


def _same(name: str, label: str, values: list[str]) -> Choice:
    return Choice(name, label, tuple((value, value) for value in values))
