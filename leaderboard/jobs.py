"""The only writer of a grade job's state: one table of transitions, and one conditional UPDATE for each of them.

The row is the truth and the broker's message a wake-up. Whoever holds a job has its fencing token; every later holder
has a larger one, so what an earlier holder still sends changes nothing. Time enters as an argument.
"""

import datetime
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Case, F, Q, QuerySet, When

from leaderboard.models import ApiToken, GradeEvent, GradeJob, HostGpu, HostState, Run

State, Kind, Tier, Reason = GradeJob.State, GradeJob.Kind, GradeJob.Tier, GradeJob.Reason
Event = GradeEvent.Kind
WAITING = frozenset({State.REQUESTED, State.QUEUED})
HELD = frozenset(GradeJob.HELD)
OPEN = frozenset(GradeJob.OPEN)
URGENT = (Reason.PERSON, Reason.CONFIRM)
_LONGEST_TEXT = 300


class Act(StrEnum):
    """What may happen to a job."""

    QUEUE = "queue"
    LEASE = "lease"
    RENEW = "renew"
    START = "start"
    BEAT = "beat"
    RECORD = "record"
    ENTER = "enter"
    REFUSE = "refuse"
    RETRY = "retry"
    EXPIRE = "expire"
    CANCEL = "cancel"
    TAKE_BACK = "take_back"


@dataclass(frozen=True, slots=True)
class Transition:
    """From which states an act leads where (None = the state stays), and the event that it leaves."""

    sources: frozenset[str]
    target: State | None
    event: Event | None


TRANSITIONS: dict[Act, Transition] = {
    Act.QUEUE: Transition(WAITING, State.QUEUED, None),
    Act.LEASE: Transition(WAITING, State.LEASED, Event.LEASED),
    Act.RENEW: Transition(HELD, State.LEASED, Event.LEASED),
    Act.START: Transition(frozenset({State.LEASED}), State.RUNNING, Event.STARTED),
    Act.BEAT: Transition(frozenset({State.RUNNING}), None, None),
    Act.RECORD: Transition(HELD, State.RECORDED, Event.RECORDED),
    Act.ENTER: Transition(WAITING, State.RECORDED, Event.RECORDED),
    Act.REFUSE: Transition(OPEN, State.REFUSED, Event.REFUSED),
    Act.RETRY: Transition(HELD, State.QUEUED, Event.RETRIED),
    Act.EXPIRE: Transition(OPEN, State.EXPIRED, Event.EXPIRED),
    Act.CANCEL: Transition(OPEN, State.CANCELLED, Event.CANCELLED),
    Act.TAKE_BACK: Transition(WAITING, State.CANCELLED, Event.CANCELLED),
}
_RELEASED: dict[str, Any] = {"lease_until": None, "deadline": None}


class JobError(ValueError):
    """A job that cannot be asked for, taken or changed; the message is safe to show to users."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for: on which GPU key, how thoroughly, why, by whom (None = a policy) and with which token."""

    gpu: str
    tier: str
    reason: str
    by: User | None = None
    token: ApiToken | None = None


def request(run: Run, wish: Wish, at: datetime.datetime) -> tuple[GradeJob, bool]:
    """Ask for a grade of a run; return the job, and whether it is new.

    The same run, GPU and tier wait only once: who asks again gets the job that is still open.
    """
    known = _same(run, wish)
    who = {"reason": wish.reason, "requested_by": wish.by, "api_token": wish.token}
    return _insert(known, {**known, "problem_id": run.problem_id, **who}, at)


def find_open(run: Run, wish: Wish) -> GradeJob | None:
    """Return the job that a wish would get because it is open already, or None where it would make a new one."""
    return GradeJob.objects.filter(**_same(run, wish), state__in=OPEN).first()


def _same(run: Run, wish: Wish) -> dict[str, Any]:
    """Return what two wishes have in common that wait only once."""
    return {"kind": Kind.VERIFICATION, "run": run, "gpu_id": wish.gpu, "tier": wish.tier}


def request_calibration(target: HostGpu, problem: int, at: datetime.datetime) -> tuple[GradeJob, bool]:
    """Ask for the reference kernel on one GPU; return the job, and whether it is new."""
    known = {"kind": Kind.CALIBRATION, "target": target}
    fields = known | {"gpu_id": target.gpu_id, "problem_id": problem, "tier": Tier.QUICK, "reason": Reason.CALIBRATION}
    return _insert(known, fields, at)


