"""Audits written and uploaded at the desk, conflicts and how they are settled, and API tokens."""

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from leaderboard import publishing
from leaderboard.ingest import Source, ingest_items
from leaderboard.models import ApiToken, Audit, Run
from leaderboard.publishing import Act
from leaderboard.review.queue import read_runs
from tests.factories import make_audit_text
from tests.web.conftest import Add
from tests.web.desk import TIMES, sign_in, url_of

BODY = {"verdict": "clean", "summary": "Read it all.", "quote-TOTAL_FORMS": "6", "quote-INITIAL_FORMS": "0"}


@pytest.fixture
def run(add: Add) -> Run:
    """A run that nobody has audited."""
    return add("good-model", TIMES, None)


@pytest.fixture
def auditor(db: None) -> Client:
    """Somebody who audits."""
    return sign_in("aud", "auditor")


def standing_of(run: Run) -> tuple[str, list[str]]:
    (fresh,) = read_runs([run.pk])
    return fresh.assessment.standing, fresh.assessment.blockers


def write(client: Client, run: Run, **fields: Any) -> Any:
    return client.post(url_of(run, "audit/"), {**BODY, **fields})


def upload(client: Client, run: Run, text: str, name: str = "audit.yaml") -> Any:
    return client.post(url_of(run, "audit/upload/"), {"file": SimpleUploadedFile(name, text.encode())})


def test_an_audit_written_here_is_stored_as_a_file_and_counts(run: Run, auditor: Client) -> None:
    assert standing_of(run) == ("pending", ["audit.missing"])
    assert write(auditor, run, checked=["source"], evidence="Line by line.")["Location"] == url_of(run)
    row = Audit.objects.get()
    assert (row.file, row.auditor, row.uploader.username, row.run) == (f"{run.run_id}.yaml", "aud", "aud", run)
    assert standing_of(run) == ("eligible", [])


def test_the_same_audit_twice_is_one_row(run: Run, auditor: Client) -> None:
    for _ in range(2):
        write(auditor, run)
    assert Audit.objects.count() == 1
    assert "was already held" in auditor.get("/review/").content.decode()


def test_whoever_wrote_the_audit_cannot_approve(run: Run) -> None:
    both = sign_in("both", "auditor", "approver")
    write(both, run)
    assert "a second person must approve it" in both.get(url_of(run)).content.decode()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"verdict": ""}, "This field is required"),
        ({"verdict": "perfect"}, "is not one of the available choices"),
        ({"summary": " \x00 "}, "Null characters are not allowed"),
        ({"summary": "\u2028"}, "This field is required"),
        ({"verdict": "interesting"}, "say what an approver must acknowledge"),
        ({"quote-0-lines": "9-3", "quote-0-file": "solution.py"}, "need a number, or first-last"),
        ({"quote-0-lines": "3"}, "Choose the file of these lines"),
        ({"quote-0-file": "../secret"}, "is not one of the available choices"),
        ({"supersedes": "f" * 64}, "is not one of the available choices"),
    ],
)
def test_what_cannot_be_an_audit_is_refused_with_its_reason(
    run: Run, auditor: Client, fields: dict[str, str], said: str
) -> None:
    response = write(auditor, run, **fields)
    assert response.status_code == 422
    assert said in response.content.decode()
    assert Audit.objects.count() == 0


@pytest.mark.parametrize(
    "summary", ["yes", "a: b", "- x\n- y", "# no comment", "'quote\" 𝛑", "true", "1e5", "{a}", "a\n\n b"]
)
def test_any_words_come_back_as_they_were_written(run: Run, auditor: Client, summary: str) -> None:
    assert write(auditor, run, summary=summary).status_code == 302
    assert Audit.objects.get().summary == summary.strip()


def test_an_uploaded_file_counts_like_any_other(run: Run, auditor: Client) -> None:
    assert upload(auditor, run, make_audit_text(run.run_id, "interesting")).status_code == 302
    assert Audit.objects.get().verdict == "interesting"
    assert standing_of(run)[0] == "eligible"


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("run_id: 20260701_120000_codex_other_07_w4a16_gemm\nverdict: clean\n", "a.yaml", "judges the run"),
        ("verdict: clean\n", "a.yaml", "that it does not name"),
        ("verdict: clean\nsummary: [\n", "a.yaml", "line"),
        ("just words", "a.yaml", "no audit"),
        ("x" * 300_000, "a.yaml", "at most"),
    ],
)
def test_a_file_that_is_no_audit_of_this_run_is_refused(
    run: Run, auditor: Client, text: str, name: str, said: str
) -> None:
    response = upload(auditor, run, text, name)
    assert response.status_code == 422
    assert said in response.content.decode()
    assert Audit.objects.count() == 0


