"""Passages of a run's files: the lines that a finding or an auditor points to, with the lines around them."""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grading.auditfile import Quote
from leaderboard.boards.runs import RunView
from leaderboard.models import Blob

AROUND = 3
MAX_BYTES = 4 * 1024 * 1024
MAX_LINE = 400
MAX_SHOWN = 60
Texts = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file. `notes` is what points to it."""

    number: int
    text: str
    is_marked: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Some lines of a file, those meant are marked. `is_cut` says that more were meant than are shown."""

    file: str
    lines: tuple[Line, ...]
    is_cut: bool


def read_texts(view: RunView, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the lines of a run's text files by path, one query; left out is what is binary, too long or not held."""
    wanted = {entry.path: entry.digest for entry in view.files if entry.size_bytes <= MAX_BYTES}
    wanted = {path: wanted[path] for path in paths if path in wanted}
    blobs = {row.digest: zlib.decompress(bytes(row.content)) for row in Blob.objects.filter(pk__in=wanted.values())}
    return {
        path: tuple(line[:MAX_LINE] for line in blobs[digest].decode("utf-8", "replace").splitlines())
        for path, digest in wanted.items()
        if digest in blobs and b"\0" not in blobs[digest][:8192]
    }


def cut(texts: Texts, file: str | None, first: int | None, last: int | None = None) -> Excerpt | None:
    """Return the lines ``first`` to ``last`` of a file with those around them, or None where it has no such line."""
    lines = texts.get(file or "")
    if file is None or lines is None or first is None or not 1 <= first <= len(lines):
        return None
    end = min(max(last or first, first), len(lines))
    shown_end = min(end, first + MAX_SHOWN - 1)
    numbers = range(max(1, first - AROUND), min(len(lines), shown_end + AROUND) + 1)
    shown = tuple(Line(number, lines[number - 1], first <= number <= end) for number in numbers)
    return Excerpt(file, shown, shown_end < end)


def is_found(texts: Texts, quote: Quote) -> bool | None:
    """Tell whether a quoted text stands in the lines that the quote names; None where that cannot be checked."""
    lines = texts.get(quote.file or "")
    if lines is None or not quote.text or not quote.lines:
        return None
    first, last = quote.lines[0], quote.lines[-1]
    return _squeeze(quote.text) in _squeeze("\n".join(lines[max(0, first - 1) : last]))


def _squeeze(text: str) -> str:
    return " ".join(text.split())
