"""Small pictures made on the server: a badge for one cell, and a chart of one column of a board."""

from collections.abc import Sequence
from html import escape

from leaderboard.boards import Cell
from leaderboard.context import NAME

_GREEN, _GREY, _DARK = "#1a7f4b", "#7a7a7a", "#3b3b3b"
_CHARACTER = 6.6
_CONTROL = {code: 0xFFFD for code in (*range(32), 127, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)}


def clean(text: str) -> str:
    """Return a text as XML can hold it, escaped."""
    return escape(text.translate(_CONTROL))


def score_text(cell: Cell) -> str:
    """Return a cell's score as the boards print it, or its status where it has none."""
    if cell.score is None:
        return cell.status
    unit = "" if cell.metric.unit in ("", "fraction") else f" {cell.metric.unit}"
    return f"{cell.score:.{cell.metric.decimals}f}{unit}"


def badge(cell: Cell | None, message: str | None = None) -> str:
    """Return the badge of a cell: green with its score and rank, or grey with its status."""
    if cell is None:
        return _badge(NAME, message or "unknown", _GREY)
    if cell.score is None or cell.rank is None:
        return _badge(f"{cell.problem} on {cell.gpu}", cell.status, _GREY)
    low, high = cell.rank
    place = f"#{low}" if low == high else f"#{low}–{high}"
    return _badge(f"{cell.problem} on {cell.gpu}", f"{score_text(cell)} · {place}", _GREEN)


def _badge(label: str, message: str, colour: str) -> str:
    left, right = (round(len(text) * _CHARACTER) + 14 for text in (label, message))
    width, title = left + right, clean(f"{label}: {message}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<rect width="{left}" height="20" fill="{_DARK}"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">{clean(label)}</text>'
        f'<text x="{left + right / 2}" y="14">{clean(message)}</text></g></svg>'
    )


def column_chart(title: str, cells: Sequence[Cell]) -> str:
    """Return the published cells of one column as bars of their share of the best, best first."""
    ranked = sorted((cell for cell in cells if cell.share_of_best is not None), key=lambda cell: (cell.rank, cell.id))
    height = 48 + 24 * max(len(ranked), 1)
    rows = [_bar(index, cell) for index, cell in enumerate(ranked)]
    body = "".join(rows) or '<text x="12" y="52">No published result</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{height}" role="img" aria-label="{clean(title)}">'
        f"<title>{clean(title)}</title>"
        f'<rect width="720" height="{height}" fill="#fff"/>'
        f'<g fill="#1b1b1b" font-family="Verdana,DejaVu Sans,sans-serif" font-size="12">'
        f'<text x="12" y="24" font-weight="bold">{clean(title)}</text>{body}</g></svg>'
    )


def _bar(index: int, cell: Cell) -> str:
    top, length = 36 + 24 * index, round(360 * (cell.share_of_best or 0.0), 1)
    label = cell.entrant.label if len(cell.entrant.label) <= 36 else f"{cell.entrant.label[:35]}…"
    return (
        f'<text x="12" y="{top + 15}">{clean(label)}</text>'
        f'<rect x="270" y="{top + 3}" width="{length}" height="16" fill="{_GREEN}"/>'
        f'<text x="{270 + length + 6}" y="{top + 15}">{clean(score_text(cell))}</text>'
    )
