"""What grades do to a published cell: findings at once, two grades before anything is withheld, no lapsed approval."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from grading.cpushapes import shapes_for
from grading.evidence import CodeLook, DeviceSample
from leaderboard import jobs, publishing, selection, verdicts
from leaderboard.boards import verifications as views
from leaderboard.models import Calibration, Finding, GradeJob, HostState, Revision, Run, Verification
from leaderboard.publishing import Act
from leaderboard.recompute import recompute_all
from leaderboard.service import hosts, policies
from leaderboard.service.minutes import Account
from leaderboard.service.parcels import problem_of
from tests.database import load_run, make_user
from tests.service.quickgrade import make_pass
from tests.service.worker import PROBLEM, Worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def published(publishable: Callable[..., Run], act: Act) -> Run:
    """A run on the H200 board that a release publishes."""
    run = publishable(problem=PROBLEM)
    publishing.approve(run, act)
    publishing.release(act)
    return load_run(run.run_id)


@pytest.fixture
def worker(published: Run) -> Worker:
    """A worker on an H200, welcome and calibrated."""
    made = Worker("alpha", key="H200")
    made.say_hello(name="NVIDIA H200", driver="570")
    made.pass_calibration()
    return made


def grade(worker: Worker, run: Run, tier: str = "quick", reason: str = "person", **changes: Any) -> str:
    """Grade a run from the wish to the verdict; return the verdict's word."""
    job = jobs.request(run, jobs.Wish(worker.gpu, tier, reason), timezone.now())[0]
    grant = worker.ask(job.pk)
    return str(worker.hand_in(job.pk, grant.token, **changes).word)


def codes(run: Run) -> set[str]:
    found = Finding.objects.filter(run=run).values_list("code", flat=True)
    return {code for code in found if code.startswith("verification.")}


def is_in_next_release(run: Run) -> bool:
    return selection.is_publishable(load_run(run.run_id), timezone.now())


def claimed_ms(run: Run, factor: float = 1.0) -> list[float]:
    """Return the times that a run claims, by shape, times a factor."""
    return [shape["ms"][0] * factor for shape in load_run(run.run_id).assessment.shapes]


def test_a_good_grade_marks_the_run_and_lapses_no_approval(worker: Worker, published: Run) -> None:
    assert grade(worker, published, ms=claimed_ms(published)) == "verified"
    view = views.latest_of([published.pk])[published.pk]
    assert (view.is_verified, view.gpu, view.age_days(timezone.now())) == (True, "H200", 0)
    assert [round(shape["ratio"], 3) for shape in view.shapes] == [1.0] * len(view.shapes)
    assert all(shape["p5_ms"] <= shape["ms"] <= shape["p95_ms"] for shape in view.shapes)
    score = load_run(published.run_id).assessment.score
    assert Verification.objects.get().score == pytest.approx(score, rel=1e-3)
    assert codes(published) == set()
    assert is_in_next_release(published)


def test_a_first_bad_grade_is_a_note_and_the_second_withholds(worker: Worker, published: Run) -> None:
    assert grade(worker, published, is_wrong=True) == "incorrect"
    assert codes(published) == {"verification.unconfirmed"}
    assert is_in_next_release(published)
    second = GradeJob.objects.get(state="requested", reason="confirm")
    assert (second.run, second.gpu_id, second.tier) == (published, "H200", "full")
    grant = worker.ask(second.pk)
    worker.hand_in(second.pk, grant.token, is_wrong=True)
    assert codes(published) == {"verification.failed"}
    assert not is_in_next_release(published)
    assert not selection.is_showable(load_run(published.run_id), timezone.now())
    assert not GradeJob.objects.filter(state="requested", reason="confirm").exists()


def test_a_second_grade_of_one_pass_withholds_what_is_plainly_wrong(worker: Worker, published: Run) -> None:
    """Where nothing is left to confirm, a full grade ends after its first pass."""
    grade(worker, published, is_wrong=True)
    wrong = make_pass(1, shapes_for(problem_of(GradeJob.objects.latest("pk")), "cuda"), ms=1.0, is_wrong=True)
    assert grade(worker, published, tier="full", reason="confirm", passes=[wrong]) == "incorrect"
    assert codes(published) == {"verification.failed"}


