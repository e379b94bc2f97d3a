"""The admin: decisions with a reason, everything else read-only."""

from collections.abc import Callable

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client

from leaderboard.models import Decision, Release, Run, Waiver
from tests.database import load_run, make_user

Make = Callable[..., Run]
RUNS = "/admin/leaderboard/run/"


@pytest.fixture
def desk(client: Client) -> Client:
    """An approver at the admin."""
    user = make_user("ada", "approver")
    User.objects.filter(pk=user.pk).update(is_staff=True)
    client.force_login(User.objects.get(pk=user.pk))
    return client


def act_on(desk: Client, action: str, run: Run, **fields: str) -> str:
    body = {"action": action, "_selected_action": [run.pk], "reason": "Read the evidence.", **fields}
    return desk.post(RUNS, body, follow=True).content.decode()


def test_runs_are_approved_withdrawn_and_rejected_with_a_reason(publishable: Make, desk: Client) -> None:
    run = publishable()
    assert "decision 1" in act_on(desk, "approve", run)
    assert load_run(run.run_id).publication.state == "approved"
    act_on(desk, "withdraw", run)
    assert load_run(run.run_id).publication.state == "withdrawn"
    assert [row.reason for row in Decision.objects.all()] == ["Read the evidence."] * 2


def test_a_decision_without_a_reason_is_refused(publishable: Make, desk: Client) -> None:
    run = publishable()
    assert "eason is empty" in act_on(desk, "approve", run, reason=" ")
    assert Decision.objects.count() == 0


def test_a_blocked_run_is_refused_with_its_reason(publishable: Make, desk: Client) -> None:
    assert "audit.missing" in act_on(desk, "approve", publishable(None))
    assert Decision.objects.count() == 0


def test_a_code_is_waived_with_an_expiry(publishable: Make, desk: Client) -> None:
    run = publishable(device_name=None)
    act_on(desk, "waive", run, code="gpu.unproven", expires="2099-01-31")
    assert Waiver.objects.get().expires_at.date().isoformat() == "2099-01-31"
    assert load_run(run.run_id).assessment.standing == "eligible"
    assert "cannot be waived" in act_on(desk, "waive", run, code="check.failed")


def test_a_release_is_taken_by_adding_one(publishable: Make, desk: Client) -> None:
    act_on(desk, "approve", publishable())
    address = "/admin/leaderboard/release/add/"
    assert desk.post(address, {"note": "First release."}).status_code == 302
    assert Release.objects.get().note == "First release."
    assert "nothing changed since release 1" in desk.post(address, {"note": "Again."}).content.decode()


@pytest.mark.parametrize("model", [m for m in admin.site._registry if m._meta.app_label == "leaderboard"])
def test_no_form_of_the_admin_edits_a_row(publishable: Make, desk: Client, model: type) -> None:
    publishable()
    options = admin.site._registry[model]
    request = desk.get("/admin/").wsgi_request
    assert not options.has_change_permission(request)
    assert not options.has_delete_permission(request)
    assert options.has_add_permission(request) == (model is Release)


def test_who_may_not_decide_is_offered_no_decision(publishable: Make, client: Client) -> None:
    run = publishable()
    user = make_user("eve", "auditor")
    User.objects.filter(pk=user.pk).update(is_staff=True)
    client.force_login(User.objects.get(pk=user.pk))
    act_on(client, "approve", run)
    assert Decision.objects.count() == 0
    assert client.get("/admin/leaderboard/release/add/").status_code == 403


def test_the_admin_shows_no_raw_record(publishable: Make, desk: Client) -> None:
    run = publishable()
    assert desk.get(f"{RUNS}{run.pk}/change/").status_code == 200
