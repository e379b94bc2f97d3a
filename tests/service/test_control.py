"""What the control side takes, refuses and answers, without a broker: messages go straight to `handle`."""

import datetime
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from grading import wire
from grading.parcel import pack
from leaderboard import jobs
from leaderboard.ingest import Report
from leaderboard.models import Blob, GradeEvent, GradeJob, Host, HostGpu, HostState, Run, SeenMessage, Verification
from leaderboard.service import hosts
from leaderboard.service.control import handle
from leaderboard.service.parcels import deck_parcel
from tests.database import Ingest, make_user
from tests.factories import write_archive
from tests.service.worker import PROBLEM, Worker, make_archive

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(tmp_path: Path, ingest: Ingest) -> Run:
    """A run on the H200 board whose problem can be graded."""
    report: Report = ingest(write_archive(tmp_path / "archive", problem_id=PROBLEM))
    return Run.objects.select_related("problem").get(pk=next(iter(report.touched)))


@pytest.fixture
def worker(run: Run) -> Worker:
    """A worker on the processor of host alpha, welcome and calibrated."""
    made = Worker("alpha")
    made.say_hello()
    made.pass_calibration()
    return made


@pytest.fixture
def job(run: Run) -> GradeJob:
    """A job that waits for a processor."""
    return jobs.request(run, jobs.Wish("CPU", "quick", "person"), timezone.now())[0]


def test_a_job_goes_from_lease_to_verification(worker: Worker, job: GradeJob, run: Run) -> None:
    grant = worker.ask(job.pk)
    assert isinstance(grant, wire.Grant)
    assert (grant.run, grant.problem, grant.token) == (str(run), f"hard/{PROBLEM}", 1)
    assert worker.beat(job.pk, 1) == wire.GoOn(job=job.pk)
    job.refresh_from_db()
    assert job.progress == {"step": "shape", "shape": 1, "percent": 50.0}
    assert worker.hand_in(job.pk, 1) == wire.Taken(job=job.pk, word="verified")
    row = Verification.objects.get()
    assert (row.run, row.word, row.outcome, row.counts_for_board, row.score) == (run, "verified", "passed", False, None)
    assert Blob.objects.filter(pk=row.evidence_digest).exists()
    kinds = list(GradeEvent.objects.filter(job=job).values_list("kind", flat=True))
    assert kinds == ["requested", "leased", "started", "recorded"]


def test_the_files_of_a_job_arrive_by_their_digest(worker: Worker, job: GradeJob) -> None:
    grant = worker.ask(job.pk)
    for digest in (grant.deck_digest, grant.run_digest):
        files = worker.say(wire.Fetch(job=job.pk, token=1, digest=digest))
        assert isinstance(files, wire.Files)
        assert files.digest == digest
    assert f"hard/{job.problem.slug}/neighbours.toml" in deck_parcel(job).files
    assert isinstance(worker.say(wire.Fetch(job=job.pk, token=1, digest="0" * 64)), wire.Refusal)
    assert isinstance(worker.say(wire.Fetch(job=job.pk, token=9, digest=grant.run_digest)), wire.Refusal)


def test_a_result_handed_in_again_is_answered_and_stored_once(worker: Worker, job: GradeJob) -> None:
    worker.ask(job.pk)
    assert worker.hand_in(job.pk, 1) == worker.hand_in(job.pk, 1)
    assert Verification.objects.count() == 1


def test_a_replayed_message_is_refused_and_changes_nothing(worker: Worker, job: GradeJob) -> None:
    worker.ask(job.pk)
    text = worker.seal(worker.result(job.pk, 1))
    handle(text)
    before = list(GradeEvent.objects.values_list("pk", flat=True))
    with pytest.raises(wire.WireError, match="came twice"):
        handle(text)
    assert list(GradeEvent.objects.values_list("pk", flat=True)) == before


