"""Releases: what each holds, and what changed against the one before."""

import datetime
from collections import Counter
from dataclasses import dataclass

from django.db.models import Count, Q

from leaderboard.boards.cells import Cell, read_cells
from leaderboard.models import Release, ReleasedCell

PUBLISHED = ReleasedCell.Status.PUBLISHED
_Stored = dict[str, tuple[str, int, float | None]]


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How a release differs from the one before, in numbers of published cells."""

    added: int
    changed: int
    removed: int
    previous: int | None

    @property
    def total(self) -> int:
        """The number of cells that differ."""
        return self.added + self.changed + self.removed


@dataclass(frozen=True, slots=True)
class Change:
    """One cell that differs between two releases. All three are masked as of today.

    kind  added, changed or removed
    cell  the cell as the newer release has it, or as it last was
    """

    kind: str
    cell: Cell
    before: Cell | None
    after: Cell | None


@dataclass(frozen=True, slots=True)
class ReleaseLine:
    """One release in the list."""

    release: Release
    published: int
    withheld: int
    failed: int


@dataclass(frozen=True, slots=True)
class ReleaseView:
    """One release with its cells and what it changed."""

    release: Release
    is_latest: bool
    previous: int | None
    counts: dict[str, int]
    boards: tuple[tuple[str, str, int], ...]
    changes: tuple[Change, ...]


def list_releases() -> list[ReleaseLine]:
    """Return all releases, newest first, with their counts; one query."""
    counted = Release.objects.select_related("actor").annotate(
        published=Count("cells", filter=Q(cells__status="published")),
        withheld=Count("cells", filter=Q(cells__status="withheld")),
        failed=Count("cells", filter=Q(cells__status="failed")),
    )
    counted = counted.order_by("-number")
    return [ReleaseLine(row, row.published, row.withheld, row.failed) for row in counted]


def read_release(number: int, at: datetime.datetime, against: int | None = None) -> ReleaseView | None:
    """Return one release, or None where there is no such number; nine queries at most.

    against  the release that its changes are told from; None = the one before
    """
    release = Release.objects.select_related("actor", "decision").filter(number=number).first()
    if release is None:
        return None
    previous = Release.objects.filter(number=number - 1 if against is None else against).first()
    if previous is None and against is not None:
        return None
    after, before = read_cells(release, at), read_cells(previous, at)
    boards = Counter((cell.deck, cell.gpu) for cell in after if cell.is_published)
    return ReleaseView(
        release=release,
        is_latest=not Release.objects.filter(number__gt=number).exists(),
        previous=previous.number if previous else None,
        counts=dict(Counter(cell.status for cell in after)),
        boards=tuple((deck, gpu, count) for (deck, gpu), count in sorted(boards.items())),
        changes=read_changes(previous, release, before, after) if previous else (),
    )


def diff(first: int, second: int, at: datetime.datetime) -> tuple[Change, ...] | None:
    """Return what changed from one release to any other, masked as of today; None where one does not exist."""
    found = {row.number: row for row in Release.objects.filter(number__in=[first, second])}
    if first not in found or second not in found:
        return None
    before, after = read_cells(found[first], at), read_cells(found[second], at)
    return read_changes(found[first], found[second], before, after)


def count_changes(release: Release) -> ChangeCounts:
    """Return how many published cells a release added, changed and removed; two queries."""
    stored = _stored([release.number - 1, release.number])
    kinds = Counter(_kinds(stored[release.number - 1], stored[release.number]).values())
    previous = release.number - 1 if release.number > 1 else None
    return ChangeCounts(kinds["added"], kinds["changed"], kinds["removed"], previous)


def read_changes(previous: Release, release: Release, before: list[Cell], after: list[Cell]) -> tuple[Change, ...]:
    """Return how a release differs from an earlier one, given the cells of both; one query."""
    stored = _stored([previous.number, release.number])
    old, new = {cell.id: cell for cell in before}, {cell.id: cell for cell in after}
    kinds = _kinds(stored[previous.number], stored[release.number])
    every = old | new
    return tuple(Change(kind, every[name], old.get(name), new.get(name)) for name, kind in sorted(kinds.items()))


def _stored(numbers: list[int]) -> dict[int, _Stored]:
    """Return what releases hold by number and cell: status, run and score, for comparison only."""
    found: dict[int, _Stored] = {number: {} for number in numbers}
    rows = ReleasedCell.objects.filter(release__number__in=numbers)
    for number, cell, *rest in rows.values_list("release__number", "cell", "status", "run_id", "score"):
        found[number][cell] = (rest[0], rest[1], rest[2])
    return found


def _kinds(old: _Stored, new: _Stored) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for cell in old.keys() | new.keys():
        was, now = old.get(cell), new.get(cell)
        was_published = was is not None and was[0] == PUBLISHED
        is_published = now is not None and now[0] == PUBLISHED
        if is_published and not was_published:
            kinds[cell] = "added"
        elif was_published and not is_published:
            kinds[cell] = "removed"
        elif is_published and was != now:
            kinds[cell] = "changed"
    return kinds
