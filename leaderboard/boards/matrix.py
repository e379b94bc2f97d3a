"""Boards: entrants by problems on one deck and GPU, and all boards at a glance."""

import datetime
from collections import Counter
from dataclasses import dataclass

from grading.hardware import load_gpus
from grading.problem import Deck, Problem, load_decks
from leaderboard.boards.cells import Cell, EntrantView, latest_release, read_cells
from leaderboard.boards.marks import is_verified
from leaderboard.models import Release


@dataclass(frozen=True, slots=True)
class BoardRow:
    """One entrant's cells, by problem; a problem without a cell was never run (or is not public yet)."""

    entrant: EntrantView
    cells: tuple[Cell | None, ...]
    published: int
    mean_share: float | None


@dataclass(frozen=True, slots=True)
class Board:
    """One deck on one GPU, as a release shows it."""

    deck: Deck
    gpu: str
    gpu_name: str
    problems: tuple[Problem, ...]
    rows: tuple[BoardRow, ...]
    counts: dict[str, int]
    release: Release | None
    verified: int = 0

    @property
    def leaders(self) -> list[tuple[Problem, list[Cell]]]:
        """Return each problem with its published cells, best first."""
        return [(problem, self._column(index)) for index, problem in enumerate(self.problems)]

    def _column(self, index: int) -> list[Cell]:
        cells = [row.cells[index] for row in self.rows]
        return sorted(
            (cell for cell in cells if cell is not None and cell.rank is not None),
            key=lambda cell: (-(cell.share_of_best or 0.0), cell.id),
        )


def read_board(
    deck_id: str, gpu: str, at: datetime.datetime, *, release: Release | None = None, sort: str = ""
) -> Board | None:
    """Return one board, or None where the catalogue has no such board. Three queries whatever the number of runs.

    sort  a problem id: order rows by that column; "" = by number of published cells, then by mean share of best
    """
    deck = load_decks().get(deck_id)
    if deck is None or gpu not in deck.gpus:
        return None
    release = release or latest_release()
    return build_board(deck, gpu, read_cells(release, at, deck=deck_id, gpu=gpu), release, sort)


def read_boards(at: datetime.datetime) -> list[Board]:
    """Return every board that has cells, in order of deck and GPU. Three queries whatever their number."""
    release = latest_release()
    by_board: dict[tuple[str, str], list[Cell]] = {}
    for cell in read_cells(release, at):
        by_board.setdefault((cell.deck, cell.gpu), []).append(cell)
    order = [(deck.id, gpu) for deck in load_decks().values() for gpu in deck.gpus]
    known = [key for key in order if key in by_board]
    return [build_board(load_decks()[deck], gpu, by_board[deck, gpu], release, "") for deck, gpu in known]


def build_board(deck: Deck, gpu: str, cells: list[Cell], release: Release | None, sort: str) -> Board:
    """Return a board made of the cells given."""
    with_cells = {cell.problem for cell in cells}
    problems = tuple(p for p in deck.problems.values() if not p.retired or p.id in with_cells)
    by_entrant: dict[str, dict[str, Cell]] = {}
    entrants: dict[str, EntrantView] = {}
    for cell in cells:
        by_entrant.setdefault(cell.entrant.slug, {})[cell.problem] = cell
        entrants[cell.entrant.slug] = cell.entrant
    rows = [
        _row(entrants[slug], tuple(held.get(problem.id) for problem in problems)) for slug, held in by_entrant.items()
    ]
    index = next((i for i, problem in enumerate(problems) if problem.id == sort), None)
    rows.sort(key=lambda row: _sort_key(row, index))
    return Board(
        deck=deck,
        gpu=gpu,
        gpu_name=load_gpus()[gpu].name,
        problems=problems,
        rows=tuple(rows),
        counts=dict(Counter(cell.status for cell in cells)),
        release=release,
        verified=sum(1 for cell in cells if cell.is_published and is_verified(cell.verification)),
    )


def _row(entrant: EntrantView, cells: tuple[Cell | None, ...]) -> BoardRow:
    shares = [cell.share_of_best for cell in cells if cell is not None and cell.share_of_best is not None]
    return BoardRow(
        entrant=entrant,
        cells=cells,
        published=len(shares),
        mean_share=sum(shares) / len(cells) if shares else None,
    )


def _sort_key(row: BoardRow, index: int | None) -> tuple[float, float, str]:
    """Order rows; a missing score is never better than any score."""
    if index is None:
        return -(row.mean_share or 0.0), -row.published, row.entrant.slug
    cell = row.cells[index]
    share = cell.share_of_best if cell is not None else None
    return (1.0 if share is None else 0.0), -(share or 0.0), row.entrant.slug
