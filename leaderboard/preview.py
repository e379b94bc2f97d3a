"""What a change of rules, severities or peak tables would alter on the boards, before it is applied.

The change is applied for real inside a transaction, the boards are read by the function that makes releases, and
everything is undone. So what is shown is exactly what would happen.
"""

import datetime
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from grading.proposal import Proposal, in_force
from grading.words import counted
from leaderboard import crossrun, recompute, selection
from leaderboard.models import Assessment, Finding, ReleasedCell

_PUBLISHED = ReleasedCell.Status.PUBLISHED


@dataclass(frozen=True, slots=True)
class Move:
    """A cell whose best number would change: run and score before and after."""

    cell: str
    before: tuple[str, float]
    after: tuple[str, float]


@dataclass
class Preview:
    """What would change.

    published_lost  cells that would leave the next release, until somebody approves them on the new evidence
    gained, lost    cells that would begin or cease to have a run that may be published
    moved           cells whose best publishable run or score would be another one
    codes           by rule code, findings before and after, where they differ
    """

    assessed: int = 0
    published_lost: list[str] = field(default_factory=list)
    gained: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    moved: list[Move] = field(default_factory=list)
    codes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def summary(self) -> str:
        """Return the one line that the command prints."""
        return (
            f"{counted(self.assessed, 'run')} would be assessed again: "
            f"{counted(len(self.gained), 'cell')} gained, {len(self.lost)} lost, {len(self.moved)} moved; "
            f"{len(self.published_lost)} published cells would need a new approval; "
            "nothing was changed"
        )

    def data(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "assessed": self.assessed,
            "published_lost": self.published_lost,
            "gained": self.gained,
            "lost": self.lost,
            "moved": [{"cell": move.cell, "before": move.before, "after": move.after} for move in self.moved],
            "codes": {code: {"before": old, "after": new} for code, (old, new) in self.codes.items()},
        }


class _Undo(Exception):
    """Raised inside the transaction to undo the preview."""


def preview(proposal: Proposal, at: datetime.datetime) -> Preview:
    """Return what the present code with a proposal would alter against what is stored now."""
    found = Preview()
    try:
        with transaction.atomic(), in_force(proposal):
            before, published, codes = _best_runs(at), _published(at), _codes()
            recompute.forget_catalogue()
            if crossrun.is_outdated():
                crossrun.forget_all()
            found.assessed = recompute.recompute_all().assessed
            _compare(found, before, _best_runs(at))
            after = _published(at)
            found.published_lost = sorted(published - after)
            new_codes = _codes()
            changed = sorted(code for code in {*codes, *new_codes} if codes[code] != new_codes[code])
            found.codes = {code: (codes[code], new_codes[code]) for code in changed}
            raise _Undo
    except _Undo:
        recompute.forget_catalogue()
    return found


def _best_runs(at: datetime.datetime) -> dict[str, tuple[str, float]]:
    """Return, by cell, the run that could be published best, with its score; whether it was approved does not count."""
    best: dict[str, tuple[tuple[object, ...], str, float]] = {}
    rows = Assessment.objects.eligible(at).select_related("run__problem", "run__entrant", "run__publication")
    for row in rows.defer("run__record", "evidence", "shapes").iterator(chunk_size=2000):
        row.run.assessment = row
        name, rank = selection.cell_id(row.run), selection.preference(row.run)
        if row.score is not None and (name not in best or rank < best[name][0]):
            best[name] = (rank, str(row.run), row.score)
    return {name: (run, score) for name, (_, run, score) in best.items()}


def _published(at: datetime.datetime) -> set[str]:
    return {row.cell for row in selection.choose_cells(at) if row.status == _PUBLISHED}


def _codes() -> Counter[str]:
    return Counter(Finding.objects.values_list("code", flat=True))


def _compare(found: Preview, before: dict[str, tuple[str, float]], after: dict[str, tuple[str, float]]) -> None:
    found.gained = sorted(set(after) - set(before))
    found.lost = sorted(set(before) - set(after))
    both = sorted(set(before) & set(after))
    found.moved = [Move(name, before[name], after[name]) for name in both if before[name] != after[name]]