def _insert(known: dict[str, Any], fields: dict[str, Any], at: datetime.datetime) -> tuple[GradeJob, bool]:
    held = GradeJob.objects.filter(**known, state__in=OPEN).first()
    if held is not None:
        return held, False
    try:
        with transaction.atomic():
            job = GradeJob.objects.create(requested_at=at, max_attempts=settings.JOB_ATTEMPTS, **fields)
            by = fields.get("requested_by")
            _note(job.pk, Event.REQUESTED, at, f"{job.reason}{f' by {by}' if by else ''}")
    except IntegrityError:
        return GradeJob.objects.get(**known, state__in=OPEN), False
    return job, True


def mark_sent(jobs: Collection[int], at: datetime.datetime) -> None:
    """Say that the wake-ups of some waiting jobs were sent."""
    for job in GradeJob.objects.filter(pk__in=jobs, state__in=WAITING):
        with transaction.atomic():
            is_first = job.state == State.REQUESTED
            if _move(job.pk, Act.QUEUE, at, sent_at=at) and is_first:
                _note(job.pk, Event.QUEUED, at)


def choose(pk: int, taker: HostGpu) -> int:
    """Return the job to lease to a worker that was woken for one: the most urgent that waits for its GPU key.

    A wake-up says that something waits; which comes first is decided when a GPU is free. What a person or an
    unconfirmed verdict asks for goes before what a policy does. Calibrations have wake-ups of their own.
    """
    asked = GradeJob.objects.filter(pk=pk, gpu=taker.gpu_id, kind=Kind.VERIFICATION).first()
    if asked is None or asked.state in HELD:
        return pk
    ready = waiting().filter(gpu=taker.gpu_id, kind=Kind.VERIFICATION, sent_at__isnull=False)
    urgency = Case(When(reason__in=URGENT, then=0), default=1)
    best = ready.order_by(urgency, "requested_at", "pk").values_list("pk", flat=True).first()
    return pk if best is None else best


@transaction.atomic
def lease(pk: int, taker: HostGpu, instance: str, at: datetime.datetime) -> GradeJob:
    """Give a waiting job to a GPU's worker; return it with its token. Raises JobError with the reason of a refusal.

    The worker that holds it already gets a new token without spending an attempt: the earlier answer was lost.
    """
    job = GradeJob.objects.select_related("run", "problem", "target").filter(pk=pk).first()
    if job is None:
        raise JobError(f"job {pk} is not known")
    _check_taker(job, taker)
    is_own = job.state in HELD and job.holder_id == taker.pk and job.instance == instance
    if job.state not in WAITING and not is_own:
        raise JobError(f"job {pk} is {job.state}")
    if not is_own and job.attempt >= job.max_attempts:
        raise JobError(f"job {pk} was tried {job.attempt} times")
    limit = datetime.timedelta(minutes=settings.GRADE_MINUTES[job.tier])
    changes = {
        "token": job.token + 1,
        "attempt": job.attempt if is_own else job.attempt + 1,
        "holder": taker,
        "instance": instance,
        "leased_at": at,
        "started_at": None,
        "lease_until": at + datetime.timedelta(seconds=settings.LEASE_SECONDS),
        "deadline": at + limit,
        "progress": {},
    }
    act = Act.RENEW if is_own else Act.LEASE
    if not _move(pk, act, at, f"attempt {changes['attempt']}", old_token=job.token, host_gpu=taker, **changes):
        raise JobError(f"job {pk} was taken by another worker")
    for name, value in changes.items():
        setattr(job, name, value)
    return job


def _check_taker(job: GradeJob, taker: HostGpu) -> None:
    if job.gpu_id != taker.gpu_id:
        raise JobError(f"job {job.pk} is for {job.gpu_id}; this GPU is {taker.gpu_id}")
    if job.target_id is not None and job.target_id != taker.pk:
        raise JobError(f"job {job.pk} calibrates another GPU")
    if job.kind == Kind.VERIFICATION and taker.state != HostState.HEALTHY:
        raise JobError(f"this GPU is {taker.state}: {taker.reason or 'it was not calibrated yet'}")


