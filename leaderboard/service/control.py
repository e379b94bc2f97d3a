"""The database side of the service: takes what hosts say, decides by the job rows, and answers.

A message is refused, with a line in the log and nothing else, unless its size, form, host, signature, age and
novelty are right. What it then does and the mark that it was taken are one transaction, so that a message handed out
twice by the broker, or sent again by somebody who copied it, acts once.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db import IntegrityError, transaction
from django.utils import timezone

from grading import wire
from grading.parcel import pack
from leaderboard import jobs
from leaderboard.models import GradeJob, Host, HostGpu, HostState, SeenMessage
from leaderboard.service import hosts, results
from leaderboard.service.parcels import Parcel, ParcelMissing, deck_parcel, problem_of, reference_of, run_parcel
from leaderboard.service.results import ResultError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to a worker's inbox, and what is done after it was sent."""

    instance: str
    text: str
    after: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class _Sender:
    """Who speaks: the host and, once it said hello, its GPU; with a result, its archive as opened beforehand."""

    host: Host
    gpu: HostGpu | None
    envelope: wire.Envelope
    opened: results.Opened | None = None


class _NotWelcome(ValueError):
    """A message of a worker that did not say hello before."""


def handle(text: object) -> Answer | None:
    """Take one message; return the answer, or None for what needs none. Raises WireError for what is refused."""
    envelope = wire.read_envelope(text)
    host = Host.objects.filter(name=envelope.host).first()
    if host is None or host.state == HostState.RETIRED or envelope.serial != host.key_serial:
        raise wire.WireError(f"host {envelope.host[:40]!r} with key {envelope.serial} is not known, or was revoked")
    wire.check_envelope(envelope, hosts.key_of(host), "up", timezone.now().timestamp())
    message = wire.read_up(envelope)
    opened = results.open_result(message) if isinstance(message, wire.Result) else None
    with transaction.atomic():
        _mark_seen(envelope)
        gpu = HostGpu.objects.select_related("host").filter(host=host, uuid=envelope.gpu).first()
        reply, after = _respond(message, _Sender(host, gpu, envelope, opened))
    if reply is None:
        return None
    sender = (envelope.gpu, envelope.instance)
    return Answer(envelope.instance, wire.seal(reply, hosts.key_of(host), "down", sender, envelope.nonce), after)


def _mark_seen(envelope: wire.Envelope) -> None:
    try:
        with transaction.atomic():
            SeenMessage.objects.create(nonce=envelope.nonce, at=timezone.now())
    except IntegrityError as error:
        raise wire.WireError(f"a message of host {envelope.host[:40]!r} came twice") from error


def _respond(message: wire.Up, sender: _Sender) -> tuple[wire.Down | None, Callable[[], None] | None]:
    """Return the answer to a message, and what is to be done once it was sent."""
    if isinstance(message, wire.Hello):
        return _greet(message, sender), None
    try:
        gpu = _known_gpu(sender)
        if isinstance(message, wire.Result) and sender.opened is not None:
            return _take(message, sender.opened, gpu)
        if isinstance(message, wire.Ask):
            return _lease(message, gpu, sender.envelope.instance), None
        if isinstance(message, wire.Fetch):
            return _send_files(message, gpu), None
        if isinstance(message, wire.Beat):
            return _extend(message, gpu), None
        return _give_back(message, gpu), None
    except (_NotWelcome, jobs.JobError, ParcelMissing) as error:
        return wire.Refusal(job=message.job, reason=str(error)[:300]), None


def _known_gpu(sender: _Sender) -> HostGpu:
    """Return the sender's GPU. Raises _NotWelcome for one whose present worker is another."""
    if sender.gpu is None or sender.gpu.instance != sender.envelope.instance:
        raise _NotWelcome("this worker did not say hello, or another one speaks for its GPU by now")
    if HostState.RETIRED in (sender.gpu.state, sender.host.state):
        raise _NotWelcome("this GPU is retired")
    return sender.gpu


def _greet(hello: wire.Hello, sender: _Sender) -> wire.Down | None:
    """Take down a hello; ask the GPU to prove itself where that is due."""
    at = timezone.now()
    instance, uuid = sender.envelope.instance, sender.envelope.gpu
    if not hello.is_first and (sender.gpu is None or sender.gpu.instance != instance):
        return None
    try:
        row = hosts.greet(sender.host, uuid, instance, hello, at)
        jobs.return_from_earlier(row, instance, at)
        if hosts.needs_calibration(row, at):
            hosts.calibrate(row, at)
    except hosts.HostError as error:
        return wire.Refusal(job=0, reason=str(error)[:300])
    return wire.Welcome(state=row.state, reason=row.reason) if hello.is_first else None


