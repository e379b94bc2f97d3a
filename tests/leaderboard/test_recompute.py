"""Rows become scores and findings: deterministic and incremental."""

import datetime
from collections.abc import Callable
from pathlib import Path

from django.test.utils import CaptureQueriesContext

from leaderboard.models import Assessment, Finding, Run
from leaderboard.recompute import recompute_all
from tests.database import Ingest
from tests.factories import write_archive


def everything() -> list[dict]:
    rows = list(Assessment.objects.order_by("pk").values())
    return rows + list(Finding.objects.order_by("run", "position").values("run", "code", "severity", "message", "data"))


def test_a_whole_clean_run_is_eligible_with_its_score(publishable: Callable[..., Run]) -> None:
    run = publishable()
    assert run.assessment.standing == "eligible"
    assert run.assessment.agrees is True
    assert run.assessment.score_low <= run.assessment.score <= run.assessment.score_high


def test_a_second_recompute_changes_nothing(publishable: Callable[..., Run]) -> None:
    publishable()
    assert recompute_all().assessed == 0


def test_a_forced_recompute_gives_the_same_bytes(publishable: Callable[..., Run]) -> None:
    publishable()
    before = everything()
    assert recompute_all(is_forced=True).assessed == 1
    assert everything() == before


def test_everything_derived_can_be_thrown_away_and_rebuilt(publishable: Callable[..., Run]) -> None:
    publishable()
    before = everything()
    Assessment.objects.all().delete()
    Finding.objects.all().delete()
    recompute_all()
    assert everything() == before


def test_a_new_audit_assesses_its_run_only(publishable: Callable[..., Run], tmp_path: Path) -> None:
    publishable()
    run = publishable(None, model="other")
    assert run.assessment.standing == "pending"
    assert run.assessment.blockers == ["audit.missing"]


def test_a_run_without_a_device_name_is_blocked_as_unproven(publishable: Callable[..., Run]) -> None:
    run = publishable(device_name=None)
    assert run.assessment.blockers == ["gpu.unproven"]
    assert run.assessment.standing == "blocked"


def test_a_wrong_answer_is_failed_whatever_else_holds(publishable: Callable[..., Run]) -> None:
    run = publishable("bug", correct=False, failure_reason="check_failed", peak_fraction=None)
    assert run.assessment.standing == "failed"
    assert "check.failed" in run.assessment.blockers


def test_a_score_from_other_lines_is_blocked_for_good(publishable: Callable[..., Run]) -> None:
    run = publishable(peak_fraction=0.5)
    assert "score.disagrees" in run.assessment.blockers


def test_queries_do_not_grow_with_the_number_of_runs(
    tmp_path: Path, ingest: Ingest, django_assert_max_num_queries: Callable[[int], CaptureQueriesContext]
) -> None:
    for index in range(12):
        write_archive(tmp_path, stamp=f"202607{index + 1:02d}_120000")
    ingest(tmp_path)
    with django_assert_max_num_queries(16):
        recompute_all(is_forced=True)


def test_an_expired_waiver_does_not_make_a_run_eligible(
    publishable: Callable[..., Run], now: datetime.datetime
) -> None:
    assessment = publishable().assessment
    assessment.valid_until = now
    assert not assessment.is_eligible(now)
    assert assessment.is_eligible(now - datetime.timedelta(seconds=1))
