"""Withheld, failed and withdrawn cells: what is not a result, and why. No score is ever read here."""

import datetime
from collections import Counter
from dataclasses import dataclass

from leaderboard.boards.cells import Cell, Reason, latest_release, read_cells
from leaderboard.models import Release


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """A reason and how many cells have it."""

    reason: Reason
    cells: int


@dataclass(frozen=True, slots=True)
class WithheldView:
    """The cells without a score that match the filters, and all reasons with their numbers.

    cells    in order of deck, GPU, problem and entrant
    reasons  over all such cells, most frequent first, whatever the filters
    """

    cells: tuple[Cell, ...]
    reasons: tuple[ReasonCount, ...]
    boards: tuple[tuple[str, str], ...]
    total: int
    published: int
    release: Release | None


def read_withheld(filters: dict[str, str], at: datetime.datetime) -> WithheldView:
    """Return every cell whose score is not shown; three queries.

    filters  any of board (``deck/gpu``), reason (a code), status (withheld or failed)
    """
    release = latest_release()
    cells = read_cells(release, at)
    hidden = [cell for cell in cells if not cell.is_published]
    return WithheldView(
        cells=tuple(cell for cell in hidden if _matches(cell, filters)),
        reasons=count_reasons(hidden),
        boards=tuple(sorted({(cell.deck, cell.gpu) for cell in hidden})),
        total=len(hidden),
        published=len(cells) - len(hidden),
        release=release,
    )


def count_reasons(cells: list[Cell]) -> tuple[ReasonCount, ...]:
    """Return the reasons of cells with the number of cells that have each, most frequent first."""
    counts = Counter(reason for cell in cells for reason in cell.reasons)
    return tuple(
        ReasonCount(reason, number)
        for reason, number in sorted(counts.items(), key=lambda item: (-item[1], item[0].code))
    )


def _matches(cell: Cell, filters: dict[str, str]) -> bool:
    board, reason, status = (filters.get(name, "") for name in ("board", "reason", "status"))
    return (
        board in ("", f"{cell.deck}/{cell.gpu}")
        and (not reason or any(held.code == reason for held in cell.reasons))
        and status in ("", cell.status)
    )