def test_a_suspicion_warns_until_a_clean_grade_and_withholds_nothing(worker: Worker, published: Run) -> None:
    look = CodeLook(at="build", seconds=0.01, slots=["python3+0x10"])
    assert grade(worker, published, ms=claimed_ms(published), looks=[look]) == "needs_audit"
    assert codes(published) == {"verification.needs_audit"}
    message = Finding.objects.get(run=published, code="verification.needs_audit").message
    assert message == "Our own grade asks for an audit: P12.patched_slot."
    assert is_in_next_release(published)
    assert not views.latest_of([published.pk])[published.pk].is_verified
    assert grade(worker, published, ms=claimed_ms(published)) == "verified"
    assert codes(published) == set()


def test_a_second_grade_that_disagrees_clears_the_note(worker: Worker, published: Run) -> None:
    grade(worker, published, is_wrong=True)
    grade(worker, published, tier="full", reason="confirm", ms=claimed_ms(published))
    assert Verification.objects.latest("pk").word == "verified"
    assert codes(published) == set()
    assert is_in_next_release(published)


def test_another_gpus_grade_speaks_neither_for_times_nor_against_the_result(published: Run) -> None:
    other = Worker("beta")
    other.say_hello()
    other.pass_calibration()
    assert grade(other, published, is_wrong=True) == "incorrect"
    assert codes(published) == set()
    assert GradeJob.objects.filter(reason="confirm", gpu="H200").exists()
    assert grade(other, published, tier="full", is_wrong=True) == "incorrect"
    assert is_in_next_release(published)
    row = Verification.objects.latest("pk")
    assert (row.counts_for_board, row.score) == (False, None)
    assert not views.latest_of([published.pk])[published.pk].is_verified


def test_a_slow_grade_warns_and_asks_for_a_second(worker: Worker, published: Run) -> None:
    assert grade(worker, published, ms=claimed_ms(published, 2)) == "not_reproduced"
    assert codes(published) == {"verification.slower"}
    assert GradeJob.objects.filter(reason="confirm").exists()
    assert Verification.objects.get().shapes[0]["ratio"] == pytest.approx(2, rel=0.01)
    assert not views.latest_of([published.pk])[published.pk].is_verified
    assert is_in_next_release(published)


def test_the_same_grades_give_the_same_assessment(worker: Worker, published: Run) -> None:
    grade(worker, published, is_wrong=True)
    before = load_run(published.run_id).assessment
    recompute_all(is_forced=True)
    after = load_run(published.run_id).assessment
    assert (before.input_digest, before.evidence_digest) == (after.input_digest, after.evidence_digest)
    assert recompute_all().assessed == 0
    assert verdicts.digest_of(()) == ""


def test_a_grade_of_another_version_is_stale(worker: Worker, published: Run) -> None:
    grade(worker, published, ms=claimed_ms(published))
    row = Verification.objects.get()
    job = jobs.request(published, jobs.Wish("H200", "full", "person"), timezone.now())[0]
    Verification.objects.create(
        **{field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields if not field.primary_key}
        | {"job_id": job.pk, "problem_version": "0" * 64}
    )
    assert not views.history_of(published.pk)[0].is_current
    assert views.history_of(published.pk)[1].is_current


def test_pages_read_the_latest_grades_in_one_query(
    worker: Worker, published: Run, django_assert_num_queries: Callable[[int], Any]
) -> None:
    grade(worker, published)
    with django_assert_num_queries(1):
        assert set(views.latest_of([published.pk, 999])) == {published.pk}
    at = timezone.now()
    jobs.request(published, jobs.Wish("H200", "full", "person"), at)
    with django_assert_num_queries(2):
        queue = views.queues(at)["H200"]
    assert (queue.ready_gpus, queue.waiting >= 1, queue.waiting_seconds(at)) == (1, True, queue.waiting_seconds(at))
    (health,) = views.hosts(at)
    assert (health.host.name, health.gpus[0].is_ready) == ("alpha", True)
    view = views.job_view(Verification.objects.get().job_id)
    assert view is not None
    assert [event.kind for event in view.events] == ["requested", "leased", "recorded"]
    assert views.job_view(0) is None


