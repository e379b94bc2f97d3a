"""Source files for reading: lines with their kinds of words, and two versions as one difference."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword, Literal, Name, Number, Operator, String, _TokenType
from pygments.util import ClassNotFound

from leaderboard.boards.cells import Cell
from leaderboard.boards.files import TextFile
from leaderboard.boards.runs import RunView

MAX_CHARACTERS = 400_000
MAX_COMPARED = 3_000
AROUND = 3
_SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".cc", ".c", ".h", ".hpp", ".json", ".yaml", ".yml", ".toml", ".sh", ".ptx")
_KINDS: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"), (String.Doc, "c"), (String, "s"), (Number, "m"), (Literal, "m"), (Keyword, "k"),
    (Operator.Word, "k"), (Name.Function, "n"), (Name.Class, "n"), (Name.Decorator, "n"), (Name.Tag, "n"),
)  # fmt: skip

Piece = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a difference. `kind` is same, gone, new, or skip, whose `text` says how many lines it stands for."""

    kind: str
    old: int | None
    new: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Diff:
    """How one file becomes another. `is_cut` says that only the beginnings were compared."""

    lines: tuple[DiffLine, ...]
    added: int
    removed: int
    is_cut: bool


def colour(file: TextFile) -> tuple[tuple[Piece, ...], ...]:
    """Return a file's lines as (kind, text) pieces; one plain piece a line where its language is not known."""
    text = "\n".join(file.lines)
    if not file.path.endswith(_SUFFIXES) or len(text) > MAX_CHARACTERS:
        return tuple((("", line),) for line in file.lines)
    try:
        lexer = get_lexer_for_filename(file.path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return tuple((("", line),) for line in file.lines)
    coloured = _lines(lexer.get_tokens(text))
    is_same = ["".join(part for _, part in line) for line in coloured] == list(file.lines)
    return coloured if is_same else tuple((("", line),) for line in file.lines)


def _lines(tokens: Iterable[tuple[_TokenType, str]]) -> tuple[tuple[Piece, ...], ...]:
    lines: list[list[Piece]] = [[]]
    for token, text in tokens:
        kind = next((name for family, name in _KINDS if token in family), "")
        for position, part in enumerate(text.split("\n")):
            if position:
                lines.append([])
            if part and lines[-1] and lines[-1][-1][0] == kind:
                lines[-1][-1] = (kind, lines[-1][-1][1] + part)
            elif part:
                lines[-1].append((kind, part))
    return tuple(tuple(line) for line in lines)


def diff(old: Sequence[str], new: Sequence[str]) -> Diff:
    """Return how `old` becomes `new`, with a few lines around each change."""
    is_cut = max(len(old), len(new)) > MAX_COMPARED
    old, new = old[:MAX_COMPARED], new[:MAX_COMPARED]
    lines: list[DiffLine] = []
    added = removed = 0
    seen = 0
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(AROUND):
        if group[0][1] > seen:
            lines.append(DiffLine("skip", None, None, str(group[0][1] - seen)))
        for _, first, last, start, stop in group:
            same = old[first:last] == new[start:stop]
            if same:
                lines += [
                    DiffLine("same", first + i + 1, start + i + 1, text) for i, text in enumerate(old[first:last])
                ]
                continue
            lines += [DiffLine("gone", first + i + 1, None, text) for i, text in enumerate(old[first:last])]
            lines += [DiffLine("new", None, start + i + 1, text) for i, text in enumerate(new[start:stop])]
            removed, added = removed + last - first, added + stop - start
        seen = group[-1][2]
    if lines and seen < len(old):
        lines.append(DiffLine("skip", None, None, str(len(old) - seen)))
    return Diff(tuple(lines), added, removed, is_cut)


def rivals(view: RunView, column: Iterable[Cell], limit: int = 12) -> tuple[Cell, ...]:
    """Return the published cells of a run's column that another run stands for, best first."""
    others = [cell for cell in column if cell.is_published and cell.run_id != view.summary.run_id]
    return tuple(sorted(others, key=lambda cell: (-(cell.share_of_best or 0.0), cell.id))[:limit])
