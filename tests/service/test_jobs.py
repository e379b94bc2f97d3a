"""The life of a job: every act in every state, fencing by token, and what happens when nobody says anything."""

import datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, IntegrityError, transaction
from django.utils import timezone

from leaderboard import jobs
from leaderboard.jobs import Act, JobError, Wish
from leaderboard.models import Calibration, GradeEvent, GradeJob, HostGpu, Run, Verification
from tests.database import Ingest, make_user
from tests.factories import write_archive
from tests.service.worker import PROBLEM, Worker

pytestmark = pytest.mark.django_db
AT = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC)


def later(seconds: float) -> datetime.datetime:
    return AT + datetime.timedelta(seconds=seconds)


@pytest.fixture
def run(tmp_path: Path, ingest: Ingest) -> Run:
    report = ingest(write_archive(tmp_path / "archive", problem_id=PROBLEM))
    return Run.objects.select_related("problem").get(pk=next(iter(report.touched)))


@pytest.fixture
def gpu(run: Run) -> HostGpu:
    worker = Worker("alpha")
    worker.say_hello()
    worker.pass_calibration()
    return worker.row


@pytest.fixture
def job(run: Run) -> GradeJob:
    return jobs.request(run, Wish("CPU", "quick", "person"), AT)[0]


def in_state(job: GradeJob, state: str, gpu: HostGpu) -> GradeJob:
    """Put a job into a state past the rules."""
    values: dict[str, Any] = {"state": state, "token": 5, "holder": gpu, "attempt": 1}
    is_held, is_open = state in jobs.HELD, state in jobs.OPEN
    values |= {"lease_until": later(30) if is_held else None, "deadline": later(900) if is_held else None}
    GradeJob.objects.filter(pk=job.pk).update(**values, ended_at=None if is_open else AT)
    return GradeJob.objects.get(pk=job.pk)


def do(act: Act, job: GradeJob, gpu: HostGpu) -> bool:
    """Do an act through its public function; tell whether it happened."""
    if act in (Act.LEASE, Act.RENEW):
        try:
            jobs.lease(job.pk, gpu, "a" * 16 if act == Act.LEASE else "", AT)
        except JobError:
            return False
        return True
    if act == Act.QUEUE:
        jobs.mark_sent([job.pk], AT)
        return GradeJob.objects.get(pk=job.pk).sent_at == AT
    if act in (Act.START, Act.BEAT):
        return jobs.extend(job.pk, 5, gpu, {"percent": 1}, AT) is None
    if act == Act.EXPIRE:
        GradeJob.objects.filter(pk=job.pk).update(requested_at=later(-400 * 3600))
        return jobs.expire_old(AT) == 1
    return {
        Act.RECORD: lambda: jobs.record(job.pk, 5, gpu, AT, "verified", ""),
        Act.ENTER: lambda: jobs.enter(job.pk, gpu, (AT, AT), "verified", ""),
        Act.REFUSE: lambda: jobs.refuse(job.pk, "never", AT),
        Act.RETRY: lambda: jobs.give_back(job.pk, 5, "again", AT),
        Act.CANCEL: lambda: jobs.cancel(job.pk, make_user("eve"), AT),
        Act.TAKE_BACK: lambda: jobs.take_back(job.pk, make_asker(job), AT),
    }[act]()


def make_asker(job: GradeJob) -> User:
    """Let a new person have asked for a job."""
    asker = make_user("ivy")
    GradeJob.objects.filter(pk=job.pk).update(requested_by=asker)
    return asker


@pytest.mark.parametrize("state", list(GradeJob.State))
@pytest.mark.parametrize("act", [act for act in Act if act not in (Act.START, Act.RENEW)])
def test_every_act_in_every_state(act: Act, state: str, job: GradeJob, gpu: HostGpu) -> None:
    job = in_state(job, state, gpu)
    events = GradeEvent.objects.count()
    sources = jobs.TRANSITIONS[act].sources
    if act == Act.BEAT:
        sources |= jobs.TRANSITIONS[Act.START].sources
    if act == Act.EXPIRE:
        sources = jobs.WAITING
    happened = do(act, job, gpu)
    job.refresh_from_db()
    assert happened == (state in sources)
    if not happened:
        assert (job.state, GradeEvent.objects.count()) == (state, events)
    elif act != Act.BEAT:
        assert job.state == jobs.TRANSITIONS[act].target


@pytest.mark.parametrize("act", [Act.RECORD, Act.RETRY, Act.BEAT])
def test_an_old_token_changes_nothing(act: Act, job: GradeJob, gpu: HostGpu) -> None:
    in_state(job, "running", gpu)
    GradeJob.objects.filter(pk=job.pk).update(token=6)
    assert not do(act, job, gpu)
    job.refresh_from_db()
    assert (job.state, job.token) == ("running", 6)


def test_only_who_asked_takes_a_job_back(job: GradeJob) -> None:
    assert not jobs.take_back(job.pk, make_user("eve"), AT)
    assert jobs.take_back(job.pk, make_asker(job), AT)
    job.refresh_from_db()
    assert (job.state, job.cause) == ("cancelled", "taken back by ivy")


def test_the_same_wish_waits_once(job: GradeJob, run: Run) -> None:
    assert jobs.request(run, Wish("CPU", "quick", "person"), AT) == (job, False)
    assert jobs.request(run, Wish("CPU", "full", "person"), AT)[1]
    assert jobs.request(run, Wish("H200", "quick", "person"), AT)[1]
    with pytest.raises(IntegrityError), transaction.atomic():
        GradeJob.objects.filter(pk=job.pk + 1).update(tier="quick")


