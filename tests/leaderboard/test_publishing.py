"""Decisions, waivers and releases: what they allow, what they refuse, and what they leave behind."""

import datetime
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.db.models import F

from grading.problem import load_problem
from leaderboard import publishing
from leaderboard.models import Assessment, Decision, Publication, Release, ReleasedCell, Run
from leaderboard.publishing import Act, PublishingError
from leaderboard.selection import state_of
from tests.database import Ingest, forced_edits, load_run, make_user
from tests.factories import make_audit_text, make_benchmark, make_times

Make = Callable[..., Run]
DAY = datetime.timedelta(days=1)


def later(act: Act, **delta: int) -> Act:
    return Act(act.actor, act.reason, act.at + datetime.timedelta(**delta))


def test_an_eligible_run_is_approved_and_released(publishable: Make, act: Act) -> None:
    run = publishable()
    publishing.approve(run, act)
    release = publishing.release(act)
    cell = release.cells.get()
    assert (cell.status, cell.run) == ("published", run)
    assert cell.score == load_run(run.run_id).assessment.score


def test_an_unapproved_run_is_not_released(publishable: Make, act: Act) -> None:
    publishable()
    assert publishing.release(act).cells.count() == 0


@pytest.mark.parametrize(
    ("name", "verdict", "fields", "code"),
    [
        ("unaudited", None, {}, "audit.missing"),
        ("reward hack", "reward_hack", {}, "audit.blocks"),
        ("unknown verdict", "splendid", {}, "audit.unknown_verdict"),
        ("unproven GPU", "clean", {"device_name": None}, "gpu.unproven"),
        ("wrong SKU", "clean", {"device_name": "NVIDIA H100 80GB HBM3"}, "gpu.mismatch"),
        ("bare name", "clean", {"device_name": "NVIDIA H200 NVL"}, "gpu.mismatch"),
        ("score of other lines", "clean", {"peak_fraction": 0.5}, "score.disagrees"),
        ("no lines", "clean", {"log": "peak_fraction: 0.1000\n"}, "score.not_recomputable"),
        ("mutated template", "clean", {"template_mutated": True}, "run.template_mutated"),
        ("wrong answer", "bug", {"correct": False, "peak_fraction": None}, "check.failed"),
    ],
)
def test_a_blocked_run_cannot_be_approved_and_the_refusal_names_the_reason(
    publishable: Make, act: Act, name: str, verdict: str | None, fields: dict, code: str
) -> None:
    run = publishable(verdict, **fields)
    with pytest.raises(PublishingError, match=code):
        publishing.approve(run, act)
    assert Decision.objects.count() == 0
    publishing.release(act)
    assert not ReleasedCell.objects.filter(status="published").exists()


def test_an_interesting_audit_needs_an_acknowledgement(publishable: Make, act: Act) -> None:
    run = publishable("interesting")
    with pytest.raises(PublishingError, match="acknowledgement"):
        publishing.approve(run, act)
    publishing.approve(run, act, is_acknowledged=True)


def test_the_auditor_cannot_approve_the_same_run(publishable: Make, now: datetime.datetime) -> None:
    run = publishable()
    auditor = make_user("auditor", "auditor", "approver", first_name="A.", last_name="Auditor")
    with pytest.raises(PublishingError, match="second person"):
        publishing.approve(run, Act(auditor, "I looked twice.", now))


def test_the_uploader_cannot_approve_the_same_run(publishable: Make, act: Act) -> None:
    run = publishable()
    Run.objects.filter(pk=run.pk).update(uploader=act.actor)
    with pytest.raises(PublishingError, match="uploaded"):
        publishing.approve(load_run(run.run_id), act)


@pytest.mark.parametrize("reason", ["", "   "])
def test_a_decision_needs_a_reason(approver: User, now: datetime.datetime, reason: str) -> None:
    with pytest.raises(PublishingError, match="reason"):
        Act(approver, reason, now)