@transaction.atomic
def extend(pk: int, token: int, holder: HostGpu, progress: dict[str, Any], at: datetime.datetime) -> str | None:
    """Extend the lease of a job that is being graded; return why its holder must stop instead, or None.

    progress  {step, shape, percent} as the host says
    """
    until = at + datetime.timedelta(seconds=settings.LEASE_SECONDS)
    changes = {"lease_until": until, "progress": progress}
    narrowed = {"old_token": token, "holder": holder}
    if _move(pk, Act.BEAT, at, **narrowed, **changes):
        return None
    if _move(pk, Act.START, at, host_gpu=holder, **narrowed, **changes, started_at=at):
        return None
    job = GradeJob.objects.filter(pk=pk).first()
    if job is None:
        return f"job {pk} is not known"
    return f"job {pk} is {job.state}" if job.state not in HELD else f"job {pk} has another holder by now"


@transaction.atomic
def record(pk: int, token: int, holder: HostGpu, at: datetime.datetime, text: str, evidence: str) -> bool:
    """Close a job with its result; False where the token is not the present one. Call it in the result's transaction.

    evidence  digest of the blob with the archive
    """
    changes = {"ended_at": at, "cause": "", "evidence": evidence, "host_gpu": holder, **_RELEASED}
    return _move(pk, Act.RECORD, at, text, old_token=token, holder=holder, **changes)


def enter(
    pk: int, holder: HostGpu, times: tuple[datetime.datetime, datetime.datetime], text: str, evidence: str
) -> bool:
    """Close a waiting job with a grade that was made without the service; False where it does not wait.

    times     when the grade began and ended
    evidence  digest of the blob with the archive
    """
    began, ended = times
    changes = {"leased_at": began, "started_at": began, "ended_at": ended, "attempt": 1, "holder": holder}
    return _move(pk, Act.ENTER, ended, text, evidence=evidence, host_gpu=holder, **changes)


def keep_cost(pk: int, gpu_seconds: float | None) -> None:
    """Keep for how long a recorded grade held its GPU. Call it in the result's transaction."""
    GradeJob.objects.filter(pk=pk, state=State.RECORDED).update(gpu_seconds=gpu_seconds)


@transaction.atomic
def give_back(pk: int, token: int, cause: str, at: datetime.datetime) -> bool:
    """Let a held job wait again, or expire it where its attempts are used up; False for an old token."""
    job = GradeJob.objects.filter(pk=pk, token=token, state__in=HELD).first()
    if job is None:
        return False
    common = {"cause": cause[:_LONGEST_TEXT], "token": token + 1, "host_gpu": job.holder, **_RELEASED}
    if job.attempt >= job.max_attempts:
        text = f"{cause}; tried {job.attempt} times"
        return _move(pk, Act.EXPIRE, at, text, old_token=token, ended_at=at, **common)
    waiting = {"holder": None, "instance": "", "sent_at": None, "started_at": None, "progress": {}}
    return _move(pk, Act.RETRY, at, cause, old_token=token, **common, **waiting)


@transaction.atomic
def refuse(pk: int, cause: str, at: datetime.datetime, token: int | None = None) -> bool:
    """Close a job that can never be graded; False for an old token, or where it is closed already."""
    changes = {"cause": cause[:_LONGEST_TEXT], "ended_at": at, **_RELEASED}
    return _move(pk, Act.REFUSE, at, cause, old_token=token, **changes)


@transaction.atomic
def cancel(pk: int, by: User, at: datetime.datetime) -> bool:
    """Cancel an open job; its host is told with its next heartbeat. False where it is closed already."""
    cause = f"cancelled by {by}"
    return _move(pk, Act.CANCEL, at, cause, cause=cause, ended_at=at, token=F("token") + 1, **_RELEASED)


@transaction.atomic
def take_back(pk: int, by: User, at: datetime.datetime) -> bool:
    """Cancel a job for the person who asked; False where it does not wait any more, or somebody else asked.

    A grade that has begun goes on: who asked could otherwise end it before it says what they do not like.
    """
    if not GradeJob.objects.filter(pk=pk, requested_by=by).exists():
        return False
    cause = f"taken back by {by}"
    return _move(pk, Act.TAKE_BACK, at, cause, cause=cause, ended_at=at, token=F("token") + 1, **_RELEASED)


