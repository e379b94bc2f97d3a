"""Everything that happened to published cells, newest first: releases that changed them, and what masks them since."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from leaderboard import selection
from leaderboard.boards.cells import Cell, read_cells
from leaderboard.boards.releases import read_changes
from leaderboard.models import Decision, Release, ReleasedCell

_RELEASES = 20


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """One event of one cell.

    kind    published, changed, removed (by a release); withdrawn (by a decision); withheld (its evidence changed)
    number  of the release or the decision
    source  the release or decision, in words
    cell    as it is today: without a score unless it still has one
    """

    kind: str
    number: int
    source: str
    cell: Cell
    at: datetime.datetime


def list_changes(at: datetime.datetime) -> list[ChangeEvent]:
    """Return the events of the last releases and of everything since, newest first."""
    releases = list(Release.objects.all()[: _RELEASES + 1])
    held = {release.number: read_cells(release, at) for release in releases}
    events: list[ChangeEvent] = []
    for newer, older in zip(releases, [*releases[1:], None], strict=True):
        if older is not None or newer.number == 1:
            events += _release_events(newer, older, held)
    if releases:
        events += _withdrawals(held)
        events += _masks(releases[0], held[releases[0].number])
    return sorted(events, key=lambda event: (event.at, event.number, event.cell.id), reverse=True)


def _release_events(newer: Release, older: Release | None, held: dict[int, list[Cell]]) -> Iterator[ChangeEvent]:
    source = f"release {newer.number}"
    if older is None:
        released = _published_in(newer)
        for cell in held[newer.number]:
            if cell.id in released:
                yield ChangeEvent("published", newer.number, source, cell, newer.created_at)
        return
    for change in read_changes(older, newer, held[older.number], held[newer.number]):
        kind = "published" if change.kind == "added" else change.kind
        yield ChangeEvent(kind, newer.number, source, change.cell, newer.created_at)


def _published_in(release: Release) -> set[str]:
    """Return the ids of the cells that a release published, whatever is shown of them today."""
    return set(release.cells.filter(status=ReleasedCell.Status.PUBLISHED).values_list("cell", flat=True))


def _withdrawals(held: dict[int, list[Cell]]) -> Iterator[ChangeEvent]:
    """Yield every withdrawal of a run that one of the releases published, once."""
    cells = {cell.id: cell for _, found in sorted(held.items()) for cell in found}
    rows = ReleasedCell.objects.filter(
        release__number__in=held, status=ReleasedCell.Status.PUBLISHED, run__decisions__kind=Decision.Kind.WITHDRAW
    )
    decided = rows.values_list("cell", "run__decisions__sequence", "run__decisions__at").distinct().order_by()
    for cell, sequence, at in decided:
        yield ChangeEvent("withdrawn", sequence, f"decision {sequence}", cells[cell], at)


def _masks(latest: Release, cells: list[Cell]) -> Iterator[ChangeEvent]:
    """Yield the cells that the latest release publishes and changed evidence masks; a withdrawal is told as one."""
    released = _published_in(latest)
    for cell in cells:
        is_withdrawn = any(reason.code == selection.WITHDRAWN for reason in cell.reasons)
        if cell.id in released and not cell.is_published and not is_withdrawn:
            seen = [latest.created_at, *([cell.audit.at] if cell.audit else [])]
            yield ChangeEvent("withheld", latest.number, f"since release {latest.number}", cell, max(seen))