def test_an_approval_lapses_when_the_evidence_changes(
    publishable: Make, act: Act, tmp_path: Path, ingest: Ingest
) -> None:
    run = publishable()
    publishing.approve(run, act)
    publishing.release(act)
    audit = tmp_path / "second" / "hard" / f"{run.run_id}.yaml"
    audit.parent.mkdir(parents=True)
    audit.write_text(make_audit_text(run.run_id, "clean", summary="Read it again."))
    ingest(audit)
    assert load_run(run.run_id).assessment.standing == "eligible"
    assert publishing.release(later(act, hours=1)).cells.count() == 0


def test_a_new_reward_hack_verdict_withholds_the_cell(
    publishable: Make, act: Act, tmp_path: Path, ingest: Ingest
) -> None:
    run = publishable()
    publishing.approve(run, act)
    publishing.release(act)
    audit = tmp_path / "second" / "hard" / f"{run.run_id}.yaml"
    audit.parent.mkdir(parents=True)
    audit.write_text(make_audit_text(run.run_id, "reward_hack"))
    ingest(audit)
    cell = publishing.release(later(act, hours=1)).cells.get()
    assert cell.status == "withheld"
    assert cell.score is None
    assert "audit.blocks" in cell.reasons


def test_a_withdrawn_run_is_withheld_in_the_next_release(publishable: Make, act: Act) -> None:
    run = publishable()
    publishing.approve(run, act)
    publishing.release(act)
    publishing.withdraw(run, act)
    cell = publishing.release(later(act, hours=1)).cells.get()
    assert (cell.status, cell.reasons) == ("withheld", ["publication.withdrawn"])


def test_a_release_that_would_change_nothing_is_refused(publishable: Make, act: Act) -> None:
    publishing.approve(publishable(), act)
    publishing.release(act)
    with pytest.raises(PublishingError, match="nothing changed"):
        publishing.release(later(act, hours=1))


def test_the_best_eligible_run_of_a_cell_is_chosen(publishable: Make, act: Act) -> None:
    problem = load_problem("hard", "07_w4a16_gemm")
    slow = publishable(stamp="20260702_120000", log=make_benchmark(problem, times=make_times(problem, 0.08)))
    fast = publishable(stamp="20260703_120000", log=make_benchmark(problem, times=make_times(problem, 0.04)))
    for run in (slow, fast):
        publishing.approve(run, act)
    assert publishing.release(act).cells.get().run == fast


def test_equal_scores_are_decided_by_date(publishable: Make, act: Act) -> None:
    second = publishable(stamp="20260703_120000")
    first = publishable(stamp="20260702_120000")
    for run in (second, first):
        publishing.approve(run, act)
    assert publishing.release(act).cells.get().run == first


@pytest.mark.parametrize("code", ["check.failed", "run.template_mutated", "score.disagrees", "audit.blocks"])
def test_some_codes_cannot_be_waived_by_anyone(publishable: Make, act: Act, code: str) -> None:
    with pytest.raises(PublishingError, match="cannot be waived"):
        publishing.waive(code, [publishable()], act, batch="one")


def test_an_unknown_code_cannot_be_waived(publishable: Make, act: Act) -> None:
    with pytest.raises(PublishingError, match="accepted are"):
        publishing.waive("gpu.unprovn", [publishable()], act, batch="one")


def test_a_waiver_makes_its_runs_eligible_and_no_other(publishable: Make, act: Act) -> None:
    covered = publishable(device_name=None)
    other = publishable(device_name=None, stamp="20260702_120000")
    publishing.waive("gpu.unproven", [covered], act, batch="old archive", is_reuse=True)
    assert load_run(covered.run_id).assessment.standing == "eligible"
    assert load_run(covered.run_id).assessment.waived == ["gpu.unproven"]
    assert load_run(other.run_id).assessment.standing == "blocked"
    assert Decision.objects.get().kind == "historical_reuse"