def test_a_late_result_is_refused_and_kept_with_its_evidence(worker: Worker, job: GradeJob) -> None:
    worker.ask(job.pk)
    jobs.give_back(job.pk, 1, "its host went silent", timezone.now())
    assert isinstance(worker.hand_in(job.pk, 1), wire.Stop)
    job.refresh_from_db()
    assert (job.state, Verification.objects.count()) == ("queued", 0)
    event = GradeEvent.objects.get(job=job, kind="late_result")
    assert Blob.objects.filter(pk=event.evidence).exists()


def test_a_forged_token_does_not_end_somebody_elses_grade(worker: Worker, job: GradeJob) -> None:
    other = Worker("beta")
    other.say_hello()
    other.pass_calibration()
    worker.ask(job.pk)
    for token in (0, 1, 2, 2**40):
        assert isinstance(other.hand_in(job.pk, token), wire.Stop)
        assert isinstance(other.beat(job.pk, token), wire.Stop)
    assert isinstance(other.say(wire.Fault(job=job.pk, token=1, cause="mine", is_final=True)), wire.Refusal)
    job.refresh_from_db()
    assert (job.state, job.token) == ("leased", 1)


def test_only_one_worker_gets_a_job(worker: Worker, job: GradeJob) -> None:
    other = Worker("beta")
    other.say_hello()
    other.pass_calibration()
    assert isinstance(worker.ask(job.pk), wire.Grant)
    assert other.ask(job.pk) == wire.Refusal(job=job.pk, reason=f"job {job.pk} is leased")
    again = worker.ask(job.pk)
    assert (again.token, GradeJob.objects.get(pk=job.pk).attempt) == (2, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"state": HostState.QUARANTINED, "reason": "too slow"}, "this GPU is quarantined: too slow"),
        ({"state": HostState.NEW}, "this GPU is new: it was not calibrated yet"),
        ({"gpu_id": "H200"}, "is for CPU; this GPU is H200"),
        ({"instance": "0" * 16}, "this worker did not say hello"),
    ],
)
def test_a_gpu_that_may_not_grade_gets_no_lease(
    worker: Worker, job: GradeJob, change: dict[str, Any], reason: str
) -> None:
    HostGpu.objects.update(**change)
    refusal = worker.ask(job.pk)
    assert isinstance(refusal, wire.Refusal)
    assert reason in refusal.reason


def test_a_cancelled_job_stops_its_grade_with_the_next_heartbeat(worker: Worker, job: GradeJob) -> None:
    worker.ask(job.pk)
    worker.beat(job.pk, 1)
    assert jobs.cancel(job.pk, make_user("eve"), timezone.now())
    assert worker.beat(job.pk, 1) == wire.Stop(job=job.pk, reason=f"job {job.pk} is cancelled")
    assert isinstance(worker.hand_in(job.pk, 1), wire.Stop)
    assert Verification.objects.count() == 0


@pytest.mark.parametrize(("is_final", "state"), [(False, "queued"), (True, "refused")])
def test_a_fault_gives_the_job_back_or_ends_it(is_final: bool, state: str, worker: Worker, job: GradeJob) -> None:
    worker.ask(job.pk)
    answer = worker.say(wire.Fault(job=job.pk, token=1, cause="no small shapes", is_final=is_final))
    assert answer == wire.Taken(job=job.pk, word="given back")
    job.refresh_from_db()
    assert (job.state, job.cause) == (state, "alpha/alpha-cpu-0: no small shapes")


def test_a_new_worker_of_a_gpu_gives_back_what_the_earlier_one_held(worker: Worker, job: GradeJob) -> None:
    worker.ask(job.pk)
    worker.instance = "f" * 16
    worker.say_hello()
    job.refresh_from_db()
    assert (job.state, job.cause) == ("queued", "its worker was started again")


def mangle(text: str, **changes: Any) -> str:
    envelope = msgspec.json.decode(text)
    return msgspec.json.encode({**envelope, **changes}).decode()


