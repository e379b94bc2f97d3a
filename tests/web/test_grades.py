"""What readers see of our own grades: the mark, the section of a run, hosts and queues, a job's page, the desk."""

import datetime
from collections.abc import Callable

import pytest
from django.test import Client
from django.utils import timezone

from grading.verdict import UNTIMED
from leaderboard.models import Calibration, GradeJob, Revision, Run
from leaderboard.templatetags.proofline import significant
from tests.database import make_user
from tests.grades import AT, make_gpu, make_grade, make_job
from tests.web.conftest import World
from tests.web.test_pages import page, url_of

BOARD = "/boards/hard/H200/"


def times_of(run: object) -> list[str]:
    """The digits of a run's times as its pages write them."""
    return [f"{shape['ms'][0]:.4g}" for shape in run.assessment.shapes]  # type: ignore[attr-defined]


def test_a_result_measured_again_on_its_own_gpu_carries_the_mark_with_its_date(world: World, stranger: Client) -> None:
    for url in (BOARD, "/runs/", "/models/good-model/", url_of(world.published)):
        assert 'class="verified"' not in page(stranger, url)
    make_grade(world.published)
    for url in (BOARD, "/runs/", "/models/good-model/", url_of(world.published)):
        html = page(stranger, url)
        assert html.count('class="verified"') >= 1 and "verified </span><time" in html and "2026-07-02" in html, url


@pytest.mark.parametrize(
    "fields",
    [
        {"gpu": "B200"}, {"word": "incorrect", "outcome": "failed"}, {"solution_digest": "0" * 64},
        {"problem_version": "x"},
    ],
)  # fmt: skip
def test_no_other_grade_gives_the_mark(world: World, stranger: Client, fields: dict[str, str]) -> None:
    make_grade(world.published, **fields)
    for url in (BOARD, "/runs/", url_of(world.published)):
        assert 'class="verified"' not in page(stranger, url)
    if "gpu" in fields:
        assert "proves correctness only" in page(stranger, url_of(world.published))


def test_a_run_that_is_a_grade_says_that_nothing_was_measured_twice(world: World, stranger: Client) -> None:
    said, run = "The run itself is this grade", world.published
    grade = make_grade(run)
    assert said not in page(stranger, url_of(run))
    Run.objects.filter(pk=run.pk).update(started_at=grade.job.requested_at - datetime.timedelta(seconds=1))
    Revision.advance()
    assert said in page(stranger, url_of(run))


def test_a_run_shows_each_grade_with_its_times_and_evidence(world: World, stranger: Client) -> None:
    assert "We have not graded" in page(stranger, url_of(world.published))
    grade = make_grade(world.published, factor=1.0234)
    html = page(stranger, url_of(world.published))
    assert "verified" in html and "1.02" in html and f"/jobs/{grade.job_id}/evidence.tar.gz" in html
    assert "Graded by us on H200, tier full: verified" in html
    assert "M=1 N=" in html.partition('id="verification"')[2], "sizes stand as the logs write them"
    assert "GPU time" not in html
    GradeJob.objects.filter(pk=grade.job_id).update(gpu_seconds=83.2)
    Revision.advance()
    assert "1\u202fmin 23\u202fs of GPU time" in page(stranger, url_of(world.published))
    assert "<dt>GPU time</dt><dd>1\u202fmin 23\u202fs</dd>" in page(stranger, f"/jobs/{grade.job_id}/")
    answer = stranger.get(f"/jobs/{grade.job_id}/evidence.tar.gz")
    assert answer.content.startswith(b"evidence of") and "attachment" in answer["Content-Disposition"]


@pytest.mark.parametrize(
    ("word", "outcome", "state"),
    [
        ("verified_note", "passed", "published"), ("not_reproduced", "passed", "withheld"),
        ("needs_audit", "inconclusive", "withheld"), ("incorrect", "failed", "failed"),
        ("inconclusive", "inconclusive", "pending"),
    ],
)  # fmt: skip
def test_a_word_of_our_own_grade_has_the_colour_of_what_it_asks_for(
    world: World, stranger: Client, word: str, outcome: str, state: str
) -> None:
    grade = make_grade(world.published, word=word, outcome=outcome)
    html = page(stranger, url_of(world.published)).partition('id="verification"')[2]
    assert f'class="state state--{state}"' in html.partition("</span>")[0]
    low, high = (grade.shapes[0][name] for name in ("p5_ms", "p95_ms"))
    assert f"{significant(low)}–{significant(high)}" in html, "no time without its interval"
    make_grade(world.published, shapes=[{"shape": {"M": 1}, "ms": 0.5, "published_ms": 0.5, "ratio": 1.0}])
    assert "not kept" in page(stranger, url_of(world.published))


