"""Everything that happened to published cells, newest first: releases that changed them, and what masks them since."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from leaderboard.boards.cells import Cell, read_cells
from leaderboard.boards.releases import read_changes
from leaderboard.models import Decision, Release

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
        events += _mask_events(releases[0], held[releases[0].number])
    return sorted(events, key=lambda event: (event.at, event.number, event.cell.id), reverse=True)


def _release_events(newer: Release, older: Release | None, held: dict[int, list[Cell]]) -> Iterator[ChangeEvent]:
    source = f"release {newer.number}"
    if older is None:
        for cell in held[newer.number]:
            if cell.is_published:
                yield ChangeEvent("published", newer.number, source, cell, newer.created_at)
        return
    for change in read_changes(older, newer, held[older.number], held[newer.number]):
        kind = "published" if change.kind == "added" else change.kind
        yield ChangeEvent(kind, newer.number, source, change.cell, newer.created_at)


def _mask_events(latest: Release, cells: list[Cell]) -> Iterator[ChangeEvent]:
    """Yield the cells that the latest release publishes and today's state masks, with what did it."""
    released = dict(latest.cells.filter(status="published").values_list("cell", "run"))
    masked = {released[cell.id]: cell for cell in cells if cell.id in released and not cell.is_published}
    decisions = Decision.objects.filter(run__in=masked, kind=Decision.Kind.WITHDRAW, at__gte=latest.created_at)
    withdrawn = {row.run_id: row for row in decisions.order_by("sequence")}
    for run, cell in masked.items():
        row = withdrawn.get(run)
        if row is not None:
            yield ChangeEvent("withdrawn", row.sequence, f"decision {row.sequence}", cell, row.at)
        else:
            yield ChangeEvent("withheld", latest.number, f"since release {latest.number}", cell, latest.created_at)
