"""The front page: every board at a glance, in words and in numbers."""

import datetime
from collections import Counter
from dataclasses import dataclass

from grading.problem import Problem
from leaderboard.boards.cells import Cell, EntrantView
from leaderboard.boards.matrix import Board, read_boards
from leaderboard.boards.releases import ChangeCounts, count_changes
from leaderboard.models import Release

SHOWN = 3


@dataclass(frozen=True, slots=True)
class Leader:
    """An entrant and on how many problems of a board it leads or shares the lead."""

    entrant: EntrantView
    leads: int


@dataclass(frozen=True, slots=True)
class Panel:
    """One problem of a board: its best cells, and how many more are published."""

    problem: Problem
    cells: tuple[Cell, ...]
    more: int


@dataclass(frozen=True, slots=True)
class BoardGlance:
    """One board on the front page."""

    board: Board
    leaders: tuple[Leader, ...]
    panels: tuple[Panel, ...]

    @property
    def contested(self) -> int:
        """The number of problems with at least one published cell."""
        return sum(1 for panel in self.panels if panel.cells)


@dataclass(frozen=True, slots=True)
class Home:
    """Everything on the front page; boards with most published cells first."""

    glances: tuple[BoardGlance, ...]
    counts: dict[str, int]
    release: Release | None
    changes: ChangeCounts | None

    @property
    def verified(self) -> int:
        """The number of published cells that we measured again."""
        return sum(glance.board.verified for glance in self.glances)

    @property
    def total(self) -> int:
        """The number of cells that anything is said about."""
        return sum(self.counts.values())


def read_home(at: datetime.datetime) -> Home:
    """Return the front page; five queries whatever the number of runs."""
    boards = read_boards(at)
    counts: Counter[str] = Counter()
    for board in boards:
        counts.update(board.counts)
    release = boards[0].release if boards else None
    busiest = sorted(boards, key=lambda board: -board.counts.get("published", 0))
    return Home(
        glances=tuple(glance_at(board) for board in busiest),
        counts=dict(counts),
        release=release,
        changes=count_changes(release) if release else None,
    )


def glance_at(board: Board) -> BoardGlance:
    """Return a board as the front page shows it."""
    panels = tuple(Panel(problem, tuple(cells[:SHOWN]), max(0, len(cells) - SHOWN)) for problem, cells in board.leaders)
    return BoardGlance(board, leaders_of(board), panels)


def leaders_of(board: Board, limit: int = 3) -> tuple[Leader, ...]:
    """Return who leads, or shares the lead, on the most problems of a board."""
    leads: Counter[str] = Counter()
    entrants = {row.entrant.slug: row.entrant for row in board.rows}
    for row in board.rows:
        firsts = sum(1 for cell in row.cells if cell is not None and cell.rank is not None and cell.rank[0] == 1)
        if firsts:
            leads[row.entrant.slug] = firsts
    ordered = sorted(leads.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Leader(entrants[slug], count) for slug, count in ordered[:limit])
