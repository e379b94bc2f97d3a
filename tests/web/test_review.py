"""The screen of one run: who may come in, what it shows, and what its forms do."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from leaderboard import publishing
from leaderboard.models import Decision, Run, Waiver
from leaderboard.publishing import Act
from tests.web.conftest import Add
from tests.web.desk import ROLES, TIMES, filled, hidden_seen, sign_in, state_of, url_of

PAGES = ("/review/", "/review/?tab=pending", "/review/?tab=blocked", "/review/?tab=decided", "/review/release/")


@pytest.fixture
def run(add: Add) -> Run:
    """A run that waits for a decision."""
    return add("good-model", TIMES)


@pytest.fixture
def approver_client(db: None) -> Client:
    """Somebody who decides."""
    return sign_in("ann", "approver")


def addresses(run: Run) -> list[str]:
    """Every address of the desk."""
    of_run = [url_of(run), url_of(run, "audit/"), url_of(run, "audit/upload/")]
    return [*PAGES, *of_run, "/review/tokens/", "/review/tokens/abc/revoke/", "/review/bulk/"]


def test_a_stranger_is_sent_to_the_login_and_sees_nothing(run: Run) -> None:
    for url in addresses(run):
        for send in (Client().get, Client().post):
            response = send(url)
            assert response.status_code == 302, url
            assert response["Location"].startswith("/admin/login/?next=/review/")
            assert response.content == b""


def test_an_unknown_run_answers_a_stranger_like_a_known_one(run: Run) -> None:
    known, unknown = (Client().get(url) for url in (url_of(run), url_of(run).replace("good", "none")))
    assert known.status_code == unknown.status_code == 302


@pytest.mark.parametrize("is_staff", [True, False])
def test_without_a_role_the_desk_does_not_exist(run: Run, is_staff: bool) -> None:
    client = sign_in("nobody", is_staff=is_staff)
    assert {client.get(url).status_code for url in addresses(run)} == {404}
    assert client.post(url_of(run), filled(run, "approve")).status_code == 404
    assert state_of(run) is None


def test_a_role_without_staff_access_is_not_enough(run: Run) -> None:
    assert sign_in("guest", *ROLES, is_staff=False).get("/review/").status_code == 404


@pytest.mark.parametrize("role", ROLES)
def test_every_role_reads_queue_and_evidence(run: Run, role: str) -> None:
    client = sign_in("pat", role)
    for url in (*PAGES, "/review/tokens/", url_of(run)):
        assert client.get(url).status_code == 200, url


@pytest.mark.parametrize(("role", "may"), [("auditor", False), ("approver", True), ("operator", False)])
def test_only_an_approver_decides_at_the_desk(run: Run, role: str, may: bool) -> None:
    client = sign_in("pat", role)
    assert ("data-act" in client.get(url_of(run)).content.decode()) is may
    assert client.post(url_of(run), filled(run, "approve")).status_code == (302 if may else 403)
    assert state_of(run) == ("approved" if may else None)
    assert client.post("/review/bulk/", {"action": "reject", "run": run.pk}).status_code == (200 if may else 403)
    assert client.post("/review/release/", {"reason": "x", "digest": "0" * 64}).status_code == (409 if may else 403)


@pytest.mark.parametrize(("role", "may"), [("auditor", True), ("approver", False), ("operator", False)])
def test_only_an_auditor_writes_audits(run: Run, role: str, may: bool) -> None:
    client = sign_in("pat", role)
    assert client.get(url_of(run, "audit/")).status_code == (200 if may else 403)
    assert client.post(url_of(run, "audit/upload/")).status_code == (422 if may else 403)


def test_it_approves_and_goes_on_to_the_next_run(run: Run, add: Add, approver_client: Client) -> None:
    other = add("other-model", [time * 2 for time in TIMES])
    response = approver_client.post(url_of(run), filled(run, "approve"))
    assert response["Location"] == f"{url_of(other)}?tab=decide"
    decision = Decision.objects.get()
    assert (decision.kind, decision.run, decision.actor.username) == ("approve", run, "ann")
    page = approver_client.get(response["Location"]).content.decode()
    assert "approved, decision 1" in page


def test_reading_writes_nothing(run: Run, approver_client: Client) -> None:
    before = (Decision.objects.count(), Waiver.objects.count())
    for url in (*PAGES, url_of(run)):
        approver_client.get(url)
    assert (Decision.objects.count(), Waiver.objects.count()) == before


def test_a_reason_is_needed(run: Run, approver_client: Client) -> None:
    response = approver_client.post(url_of(run), filled(run, "approve", reason="  "))
    assert response.status_code == 422
    assert "A reason is needed" in response.content.decode()
    assert state_of(run) is None


@pytest.mark.parametrize("seen", ["", "x", "abc.approved.", "abc.approved.-1", "abc.approved.9999999999999"])
def test_a_form_that_does_not_say_what_was_seen_does_nothing(run: Run, approver_client: Client, seen: str) -> None:
    response = approver_client.post(url_of(run), filled(run, "approve", seen=seen))
    assert response.status_code in (409, 422)
    assert state_of(run) is None


def test_evidence_that_changed_underneath_is_not_approved(run: Run, add: Add, approver_client: Client) -> None:
    form = filled(run, "approve")
    run.assessment.__class__.objects.filter(pk=run.pk).update(evidence_digest="f" * 64)
    response = approver_client.post(url_of(run), form)
    assert response.status_code == 409
    html = response.content.decode()
    assert "the evidence changed since you opened it. Nothing was done" in html
    assert hidden_seen(html).startswith("f" * 64)
    assert Decision.objects.count() == 0


def test_a_decision_made_meanwhile_is_named(run: Run, approver_client: Client) -> None:
    form = filled(run, "approve")
    other = sign_in("bea", "approver")
    assert other.post(url_of(run), filled(run, "reject", reason="Not this one.")).status_code == 302
    response = approver_client.post(url_of(run), form)
    assert response.status_code == 409
    assert "bea decided meanwhile (reject, decision 1" in response.content.decode()
    assert state_of(run) == "rejected"


@pytest.mark.parametrize("action", ["approve", "reject"])
def test_a_form_sent_twice_counts_once(run: Run, approver_client: Client, action: str) -> None:
    form = filled(run, action)
    first, second = (approver_client.post(url_of(run), form) for _ in range(2))
    assert (first.status_code, second.status_code) == (302, 302)
    assert Decision.objects.count() == 1
    assert "sent twice and counted once" in approver_client.get("/review/").content.decode()


def test_the_same_words_later_are_a_new_decision(run: Run, approver_client: Client) -> None:
    for action in ("approve", "withdraw", "approve"):
        assert approver_client.post(url_of(run), filled(run, action)).status_code == 302
    assert [row.kind for row in Decision.objects.all()] == ["approve", "withdraw", "approve"]
    assert publishing.verify_log() == []


def test_the_auditor_of_a_run_cannot_approve_it(run: Run) -> None:
    User.objects.create_user("aud", first_name="A.", last_name="Auditor", is_staff=True)
    User.objects.get(username="aud").groups.add(1, 2, 3)
    client = sign_in("aud")
    page = client.get(url_of(run)).content.decode()
    assert "a second person must approve it" in page
    assert 'value="approve"' not in page
    response = client.post(url_of(run), filled(run, "approve"))
    assert response.status_code == 422
    assert "a second person must approve it. Nothing was done" in response.content.decode()
    assert state_of(run) is None


def test_an_interesting_audit_needs_its_acknowledgement(add: Add, approver_client: Client) -> None:
    run = add("odd-model", TIMES, "interesting")
    refused = approver_client.post(url_of(run), filled(run, "approve"))
    assert refused.status_code == 422
    assert approver_client.post(url_of(run), filled(run, "approve", acknowledged="on")).status_code == 302
    assert state_of(run) == "approved"


def test_it_waives_a_finding_with_its_scope_and_expiry(add: Add, approver_client: Client) -> None:
    run = add("bare-model", TIMES, device_name=None)
    assert run.assessment.blockers == ["gpu.unproven"]
    assert "<option>gpu.unproven</option>" in approver_client.get(url_of(run)).content.decode()
    form = filled(run, "waive", code="gpu.unproven", expires="2099-01-31", reuse="on", reason="Old archive.")
    for _ in range(2):
        assert approver_client.post(url_of(run), form)["Location"].startswith(url_of(run))
    waiver = Waiver.objects.get()
    assert (waiver.code, waiver.is_reuse, waiver.expires_at.isoformat()) == (
        "gpu.unproven", True, "2099-01-31T23:59:59+00:00")  # fmt: skip
    assert "Old archive." in approver_client.get(url_of(run)).content.decode()


def test_what_nobody_can_waive_is_not_offered_and_refused(add: Add, approver_client: Client) -> None:
    run = add("bad-model", TIMES, "reward_hack")
    assert "Waive a finding" not in approver_client.get(url_of(run)).content.decode()
    response = approver_client.post(url_of(run), filled(run, "waive", code="audit.blocks"))
    assert response.status_code == 422
    assert "cannot be waived by anyone" in response.content.decode()


def test_it_pins_an_approved_run(run: Run, add: Add, approver_client: Client) -> None:
    approver_client.post(url_of(run), filled(run, "approve"))
    assert approver_client.post(url_of(run), filled(run, "pin", reason="The steadier one.")).status_code == 302
    assert "Pinned to its cell" in approver_client.get(url_of(run)).content.decode()


def test_a_blocked_run_says_why_it_cannot_be_approved(add: Add, approver_client: Client) -> None:
    run = add("held-model", TIMES, peak_fraction=0.7319)
    page = approver_client.get(url_of(run)).content.decode()
    assert "It is not eligible: score.disagrees" in page
    response = approver_client.post(url_of(run), filled(run, "approve"))
    assert response.status_code == 422
    assert "is not eligible" in response.content.decode()


def test_a_lapsed_approval_shows_the_difference_in_words(run: Run, act: Act, approver_client: Client) -> None:
    publishing.approve(run, act)
    auditor = sign_in("aud", "auditor")
    auditor.post(url_of(run, "audit/"), {"verdict": "reward_hack", "summary": "It reads the clock.", **NO_QUOTES})
    for url in ("/review/", url_of(run)):
        assert "audit changed from clean to reward_hack" in approver_client.get(url).content.decode(), url


def test_findings_and_quotes_stand_beside_their_lines(add: Add, approver_client: Client) -> None:
    run = add("held-model", TIMES, peak_fraction=0.7319, solution="import torch\n\n\ndef kernel(x):\n    return x\n")
    quote = {"quote-0-file": "solution.py", "quote-0-lines": "4-5", "quote-0-label": "the kernel"}
    body = {"verdict": "suspect", "summary": "Returns its input.", **NO_QUOTES, **quote}
    assert (
        sign_in("aud", "auditor").post(url_of(run, "audit/"), {**body, "quote-0-text": "def kernel(x):"}).status_code
        == 302
    )
    page = approver_client.get(url_of(run)).content.decode()
    assert "these words stand in the file" in page
    assert 'id="solution.py-4" class="is-marked"' in page
    assert "peak_fraction: " in page.split('id="findings"')[1].split('id="proof"')[0]


def test_leads_mark_their_lines_in_the_source_and_judge_nothing(add: Add, approver_client: Client) -> None:
    run = add("good-model", TIMES, solution="import os\n\nos._exit(0)\n")
    run.findings.filter(code="lead.exit").delete()
    place = {"position": 900, "code": "lead.exit", "severity": "note", "file": "solution.py", "line": 3}
    run.findings.create(message="A way to end the process: os._exit.", data={}, **place)
    page = approver_client.get(url_of(run)).content.decode()
    findings, source = page.split('id="source"')
    assert "lead.exit" not in findings
    assert "1 lead" in findings
    assert 'id="solution.py-3" class="is-marked"' in source
    assert "A way to end the process" in source


def test_other_attempts_and_equal_sources_are_listed(run: Run, add: Add, approver_client: Client) -> None:
    again = add("good-model", [time * 3 for time in TIMES], stamp="20260702_120000")
    copied = add("copy-model", [time * 4 for time in TIMES])
    page = approver_client.get(url_of(run)).content.decode().split('id="others"')[1]
    attempts, sources = page.split("Same or nearly the same source")
    assert again.run_id in attempts
    assert copied.run_id not in attempts
    assert copied.run_id in sources


NO_QUOTES = {"quote-TOTAL_FORMS": "6", "quote-INITIAL_FORMS": "0"}
