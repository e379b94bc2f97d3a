"""A refused token tells nothing: one answer whatever is wrong with it, and no time that says so either."""

import random
import time
from collections.abc import Callable

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard import tokens
from leaderboard.models import ApiToken, Run
from tests.api.helpers import TokenFor

ADDRESSES = {
    "audit": "/api/v1/audits?deck=hard",
    "verify": "/api/v1/runs/hard/H200/none/verifications",
}
ROUNDS, LEAST, MOST = 60, 0.1, 0.9


@pytest.fixture(autouse=True)
def _no_limits(settings) -> None:
    settings.RATE_LIMITS = {name: (0, window) for name, (_, window) in settings.RATE_LIMITS.items()}


@pytest.fixture(params=list(ADDRESSES))
def scope(request: pytest.FixtureRequest) -> str:
    """A scope that a route needs."""
    return str(request.param)


@pytest.fixture
def refused(scope: str, token_for: TokenFor) -> dict[str, dict[str, str]]:
    """Headers of tokens that may not use a scope, each for another reason."""
    made = {
        "without the scope": token_for("ingest"),
        "of another user": token_for("ingest", user="somebody-else"),
        "expired": token_for(scope, user="late"),
        "revoked": token_for(scope, user="gone"),
        "of a disabled user": token_for(scope, user="disabled"),
        "unknown": {"Authorization": "Bearer pl_00000000_" + "x" * 43},
        "malformed": {"Authorization": "Bearer " + "y" * 55},
    }
    now = timezone.now()
    late = {"created_at": now.replace(year=2020), "expires_at": now.replace(year=2021)}
    ApiToken.objects.filter(owner__username="late").update(**late)
    tokens.revoke(ApiToken.objects.get(owner__username="gone"), now)
    disabled = ApiToken.objects.get(owner__username="disabled").owner
    disabled.is_active = False
    disabled.save()
    return made


def test_every_refusal_is_the_same_answer(scope: str, client: Client, refused: dict[str, dict[str, str]]) -> None:
    seen = set()
    for headers in refused.values():
        answer = client.post(ADDRESSES[scope], b"run_id: x\n", content_type="application/yaml", headers=headers)
        kept = {name: value for name, value in answer.items() if name != "Content-Security-Policy"}
        seen.add((answer.status_code, answer.content, repr(sorted(kept.items()))))
    assert len(seen) == 1 and next(iter(seen))[0] == 401


def chance_of_longer(first: list[float], second: list[float]) -> float:
    """The chance that a time of the first list is longer than one of the second: 0.5 where nothing tells them apart."""
    wins = sum((a > b) + 0.5 * (a == b) for a in first for b in second)
    return wins / (len(first) * len(second))


def measure(acts: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """The times of each act in seconds, taken in turns of random order, so that a busy machine slows all alike."""
    times: dict[str, list[float]] = {name: [] for name in acts}
    order = list(acts)
    for _ in range(ROUNDS):
        random.shuffle(order)
        for name in order:
            start = time.perf_counter()
            acts[name]()
            times[name].append(time.perf_counter() - start)
    return times


def find_telling(acts: dict[str, Callable[[], object]], usual: str) -> dict[str, float]:
    """The acts whose time tells them from the usual one, each with the chance that it takes longer."""
    for act in acts.values():
        act()
    times = measure(acts)
    found = {name: chance_of_longer(times[name], times[usual]) for name in times if name != usual}
    return {name: round(value, 2) for name, value in found.items() if not LEAST <= value <= MOST}


def test_the_time_of_a_refusal_does_not_tell_its_reason(
    scope: str, client: Client, refused: dict[str, dict[str, str]]
) -> None:
    """Between any two kinds the chance that one takes longer stays far from certain; that alone would tell them apart.

    The bounds are wide on purpose, since the machine is shared; a slow hash or another query for one kind would still
    go beyond them, as the last test shows for a tenth of the whole time.
    """
    address = ADDRESSES[scope]
    acts = {
        name: (lambda headers=headers: client.post(address, b"x", content_type="application/yaml", headers=headers))
        for name, headers in refused.items()
    }
    assert find_telling(acts, "unknown") == {}


def test_the_time_of_a_wish_does_not_tell_whether_a_run_exists(
    client: Client, token_for: TokenFor, publishable: Callable[..., Run]
) -> None:
    headers, pending = token_for("verify"), publishable(None)
    names = {"pending": str(pending), "unknown": "hard/H200/none", "of no deck": "none/H200/none"}
    acts = {
        name: (lambda run=run: client.post(f"/api/v1/runs/{run}/verifications", headers=headers))
        for name, run in names.items()
    }
    assert {act().content for act in acts.values()} == {acts["unknown"]().content}
    assert find_telling(acts, "unknown") == {}


def test_the_measure_would_notice_a_tenth_more() -> None:
    noise = random.Random(1)
    short = [2.0 + noise.gauss(0, 0.06) for _ in range(ROUNDS)]
    assert chance_of_longer([value + 0.2 for value in short], short) > MOST
    assert LEAST < chance_of_longer([2.0 + noise.gauss(0, 0.06) for _ in range(ROUNDS)], short) < MOST
