"""Hosts: their keys, their GPUs, and the gate of calibration. The only writer of a host's state."""

import datetime
import logging
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from grading import wire
from grading.hardware import load_gpus
from grading.regrade import Times, departure
from grading.verdict import Verdict
from leaderboard import catalogue, jobs, notify
from leaderboard.models import Calibration, GradeJob, Host, HostGpu, HostState, Problem

log = logging.getLogger(__name__)
# The host that stands for grades which were made without the service.
ARCHIVES = "archives"
_GOOD = ("verified", "verified_note")
_LONGEST = 300
_MOST_FINDINGS = 50
_LEVELS = ("A", "B")
_AWAITS_PERSON = "the first calibration of {} waits for a person: manage.py host accept"


class HostError(ValueError):
    """A host that cannot be added, changed or accepted; the message is safe to show to users."""


def add(name: str, at: datetime.datetime) -> wire.HostKey:
    """Register a host, or give a known one a new key in place of the old one; return the key. Raises HostError."""
    try:
        wire.derive_key(settings.SECRET_KEY, name, 1)
    except wire.WireError as error:
        raise HostError(str(error)) from error
    with transaction.atomic():
        host, is_new = Host.objects.get_or_create(name=name, defaults={"registered_at": at})
        if not is_new:
            host.key_serial += 1
            if host.state == HostState.RETIRED:
                host.state, host.reason = HostState.NEW, ""
            host.save()
    return key_of(host)


def key_of(host: Host) -> wire.HostKey:
    """Return a host's present key."""
    return wire.derive_key(settings.SECRET_KEY, host.name, host.key_serial)


@transaction.atomic
def revoke(host: Host, reason: str) -> None:
    """Retire a host: its key counts no more, and whatever it holds goes to others when the lease runs out."""
    Host.objects.filter(pk=host.pk).update(key_serial=host.key_serial + 1, state=HostState.RETIRED, reason=reason)


def greet(host: Host, uuid: str, instance: str, hello: wire.Hello, at: datetime.datetime) -> HostGpu:
    """Take down a worker's hello; return its GPU's row. Raises HostError for a GPU key that does not exist.

    A GPU with another driver, or on a host with other versions, must be calibrated again.
    """
    if hello.gpu not in load_gpus():
        raise HostError(f"GPU key is {hello.gpu[:40]!r}; accepted are {', '.join(load_gpus())}")
    if not Problem.objects.exists():
        catalogue.sync()
    versions = {name[:40]: text[:100] for name, text in sorted(hello.versions.items())[:_MOST_FINDINGS]}
    is_changed = bool(hello.findings) and host.versions not in ({}, versions)
    host.last_seen = at
    if hello.findings:
        host.versions, host.isolation = versions, hello.isolation[:1]
        host.findings = [
            {"name": item.name[:40], "is_there": item.is_there, "sentence": item.sentence[:_LONGEST]}
            for item in hello.findings[:_MOST_FINDINGS]
        ]
    host.save(update_fields=["last_seen", "versions", "isolation", "findings"])
    said = {"gpu_id": hello.gpu, "name": hello.name[:100], "driver": hello.driver[:40]}
    row, _ = HostGpu.objects.get_or_create(host=host, uuid=uuid, defaults=said)
    proven = HostGpu.objects.filter(host=host).exclude(state=HostState.RETIRED)
    if (row.gpu_id, row.driver) != (said["gpu_id"], said["driver"]) or is_changed:
        changed = proven if is_changed else proven.filter(pk=row.pk)
        changed.update(state=HostState.NEW, reason="driver or versions changed", calibrated_at=None)
    HostGpu.objects.filter(pk=row.pk).update(**said, instance=instance, last_seen=at)
    return HostGpu.objects.select_related("host").get(pk=row.pk)


def of_archives(uuid: str, gpu: str, name: str, driver: str, at: datetime.datetime) -> HostGpu:
    """Return the row of a GPU whose grades were brought in as archives: no host of the service, so it takes no job."""
    about = {"registered_at": at, "state": HostState.RETIRED, "reason": "its grades were loaded from archives"}
    host, _ = Host.objects.get_or_create(name=ARCHIVES, defaults=about)
    said = {"gpu_id": gpu, "name": name[:100], "driver": driver[:40], "state": HostState.RETIRED}
    return HostGpu.objects.get_or_create(host=host, uuid=uuid[:80], defaults=said)[0]


def needs_calibration(row: HostGpu, at: datetime.datetime) -> bool:
    """Tell whether a GPU must prove itself now: it never did, or too long ago."""
    if row.state in (HostState.QUARANTINED, HostState.RETIRED):
        return False
    oldest = at - datetime.timedelta(hours=settings.CALIBRATION_HOURS)
    if row.calibrated_at is None:
        return row.reason != _AWAITS_PERSON.format(row.gpu_id)
    return row.calibrated_at < oldest


@transaction.atomic
def quarantine_unproven() -> int:
    """Put every GPU into quarantine whose last calibration came to nothing; return how many there were."""
    ended = (GradeJob.State.EXPIRED, GradeJob.State.REFUSED)
    count = 0
    for row in HostGpu.objects.select_related("host").filter(state__in=(HostState.NEW, HostState.HEALTHY)):
        last = GradeJob.objects.filter(target=row).order_by("-pk").first()
        if (
            last is not None
            and last.state in ended
            and (row.calibrated_at is None or row.calibrated_at < last.ended_at)
        ):
            set_state(row, HostState.QUARANTINED, f"its calibration came to nothing: {last.cause}")
            count += 1
    return count


