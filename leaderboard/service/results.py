"""What a host hands in becomes a verification or a calibration: judged here, stored once, and acted upon.

One transaction closes the job and writes the row that follows, so a result is recorded exactly once or not at all. A
result with an old token changes nothing and is kept with its evidence beside the job.
"""

import datetime
import hashlib
import logging
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
from django.conf import settings
from django.db import transaction

from grading.evidence import Evidence, read_evidence
from grading.parcel import ParcelError, open_parcel
from grading.regrade import Question, Times, judge_again, misfit, read_times, score_of
from grading.verdict import Verdict
from grading.wire import Result
from leaderboard import jobs, verdicts
from leaderboard.models import Blob, Calibration, GradeJob, HostGpu, Verification
from leaderboard.recompute import recompute_all
from leaderboard.service import hosts
from leaderboard.service.parcels import ParcelMissing, question_of

log = logging.getLogger(__name__)
_MOST_FIRED = 30
_CLOCK_SECONDS = 1.0
_BAD = frozenset({"incorrect", "integrity", "not_reproduced"})


class ResultError(ValueError):
    """A result that cannot be used; the message is safe to show to users."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A result's archive, opened before any row is locked: its bytes, and the evidence or why there is none."""

    packed: bytes | None
    evidence: Evidence | None
    fault: str


def open_result(result: Result) -> Opened:
    """Read a result's archive. What is wrong with it is kept for when the job is known."""
    packed = None
    try:
        packed = read_packed(result)
        return Opened(packed, _read(packed), "")
    except ResultError as error:
        return Opened(packed, None, str(error))


def take(result: Result, opened: Opened, holder: HostGpu, at: datetime.datetime) -> str | None:
    """Record a result; return the verdict's word, or None where its token is not the present one.

    Raises ResultError for one that is no answer to the job; the job is then given back.
    """
    job = GradeJob.objects.select_related("run", "problem").filter(pk=result.job).first()
    if job is None:
        raise ResultError(f"job {result.job} is not known")
    known = _known_word(job, result, holder)
    if known is not None:
        return known
    if job.state not in jobs.HELD or job.token != result.token or job.holder_id != holder.pk:
        evidence = _store_blob(opened.packed) if opened.packed is not None else ""
        jobs.keep_late_result(result.job, result.token, holder, at, evidence)
        return None
    if opened.packed is None or opened.evidence is None:
        raise ResultError(opened.fault)
    return _store(job, holder, opened.packed, (opened.evidence, _question(job, opened.evidence)), at)


def enter(job: GradeJob, holder: HostGpu, packed: bytes, evidence: Evidence, began: datetime.datetime) -> str:
    """Record a grade that was made without the service as the answer to a waiting job; return the verdict's word.

    Raises ResultError for evidence that does not answer the job, or a job that somebody grades just now.
    """
    question = _question(job, evidence)
    verdict, times = _judge(evidence, question)
    ended = began + datetime.timedelta(seconds=evidence.gpu_seconds or 0)
    digest, text = _store_blob(packed), f"{verdict.word}, isolation {verdict.isolation}, loaded from an archive"
    if not jobs.enter(job.pk, holder, (began, ended), text, digest):
        raise ResultError("the run is being graded just now")
    job.leased_at, job.ended_at = began, ended
    _write(job, holder, (evidence, question), (verdict, times), digest)
    return verdict.word


def _write(
    job: GradeJob, holder: HostGpu, asked: tuple[Evidence, Question], found: tuple[Verdict, Times], digest: str
) -> None:
    """Write what follows from a run's grade once its job is closed: cost, verification, the wish for another one."""
    assert job.ended_at is not None
    jobs.keep_cost(job.pk, _gpu_seconds(asked[0], job))
    row = _verification(job, holder, asked, *found)
    row.evidence_digest = digest
    row.save(force_insert=True)
    _ask_for_a_second(row, job.ended_at)


def _question(job: GradeJob, evidence: Evidence) -> Question:
    """Return what the job asked. Raises ResultError where the evidence does not answer it."""
    try:
        question = question_of(job)
    except ParcelMissing as error:
        raise ResultError(str(error)) from error
    fault = misfit(evidence, question)
    if fault is not None:
        raise ResultError(f"the evidence answers another question: {fault}")
    return question


def _known_word(job: GradeJob, result: Result, holder: HostGpu) -> str | None:
    """Return the word of a job that its holder hands in again because the answer was lost, else None."""
    if job.state != jobs.State.RECORDED or job.holder_id != holder.pk or job.token != result.token:
        return None
    rows = Verification if job.run_id is not None else Calibration
    return rows.objects.filter(job=job).values_list("word", flat=True).first()


def read_packed(result: Result) -> bytes:
    """Return a result's archive, from the message or from the shared folder. Raises ResultError."""
    if result.packed is not None:
        packed = result.packed
    else:
        packed = _read_shared(result)
    if len(packed) != result.size or hashlib.sha256(packed).hexdigest() != result.digest:
        raise ResultError(f"the archive is not the one of digest {result.digest[:12]!r}")
    return packed


