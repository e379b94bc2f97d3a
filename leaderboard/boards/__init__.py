"""The read side: every page, API answer, export and feed shows what these functions return, and nothing else."""

from leaderboard.boards.cells import Cell, EntrantView, Reason, latest_release, read_cells
from leaderboard.boards.matrix import Board, BoardRow, read_board, read_boards
from leaderboard.boards.runs import RunView, list_runs, page_after, read_run, run_cursor, summarise, visible_runs

__all__ = [
    "Board",
    "BoardRow",
    "Cell",
    "EntrantView",
    "Reason",
    "RunView",
    "latest_release",
    "list_runs",
    "page_after",
    "read_board",
    "read_boards",
    "read_cells",
    "read_run",
    "run_cursor",
    "summarise",
    "visible_runs",
]
