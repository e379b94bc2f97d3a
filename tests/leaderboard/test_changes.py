"""Differences in words."""

import datetime
from collections.abc import Callable
from pathlib import Path

from leaderboard import publishing
from leaderboard.changes import compare, describe
from leaderboard.models import Decision, ReleasedCell, Run
from leaderboard.publishing import Act
from tests.database import Ingest, load_run
from tests.factories import make_audit_text

BASE = {
    "record": "r1", "content": "c1", "problem": "p1", "peaks": {"version": 2, "digest": "d2"},
    "score": [0.138, 0.137, 0.139], "findings": [["score.coarse", "note", "wide"]],
    "audits": [["a.yaml", "1", "clean"]], "waivers": [],
}  # fmt: skip


def test_equal_evidence_has_no_differences() -> None:
    assert describe(BASE, BASE) == []


def test_a_changed_verdict_is_named() -> None:
    after = {**BASE, "audits": [*BASE["audits"], ["a.yaml", "2", "reward_hack"]]}
    assert describe(BASE, after) == ["audit changed from clean to reward_hack"]


def test_a_new_peak_table_shows_both_scores() -> None:
    after = {**BASE, "peaks": {"version": 3, "digest": "d3"}, "score": [0.0552, 0.055, 0.056]}
    assert describe(BASE, after) == ["peak table v2 -> v3: 0.138 -> 0.0552"]


def test_findings_that_come_and_go_are_named() -> None:
    after = {**BASE, "findings": [["gpu.mismatch", "block", "another part"]]}
    assert describe(BASE, after) == ["finding added: gpu.mismatch (block)", "finding gone: score.coarse (note)"]


def test_waivers_are_named_with_their_expiry() -> None:
    one = {**BASE, "waivers": [["gpu.unproven", "2027-01-01"]]}
    two = {**BASE, "waivers": [["gpu.unproven", "2027-02-01"]]}
    assert describe(BASE, one) == ["waiver added: gpu.unproven"]
    assert describe(one, two) == ["waiver of gpu.unproven now expires 2027-02-01 instead of 2027-01-01"]


def test_a_lapsed_approval_says_what_changed(
    publishable: Callable[..., Run], act: Act, tmp_path: Path, ingest: Ingest
) -> None:
    run = publishable()
    publishing.approve(run, act)
    audit = tmp_path / "second" / "hard" / f"{run.run_id}.yaml"
    audit.parent.mkdir(parents=True)
    audit.write_text(make_audit_text(run.run_id, "reward_hack"))
    ingest(audit)
    signed = Decision.objects.get(kind="approve").details["evidence"]
    words = describe(signed, load_run(run.run_id).assessment.evidence)
    assert "audit changed from clean to reward_hack" in words


def test_a_release_is_compared_with_the_one_before(publishable: Callable[..., Run], act: Act) -> None:
    run = publishable()
    publishing.approve(run, act)
    first = publishing.release(act)
    publishing.withdraw(run, act)
    second = publishing.release(Act(act.actor, act.reason, act.at + datetime.timedelta(hours=1)))
    (change,) = compare(first.cells.all(), second.cells.all())
    assert (change.kind, change.words) == ("leaves", "withheld: publication.withdrawn")
    assert [entry.kind for entry in compare([], first.cells.all())] == ["enters"]
    assert compare(first.cells.all(), ReleasedCell.objects.filter(release=first)) == []
