"""What a survey of grades would do: what is there, what is missing, how long that takes. It needs no GPU."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from grading.survey.book import Item, Survey
from grading.survey.grades import read_graded

_ROLES = ("kernel", "vendor", "wrong", "eager", "compiled")
_OTHER = ("other", "cheat")
_Seconds = dict[Item, float]


def plan(survey: Survey, items: Sequence[Item]) -> tuple[int, str]:
    """Return how many items are missing, and a table by problem and role, a line each in order, and their sum.

    A cell holds the verdict of what is there, or the seconds that what is missing is expected to take; a line, these
    seconds and how many will have passed by then.
    """
    missing = {item: survey.book.expected_seconds(item) for item in items if _is_missing(survey, item)}
    passed = accumulate(missing.values())
    lines = [
        f"{item.key:<46} {seconds:>7.0f} s {end:>8.0f} s"
        for (item, seconds), end in zip(missing.items(), passed, strict=True)
    ]
    total = f"{len(missing)} of {len(items)} are missing and take about {sum(missing.values()):.0f} s"
    return len(missing), "\n".join([*_table(survey, items, missing), *lines, total])


def _is_missing(survey: Survey, item: Item) -> bool:
    known = survey.book.before(item)
    return known is None or not survey.is_settled(known)


def _table(survey: Survey, items: Sequence[Item], missing: _Seconds) -> Iterator[str]:
    columns = [*_ROLES, *(role for role in _OTHER if any(_column(item) == role for item in items))]
    rows = [["problem", *columns]]
    for problem in dict.fromkeys(item.problem for item in items):
        here = [item for item in items if item.problem == problem]
        cells = [[item for item in here if _column(item) == column] for column in columns]
        rows.append([problem, *(_cell(survey, cell, missing) for cell in cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _column(item: Item) -> str:
    return item.role if item.role in (*_ROLES, "cheat") else "other"


def _cell(survey: Survey, items: Sequence[Item], missing: _Seconds) -> str:
    """Return the words of what is there, counted where there are several, and the seconds of what is missing."""
    words = [_word(survey, item) for item in items if item not in missing]
    parts = [word if len(items) == 1 else f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    seconds = [missing[item] for item in items if item in missing]
    return ", ".join([*parts, *([f"{sum(seconds):.0f} s"] if seconds else [])]) or "-"


def _word(survey: Survey, item: Item) -> str:
    """Return the verdict of what is there, or the state of what came to none."""
    entry = survey.book.entries[item.key]
    graded = read_graded(entry)
    return graded.verdict if graded is not None else entry.state