def _lease(ask: wire.Ask, gpu: HostGpu, instance: str) -> wire.Down:
    job = jobs.lease(jobs.choose(ask.job, gpu), gpu, instance, timezone.now())
    try:
        deck, run = deck_parcel(job), run_parcel(job.run) if job.run is not None else None
    except ParcelMissing as error:
        jobs.refuse(job.pk, str(error), timezone.now(), job.token)
        return wire.Refusal(job=job.pk, reason=str(error)[:300])
    assert job.deadline is not None and job.leased_at is not None and job.lease_until is not None
    return wire.Grant(
        job=job.pk,
        token=job.token,
        lease_seconds=round((job.lease_until - job.leased_at).total_seconds()),
        limit_seconds=round((job.deadline - job.leased_at).total_seconds()),
        problem=problem_of(job).key,
        gpu=job.gpu_id,
        tier=job.tier,
        run=str(job.run) if job.run is not None else "",
        reference=reference_of(job),
        deck_digest=deck.digest,
        run_digest=run.digest if run is not None else "",
    )


def _send_files(fetch: wire.Fetch, gpu: HostGpu) -> wire.Down:
    job = _held(fetch, gpu)
    parcels: list[Parcel] = [deck_parcel(job)]
    if job.run is not None:
        parcels.append(run_parcel(job.run))
    found = next((parcel for parcel in parcels if parcel.digest == fetch.digest), None)
    if found is None:
        return wire.Refusal(job=fetch.job, reason="these files do not belong to the job")
    packed = pack(found.files)
    if len(packed) > wire.MAX_INLINE_BYTES:
        cause = f"the files have {len(packed)} bytes packed; at most {wire.MAX_INLINE_BYTES} are sent"
        jobs.refuse(job.pk, cause, timezone.now(), job.token)
        return wire.Refusal(job=fetch.job, reason=cause)
    return wire.Files(digest=found.digest, packed=packed)


def _held(message: wire.Fetch | wire.Fault, gpu: HostGpu) -> GradeJob:
    """Return the job that a GPU holds under a token. Raises JobError."""
    rows = GradeJob.objects.select_related("run", "problem")
    job = rows.filter(pk=message.job, token=message.token, holder=gpu, state__in=jobs.HELD).first()
    if job is None:
        raise jobs.JobError(f"job {message.job} is not held under this token")
    return job


def _extend(beat: wire.Beat, gpu: HostGpu) -> wire.Down:
    at = timezone.now()
    percent = min(100.0, max(0.0, beat.percent))
    progress = {"step": beat.step[:60], "shape": beat.shape, "percent": percent}
    HostGpu.objects.filter(pk=gpu.pk).update(last_seen=at)
    reason = jobs.extend(beat.job, beat.token, gpu, progress, at)
    return wire.GoOn(job=beat.job) if reason is None else wire.Stop(job=beat.job, reason=reason)


def _give_back(fault: wire.Fault, gpu: HostGpu) -> wire.Down:
    job, at = _held(fault, gpu), timezone.now()
    cause = f"{gpu}: {fault.cause}"[:300]
    if fault.is_final:
        jobs.refuse(job.pk, cause, at, fault.token)
    else:
        jobs.give_back(job.pk, fault.token, cause, at)
    return wire.Taken(job=fault.job, word="given back")


def _take(result: wire.Result, opened: results.Opened, gpu: HostGpu) -> tuple[wire.Down, Callable[[], None] | None]:
    at = timezone.now()
    try:
        word = results.take(result, opened, gpu, at)
    except ResultError as error:
        log.warning("result of job %d by %s is refused: %s", result.job, gpu, error)
        jobs.give_back(result.job, result.token, f"{gpu}: {error}", at)
        return wire.Refusal(job=result.job, reason=str(error)[:300]), None
    if word is None:
        log.warning("late result of job %d by %s is refused and kept", result.job, gpu)
        return wire.Stop(
            job=result.job, reason="the token is not the present one; the result is kept as evidence"
        ), None
    return wire.Taken(job=result.job, word=word), lambda: results.assess(result.job)