def calibrate(row: HostGpu, at: datetime.datetime) -> GradeJob:
    """Ask a GPU to prove itself. Raises HostError where the problem of the setting does not exist."""
    deck, _, slug = settings.CALIBRATION_PROBLEM.partition("/")
    problem = Problem.objects.filter(deck=deck, slug=slug).first()
    if problem is None:
        raise HostError(f"PROOFLINE_CALIBRATION_PROBLEM is {settings.CALIBRATION_PROBLEM!r}, which is no problem")
    return jobs.request_calibration(row, problem.pk, at)[0]


def tolerance_of(gpu: str) -> float:
    """Return how far a calibration on a GPU key may depart from the record."""
    tolerances: dict[str, float] = settings.CALIBRATION_TOLERANCES
    return tolerances.get(gpu, tolerances["default"])


def record_of(gpu: str, problem: int) -> Calibration | None:
    """Return the calibration that a GPU key is held against, or None where nobody accepted one yet."""
    return Calibration.objects.filter(gpu=gpu, problem=problem, is_record=True).order_by("-pk").first()


def take_calibration(job: GradeJob, row: HostGpu, verdict: Verdict, times: Times, evidence: str) -> Calibration:
    """Write down a calibration; let the GPU verify, or put it into quarantine. Call it in the result's transaction."""
    assert job.ended_at is not None
    record = record_of(job.gpu_id, job.problem_id)
    ratio = departure(times, times_of(record)) if record is not None else None
    fault = _fault(verdict, ratio, record, job.gpu_id) or _weakness(row.host)
    taken = Calibration.objects.create(
        host_gpu=row,
        gpu_id=job.gpu_id,
        problem_id=job.problem_id,
        job=job,
        word=verdict.word,
        figures={"shapes_ms": list(times.shapes_ms), "yardstick_ms": times.yardstick_ms},
        ratio=ratio,
        is_accepted=not fault,
        reason=fault[:_LONGEST],
        evidence_digest=evidence,
        recorded_at=job.ended_at,
    )
    if fault:
        set_state(row, HostState.QUARANTINED, fault)
    elif record is None:
        set_state(
            row, HostState.NEW, f"the first calibration of {job.gpu_id} waits for a person: manage.py host accept"
        )
    else:
        set_state(row, HostState.HEALTHY, "", calibrated_at=job.ended_at)
    return taken


def _fault(verdict: Verdict, ratio: float | None, record: Calibration | None, gpu: str) -> str:
    if verdict.word not in _GOOD:
        causes = list(dict.fromkeys(item.message for item in verdict.fired if item.word == verdict.word))
        slower = [f"it took {ratio:.2f} of the record's time"] if ratio is not None and ratio > 1 else []
        return "; ".join([f"the reference kernel was graded {verdict.word}", *causes[:2], *slower])
    if record is None:
        return ""
    if ratio is None:
        return "its times cannot be compared with the record"
    most = tolerance_of(gpu)
    if not 1 / (1 + most) <= ratio <= 1 + most:
        return f"it takes {ratio:.3f} of the record's time; at most {most:.0%} apart are accepted"
    return ""


def _weakness(host: Host) -> str:
    return "" if host.isolation in _LEVELS else "it cannot keep a candidate from its grader; see doctor"


def times_of(row: Calibration) -> Times:
    """Return the figures of a calibration."""
    return Times(tuple(row.figures["shapes_ms"]), row.figures["yardstick_ms"])


@transaction.atomic
def accept(row: HostGpu, by: User, at: datetime.datetime) -> Calibration:
    """Make a GPU's newest calibration the record of its key, and let the GPU verify. Raises HostError."""
    if not by.is_staff:
        raise HostError(f"{by} is not staff; a member of the staff accepts a calibration")
    latest = Calibration.objects.filter(host_gpu=row, job__isnull=False).order_by("-pk").first()
    if latest is None or latest.word not in _GOOD or any(ms is None for ms in latest.figures["shapes_ms"]):
        raise HostError(f"{row} has no calibration that passed; its first one starts when its worker says hello")
    made = Calibration.objects.create(
        host_gpu=row,
        gpu_id=latest.gpu_id,
        problem_id=latest.problem_id,
        word=latest.word,
        figures=latest.figures,
        ratio=1.0,
        is_accepted=True,
        is_record=True,
        accepted_by=by,
        evidence_digest=latest.evidence_digest,
        recorded_at=at,
    )
    set_state(row, HostState.HEALTHY, "", calibrated_at=latest.recorded_at)
    return made


@transaction.atomic
def release(row: HostGpu, at: datetime.datetime) -> GradeJob:
    """Take a GPU out of quarantine and ask it to prove itself again."""
    set_state(row, HostState.NEW, "taken out of quarantine; it must be calibrated again", calibrated_at=None)
    return calibrate(row, at)


def set_state(row: HostGpu, state: HostState, reason: str, **changes: Any) -> None:
    """Write a GPU's state; a quarantine is told to people."""
    is_news = state == HostState.QUARANTINED and row.state != HostState.QUARANTINED
    row.state, row.reason = state, reason[:_LONGEST]
    for name, value in changes.items():
        setattr(row, name, value)
    HostGpu.objects.filter(pk=row.pk).update(state=row.state, reason=row.reason, **changes)
    if is_news:
        log.warning("%s is in quarantine: %s", row, reason)
        transaction.on_commit(lambda: _tell_quarantine(row))


def _tell_quarantine(row: HostGpu) -> None:
    link = f"{settings.SITE_URL}/gpus/"
    body = f"{row} ({row.gpu_id}) may not verify any more.\n\nReason: {row.reason}\n\n{link}\n"
    data = {"host": row.host.name, "gpu": row.gpu_id, "uuid": row.uuid, "reason": row.reason, "link": link}
    notify.send_notice("quarantined", f"Quarantined: {row}", body, data)