def _read_shared(result: Result) -> bytes:
    most = settings.MAX_UPLOAD_BYTES
    if not settings.EVIDENCE_DIR:
        raise ResultError("the archive is not in the message, and there is no shared folder (PROOFLINE_EVIDENCE_DIR)")
    if not (len(result.digest) == 64 and result.digest.isalnum()):
        raise ResultError("digest is no SHA-256 in hex")
    path = Path(settings.EVIDENCE_DIR) / f"{result.digest}.tar.gz"
    try:
        if path.is_symlink() or path.stat().st_size > most:
            raise ResultError(f"the archive in the shared folder is a link, or larger than {most} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ResultError(f"the archive is not in the shared folder: {error.strerror}") from error


def _read(packed: bytes) -> Evidence:
    workplace = settings.VAR_DIR / "incoming"
    workplace.mkdir(parents=True, exist_ok=True)
    try:
        return decode_evidence(open_parcel(packed, workplace).get("evidence.json", b""))
    except ParcelError as error:
        raise ResultError(str(error)) from error


def decode_evidence(data: bytes) -> Evidence:
    """Return what an archive's ``evidence.json`` holds. Raises ResultError."""
    try:
        return read_evidence(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ResultError(f"evidence.json is malformed: {str(error)[:200]}") from error


def _store(
    job: GradeJob, holder: HostGpu, packed: bytes, asked: tuple[Evidence, Question], at: datetime.datetime
) -> str | None:
    """Close the job and write what follows from it, in one transaction; None where the lease was lost meanwhile."""
    verdict, times = _judge(*asked)
    with transaction.atomic():
        digest = _store_blob(packed)
        text = f"{verdict.word}, isolation {verdict.isolation}"
        if not jobs.record(job.pk, job.token, holder, at, text, digest):
            jobs.keep_late_result(job.pk, job.token, holder, at, digest)
            return None
        job.ended_at = at
        if job.run is None:
            jobs.keep_cost(job.pk, _gpu_seconds(asked[0], job))
            hosts.take_calibration(job, holder, verdict, times, digest)
        else:
            _write(job, holder, asked, (verdict, times), digest)
    return verdict.word


def _gpu_seconds(evidence: Evidence, job: GradeJob) -> float | None:
    """Return for how long a grade held its GPU; None where its evidence does not say, or more than the job was held."""
    said = evidence.gpu_seconds
    assert job.leased_at is not None and job.ended_at is not None
    most = (job.ended_at - job.leased_at).total_seconds() + _CLOCK_SECONDS
    return said if said is not None and 0 <= said <= most else None


def _judge(evidence: Evidence, question: Question) -> tuple[Verdict, Times]:
    """Return the verdict and the times. Raises ResultError for numbers that no grade leaves."""
    try:
        return judge_again(evidence, question), read_times(evidence)
    except (ValueError, ArithmeticError, LookupError, TypeError) as error:
        raise ResultError(f"the evidence cannot be judged: {type(error).__name__}") from error


def _verification(
    job: GradeJob, holder: HostGpu, asked: tuple[Evidence, Question], verdict: Verdict, times: Times
) -> Verification:
    evidence, question = asked
    assert job.run is not None and job.ended_at is not None
    counts = job.gpu_id == job.run.gpu_id
    return Verification(
        run=job.run,
        job=job,
        host_gpu=holder,
        gpu_id=job.gpu_id,
        gpu_uuid=holder.uuid,
        tier=job.tier,
        word=verdict.word,
        outcome=verdicts.outcome_of(verdict.word),
        counts_for_board=counts,
        shapes=_shapes(evidence, question, times),
        score=score_of(times, question, verdict) if counts else None,
        fired=[
            {"rule": item.rule, "word": item.word, "message": item.message, "shape": item.shape, "count": item.count}
            for item in verdict.fired[:_MOST_FIRED]
        ],
        isolation=verdict.isolation,
        solution_digest=job.run.solution_digest or "",
        problem_version=evidence.problem_version,
        rules_version=verdict.rules_version,
        grader_version=evidence.grader_version,
        recorded_at=job.ended_at,
    )


def _shapes(evidence: Evidence, question: Question, times: Times) -> list[dict[str, object]]:
    """Return each shape with its time, the published one, and their ratio; on a processor no time is comparable."""
    sizes = [shape.shape for shape in evidence.passes[0].shapes] if evidence.passes else []
    published = question.published_ms if not question.is_processor and not evidence.untimed else ()
    found = []
    for index, (size, ms, span) in enumerate(zip(sizes, times.shapes_ms, times.ranges_ms, strict=True)):
        claimed = published[index] if index < len(published) else None
        ratio = ms / claimed if ms is not None and claimed else None
        low, high = span or (None, None)
        found.append({"shape": size, "ms": ms, "p5_ms": low, "p95_ms": high, "published_ms": claimed, "ratio": ratio})
    return found


def _ask_for_a_second(row: Verification, at: datetime.datetime) -> None:
    """Ask for another grade where this one is the first that speaks against the run.

    Only the run's own GPU can speak against it, so that is where the second one is made. It is thorough.
    """
    if row.word not in _BAD or row.job.reason == jobs.Reason.CONFIRM:
        return
    jobs.request(row.run, jobs.Wish(row.run.gpu_id, jobs.Tier.FULL, jobs.Reason.CONFIRM), at)


def assess(pk: int) -> None:
    """Assess the run of a job again, so that its findings follow from the newest grade at once."""
    run = GradeJob.objects.filter(pk=pk).values_list("run", flat=True).first()
    if run is not None:
        recompute_all(runs=[run])


def _store_blob(packed: bytes) -> str:
    """Keep an archive's bytes under their digest; return it."""
    digest = hashlib.sha256(packed).hexdigest()
    Blob.objects.bulk_create(
        [Blob(digest=digest, size_bytes=len(packed), content=zlib.compress(packed, 1))], ignore_conflicts=True
    )
    return digest
