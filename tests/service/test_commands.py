"""The commands of the service: host, verify; and the settings that it reads."""

import importlib
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from grading.wire import WireError, parse_key
from leaderboard import settings as module
from leaderboard.models import GradeJob, Host, Run
from tests.database import make_user
from tests.service.worker import PROBLEM, Worker

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue().strip()


def test_a_hosts_key_is_printed_once_and_replaced_by_another() -> None:
    first, second = parse_key(run("host", "add", "alpha")), parse_key(run("host", "add", "alpha"))
    assert (first.host, first.serial, second.serial) == ("alpha", 1, 2)
    assert first.secret != second.secret
    assert "plh." not in run("host", "list", "--json")
    assert first.secret not in repr(first)


@pytest.mark.parametrize("name", ["", "Alpha", "a b", "../x", "ä", "a" * 41])
def test_a_host_has_a_plain_name(name: str) -> None:
    with pytest.raises(CommandError, match="host name is"):
        run("host", "add", name)


@pytest.mark.parametrize("text", ["", "plh.alpha.1", "plh.alpha.0." + "0" * 64, "PLH.alpha.1." + "0" * 64])
def test_a_key_that_is_none_is_not_repeated(text: str) -> None:
    with pytest.raises(WireError) as raised:
        parse_key(text)
    assert not text or text not in str(raised.value)


def test_hosts_are_listed_accepted_released_and_revoked(publishable: Callable[..., Run]) -> None:
    publishable(problem=PROBLEM)
    worker = Worker("alpha")
    assert run("host", "list").endswith("no worker said hello yet")
    worker.say_hello()
    job = GradeJob.objects.get()
    worker.hand_in(job.pk, worker.ask(job.pk).token)
    assert "waits for a person" in run("host", "list")
    make_user("eve")
    with pytest.raises(CommandError, match="eve is not staff"):
        run("host", "accept", "alpha", "--as", "eve")
    make_user("ada", is_staff=True)
    assert run("host", "accept", "alpha", "--as", "ada") == "1 accepted: alpha/alpha-cpu-0"
    (host,) = json.loads(run("host", "list", "--json"))
    assert (host["gpus"][0]["state"], host["gpus"][0]["ratio"]) == ("healthy", 1.0)
    assert run("host", "release", "alpha", "--uuid", "alpha-cpu-0") == "1 to be calibrated again"
    with pytest.raises(CommandError, match="has no such GPU"):
        run("host", "release", "alpha", "--uuid", "nothing")
    assert run("host", "revoke", "alpha", "--reason", "sold") == "alpha revoked"
    assert (Host.objects.get().reason, run("host", "list")) == ("sold", "no hosts")
    with pytest.raises(CommandError, match="host is 'beta'"):
        run("host", "revoke", "beta")


def test_verify_queues_a_run_once(publishable: Callable[..., Run]) -> None:
    name = str(publishable(problem=PROBLEM))
    assert run("verify", name, "--dry-run") == f"{name} would be queued for H200"
    assert not GradeJob.objects.exists()
    assert run("verify", name).endswith(f"{name} on H200, quick: queued")
    assert run("verify", name).endswith("requested already")
    made = json.loads(run("verify", name, "--gpu", "CPU", "--tier", "full", "--json"))
    assert (made["gpu"], made["tier"], made["reason"]) == ("CPU", "full", "person")


def test_verify_says_what_is_wrong(publishable: Callable[..., Run], settings: Any) -> None:
    name = str(publishable(problem=PROBLEM))
    make_user("eve")
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "verification": (1, 60)}
    for arguments, reason in (
        ((), "name a run, or give --due"),
        ((name, "--due"), "name a run, or give --due"),
        ((name, "--gpu", "X"), "--gpu is 'X'; accepted are"),
        ((name, "--as", "nobody"), "--as is 'nobody'"),
        ((name, "--as", "eve"), "has 1 of 1 minutes of GPU time left; a quick grade counts as 2"),
        (("hard/H200/none",), "is not held"),
    ):
        with pytest.raises(CommandError, match=reason):
            run("verify", *arguments)


def test_verify_due_asks_for_what_the_policies_call_for(publishable: Callable[..., Run], settings: Any) -> None:
    settings.VERIFY_POLICIES = ["new_best"]
    publishable(problem=PROBLEM)
    assert run("verify", "--due") == "0 jobs queued"
    Worker("alpha", key="H200").say_hello(name="NVIDIA H200")
    assert run("verify", "--due", "--dry-run") == "1 run is due"
    assert run("verify", "--due") == "1 job queued"
    assert run("verify", "--due") == "0 jobs queued"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("PROOFLINE_CALIBRATION_TOLERANCES", "default=none", "KEY=SHARE"),
        ("PROOFLINE_CALIBRATION_TOLERANCES", "default=nan", "KEY=SHARE"),
        ("PROOFLINE_CALIBRATION_TOLERANCES", "default=-1", "KEY=SHARE"),
        ("PROOFLINE_CALIBRATION_TOLERANCES", "CPU=1", "need an entry default"),
        ("PROOFLINE_VERIFY_POLICIES", "always", "accepted are release,new_best,random,reverify"),
        ("PROOFLINE_LEASE_SECONDS", "soon", "need a whole number"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(
    name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    try:
        with pytest.raises(ImproperlyConfigured, match=reason):
            importlib.reload(module)
    finally:
        monkeypatch.undo()
        importlib.reload(module)
