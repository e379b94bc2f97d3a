"""The only writer of publication state: decisions, waivers and releases.

Every act is one transaction that appends one `Decision`, chained to the one before it by its hash, and changes what
follows from it. Decisions are never edited or deleted. An approval signs the run's evidence digest; when that changes,
the approval no longer counts.
"""

import datetime
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction

from grading.integrity import RULES, is_waivable
from leaderboard import notify, selection
from leaderboard.models import Assessment, Audit, Decision, Publication, Release, ReleasedCell, Run, Waiver
from leaderboard.recompute import recompute_all

GENESIS = "0" * 64
_LOCK = 7_365_001
State, Kind = Publication.State, Decision.Kind

TRANSITIONS: dict[Kind, frozenset[str | None]] = {
    Kind.APPROVE: frozenset({None, State.APPROVED, State.REJECTED, State.WITHDRAWN}),
    Kind.REJECT: frozenset({None, State.APPROVED, State.REJECTED}),
    Kind.WITHDRAW: frozenset({State.APPROVED}),
}
_RESULT = {Kind.APPROVE: State.APPROVED, Kind.REJECT: State.REJECTED, Kind.WITHDRAW: State.WITHDRAWN}


class PublishingError(ValueError):
    """A decision that the rules of publication refuse; the message is safe to show to users."""


@dataclass(frozen=True, slots=True)
class Act:
    """Who decides, when, and why."""

    actor: User
    reason: str
    at: datetime.datetime

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise PublishingError("reason is empty; need a sentence that a reader of the log understands")


@transaction.atomic
def approve(run: Run, act: Act, *, is_acknowledged: bool = False, expected_digest: str | None = None) -> Decision:
    """Approve a run for the next release.

    is_acknowledged  the approver has read an audit whose verdict needs that (``interesting``)
    expected_digest  the evidence digest that the approver saw; anything else has changed underneath
    Raises PublishingError unless the run is eligible now, and approver, auditor and uploader are different persons.
    """
    lock_decisions()
    assessment = _assessment(run)
    if expected_digest is not None and expected_digest != assessment.evidence_digest:
        raise PublishingError(f"{run}: the evidence changed since you opened it; look at it again")
    if not assessment.is_eligible(act.at):
        raise PublishingError(f"{run} is not eligible: {obstacles(assessment, act.at)}")
    if assessment.needs_acknowledgement and not is_acknowledged:
        raise PublishingError(f"{run}: the audit says interesting; approve with an explicit acknowledgement")
    if settings.TWO_PERSON_RULE:
        refuse_same_person(run, act.actor)
    details = {"acknowledged": is_acknowledged, "evidence": assessment.evidence}
    return _change(Kind.APPROVE, run, act, assessment.evidence_digest, details)


@transaction.atomic
def reject(run: Run, act: Act) -> Decision:
    """Reject a run that was not published. Raises PublishingError for a withdrawn one."""
    lock_decisions()
    return _change(Kind.REJECT, run, act, _assessment(run).evidence_digest, {})


@transaction.atomic
def withdraw(run: Run, act: Act) -> Decision:
    """Withdraw an approved run: its score disappears from every surface at once. Raises PublishingError otherwise."""
    lock_decisions()
    decision = _change(Kind.WITHDRAW, run, act, _assessment(run).evidence_digest, {})
    if run.released_cells.filter(status=ReleasedCell.Status.PUBLISHED).exists():
        transaction.on_commit(lambda: _tell_withdrawal(decision))
    return decision


@transaction.atomic
def pin(run: Run, act: Act) -> Decision:
    """Let an approved run back its cell although another one scores better. Raises PublishingError for other runs."""
    lock_decisions()
    _require(act.actor)
    held = Publication.objects.filter(run=run).first()
    if held is None or held.state != State.APPROVED:
        raise PublishingError(f"{run} is {held.state if held else 'undecided'}; pin needs a run that is approved")
    same_cell = {"deck": run.deck_id, "gpu": run.gpu_id, "problem": run.problem_id, "entrant": run.entrant_id}
    Publication.objects.filter(**{f"run__{name}": value for name, value in same_cell.items()}).update(is_pinned=False)
    Publication.objects.filter(run=run).update(is_pinned=True)
    return _append(Kind.PIN, run, act, held.evidence_digest, {"cell": selection.cell_id(run)})