def test_a_silent_hosts_job_waits_again_and_its_token_is_old(job: GradeJob, gpu: HostGpu) -> None:
    held = jobs.lease(job.pk, gpu, "a" * 16, AT)
    jobs.extend(job.pk, held.token, gpu, {}, later(20))
    assert jobs.return_lost(later(31)) == 0
    assert jobs.return_lost(later(51)) == 1
    job.refresh_from_db()
    assert (job.state, job.cause, job.holder) == ("queued", "its host went silent", None)
    assert not jobs.record(job.pk, held.token, gpu, later(52), "verified", "")
    assert jobs.extend(job.pk, held.token, gpu, {}, later(52)) == f"job {job.pk} is queued"


def test_heartbeats_cannot_extend_a_grade_beyond_its_limit(job: GradeJob, gpu: HostGpu, settings: Any) -> None:
    held = jobs.lease(job.pk, gpu, "a" * 16, AT)
    seconds = settings.GRADE_MINUTES["quick"] * 60
    for passed in range(20, seconds, 20):
        assert jobs.extend(job.pk, held.token, gpu, {}, later(passed)) is None
    assert jobs.return_lost(later(seconds + 1)) == 1
    job.refresh_from_db()
    assert job.cause == f"it ran longer than {settings.GRADE_MINUTES['quick']} minutes"


def test_a_heartbeat_that_came_just_in_time_keeps_the_job(job: GradeJob, gpu: HostGpu) -> None:
    held = jobs.lease(job.pk, gpu, "a" * 16, AT)
    seen = GradeJob.objects.get(pk=job.pk)
    jobs.extend(job.pk, held.token, gpu, {}, later(29))
    assert not jobs.give_back_if_still(seen, "its host went silent", later(31))


def test_attempts_are_bounded_and_every_cause_is_kept(job: GradeJob, gpu: HostGpu, settings: Any) -> None:
    for attempt in range(settings.JOB_ATTEMPTS):
        held = jobs.lease(job.pk, gpu, "a" * 16, AT)
        assert jobs.give_back(job.pk, held.token, f"fault {attempt}", AT)
    job.refresh_from_db()
    assert job.state == "expired"
    texts = list(GradeEvent.objects.filter(kind__in=["retried", "expired"]).values_list("text", flat=True))
    assert texts == ["fault 0", "fault 1", "fault 2; tried 3 times"]
    with pytest.raises(JobError, match="is expired"):
        jobs.lease(job.pk, gpu, "a" * 16, AT)


def test_what_a_person_asks_for_goes_before_what_a_policy_does(job: GradeJob, gpu: HostGpu, run: Run) -> None:
    GradeJob.objects.filter(pk=job.pk).update(reason="release", sent_at=AT, state="queued")
    wish, _ = jobs.request(run, Wish("CPU", "full", "person"), later(60))
    assert jobs.choose(job.pk, gpu) == job.pk, "its wake-up was not sent yet"
    jobs.mark_sent([wish.pk], later(61))
    assert jobs.choose(job.pk, gpu) == wish.pk
    jobs.lease(wish.pk, gpu, "a" * 16, later(62))
    assert (jobs.choose(wish.pk, gpu), jobs.choose(job.pk, gpu)) == (wish.pk, job.pk)


def test_a_job_that_ended_can_be_asked_for_again(job: GradeJob, run: Run) -> None:
    eve = make_user("eve")
    with pytest.raises(JobError, match="only a job that ended"):
        jobs.rerun(job, eve, AT)
    jobs.cancel(job.pk, eve, AT)
    job.refresh_from_db()
    again, is_new = jobs.rerun(job, eve, AT)
    assert (again.run, again.requested_by, is_new) == (run, eve, True)


@pytest.mark.parametrize("model", [GradeEvent, Verification, Calibration])
def test_what_is_written_stays_written(model: type, job: GradeJob, gpu: HostGpu) -> None:
    row = {
        GradeEvent: lambda: GradeEvent.objects.first(),
        Verification: lambda: make_verification(job, gpu),
        Calibration: lambda: make_calibration(job, gpu),
    }[model]()
    for change in (lambda: model.objects.filter(pk=row.pk).delete(), lambda: row.save()):  # type: ignore[attr-defined]
        with pytest.raises((DatabaseError, IntegrityError), match="append-only"), transaction.atomic():
            change()


def make_verification(job: GradeJob, gpu: HostGpu, **changes: Any) -> Verification:
    fields = {
        "run": job.run, "job": job, "host_gpu": gpu, "gpu_id": job.gpu_id, "gpu_uuid": gpu.uuid, "tier": "quick",
        "word": "verified", "outcome": "passed", "counts_for_board": False, "shapes": [], "fired": [],
        "isolation": "A", "solution_digest": "", "problem_version": "", "rules_version": "1", "grader_version": "1",
        "evidence_digest": "0" * 64, "recorded_at": timezone.now(),
    }  # fmt: skip
    return Verification.objects.create(**{**fields, **changes})


def make_calibration(job: GradeJob, gpu: HostGpu) -> Calibration:
    return Calibration.objects.create(
        host_gpu=gpu, gpu_id="CPU", problem=job.problem, word="verified", figures={}, is_accepted=True,
        evidence_digest="0" * 64, recorded_at=timezone.now(),
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"score": 0.5},
        {"score": 0.5, "counts_for_board": True, "outcome": "failed"},
        {"score": -1.0, "counts_for_board": True},
    ],
)
def test_only_a_good_grade_on_the_boards_gpu_has_a_score(changes: Any, job: GradeJob, gpu: HostGpu) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        make_verification(job, gpu, **changes)
