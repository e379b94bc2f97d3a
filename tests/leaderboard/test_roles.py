"""Roles, optimistic locking, pins and notices."""

import datetime
import hashlib
import hmac
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.contrib.auth.models import Group
from django.core import mail
from django.core.checks import run_checks

from leaderboard import publishing
from leaderboard.models import Run
from leaderboard.publishing import Act, PublishingError
from tests.database import load_run, make_user

Make = Callable[..., Run]


@pytest.mark.parametrize("role", ["auditor", "operator"])
def test_only_an_approver_may_decide(publishable: Make, now: datetime.datetime, role: str) -> None:
    act = Act(make_user("eve", role), "I want to.", now)
    run = publishable()
    for decide in (publishing.approve, publishing.reject, publishing.pin):
        with pytest.raises(PublishingError, match="may not decide"):
            decide(run, act)
    with pytest.raises(PublishingError, match="may not decide"):
        publishing.release(act)
    with pytest.raises(PublishingError, match="may not decide"):
        publishing.waive("gpu.unproven", [run], act, batch="one")


def test_the_roles_have_their_permissions(db: None) -> None:
    wanted = {"auditor": "write_audit", "approver": "decide", "operator": "ingest"}
    for name, codename in wanted.items():
        assert Group.objects.get(name=name).permissions.filter(codename=codename).exists()


def test_a_check_warns_when_one_person_holds_all_roles(db: None) -> None:
    make_user("solo", "auditor", "approver", "operator")
    assert [entry.id for entry in run_checks(databases=["default"]) if entry.id == "leaderboard.W004"]


def test_an_approval_of_evidence_that_changed_underneath_is_refused(publishable: Make, act: Act) -> None:
    run = publishable()
    with pytest.raises(PublishingError, match="changed since you opened it"):
        publishing.approve(run, act, expected_digest="0" * 64)
    publishing.approve(run, act, expected_digest=run.assessment.evidence_digest)


def test_a_pinned_run_backs_its_cell_although_another_scores_better(publishable: Make, act: Act) -> None:
    first = publishable(stamp="20260702_120000")
    second = publishable(stamp="20260703_120000")
    for run in (first, second):
        publishing.approve(run, act)
    publishing.pin(second, act)
    assert publishing.release(act).cells.get().run == second
    publishing.pin(first, act)
    assert not load_run(second.run_id).publication.is_pinned


def test_an_undecided_run_cannot_be_pinned(publishable: Make, act: Act) -> None:
    with pytest.raises(PublishingError, match="undecided"):
        publishing.pin(publishable(), act)


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[tuple[dict, bytes]]]]:
    """A webhook receiver on this machine, and what it got."""
    got: list[tuple[dict, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((dict(self.headers), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Keep the test's output clean."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_withdrawal_of_a_published_cell_is_told_by_mail_and_signed_webhook(
    publishable: Make,
    act: Act,
    receiver: tuple[str, list[tuple[dict, bytes]]],
    settings: pytest.FixtureRequest,
    django_capture_on_commit_callbacks: Callable,
) -> None:
    address, got = receiver
    settings.NOTIFY_WEBHOOK, settings.NOTIFY_SECRET, settings.NOTIFY_EMAILS = address, "s3", ["desk@example.org"]
    run = publishable()
    publishing.approve(run, act)
    publishing.release(act)
    with django_capture_on_commit_callbacks(execute=True):
        publishing.withdraw(run, act)
    assert mail.outbox[0].subject == f"Withdrawn: {run}"
    ((headers, body),) = got
    assert headers["X-Proofline-Signature"] == "sha256=" + hmac.new(b"s3", body, hashlib.sha256).hexdigest()
    digits = str(load_run(run.run_id).assessment.score)[:6]
    assert digits not in mail.outbox[0].body + body.decode()


def test_a_receiver_that_does_not_answer_stops_nothing(
    publishable: Make, act: Act, settings: pytest.FixtureRequest, django_capture_on_commit_callbacks: Callable
) -> None:
    settings.NOTIFY_WEBHOOK, settings.NOTIFY_SECRET = "http://127.0.0.1:9/none", "s3"
    run = publishable()
    publishing.approve(run, act)
    publishing.release(act)
    with django_capture_on_commit_callbacks(execute=True):
        publishing.withdraw(run, act)
    assert load_run(run.run_id).publication.state == "withdrawn"