@transaction.atomic
def waive(
    code: str,
    runs: Sequence[Run],
    act: Act,
    *,
    batch: str,
    expires_at: datetime.datetime | None = None,
    is_reuse: bool = False,
) -> Waiver:
    """Except one finding code on named runs, and assess those runs again.

    batch       what the runs are called together, for readers
    expires_at  when the finding blocks again; None = not by itself
    is_reuse    a historical-reuse decision: old archives that lack proof nobody can add any more
    Raises PublishingError for an unknown or unwaivable code, no runs, or an expiry in the past.
    """
    lock_decisions()
    _require(act.actor)
    if code not in RULES:
        raise PublishingError(f"code {code!r} is not a rule; accepted are {', '.join(RULES)}")
    if not is_waivable(code):
        raise PublishingError(f"{code} cannot be waived by anyone")
    if not runs:
        raise PublishingError("no runs match; a waiver names the runs it covers")
    if expires_at is not None and expires_at <= act.at:
        raise PublishingError(f"expires_at is {expires_at.isoformat()}; need a time in the future")
    details = {
        "code": code,
        "batch": batch,
        "runs": sorted(str(run) for run in runs),
        "expires_at": expires_at.isoformat() if expires_at else None,
    }
    decision = _append(Kind.REUSE if is_reuse else Kind.WAIVE, None, act, None, details)
    waiver = Waiver.objects.create(
        code=code, batch=batch, reason=act.reason, is_reuse=is_reuse, expires_at=expires_at, decision=decision
    )
    waiver.runs.add(*runs)
    recompute_all(runs=[run.pk for run in runs])
    return waiver


@transaction.atomic
def release(act: Act) -> Release:
    """Take an immutable snapshot of all cells as the next release.

    Raises PublishingError when nothing would change against the latest release.
    """
    lock_decisions()
    _require(act.actor)
    rows = selection.choose_cells(act.at)
    digest = selection.digest_of(rows)
    latest = Release.objects.first()
    if latest is not None and latest.digest == digest:
        raise PublishingError(f"nothing changed since release {latest.number}; its digest is {digest[:12]}")
    number = latest.number + 1 if latest else 1
    counts = selection.count(rows)
    decision = _append(Kind.RELEASE, None, act, digest, {"number": number, "cells": counts})
    made = Release.objects.create(
        number=number, digest=digest, note=act.reason, created_at=act.at, actor=act.actor, decision=decision
    )
    for row in rows:
        row.release = made
    ReleasedCell.objects.bulk_create(rows, batch_size=500)
    return made


def verify_log() -> list[str]:
    """Return every break of the decisions' hash chain, in words; an empty list means that the log is whole."""
    faults, previous, expected = [], GENESIS, 1
    for decision in Decision.objects.select_related("run").order_by("sequence"):
        if decision.sequence != expected:
            faults.append(f"decision {expected} is missing; the next one is {decision.sequence}")
        if decision.previous_hash != previous:
            faults.append(f"decision {decision.sequence} does not follow from the one before it")
        if decision.hash != _hash(decision):
            faults.append(f"decision {decision.sequence} was changed after it was written")
        previous, expected = decision.hash, decision.sequence + 1
    return faults


def _change(kind: Kind, run: Run, act: Act, digest: str, details: dict[str, Any]) -> Decision:
    _require(act.actor)
    held = Publication.objects.filter(run=run).first()
    state = held.state if held else None
    if state not in TRANSITIONS[kind]:
        allowed = ", ".join(sorted(str(entry or "undecided") for entry in TRANSITIONS[kind]))
        raise PublishingError(f"{run} is {state or 'undecided'}; {kind} needs a run that is {allowed}")
    decision = _append(kind, run, act, digest, details)
    Publication.objects.update_or_create(
        run=run, defaults={"state": _RESULT[kind], "decision": decision, "evidence_digest": digest, "is_pinned": False}
    )
    return decision


