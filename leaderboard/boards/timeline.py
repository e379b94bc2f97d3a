"""What happened to a run, in order of time: started, timed again, audited, graded by us, decided."""

import datetime
from dataclasses import dataclass

from grading.moments import parse_time
from leaderboard.boards.runs import RunView
from leaderboard.boards.verifications import VerificationView
from leaderboard.models import Decision

_WORDS = {
    Decision.Kind.APPROVE: "Approved for publication",
    Decision.Kind.REJECT: "Rejected",
    Decision.Kind.WITHDRAW: "Withdrawn",
    Decision.Kind.WAIVE: "Exception granted",
    Decision.Kind.REUSE: "Historical reuse allowed",
    Decision.Kind.PIN: "Chosen for its cell",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a timeline. `text` is what a person wrote and may hold numbers of the run.

    run_id  another run of this board that the entry is about
    """

    at: datetime.datetime | None
    title: str
    who: str | None = None
    text: str = ""
    decision: int | None = None
    run_id: str = ""


def read_timeline(view: RunView) -> tuple[Event, ...]:
    """Return a run's events, oldest first; those without a date come first."""
    events = [
        *([Event(view.record.started_at, "Run started")] if view.record.started_at else []),
        *([Event(view.record.finished_at, "Run finished")] if view.record.finished_at else []),
        *(Event(started, "Another attempt of the same entrant", run_id=run_id) for run_id, started in view.attempts),
        *_regraded(view),
        *(Event(row.ingested_at, f"Audit received: {row.verdict}", row.auditor) for row, _ in view.audits),
        *(_graded(grade) for grade in view.grades),
        *(_decided(row) for row in view.decisions),
        *(
            Event(row.decision.at, f"{_WORDS[Decision.Kind(row.decision.kind)]}: {row.code}", str(row.decision.actor),
                  row.reason, row.decision.sequence)
            for row in view.waivers
        ),
    ]  # fmt: skip
    return tuple(sorted(events, key=_order))


def _regraded(view: RunView) -> list[Event]:
    regrade = view.record.regrade
    if regrade is None:
        return []
    return [Event(parse_time(regrade.at or ""), f"Timed again by its archive: {regrade.mode or 'mode not recorded'}")]


def _graded(grade: VerificationView) -> Event:
    words = grade.word.replace("_", " ")
    return Event(grade.recorded_at, f"Graded by us on {grade.gpu}, tier {grade.tier}: {words}")


def _decided(row: Decision) -> Event:
    return Event(row.at, _WORDS.get(Decision.Kind(row.kind), row.kind), str(row.actor), row.reason, row.sequence)


def _order(event: Event) -> tuple[bool, datetime.datetime, int]:
    first = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    return event.at is not None, event.at or first, event.decision or 0
