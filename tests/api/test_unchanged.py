"""Unchanged answers: decided before anything is opened or routed, and never for what was not answered before."""

import importlib

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.http import HttpRequest
from django.test import Client, RequestFactory

from leaderboard.api import early
from leaderboard.boards.runs import visible_assessments, visible_runs
from tests.api.helpers import Site

CELLS = "/api/v1/cells"


def fall_through(request: HttpRequest) -> None:
    """Stand for everything that comes after."""


def test_it_is_answered_before_any_route_is_looked_for(site: Site, client: Client, rf: RequestFactory) -> None:
    etag = client.get(f"{CELLS}?limit=2")["ETag"]
    answer = early.unchanged_first(fall_through)(rf.get(f"{CELLS}?limit=2", headers={"If-None-Match": etag}))
    assert (answer.status_code, answer["ETag"]) == (304, etag)
    assert answer["Access-Control-Allow-Origin"] == "*" and "no-cache" in answer["Cache-Control"]


@pytest.mark.parametrize(
    ("method", "address"),
    [("get", f"{CELLS}?limit=3"), ("get", "/api/v1/runs"), ("post", f"{CELLS}?limit=2"), ("get", f"/{CELLS}?limit=2")],
)
def test_a_validator_of_another_address_or_method_goes_the_usual_way(
    site: Site, client: Client, rf: RequestFactory, method: str, address: str
) -> None:
    etag = client.get(f"{CELLS}?limit=2")["ETag"]
    request = getattr(rf, method)(address, headers={"If-None-Match": etag})
    assert early.unchanged_first(fall_through)(request) is None


def test_who_is_signed_in_goes_the_usual_way(site: Site, client: Client) -> None:
    etag = client.get(CELLS)["ETag"]
    client.force_login(User.objects.create_user("reader"))
    answer = client.get(CELLS, headers={"If-None-Match": etag})
    assert (answer.status_code, answer["Cache-Control"]) == (304, "private, no-store")


def test_it_counts_against_the_rate_limit_and_ends_with_it(site: Site, client: Client, settings) -> None:
    settings.RATE_LIMITS = settings.RATE_LIMITS | {"read": (3, 3600)}
    etag = client.get(CELLS)["ETag"]
    seen = [client.get(CELLS, headers={"If-None-Match": etag}) for _ in range(3)]
    assert [answer.status_code for answer in seen] == [304, 304, 429]
    assert seen[0]["X-RateLimit-Remaining"] == "1"


def test_a_database_that_does_not_answer_is_told_the_usual_way(site: Site, client: Client, monkeypatch) -> None:
    def fail(at: object) -> None:
        raise OperationalError("secret text")

    monkeypatch.setattr(early, "read_state", fail)
    monkeypatch.setattr(importlib.import_module("leaderboard.api.guard"), "read_state", fail)
    answer = client.get(CELLS, headers={"If-None-Match": '"x"'})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")


def test_a_host_that_is_not_ours_is_refused(site: Site, client: Client) -> None:
    etag = client.get(CELLS)["ETag"]
    assert client.get(CELLS, headers={"If-None-Match": etag, "Host": "evil.example"}).status_code == 400


def test_counting_sees_the_same_runs_as_listing(site: Site, now) -> None:
    assert set(visible_assessments().values_list("pk", flat=True)) == set(
        visible_runs(now).values_list("pk", flat=True)
    )
    assert visible_assessments().count() == 5