def _append(kind: Kind, run: Run | None, act: Act, digest: str | None, details: dict[str, Any]) -> Decision:
    last = Decision.objects.order_by("-sequence").first()
    decision = Decision(
        sequence=last.sequence + 1 if last else 1,
        kind=kind,
        run=run,
        actor=act.actor,
        at=act.at,
        reason=act.reason,
        evidence_digest=digest,
        details=details,
        previous_hash=last.hash if last else GENESIS,
    )
    decision.hash = _hash(decision)
    decision.save(force_insert=True)
    return decision


def _hash(decision: Decision) -> str:
    parts = [
        decision.previous_hash,
        decision.sequence,
        str(decision.kind),
        str(decision.run) if decision.run else None,
        decision.actor_id,
        decision.at.astimezone(datetime.UTC).isoformat(),
        decision.reason,
        decision.evidence_digest,
        decision.details,
    ]
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def lock_decisions() -> None:
    """Let one decision be made at a time; SQLite's immediate transactions do that by themselves."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def _require(actor: User) -> None:
    if not actor.has_perm("leaderboard.decide"):
        raise PublishingError(f"{actor} may not decide; an administrator can add the role approver")


def _tell_withdrawal(decision: Decision) -> None:
    run = decision.run
    body = f"{run} was withdrawn by {decision.actor} on {decision.at.isoformat()}.\n\nReason: {decision.reason}\n"
    link = f"{settings.SITE_URL}/runs/{run}/"
    data = {"run": str(run), "reason": decision.reason, "at": decision.at.isoformat(), "link": link}
    notify.send_notice("withdrawn", f"Withdrawn: {run}", f"{body}\n{link}\n", data)


def _assessment(run: Run) -> Assessment:
    found = Assessment.objects.filter(run=run).first()
    if found is None:
        raise PublishingError(f"{run} was never assessed; run recompute first")
    return found


def obstacles(assessment: Assessment, at: datetime.datetime) -> str:
    """Return in words what keeps a run from being eligible."""
    if assessment.valid_until is not None and assessment.valid_until <= at:
        return f"a waiver expired on {assessment.valid_until.isoformat()}"
    titles = [f"{code} ({RULES[code].title})" if code in RULES else code for code in assessment.blockers]
    return "; ".join(titles) or (assessment.reason or "it has no score")


def refuse_same_person(run: Run, actor: User) -> None:
    """Raise PublishingError where the person who decides audited or uploaded the run."""
    names = {text.casefold() for text in (actor.get_username(), actor.get_full_name(), actor.email) if text}
    for audit in Audit.objects.filter(run=run):
        if audit.uploader_id == actor.pk or (audit.auditor or "").strip().casefold() in names:
            raise PublishingError(f"{actor} audited {run}; a second person must approve it")
    if run.uploader_id == actor.pk:
        raise PublishingError(f"{actor} uploaded {run}; a second person must approve it")


@transaction.atomic
def decide_all(decide: Callable[[Run, Act], Decision], runs: Iterable[Run], act: Act) -> list[Decision]:
    """Make one decision on every run, or, where one of them refuses, on none. Raises PublishingError."""
    return [decide(run, act) for run in runs]


@transaction.atomic
def approve_all(runs: Sequence[Run], act: Act, *, is_acknowledged: bool = False) -> Sequence[Run]:
    """Approve every run, or, where one of them refuses, none. Raises PublishingError."""
    for run in runs:
        approve(run, act, is_acknowledged=is_acknowledged)
    return runs


def approve_many(
    runs: Iterable[Run], act: Act, *, is_acknowledged: bool = False
) -> tuple[list[Run], list[tuple[Run, str]]]:
    """Approve every run that allows it; return the approved ones, and the others with what refused them."""
    approved: list[Run] = []
    refused: list[tuple[Run, str]] = []
    for run in runs:
        try:
            approve(run, act, is_acknowledged=is_acknowledged)
            approved.append(run)
        except PublishingError as error:
            refused.append((run, str(error)))
    return approved, refused
