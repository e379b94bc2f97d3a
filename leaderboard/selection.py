"""Which run backs each cell, and what the cell's status is: the rule that a release applies to the whole database."""

import datetime
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from grading.integrity import RULES
from grading.problem import load_decks
from leaderboard.eligibility import PENDING_CODES
from leaderboard.models import Assessment, Publication, ReleasedCell, Run
from leaderboard.models.judgement import is_eligible

Status, Standing, State = ReleasedCell.Status, Assessment.Standing, Publication.State
_ORDER = {Status.PUBLISHED: 0, Status.WITHHELD: 1, Status.FAILED: 2}
WITHDRAWN = "publication.withdrawn"
REJECTED = "publication.rejected"
EXPIRED = "waiver.expired"
TITLES = {
    WITHDRAWN: "Withdrawn after publication",
    REJECTED: "Rejected by an approver",
    EXPIRED: "An exception that this result rested on has expired",
}


def cell_id(run: Run) -> str:
    """Return the stable id of the cell that a run belongs to."""
    return f"{run.deck_id}.{run.gpu_id}.{run.problem.slug}.{run.entrant.slug}"


def state_of(run: Run) -> str | None:
    """Return a run's publication state, or None where nobody decided."""
    publication: Publication | None = getattr(run, "publication", None)
    return publication.state if publication else None


def is_publishable(run: Run, at: datetime.datetime) -> bool:
    """Tell whether a run enters a release: eligible, approved, and approved on exactly this evidence."""
    return (
        state_of(run) == State.APPROVED
        and run.assessment.is_eligible(at)
        and run.publication.evidence_digest == run.assessment.evidence_digest
    )


class Basis(NamedTuple):
    """What decides whether a run's score may be shown, without the run: a list of thousands reads only this."""

    state: str | None
    standing: str
    valid_until: datetime.datetime | None
    blockers: Sequence[str]

    def is_showable(self, at: datetime.datetime) -> bool:
        """Tell whether a published score may still be shown: still eligible and still approved."""
        return self.state == State.APPROVED and is_eligible(self.standing, self.valid_until, at)

    def reason_codes(self, at: datetime.datetime) -> list[str]:
        """Return why the score is withheld, as codes."""
        if self.state == State.WITHDRAWN:
            return [WITHDRAWN, *in_order(self.blockers)]
        if self.state == State.REJECTED:
            return [REJECTED, *in_order(self.blockers)]
        has_expired = self.valid_until is not None and self.valid_until <= at
        return in_order(self.blockers) or ([EXPIRED] if has_expired else [])


def basis_of(run: Run) -> Basis:
    """Return what decides on a run's score."""
    held = run.assessment
    return Basis(state_of(run), held.standing, held.valid_until, held.blockers)


def is_showable(run: Run, at: datetime.datetime) -> bool:
    """Tell the same as `Basis.is_showable` of a run."""
    return basis_of(run).is_showable(at)


def reason_codes(run: Run, at: datetime.datetime) -> list[str]:
    """Return the same as `Basis.reason_codes` of a run."""
    return basis_of(run).reason_codes(at)


def in_order(codes: Iterable[str]) -> list[str]:
    """Return blocking codes as every surface lists them: in the registry's order, what waits for a person last."""
    places = {code: place for place, code in enumerate(RULES)}
    return sorted(codes, key=lambda code: (code in PENDING_CODES, places.get(code, len(places)), code))


def reason_title(code: str) -> str:
    """Return the public sentence of a reason; it never holds a number of the run."""
    return TITLES.get(code) or (RULES[code].title if code in RULES else code)


def status_of(run: Run, at: datetime.datetime) -> str | None:
    """Return what a board says about a run, or None for one that the public may not see."""
    if is_publishable(run, at):
        return Status.PUBLISHED
    if run.assessment.standing == Standing.FAILED:
        return Status.FAILED
    if state_of(run) == State.WITHDRAWN or run.assessment.standing == Standing.BLOCKED:
        return Status.WITHHELD
    until = run.assessment.valid_until
    return Status.WITHHELD if until is not None and until <= at else None


def choose_cells(at: datetime.datetime) -> list[ReleasedCell]:
    """Return one row per cell that anything may be said about, in order of cell id; none is saved."""
    runs = Run.objects.select_related("problem", "entrant", "assessment", "publication").defer("record")
    best: dict[str, tuple[tuple[object, ...], Run, str]] = {}
    for run in runs.filter(assessment__isnull=False).iterator(chunk_size=2000):
        status = status_of(run, at)
        if status is None:
            continue
        name, rank = cell_id(run), (_ORDER[Status(status)], *preference(run))
        if name not in best or rank < best[name][0]:
            best[name] = (rank, run, status)
    return [_row(name, run, status, at) for name, (_, run, status) in sorted(best.items())]


def preference(run: Run) -> tuple[bool, float, str, str]:
    """Return the sort key among runs of one cell: a pinned one, then the best score, ties by date, then by run id."""
    metric = load_decks()[run.deck_id].problems[run.problem.slug].metric
    score = run.assessment.score
    order = float("inf") if score is None else -score if metric.higher_is_better else score
    is_pinned = state_of(run) == State.APPROVED and run.publication.is_pinned
    return not is_pinned, order, run.run_id[:15], run.run_id


def _row(name: str, run: Run, status: str, at: datetime.datetime) -> ReleasedCell:
    is_published = status == Status.PUBLISHED
    return ReleasedCell(
        cell=name,
        deck_id=run.deck_id,
        problem_id=run.problem_id,
        gpu_id=run.gpu_id,
        entrant_id=run.entrant_id,
        run=run,
        status=status,
        score=run.assessment.score if is_published else None,
        score_low=run.assessment.score_low if is_published else None,
        score_high=run.assessment.score_high if is_published else None,
        reasons=[] if is_published else reason_codes(run, at),
    )


def digest_of(rows: Iterable[ReleasedCell]) -> str:
    """Return the SHA-256 hex digest of a release's cells in order."""
    parts = [
        [row.cell, str(row.run), row.status, row.score, row.score_low, row.score_high, row.reasons] for row in rows
    ]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def count(rows: Iterable[ReleasedCell]) -> dict[str, int]:
    """Return how many cells have each status."""
    return dict(sorted(Counter(str(row.status) for row in rows).items()))
