"""Asking for grades: who may, what a wish costs, what readers see of it, and who takes it back."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from leaderboard import jobs
from leaderboard.models import ApiToken, GradeEvent, GradeJob, Run
from tests.api.helpers import Site, TokenFor
from tests.database import make_user
from tests.grades import make_gpu, make_grade

DAY = 86400
SECRETS = ("the-name-of-who-asked", "the-words-of-a-host", "alpha", "lab")


def ask(client: Client, run: Run | str, headers: dict[str, str] | None = None, query: str = "") -> object:
    """Ask for a grade of a run."""
    return client.post(f"/api/v1/runs/{run}/verifications{query}", headers=headers or {})


def take(job: GradeJob, at: datetime.datetime) -> GradeJob:
    """Let a GPU take a job."""
    jobs.mark_sent([job.pk], at)
    return jobs.lease(job.pk, make_gpu(job.gpu_id), "a" * 16, at)


def minutes(settings: object, quota: int) -> None:
    """Set how many minutes of GPU time a person has in a day."""
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "verification": (quota, DAY)}  # type: ignore[attr-defined]


def test_a_wish_is_202_with_its_job_then_200_with_the_same(site: Site, client: Client, token_for: TokenFor) -> None:
    headers = token_for("verify")
    first = ask(client, site["published"], headers, "?tier=full&gpu=CPU")
    data = first.json()
    assert (first.status_code, data["state"], data["tier"], data["gpu"]) == (202, "requested", "full", "CPU")
    assert data["run"] == str(site["published"]) and data["events"][0]["kind"] == "requested"
    assert first["Location"] == data["links"]["api_job"] and first["Cache-Control"] == "no-store"
    job = GradeJob.objects.get(pk=data["id"])
    assert (job.reason, job.requested_by.username, job.api_token) == ("person", "lab", ApiToken.objects.get())
    assert ApiToken.objects.get().last_used_at is not None
    again = ask(client, site["published"], token_for("verify", user="other"), "?tier=full&gpu=CPU")
    assert (again.status_code, again.json()["id"], again["Location"]) == (200, job.pk, first["Location"])
    assert ask(client, site["published"], headers).json()["tier"] == "quick"
    assert GradeJob.objects.count() == 2
    followed = client.get(first["Location"].removeprefix("http://127.0.0.1:8000"))
    assert (followed.status_code, followed.json()) == (200, data)


@pytest.mark.parametrize("name", ["withheld", "failed", "withdrawn"])
def test_what_is_no_result_can_be_graded_and_shows_no_number(
    name: str, site: Site, client: Client, token_for: TokenFor
) -> None:
    assert ask(client, site[name], token_for("verify")).status_code == 202
    grade = make_grade(site[name])
    GradeJob.objects.filter(pk=grade.job_id).update(gpu_seconds=41.5)
    (ended, waiting) = sorted(
        client.get(f"/api/v1/runs/{site[name]}/verifications").json()["results"],
        key=lambda job: job["state"] != "recorded",
    )
    assert (ended["verification"]["verdict"], ended["verification"]["ratio"]) == ("verified", None)
    assert (ended["gpu_seconds"], ended["verification"]["gpu_seconds"]) == (None, None)
    assert (waiting["state"], waiting["verification"]) == ("requested", None)


def test_a_run_that_a_token_may_not_see_does_not_exist(site: Site, client: Client, token_for: TokenFor) -> None:
    headers = token_for("verify", "ingest", "audit", "read")
    hidden = ask(client, site["pending"], headers)
    unknown = ask(client, "hard/H200/none", headers)
    assert (hidden.status_code, hidden.json()["code"]) == (404, "unknown_run")
    assert hidden.content == unknown.content == ask(client, "hard/H200/%01", headers).content
    address = f"/api/v1/runs/{site['pending']}/verifications"
    listed = client.get(address, headers=headers)
    assert (listed.status_code, listed.content) == (404, hidden.content)
    assert not GradeJob.objects.exists()


def test_a_token_of_the_staff_sees_what_the_staff_see(site: Site, client: Client, token_for: TokenFor) -> None:
    make_user("ellen", is_staff=True)
    headers = token_for("verify", user="ellen")
    made = ask(client, site["pending"], headers)
    assert (made.status_code, made.json()["requested_by"]) == (202, "ellen")
    take(GradeJob.objects.get(), timezone.now())
    address = f"/api/v1/jobs/{made.json()['id']}"
    seen = client.get(address, headers=headers)
    assert (seen.json()["host"], seen.json()["device"], seen.json()["attempt"]) == ("alpha", "NVIDIA H200", 1)
    assert client.get(f"/api/v1/runs/{site['pending']}/verifications", headers=headers).json()["count"] == 1
    for stranger in ({}, token_for("verify"), token_for("read", "ingest", user="ellen")):
        answer = client.get(address, headers=stranger)
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_job")
        assert answer.content == client.get("/api/v1/jobs/99999", headers=stranger).content
        assert "Authorization" in answer["Vary"]
    assert client.get(f"{address.replace('/api/v1', '')}.json").status_code == 404


def test_strangers_see_how_far_a_grade_is_and_not_who_asked(site: Site, client: Client, token_for: TokenFor) -> None:
    job = GradeJob.objects.get(pk=ask(client, site["published"], token_for("verify")).json()["id"])
    held = take(job, timezone.now())
    jobs.extend(job.pk, held.token, held.holder, {"step": "timed", "shape": 2, "percent": 40.0}, timezone.now())
    answer = client.get(f"/api/v1/jobs/{job.pk}")
    data = answer.json()
    assert (data["state"], data["progress"]) == ("running", {"step": "timed", "shape": 2, "percent": 40.0})
    assert not [word for word in SECRETS if word in answer.content.decode()]
    assert data == client.get(f"/jobs/{job.pk}.json").json()
    assert answer["Cache-Control"] == "private, no-cache"
    same = client.get(f"/api/v1/jobs/{job.pk}", headers={"If-None-Match": answer["ETag"]})
    assert (same.status_code, same["ETag"], same.content) == (304, answer["ETag"], b"")
    jobs.give_back(job.pk, held.token, "the-words-of-a-host", timezone.now())
    changed = client.get(f"/api/v1/jobs/{job.pk}", headers={"If-None-Match": answer["ETag"]})
    assert (changed.status_code, changed.json()["state"]) == (200, "queued")
    since = client.get(f"/api/v1/jobs/{job.pk}", headers={"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"})
    assert since.status_code == 200 and "the-words" not in since.content.decode()
    head = client.head(f"/api/v1/jobs/{job.pk}")
    assert (head.status_code, head["ETag"], head.content) == (200, changed["ETag"], b"")


def test_a_recorded_grade_says_its_verdict_and_cost(site: Site, client: Client) -> None:
    grade = make_grade(site["published"])
    GradeJob.objects.filter(pk=grade.job_id).update(gpu_seconds=41.5)
    data = client.get(f"/api/v1/jobs/{grade.job_id}").json()
    assert (data["state"], data["verification"]["verdict"], data["gpu_seconds"]) == ("recorded", "verified", 41.5)
    run = client.get(f"/api/v1/runs/{site['published']}").json()
    assert [found["gpu_seconds"] for found in run["verifications"]] == [41.5]
    listed = client.get(f"/api/v1/runs/{site['published']}/verifications")
    assert (listed["X-Total-Count"], listed.json()["results"]) == ("1", [data])


@pytest.mark.parametrize(
    ("query", "field"),
    [("?tier=slow", "tier"), ("?gpu=X", "gpu"), ("?speed=1", "speed"), ("?tier=full&tier=quick", "tier")],
)
def test_a_wish_that_cannot_be_read_names_what_is_wrong(
    query: str, field: str, site: Site, client: Client, token_for: TokenFor
) -> None:
    answer = ask(client, site["published"], token_for("verify"), query)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert answer["Content-Type"] == "application/problem+json"


def test_a_run_that_cannot_be_graded_is_409(site: Site, client: Client, token_for: TokenFor) -> None:
    Run.objects.filter(pk=site["published"].pk).update(solution_digest=None)
    answer = ask(client, site["published"], token_for("verify"))
    assert (answer.status_code, answer.json()["code"]) == (409, "not_gradable")
    assert "holds no solution" in answer.json()["detail"]


def test_neither_a_session_nor_another_scope_asks(site: Site, client: Client, token_for: TokenFor) -> None:
    client.force_login(make_user("ada2", "approver", is_staff=True))
    wishes = [ask(client, run) for run in (site["published"], site["pending"], "hard/H200/none")]
    wishes += [ask(client, run, token_for("ingest", "audit", "read")) for run in (site["published"], "hard/H200/none")]
    wishes += [client.post("/api/v1/jobs/1/cancel"), client.post("/api/v1/jobs/1/cancel", headers=token_for("read"))]
    assert {(answer.status_code, answer.content) for answer in wishes} == {(401, wishes[0].content)}
    assert wishes[0].json()["code"] == "unauthorized"
    assert not GradeJob.objects.exists()


def test_who_asked_takes_a_waiting_wish_back_and_pays_nothing(
    site: Site, client: Client, token_for: TokenFor, settings: object
) -> None:
    minutes(settings, 3)
    headers, other = token_for("verify"), token_for("verify", user="other")
    made = ask(client, site["published"], headers)
    address = f"/api/v1/jobs/{made.json()['id']}/cancel"
    refused = client.post(address, headers=other)
    assert (refused.status_code, refused.json()["code"]) == (403, "not_yours")
    assert client.post("/api/v1/jobs/99999/cancel", headers=other).json()["code"] == "unknown_job"
    assert ask(client, site["slower"], headers).status_code == 429
    cancelled = client.post(address, headers=headers)
    assert (cancelled.status_code, cancelled.json()["state"], cancelled["Cache-Control"]) == (
        200,
        "cancelled",
        "no-store",
    )
    again = client.post(address, headers=headers)
    assert (again.status_code, again.json()["code"]) == (409, "not_waiting")
    assert GradeEvent.objects.filter(kind="cancelled").count() == 1
    assert ask(client, site["slower"], headers).status_code == 202


def test_a_grade_that_has_begun_goes_on_to_its_verdict(site: Site, client: Client, token_for: TokenFor) -> None:
    headers = token_for("verify")
    job = GradeJob.objects.get(pk=ask(client, site["published"], headers).json()["id"])
    take(job, timezone.now())
    answer = client.post(f"/api/v1/jobs/{job.pk}/cancel", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "not_waiting")
    job.refresh_from_db()
    assert job.state == "leased"


def test_a_policys_job_is_nobodys_to_take_back(site: Site, client: Client, token_for: TokenFor) -> None:
    job, _ = jobs.request(site["published"], jobs.Wish("H200", "quick", "release"), timezone.now())
    headers = token_for("verify")
    assert ask(client, site["published"], headers).json()["id"] == job.pk
    assert client.post(f"/api/v1/jobs/{job.pk}/cancel", headers=headers).json()["code"] == "not_yours"


def test_wishes_spend_minutes_and_the_headers_say_so(
    site: Site, client: Client, token_for: TokenFor, settings: object
) -> None:
    minutes(settings, 13)
    headers = token_for("verify")
    first = ask(client, site["published"], headers, "?tier=full")
    assert first["RateLimit-Policy"] == '"verification";q=13;w=86400, "upload";q=60;w=3600'
    assert first["RateLimit"].startswith('"verification";r=3;t=86400, "upload";r=59;t=')
    assert (first["X-RateLimit-Limit"], first["X-RateLimit-Remaining"]) == ("13", "3")
    same = ask(client, site["published"], headers, "?tier=full")
    assert (same.status_code, same["X-RateLimit-Remaining"]) == (200, "3")
    assert ask(client, site["slower"], headers)["X-RateLimit-Remaining"] == "1"
    refused = ask(client, site["withheld"], headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert "1 of 13 minutes of GPU time left; a quick grade counts as 2" in refused.json()["detail"]
    assert DAY - 60 < int(refused["Retry-After"]) <= DAY
    assert ask(client, site["withheld"], token_for("verify"))["X-RateLimit-Remaining"] == "1", (
        "another token, same person"
    )
    assert ask(client, site["withheld"], token_for("verify", user="other")).status_code == 202


def test_a_grade_that_ended_counts_as_what_it_took(
    site: Site, client: Client, token_for: TokenFor, settings: object
) -> None:
    minutes(settings, 20)
    headers = token_for("verify")
    ask(client, site["published"], headers, "?tier=full")
    job, now = GradeJob.objects.get(), timezone.now()
    ended = {"state": "recorded", "ended_at": now, "started_at": now - datetime.timedelta(seconds=150)}
    GradeJob.objects.filter(pk=job.pk).update(**ended)
    assert ask(client, site["slower"], headers)["X-RateLimit-Remaining"] == "15"
    GradeJob.objects.filter(pk=job.pk).update(gpu_seconds=1020.0)
    refused = ask(client, site["withheld"], headers)
    assert (refused.status_code, refused["X-RateLimit-Remaining"]) == (429, "1")
    GradeJob.objects.filter(pk=job.pk).update(requested_at=now - datetime.timedelta(seconds=DAY - 100))
    soon = ask(client, site["withheld"], headers)
    assert (soon.status_code, 90 < int(soon["Retry-After"]) <= 100) == (429, True)
    GradeJob.objects.filter(pk=job.pk).update(requested_at=now - datetime.timedelta(seconds=DAY))
    assert ask(client, site["withheld"], headers).status_code == 202


def test_a_token_may_have_minutes_of_its_own(site: Site, client: Client, token_for: TokenFor, settings: object) -> None:
    minutes(settings, 2)
    own, shared = token_for("verify", verification_minutes=12), token_for("verify")
    assert ask(client, site["published"], shared).status_code == 202
    assert ask(client, site["slower"], shared).status_code == 429
    assert ask(client, site["slower"], own, "?tier=full")["X-RateLimit-Remaining"] == "2"
    assert ask(client, site["withheld"], own)["X-RateLimit-Remaining"] == "0"
    assert ask(client, site["failed"], own).status_code == 429
    free = token_for("verify", user="free", verification_minutes=0)
    assert "verification" not in ask(client, site["failed"], free, "?tier=full")["RateLimit"]


def test_asking_again_for_what_ended_makes_a_new_job(site: Site, client: Client, token_for: TokenFor) -> None:
    headers = token_for("verify")
    first = ask(client, site["published"], headers).json()["id"]
    client.post(f"/api/v1/jobs/{first}/cancel", headers=headers)
    second = ask(client, site["published"], headers)
    assert (second.status_code, second.json()["id"] > first) == (202, True)
    listed = client.get(f"/api/v1/runs/{site['published']}/verifications").json()
    assert [job["state"] for job in listed["results"]] == ["requested", "cancelled"]


def test_a_list_of_many_grades_takes_no_more_queries(
    site: Site, client: Client, django_assert_num_queries: Callable[[int], Any]
) -> None:
    address = f"/api/v1/runs/{site['published']}/verifications"
    make_grade(site["published"])
    with CaptureQueriesContext(connection) as few:
        client.get(address)
    for _ in range(4):
        make_grade(site["published"])
    with django_assert_num_queries(len(few)):
        assert client.get(address).json()["count"] == 5