@pytest.mark.parametrize(("said", "kept"), [(0.75, 0.75), (0.0, 0.0), (None, None), (-1.0, None), (9999.0, None)])
def test_a_recorded_job_keeps_how_long_it_held_its_gpu(
    said: float | None, kept: float | None, worker: Worker, job: GradeJob
) -> None:
    """A host can claim too little, never more than it held the job for."""
    worker.hand_in(job.pk, worker.ask(job.pk).token, gpu_seconds=said)
    job.refresh_from_db()
    assert (job.state, job.gpu_seconds) == ("recorded", kept)


POISON: dict[str, Callable[[Worker], object]] = {
    "a number": lambda worker: 7,
    "nothing": lambda worker: None,
    "no JSON": lambda worker: "\x80\x04pickle",
    "another form": lambda worker: '{"host": "alpha"}',
    "deep nesting": lambda worker: "[" * 100_000,
    "an unknown host": lambda worker: mangle(worker.seal(worker.hello()), host="nobody"),
    "another serial": lambda worker: mangle(worker.seal(worker.hello()), serial=2),
    "a changed body": lambda worker: mangle(worker.seal(worker.hello()), body='{"type":"ask","job":1}'),
    "a changed instance": lambda worker: mangle(worker.seal(worker.hello()), instance="e" * 16),
    "a path as instance": lambda worker: mangle(worker.seal(worker.hello()), instance="../../etc/passwd"),
    "another GPU": lambda worker: mangle(worker.seal(worker.hello()), gpu="GPU-1"),
    "no signature": lambda worker: mangle(worker.seal(worker.hello()), mac=""),
    "an answer turned round": lambda worker: worker.seal(worker.hello(), direction="down"),
    "a time that is none": lambda worker: mangle(worker.seal(worker.hello()), at=1e300),
    "an old message": lambda worker: worker.seal(worker.hello(), at=timezone.now().timestamp() - 700),
    "too much": lambda worker: "x" * (wire.MAX_MESSAGE_BYTES + 1),
    "an unknown kind": lambda worker: worker.seal_body('{"type":"shutdown"}'),
    "a wrong type": lambda worker: worker.seal_body('{"type":"ask","job":"1"}'),
    "no number": lambda worker: worker.seal_body(
        '{"type":"beat","job":1,"token":1,"step":"x","shape":null,"percent":NaN}'
    ),
}


@pytest.mark.parametrize("name", POISON)
def test_a_poisoned_message_is_refused_and_breaks_nothing(name: str, worker: Worker, job: GradeJob) -> None:
    seen = SeenMessage.objects.count()
    with pytest.raises(wire.WireError):
        handle(POISON[name](worker))
    assert SeenMessage.objects.count() == seen
    assert isinstance(worker.ask(job.pk), wire.Grant)


def test_a_revoked_host_is_refused_at_once(worker: Worker, job: GradeJob) -> None:
    hosts.revoke(Host.objects.get(name="alpha"), "sold")
    with pytest.raises(wire.WireError, match="was revoked"):
        worker.ask(job.pk)
    assert hosts.add("alpha", timezone.now()).serial == 3
    with pytest.raises(wire.WireError, match="was revoked"):
        worker.ask(job.pk)


BAD_RESULTS: dict[str, Callable[[wire.Result], wire.Result]] = {
    "another digest": lambda result: msgspec.structs.replace(result, digest="0" * 64),
    "another size": lambda result: msgspec.structs.replace(result, size=1),
    "no archive": lambda result: repacked(result, b"not a tar.gz"),
    "no evidence": lambda result: repacked(result, pack({"hello.txt": b"x"})),
    "evidence that is none": lambda result: repacked(result, pack({"evidence.json": b"{}"})),
    "a path that leads outside": lambda result: repacked(result, pack({"../evidence.json": b"{}"})),
    "an archive that swells": lambda result: repacked(result, pack({"evidence.json": b"\0" * 200_000_000})),
    "a folder that is not there": lambda result: msgspec.structs.replace(result, packed=None),
}


def repacked(result: wire.Result, packed: bytes) -> wire.Result:
    digest = hashlib.sha256(packed).hexdigest()
    return msgspec.structs.replace(result, packed=packed, size=len(packed), digest=digest)