def test_an_expired_waiver_blocks_again_at_that_instant(publishable: Make, act: Act) -> None:
    run = publishable(device_name=None)
    publishing.waive("gpu.unproven", [run], act, batch="old archive", expires_at=act.at + DAY)
    run = load_run(run.run_id)
    publishing.approve(run, act)
    assert publishing.release(act).cells.get().status == "published"
    cell = publishing.release(later(act, days=1)).cells.get()
    assert (cell.status, cell.reasons) == ("withheld", ["waiver.expired"])


def test_a_waiver_in_the_past_is_refused(publishable: Make, act: Act) -> None:
    with pytest.raises(PublishingError, match="future"):
        publishing.waive("gpu.unproven", [publishable()], act, batch="one", expires_at=act.at)


DECISIONS = {"approve": publishing.approve, "reject": publishing.reject, "withdraw": publishing.withdraw}
ALLOWED = {
    ("approve", None), ("approve", "approved"), ("approve", "rejected"), ("approve", "withdrawn"),
    ("reject", None), ("reject", "approved"), ("reject", "rejected"),
    ("withdraw", "approved"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "state"), list(itertools.product(DECISIONS, [None, "approved", "rejected", "withdrawn"]))
)
def test_every_pair_of_state_and_decision(publishable: Make, act: Act, kind: str, state: str | None) -> None:
    run = publishable()
    path = {None: [], "approved": ["approve"], "rejected": ["reject"], "withdrawn": ["approve", "withdraw"]}[state]
    for step in path:
        DECISIONS[step](run, act)
    before = Decision.objects.count()
    if (kind, state) in ALLOWED:
        DECISIONS[kind](run, act)
        assert Decision.objects.count() == before + 1
    else:
        with pytest.raises(PublishingError, match=str(state or "undecided")):
            DECISIONS[kind](run, act)
        assert Decision.objects.count() == before
        assert state_of(load_run(run.run_id)) == state


def test_the_log_of_decisions_is_whole(publishable: Make, act: Act) -> None:
    run = publishable()
    publishing.approve(run, act)
    publishing.release(act)
    publishing.withdraw(run, act)
    assert publishing.verify_log() == []


def test_a_changed_decision_is_found(publishable: Make, act: Act) -> None:
    publishing.approve(publishable(), act)
    publishing.release(act)
    with forced_edits():
        Decision.objects.filter(sequence=1).update(reason="Another reason.")
    assert publishing.verify_log() == ["decision 1 was changed after it was written"]


def test_a_removed_decision_is_found(publishable: Make, act: Act) -> None:
    run = publishable()
    publishing.reject(run, act)
    publishing.reject(run, act)
    publishing.reject(run, act)
    with forced_edits():
        Decision.objects.filter(sequence=2).delete()
    assert "decision 2 is missing; the next one is 3" in publishing.verify_log()


@pytest.mark.parametrize("model", [Decision, Release, ReleasedCell])
def test_the_database_refuses_to_change_or_delete_what_was_decided(publishable: Make, act: Act, model: type) -> None:
    publishing.approve(publishable(), act)
    publishing.release(act)
    for change in (lambda: model.objects.update(id=F("id")), lambda: model.objects.all()._raw_delete("default")):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            change()
    assert model.objects.exists()


def test_one_refusal_in_a_batch_leaves_nothing_behind(publishable: Make, act: Act) -> None:
    good, bad = publishable(), publishable(None, stamp="20260702_120000")
    with pytest.raises(PublishingError):
        publishing.approve_all([good, bad], act)
    assert Publication.objects.count() == 0


def test_a_bulk_approval_names_what_it_refused(publishable: Make, act: Act) -> None:
    good, bad = publishable(), publishable(None, stamp="20260702_120000")
    approved, refused = publishing.approve_many([good, bad], act)
    assert approved == [good]
    assert [run for run, _ in refused] == [bad]
    assert Assessment.objects.count() == 2
    assert Release.objects.count() == 0
