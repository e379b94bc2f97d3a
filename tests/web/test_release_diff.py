"""Any two releases are compared, masked as of today."""

import datetime
from collections.abc import Callable

import pytest
from django.test import Client

from leaderboard import publishing
from leaderboard.models import Run
from leaderboard.publishing import Act

Make = Callable[..., Run]


@pytest.fixture
def three(publishable: Make, act: Act) -> list[Run]:
    """Three releases: one cell, two cells, and the first one withdrawn."""
    runs = [publishable(model="one"), publishable(model="two", stamp="20260702_120000")]
    for hour, run in enumerate(runs):
        publishing.approve(run, act)
        publishing.release(Act(act.actor, act.reason, act.at + datetime.timedelta(hours=hour)))
    publishing.withdraw(runs[0], act)
    publishing.release(Act(act.actor, act.reason, act.at + datetime.timedelta(hours=3)))
    return runs


def test_a_release_is_compared_with_the_one_before_and_with_any_other(three: list[Run], client: Client) -> None:
    beside = client.get("/releases/3/").content.decode()
    assert "release 2</a>" in beside
    assert beside.count("− removed") == 1
    assert "+ added" not in beside
    across = client.get("/releases/3/?against=1").content.decode()
    assert "release 1</a>" in across
    assert (across.count("− removed"), across.count("+ added")) == (1, 1)


@pytest.mark.parametrize("against", ["9", "0", "abc", "99999999999999999999", "-1"])
def test_a_release_that_does_not_exist_is_not_found(three: list[Run], client: Client, against: str) -> None:
    assert client.get(f"/releases/3/?against={against}").status_code == 404