@pytest.mark.parametrize("name", BAD_RESULTS)
def test_a_result_that_is_none_gives_the_job_back(name: str, worker: Worker, job: GradeJob) -> None:
    worker.ask(job.pk)
    answer = worker.say(BAD_RESULTS[name](worker.result(job.pk, 1)))
    assert isinstance(answer, wire.Refusal)
    job.refresh_from_db()
    assert (job.state, Verification.objects.count()) == ("queued", 0)
    assert job.cause.startswith("alpha/alpha-cpu-0: ")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"problem": "hard/07_w4a16_gemm"}, "problem is"),
        ({"problem_version": "0" * 64}, "problem_version is"),
        ({"reference_digest": "0" * 64}, "reference_digest is"),
        ({"tier": "full"}, "tier is"),
        ({"gates": {"float32": {"share": 1.0, "rtol": 1.0, "atol": 1.0}}}, "gates is"),
        ({"device": "cuda:0"}, "device is"),
        ({"device_name": "NVIDIA H200"}, "does not prove CPU"),
    ],
)
def test_evidence_about_something_else_is_refused(
    worker: Worker, job: GradeJob, change: dict[str, Any], reason: str
) -> None:
    worker.ask(job.pk)
    answer = worker.hand_in(job.pk, 1, **change)
    assert isinstance(answer, wire.Refusal)
    assert reason in answer.reason


def test_evidence_with_impossible_numbers_gives_the_job_back(worker: Worker, job: GradeJob) -> None:
    worker.ask(job.pk)
    evidence = msgspec.json.decode(make_archive(job)["evidence.json"])
    evidence["passes"][0]["shapes"][0]["noop_snap_ns"] = [1, 2, 3]
    evidence["passes"][0]["shapes"][0]["noop_done_ns"] = []
    for call in evidence["passes"][0]["shapes"][0]["calls"]:
        call["claim_ns"] = 10**400
    answer = worker.say(repacked(worker.result(job.pk, 1), pack({"evidence.json": msgspec.json.encode(evidence)})))
    assert isinstance(answer, wire.Refusal)
    assert "evidence" in answer.reason


def test_the_hosts_own_verdict_counts_nothing(worker: Worker, job: GradeJob) -> None:
    worker.ask(job.pk)
    files = make_archive(job, is_wrong=True) | {"verdict.json": b'{"word": "verified"}'}
    assert worker.say(repacked(worker.result(job.pk, 1), pack(files))) == wire.Taken(job=job.pk, word="incorrect")


def test_a_large_archive_comes_through_the_shared_folder(
    worker: Worker, job: GradeJob, tmp_path: Path, settings: Any
) -> None:
    settings.EVIDENCE_DIR = str(tmp_path)
    worker.ask(job.pk)
    result = worker.result(job.pk, 1)
    sparse = tmp_path / f"{'1' * 64}.tar.gz"
    with sparse.open("wb") as file:
        file.truncate(1 << 30)
    huge = msgspec.structs.replace(result, packed=None, digest="1" * 64, size=1 << 30)
    assert "larger than" in worker.say(huge).reason
    again = worker.ask(job.pk)
    assert result.packed is not None
    (tmp_path / f"{result.digest}.tar.gz").write_bytes(result.packed)
    shared = msgspec.structs.replace(result, packed=None, token=again.token)
    assert worker.say(shared) == wire.Taken(job=job.pk, word="verified")


def test_old_marks_are_forgotten_only_when_their_messages_are_too_old(worker: Worker) -> None:
    from leaderboard.celery import app
    from leaderboard.service.sweeper import Sweeper

    assert SeenMessage.objects.exists()
    Sweeper(app)._prune(timezone.now() + datetime.timedelta(seconds=wire.MAX_AGE_SECONDS))
    assert SeenMessage.objects.exists()
    Sweeper(app)._prune(timezone.now() + datetime.timedelta(seconds=3 * wire.MAX_AGE_SECONDS))
    assert not SeenMessage.objects.exists()
