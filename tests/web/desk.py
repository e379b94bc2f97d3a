"""People and forms of the review desk's tests."""

import re
from typing import Any

from django.contrib.auth.models import Group, User
from django.test import Client

from leaderboard.models import Run
from leaderboard.review.actions import see
from leaderboard.review.queue import read_runs

ROLES = ("auditor", "approver", "operator")
TIMES = [0.0511, 0.0522, 0.0533, 0.0544, 0.0555]


def sign_in(name: str, *roles: str, is_staff: bool = True) -> Client:
    """A signed-in person with roles."""
    user, is_new = User.objects.get_or_create(username=name, defaults={"is_staff": is_staff})
    if is_new:
        user.groups.set(Group.objects.filter(name__in=roles))
    client = Client()
    client.force_login(user)
    return client


def url_of(run: Run, more: str = "") -> str:
    """The desk's address of a run."""
    return f"/review/runs/{run.deck_id}/{run.gpu_id}/{run.run_id}/{more}"


def filled(run: Run, action: str, **fields: Any) -> dict[str, Any]:
    """The form of one act as the page would send it now."""
    (fresh,) = read_runs([run.pk])
    return {"action": action, "seen": str(see([fresh])[run.pk]), "reason": "Read the evidence.", **fields}


def state_of(run: Run) -> str | None:
    """The publication state of a run as stored."""
    (fresh,) = read_runs([run.pk])
    return fresh.publication.state if hasattr(fresh, "publication") else None


def hidden_seen(html: str) -> str:
    """What the page's forms say that their reader saw."""
    found = re.search(r'name="seen" value="([^"]+)"', html)
    assert found
    return found[1]