def test_a_conflict_blocks_until_an_auditor_settles_it(run: Run, auditor: Client) -> None:
    write(auditor, run)
    second = sign_in("second", "auditor")
    write(second, run, verdict="suspect", summary="It looks copied.")
    assert standing_of(run) == ("blocked", ["audit.blocks", "audit.conflict"])
    page = auditor.get(url_of(run)).content.decode()
    assert "The audits contradict each other" in page
    digests = list(Audit.objects.values_list("digest", flat=True))
    assert write(auditor, run, summary="Both read; it is original.", supersedes=digests).status_code == 302
    assert standing_of(run) == ("eligible", [])
    page = auditor.get(url_of(run)).content.decode()
    assert page.count("settled by a later audit") == 2
    assert "settles 2 earlier audits" in page


def test_a_settled_conflict_returns_when_another_audit_says_no(run: Run, auditor: Client) -> None:
    write(auditor, run)
    held = [Audit.objects.get().digest]
    write(auditor, run, verdict="suspect", summary="On second thought.", supersedes=held)
    assert standing_of(run) == ("blocked", ["audit.blocks"])
    write(sign_in("second", "auditor"), run, summary="I disagree.")
    assert standing_of(run) == ("blocked", ["audit.blocks", "audit.conflict"])


def test_a_file_that_an_operator_ingests_settles_nothing(run: Run, auditor: Client, act: Act) -> None:
    from grading.archive import AuditItem
    from grading.auditfile import read_audit
    from leaderboard.recompute import recompute_all

    write(auditor, run, verdict="reward_hack", summary="It reads the clock.")
    text = make_audit_text(run.run_id, "clean", supersedes=[Audit.objects.get().digest]).encode()
    audit = read_audit(text, f"{run.run_id}.yaml", "hard")
    assert len(audit.supersedes) == 1
    report = ingest_items([AuditItem("a", audit, text)], Source(act.at))
    recompute_all(runs=report.touched)
    assert standing_of(run) == ("blocked", ["audit.blocks", "audit.conflict"])


def test_an_audit_on_an_approved_run_lapses_the_approval(add: Add, act: Act, auditor: Client) -> None:
    run = add("good-model", TIMES)
    publishing.approve(run, act)
    assert "the approval will lapse" in auditor.get(url_of(run, "audit/")).content.decode()
    write(auditor, run, summary="Read again, still clean.")
    page = auditor.get(url_of(run)).content.decode()
    assert "no longer counts" in page
    assert "another audit says clean" in page


def make_token(client: Client, **fields: Any) -> Any:
    return client.post("/review/tokens/", {"name": "CI", "scopes": ["read"], "days": "30", **fields})


def test_a_token_is_shown_once_and_kept_as_a_digest(auditor: Client) -> None:
    text = make_token(auditor, scopes=["read", "audit"]).context["text"]
    token = ApiToken.objects.get()
    assert text.startswith(f"pl_{token.key}_")
    assert text not in auditor.get("/review/tokens/").content.decode()
    assert token.scopes == ["audit", "read"]
    assert make_token(auditor, name="other")["Cache-Control"] == "private, no-store"


def test_a_token_never_may_more_than_its_owner(auditor: Client) -> None:
    response = make_token(auditor, scopes=["ingest"])
    assert response.status_code == 422
    assert ApiToken.objects.count() == 0
    assert 'value="ingest"' not in auditor.get("/review/tokens/").content.decode()
    assert make_token(sign_in("olga", "operator"), scopes=["ingest"]).status_code == 200
    assert make_token(auditor, scopes=["verify"]).status_code == 422
    assert make_token(sign_in("ruth", "approver"), scopes=["verify"]).status_code == 200


def test_the_form_sent_twice_makes_one_token(auditor: Client) -> None:
    assert [make_token(auditor).status_code for _ in range(2)] == [200, 422]
    assert ApiToken.objects.count() == 1


def test_only_the_owner_sees_and_revokes_a_token(auditor: Client) -> None:
    make_token(auditor, name="mine")
    token = ApiToken.objects.get()
    other = sign_in("olga", "operator")
    assert "mine" not in other.get("/review/tokens/").content.decode()
    assert other.post(f"/review/tokens/{token.key}/revoke/").status_code == 404
    assert auditor.post(f"/review/tokens/{token.key}/revoke/").status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None
