"""Social cards of a board and of a run: 1200 by 630 pixels, the size that link previews ask for."""

from leaderboard.boards import Board, Cell, RunView
from leaderboard.boards.home import leaders_of
from leaderboard.boards.standing import Standing
from leaderboard.context import NAME, TAGLINE
from leaderboard.raster import ADVANCE, Canvas, fit
from leaderboard.templatetags.proofline import range_text, state

WIDTH, HEIGHT, EDGE = 1200, 630, 64
_PALETTE = [
    (12, 22, 34),
    (233, 240, 247),
    (147, 165, 184),
    (34, 53, 74),
    (79, 151, 212),
    (255, 138, 92),
    (142, 199, 245),
]
_INK, _MUTED, _LINE, _BAR, _NEEDLE, _DRAW = 1, 2, 3, 4, 5, 6
_ROOM = WIDTH - 2 * EDGE


def board_card(board: Board) -> bytes:
    """Return a board's card: who leads, and the best of each problem as bars of their share of the best."""
    whole = f"{board.deck.title} on {board.gpu_name}"
    canvas = _frame(whole if len(whole) * ADVANCE * 5 <= _ROOM else f"{board.deck.title} on {board.gpu}")
    counts = ", ".join(f"{board.counts.get(status, 0)} {status}" for status in ("published", "withheld", "failed"))
    canvas.write(EDGE, 176, counts, 4, _MUTED)
    leaders = leaders_of(board, 1)
    if leaders:
        text = f"{leaders[0].entrant.label} leads or ties on {leaders[0].leads}"
        canvas.write(EDGE, 230, fit(text, _ROOM, 4), 4, _INK)
    rows = [(problem.title, cells[0]) for problem, cells in board.leaders if cells][:5]
    for index, (title, cell) in enumerate(rows):
        top = 296 + index * 50
        canvas.write(EDGE, top, fit(title, 430, 3), 3, _INK)
        canvas.write(EDGE + 440, top, fit(cell.entrant.model_name, 420, 3), 3, _MUTED)
        score = f"{cell.score:.{cell.metric.decimals}f}"
        canvas.write(WIDTH - EDGE - len(score) * ADVANCE * 3, top, score, 3, _NEEDLE, is_bold=True)
        canvas.box(EDGE, top + 34, _ROOM, 2, _LINE)
    return canvas.png()


def run_card(view: RunView, standing: Standing | None) -> bytes:
    """Return a run's card: its score with its interval and rank, or the word for what it is instead of a result."""
    run = view.summary
    canvas = _frame(run.entrant.label)
    canvas.write(EDGE, 176, fit(f"{run.problem_title} on {run.gpu}", _ROOM, 4), 4, _MUTED)
    if run.score is None or run.low is None or run.high is None:
        canvas.write(EDGE, 270, f"{state(run).upper()}: NOT A RESULT", 7, _NEEDLE)
        for index, reason in enumerate(run.reasons[:3]):
            canvas.write(EDGE, 370 + 44 * index, fit(reason.message, _ROOM, 4), 4, _INK)
        return canvas.png()
    end = canvas.write(EDGE, 260, f"{run.score:.{run.decimals}f}", 14, _INK, is_bold=True)
    canvas.write(end + 12, 326, fit(view.problem.metric.unit, WIDTH - EDGE - end, 4), 4, _MUTED)
    text = f"interval {range_text(run.low, run.high, run.decimals)}, from its own log"
    canvas.write(EDGE, 404, fit(text, _ROOM, 4), 4, _MUTED)
    if standing is not None and standing.is_own and standing.cell.rank:
        canvas.write(EDGE, 456, _rank_words(standing.cell, standing.ranked), 4, _INK)
        share = standing.cell.share_of_best or 0.0
        canvas.box(EDGE, 510, _ROOM, 12, _LINE)
        canvas.box(EDGE, 510, _ROOM * share, 12, _BAR)
        canvas.box(EDGE + _ROOM * share - 3, 502, 6, 28, _NEEDLE)
    return canvas.png()


def _rank_words(cell: Cell, ranked: int) -> str:
    low, high = cell.rank or (0, 0)
    place = f"rank {low}" if low == high else f"rank {low} to {high}"
    return f"{place} of {ranked}, {(cell.share_of_best or 0.0) * 100:.1f}% of the best"


def _frame(title: str) -> Canvas:
    canvas = Canvas(WIDTH, HEIGHT, _PALETTE)
    for x in range(0, WIDTH, 12):
        canvas.box(x, 0, 1, 22 if x % 120 == 0 else 10, _MUTED)
    canvas.write(EDGE, 52, NAME, 4, _DRAW, is_bold=True)
    size = 7 if len(title) * ADVANCE * 7 <= _ROOM else 5
    canvas.write(EDGE, 104, fit(title, _ROOM, size), size, _INK, is_bold=True)
    canvas.box(0, HEIGHT - 72, WIDTH, 2, _NEEDLE)
    canvas.write(EDGE, HEIGHT - 48, TAGLINE, 3, _MUTED)
    return canvas