def rerun(job: GradeJob, by: User, at: datetime.datetime) -> tuple[GradeJob, bool]:
    """Ask for the same grade again; return the job, and whether it is new. Raises JobError while it is open."""
    if job.state in OPEN:
        raise JobError(f"{job} is {job.state}; only a job that ended can be run again")
    if job.target is not None:
        return request_calibration(job.target, job.problem_id, at)
    assert job.run is not None
    return request(job.run, Wish(job.gpu_id, job.tier, Reason.PERSON, by), at)


def keep_late_result(pk: int, token: int, holder: HostGpu, at: datetime.datetime, evidence: str) -> None:
    """Keep a result that came with an old token beside the job that it does not change."""
    job = GradeJob.objects.filter(pk=pk).first()
    if job is not None:
        text = f"refused: token {token} is not the present one; the job is {job.state}"
        _note(pk, Event.LATE_RESULT, at, text, token=token, host_gpu=holder, evidence=evidence)


def return_lost(at: datetime.datetime) -> int:
    """Let every job wait again whose lease or deadline is over; return how many there were."""
    count = 0
    for job in GradeJob.objects.filter(state__in=HELD).filter(Q(lease_until__lt=at) | Q(deadline__lt=at)):
        is_over = job.deadline is not None and job.deadline < at
        cause = f"it ran longer than {settings.GRADE_MINUTES[job.tier]} minutes" if is_over else "its host went silent"
        count += give_back_if_still(job, cause, at)
    return count


def return_from_earlier(holder: HostGpu, instance: str, at: datetime.datetime) -> int:
    """Let jobs wait again that an earlier worker of a GPU held: there is a new one, so the earlier one is gone."""
    rows = GradeJob.objects.filter(state__in=HELD, holder=holder).exclude(instance=instance)
    return sum(give_back(job.pk, job.token, "its worker was started again", at) for job in rows)


@transaction.atomic
def give_back_if_still(job: GradeJob, cause: str, at: datetime.datetime) -> bool:
    """Do the same as `give_back` unless a heartbeat extended the lease since the row was read."""
    same = GradeJob.objects.filter(pk=job.pk, token=job.token, lease_until=job.lease_until)
    return same.exists() and give_back(job.pk, job.token, cause, at)


def expire_old(at: datetime.datetime) -> int:
    """Expire jobs that waited for longer than the setting allows; return how many there were."""
    since = at - datetime.timedelta(hours=settings.JOB_HOURS)
    old = GradeJob.objects.filter(state__in=WAITING, requested_at__lt=since).values_list("pk", flat=True)
    cause = f"nobody took it within {settings.JOB_HOURS} hours"
    return sum(_move(pk, Act.EXPIRE, at, cause, cause=cause, ended_at=at) for pk in old)


def waiting() -> QuerySet[GradeJob]:
    """Return the jobs that wait for a host, oldest first."""
    return GradeJob.objects.filter(state__in=WAITING).order_by("requested_at", "pk")


def _move(pk: int, act: Act, at: datetime.datetime, text: str = "", **changes: Any) -> bool:
    """Make one transition by one conditional UPDATE and leave its event; False where the row does not allow it.

    Among the changes, old_token narrows the row to a token, and so does holder for what only a holder may do;
    host_gpu and evidence go to the event.
    """
    allowed = TRANSITIONS[act]
    rows = GradeJob.objects.filter(pk=pk, state__in=allowed.sources)
    old_token = changes.pop("old_token", None)
    shown = {"host_gpu": changes.pop("host_gpu", None), "evidence": changes.pop("evidence", "")}
    if old_token is not None:
        rows = rows.filter(token=old_token)
    if act in (Act.START, Act.BEAT, Act.RECORD):
        rows = rows.filter(holder=changes.pop("holder"))
    if allowed.target is not None:
        changes["state"] = allowed.target
    with transaction.atomic():
        if rows.update(**changes) != 1:
            return False
        if allowed.event is not None:
            token = changes["token"] if act in (Act.LEASE, Act.RENEW) else old_token
            _note(pk, allowed.event, at, text, token=token, **shown)
    return True


def _note(pk: int, kind: Event, at: datetime.datetime, text: str = "", **fields: Any) -> None:
    GradeEvent.objects.create(job_id=pk, at=at, kind=kind, text=text[:_LONGEST_TEXT], **fields)