def calibrate(worker: Worker, ms: float, **changes: Any) -> Calibration:
    """Let a worker go through the calibration that is asked for; changes go to the evidence."""
    job = GradeJob.objects.get(target=worker.row, state__in=["requested", "queued"])
    grant = worker.ask(job.pk)
    assert grant.reference == ("eager" if worker.gpu == "CPU" else "kernel")
    worker.hand_in(job.pk, grant.token, ms=ms, **changes)
    return Calibration.objects.latest("pk")


def test_a_host_must_prove_itself_before_it_verifies(published: Run, settings: Any) -> None:
    settings.CALIBRATION_TOLERANCES = {"default": 0.02}
    settings.NOTIFY_EMAILS = ["ops@example.org"]
    worker, staff = Worker("alpha"), make_user("ada2")
    assert worker.say_hello().state == HostState.NEW
    assert calibrate(worker, 1.0).is_accepted
    assert (worker.row.state, "waits for a person" in worker.row.reason) == (HostState.NEW, True)
    with pytest.raises(hosts.HostError, match="not staff"):
        hosts.accept(worker.row, staff, timezone.now())
    staff.is_staff = True
    hosts.accept(worker.row, staff, timezone.now())
    assert worker.row.state == HostState.HEALTHY
    for name, ms, state in (("near", 1.019, HostState.HEALTHY), ("busy", 1.03, HostState.QUARANTINED)):
        other = Worker(name)
        other.say_hello()
        taken = calibrate(other, ms)
        assert (other.row.state, taken.ratio) == (state, pytest.approx(ms))
    assert "it takes 1.030 of the record's time" in Calibration.objects.latest("pk").reason


def test_a_quarantine_says_what_disturbed_the_calibration(published: Run) -> None:
    worker, staff = Worker("alpha"), make_user("ada3")
    staff.is_staff = True
    worker.say_hello()
    calibrate(worker, 1.0)
    hosts.accept(worker.row, staff, timezone.now())
    other = Worker("crowded")
    other.say_hello()
    sample = DeviceSample(
        at_s=1.0,
        sm_mhz=1980,
        memory_mhz=3201,
        power_w=300.0,
        temperature_c=40,
        throttle=0,
        worker_processes=1,
        foreign=[650],
    )
    taken = calibrate(other, 1.5, samples=[sample])
    said = "the reference kernel was graded inconclusive; other processes used the GPU: [650]; it took 1.50 of"
    assert (other.row.state, taken.reason.startswith(said)) == (HostState.QUARANTINED, True)