def test_a_board_counts_what_was_measured_again(world: World, stranger: Client) -> None:
    assert "<b>0</b>" in page(stranger, BOARD).partition("failed</span>")[2].partition("verified by us")[0]
    make_grade(world.published)
    for url in (BOARD, "/"):
        assert "<b>1</b>" in page(stranger, url).partition("failed</span>")[2].partition("verified by us")[0]


def test_a_calibration_shows_every_shape_beside_the_record(world: World, stranger: Client) -> None:
    gpu, problem = make_gpu(), world.published.problem
    ended = {"state": "recorded", "ended_at": AT, "leased_at": AT, "holder": gpu, "attempt": 1, "token": 1}
    job = make_job(world.published, kind="calibration", reason="calibration", run=None, target=gpu, **ended)
    fields = {"host_gpu": gpu, "gpu_id": "H200", "problem": problem, "word": "verified", "is_accepted": True}
    times = {"shapes_ms": [0.2, 0.2, 0.2, 0.2, 0.2], "yardstick_ms": 0.29}
    common = {"evidence_digest": "e" * 64, "recorded_at": AT}
    Calibration.objects.create(**fields, **common, figures=times, is_record=True, accepted_by=make_user("keeper"))
    slower = times | {"shapes_ms": [0.25, 0.2, 0.2, 0.2, None]}
    Calibration.objects.create(**fields, **common, job=job, figures=slower, ratio=1.018)
    html = page(stranger, f"/jobs/{job.pk}/").partition('id="calibration"')[2]
    assert "1.018 of the record" in html and "1.250" in html and "0.2900" in html
    assert html.partition("product and copy")[2].count('<td class="number">0.2900</td>') == 2
    newest = page(stranger, "/gpus/").partition("Newest grades")[2]
    assert "<td>accepted</td>" in newest and "<td>refused</td>" not in newest


@pytest.mark.parametrize("name", ["withheld", "failed", "withdrawn"])
def test_a_grade_of_what_is_no_result_shows_its_word_and_no_time(world: World, stranger: Client, name: str) -> None:
    run = getattr(world, name)
    grade = make_grade(run, word="incorrect", outcome="failed", fired=[{"rule": "G1", "message": "off by 0.123456"}])
    GradeJob.objects.filter(pk=grade.job_id).update(gpu_seconds=83.2)
    for url in (url_of(run), f"/jobs/{grade.job_id}/"):
        html = page(stranger, url).partition('id="verification"')[2].partition("</section>")[0]
        assert "incorrect" in html and "0.123456" not in html
        assert not [text for text in times_of(run) if text in html] and "GPU time" not in html
    assert stranger.get(f"/jobs/{grade.job_id}/evidence.tar.gz").status_code == 404
    data = stranger.get(f"/jobs/{grade.job_id}.json").json()
    assert (data["verification"]["ratio"], data["verification"]["gpu_seconds"], data["gpu_seconds"]) == (
        None,
        None,
        None,
    )


def test_a_job_about_a_pending_run_exists_for_the_staff_only(world: World, stranger: Client, staff: Client) -> None:
    grade = make_grade(world.pending)
    for url in (f"/jobs/{grade.job_id}/", f"/jobs/{grade.job_id}.json", f"/jobs/{grade.job_id}/evidence.tar.gz"):
        assert stranger.get(url).status_code == 404, url
    assert world.pending.run_id not in page(stranger, "/gpus/H200/")
    assert world.pending.run_id in staff.get("/gpus/H200/").content.decode()
    assert staff.get(f"/jobs/{grade.job_id}/").status_code == 200


def test_who_asked_and_what_a_host_wrote_is_for_the_staff(world: World, stranger: Client, staff: Client) -> None:
    grade = make_grade(world.published)
    for url in (f"/jobs/{grade.job_id}/", f"/jobs/{grade.job_id}.json"):
        html = stranger.get(url).content.decode()
        assert "the-name-of-who-asked" not in html and "the-words-of-a-host" not in html
    assert "the-name-of-who-asked" in staff.get(f"/jobs/{grade.job_id}/").content.decode()


def test_a_job_that_goes_on_says_how_far_it_is_and_can_be_asked_again_by_a_link(world: World, stranger: Client) -> None:
    job = make_job(world.published, progress={"step": "timing", "shape": 2, "percent": 40})
    html = page(stranger, f"/jobs/{job.pk}/")
    assert "data-live" in html and '<progress max="100" value="40">' in html and ">Reload</a>" in html
    GradeJob.objects.filter(pk=job.pk).update(state="cancelled", ended_at=job.requested_at)
    html = page(stranger, f"/jobs/{job.pk}/")
    assert "data-live" not in html and "cancelled" in html