def test_a_quarantine_is_told_to_people_and_ends_with_a_new_calibration(
    published: Run, settings: Any, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    settings.NOTIFY_EMAILS = ["ops@example.org"]
    worker = Worker("alpha")
    worker.say_hello()
    job = GradeJob.objects.get(target=worker.row)
    for _ in range(settings.JOB_ATTEMPTS):
        jobs.give_back(job.pk, worker.ask(job.pk).token, "no GPU", timezone.now())
    with django_capture_on_commit_callbacks(execute=True):
        assert hosts.quarantine_unproven() == 1
    assert [message.subject for message in mail.outbox] == ["Quarantined: alpha/alpha-cpu-0"]
    worker.say_hello(is_first=False)
    assert GradeJob.objects.filter(target=worker.row).count() == 1
    hosts.release(worker.row, timezone.now())
    assert hosts.quarantine_unproven() == 0
    assert GradeJob.objects.filter(target=worker.row, state="requested").count() == 1


def test_another_driver_must_be_calibrated_again(worker: Worker) -> None:
    worker.say_hello(name="NVIDIA H200", driver="580")
    assert (worker.row.state, worker.row.reason) == (HostState.NEW, "driver or versions changed")
    assert GradeJob.objects.filter(target=worker.row, state="requested").exists()


def test_a_host_without_walls_is_quarantined(published: Run) -> None:
    worker = Worker("alpha")
    worker.say_hello(isolation="C")
    assert not calibrate(worker, 1.0).is_accepted
    assert worker.row.state == HostState.QUARANTINED


def test_policies_ask_only_where_a_host_is_attached(published: Run) -> None:
    assert policies.find_due(timezone.now()) == []


def test_policies_ask_once_for_each_published_run(worker: Worker, published: Run, settings: Any) -> None:
    at = timezone.now()
    assert [(due.run, due.reason) for due in policies.find_due(at)] == [(published, "release")]
    (job,) = policies.ask_for_due(at)
    assert (job.reason, job.tier) == ("release", "full")
    assert policies.ask_for_due(at) == []
    settings.VERIFY_AGAIN_DAYS = 0
    jobs.cancel(job.pk, make_user("eve"), at)
    assert [due.reason for due in policies.find_due(timezone.now())] == ["reverify"]


def test_the_best_run_of_a_board_and_a_share_of_all_are_asked_for(
    worker: Worker, publishable: Callable[..., Run], settings: Any
) -> None:
    settings.VERIFY_POLICIES = ["new_best"]
    publishable(problem=PROBLEM, model="other")
    assert len(policies.find_due(timezone.now())) == 1
    settings.VERIFY_POLICIES, settings.VERIFY_RANDOM_PERCENT = ["random"], 100
    assert len(policies.find_due(timezone.now())) == 2
    settings.VERIFY_RANDOM_PERCENT = 0
    assert policies.find_due(timezone.now()) == []


def test_a_person_has_so_many_minutes(published: Run, settings: Any) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "verification": (11, 86400)}
    eve, at = make_user("eve"), timezone.now()
    job, is_new = policies.ask(published, Account(eve), at, tier="full")
    assert is_new
    with pytest.raises(policies.TooMuch, match="eve has 1 of 11 minutes of GPU time left"):
        policies.ask(published, Account(eve), at, tier="quick")
    jobs.cancel(job.pk, eve, at)
    job.refresh_from_db()
    assert policies.ask(published, Account(eve), at, tier="quick")[1]
    with pytest.raises(policies.TooMuch, match="eve has 9 of 11 minutes of GPU time left"):
        policies.ask_again(job, eve, at)


def test_a_wish_that_was_taken_back_exempts_no_run_from_the_policies(
    worker: Worker, published: Run, settings: Any
) -> None:
    """Who asks and takes back, again and again, would else keep a result from ever being graded."""
    at, eve = timezone.now(), make_user("eve")
    for name, reason in (("release", "release"), ("new_best", "new_best"), ("random", "random")):
        settings.VERIFY_POLICIES, settings.VERIFY_RANDOM_PERCENT = [name], 100
        job, _ = policies.ask(published, Account(eve), at)
        assert policies.find_due(at) == []
        jobs.take_back(job.pk, eve, at)
        assert [due.reason for due in policies.find_due(at)] == [reason]
    settings.VERIFY_POLICIES, settings.VERIFY_AGAIN_DAYS = ["reverify"], 90
    grade(worker, published)
    GradeJob.objects.exclude(state="cancelled").update(requested_at=at - datetime.timedelta(days=91))
    job, _ = policies.ask(published, Account(eve), at)
    jobs.take_back(job.pk, eve, at)
    assert [due.reason for due in policies.find_due(at)] == ["reverify"]


def test_the_policies_look_again_only_when_something_changed(
    worker: Worker, published: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    rounds = iter([False, False, False, True])

    class Rounds:
        """The first round looks, the second finds nothing new, before the third something changes, then it ends."""

        def wait(self, seconds: float) -> bool:
            is_over = next(rounds)
            self.number = getattr(self, "number", 0) + 1
            if self.number == 3:
                Revision.advance()
            return is_over

    monkeypatch.setattr(policies, "ask_for_due", lambda at: looks.append(1))
    policies.follow(Rounds())  # type: ignore[arg-type]
    assert len(looks) == 2