def test_gpus_show_hosts_and_what_waits_without_a_memory(world: World, stranger: Client) -> None:
    first = stranger.get("/gpus/H200/")
    assert "No host is attached" in first.content.decode() and "no-cache" in first["Cache-Control"]
    make_gpu("H200", state="quarantined", reason="2.4 % off the record", last_seen=None)
    make_job(world.published)
    html = page(stranger, "/gpus/H200/")
    assert "alpha" in html and "silent" in html and world.published.run_id in html
    data = stranger.get("/gpus.json").json()
    assert data["queues"][0] | {"oldest_at": ""} == {
        "gpu": "H200", "ready_gpus": 0, "running": 0, "waiting": 1, "oldest_at": "", "grades_30_days": 0,
        "gpu_seconds_30_days": None,
    }  # fmt: skip
    assert data["hosts"][0]["gpus"][0]["state"] == "quarantined"
    for seconds, days in ((65.5, 1), (20.0, 2), (None, 3), (900.0, 31)):
        job = make_grade(world.published).job_id
        ended = timezone.now() - datetime.timedelta(days=days)
        GradeJob.objects.filter(pk=job).update(gpu_seconds=seconds, ended_at=ended)
    (queue,) = stranger.get("/gpus/H200.json").json()["queues"]
    assert (queue["grades_30_days"], queue["gpu_seconds_30_days"]) == (3, 85.5)
    assert "1\u202fmin 25\u202fs" in page(stranger, "/gpus/")
    again = stranger.get("/gpus/H200/", headers={"If-None-Match": stranger.get("/gpus/H200/")["ETag"]})
    assert (again.status_code, again.content) in ((304, b""), (200, again.content))


def test_an_approver_asks_cancels_and_runs_again(world: World, client: Client) -> None:
    client.force_login(make_user("ruth", "approver", is_staff=True))
    verify = f"/review/runs/{world.published}/verify/"
    asked = client.post(verify, {"tier": "quick"}, follow=True)
    job = GradeJob.objects.get()
    assert asked.redirect_chain[-1][0] == f"/jobs/{job.pk}/" and "Cancel" in asked.content.decode()
    client.post(verify, {"tier": "quick"})
    assert GradeJob.objects.count() == 1
    html = client.post(f"/review/jobs/{job.pk}/", {"action": "cancel"}, follow=True).content.decode()
    assert "cancelled" in html and "Run again" in html
    client.post(f"/review/jobs/{job.pk}/", {"action": "rerun"})
    assert GradeJob.objects.count() == 2
    assert client.post(f"/review/jobs/{job.pk}/", {"action": "explode"}).status_code == 404
    assert "accepted are" in client.post(verify, {"tier": "huge"}, follow=True).content.decode()


@pytest.mark.parametrize(("role", "status"), [("auditor", 403), ("", 404), (None, 302)])
def test_nobody_else_may(world: World, client: Client, role: str | None, status: int) -> None:
    job = make_job(world.published)
    if role is not None:
        client.force_login(make_user("eve", *([role] if role else []), is_staff=True))
    for url, data in (
        (f"/review/runs/{world.published}/verify/", {}),
        (f"/review/jobs/{job.pk}/", {"action": "cancel"}),
    ):
        assert client.post(url, data).status_code == status
    assert GradeJob.objects.get().state == "queued"


def test_boards_and_runs_can_be_chosen_by_the_mark(world: World, stranger: Client) -> None:
    make_grade(world.published)
    for base in (f"{BOARD}?verified=", "/runs/?verified="):
        marked, other = page(stranger, f"{base}true"), page(stranger, f"{base}false")
        rows = [html.partition("<tbody>")[2] for html in (marked, other)]
        assert "good-model" in rows[0] and "held-model" not in rows[0]
        assert "good-model" not in rows[1] and "held-model" in rows[1]


def test_a_later_grade_that_fails_takes_the_mark_away(world: World, stranger: Client) -> None:
    make_grade(world.published)
    make_grade(world.published, word="incorrect", outcome="failed")
    assert 'class="verified"' not in page(stranger, BOARD)
    assert "good-model" not in page(stranger, "/runs/?verified=true").partition("<tbody>")[2]


def test_a_grade_that_claims_no_time_gives_no_mark(world: World, stranger: Client) -> None:
    why = {"rule": UNTIMED, "word": "verified_note", "message": "the prefill is inside", "shape": None, "count": 1}
    make_grade(world.published, word="verified_note", fired=[why], shapes=[])
    assert 'class="verified"' not in page(stranger, BOARD)
    assert "good-model" not in page(stranger, "/runs/?verified=true").partition("<tbody>")[2]
    assert "good-model" in page(stranger, "/runs/?verified=false").partition("<tbody>")[2]
    html = page(stranger, url_of(world.published))
    assert "the prefill is inside" in html and "proves correctness only" in html


def test_a_board_stays_within_its_queries(
    world: World, stranger: Client, django_assert_max_num_queries: Callable
) -> None:
    from leaderboard.boards.memo import forget_all
    from leaderboard.pages.public import memory

    make_grade(world.published)
    page(stranger, BOARD)
    memory.clear()
    forget_all()
    with django_assert_max_num_queries(5):
        page(stranger, BOARD)
