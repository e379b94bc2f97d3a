"""The whole way on real results: read, score, judge, publish, and compare with what was published elsewhere."""

import datetime
import json
from collections import Counter
from pathlib import Path

import pytest
from django.core.management import call_command

from leaderboard import boards, publishing
from leaderboard.explain import explain
from leaderboard.ingest import Report, Source, ingest_paths
from leaderboard.models import Assessment, Audit, Finding, Rejection, ReleasedCell, Run
from leaderboard.publishing import Act
from leaderboard.recompute import recompute_all
from tests.database import make_user

pytestmark = [pytest.mark.corpus, pytest.mark.django_db]
BOARDS = [("hard", "H100"), ("hard", "RTX_PRO_6000"), ("cuda", "RTX_PRO_6000")]
RELATED = ("problem", "entrant", "assessment", "publication")


@pytest.fixture
def loaded(corpus: Path, now: datetime.datetime) -> Report:
    """Everything of the corpus, ingested and assessed."""
    report = ingest_paths([corpus], Source(now))
    recompute_all()
    return report


@pytest.fixture
def released(loaded: Report, now: datetime.datetime) -> publishing.Release:
    """The corpus under a historical-reuse decision, with every eligible run approved and released."""
    act = Act(make_user("ada", "approver"), "Archives of 2026 never recorded their device.", now)
    for deck in ("hard", "cuda"):
        runs = list(Run.objects.filter(deck=deck, findings__code="gpu.unproven"))
        publishing.waive("gpu.unproven", runs, act, batch="kernelbench.com archive", is_reuse=True)
    eligible = Run.objects.filter(assessment__standing="eligible").select_related(*RELATED)
    publishing.approve_many(eligible, act, is_acknowledged=True)
    return publishing.release(act)


def test_nothing_is_lost(loaded: Report, corpus: Path) -> None:
    assert (loaded.runs_new, loaded.audits_new, loaded.conflicts) == (186, 326, [])
    in_runs = sum(len(json.loads(bytes(row))["files"]) for row in Run.objects.values_list("record", flat=True))
    files = sum(1 for path in corpus.rglob("*") if path.is_file())
    assert in_runs + Audit.objects.count() + Rejection.objects.count() == files


def test_a_second_ingest_changes_nothing(loaded: Report, corpus: Path, now: datetime.datetime) -> None:
    counts = [model.objects.count() for model in (Run, Audit, Rejection, Finding, Assessment)]
    again = ingest_paths([corpus], Source(now))
    assert (again.runs_new, again.audits_new, again.runs_held, again.audits_held) == (0, 0, 186, 326)
    assert recompute_all().assessed == 0
    assert [model.objects.count() for model in (Run, Audit, Rejection, Finding, Assessment)] == counts


def test_the_scores_agree_and_disagree_as_an_independent_check_found(loaded: Report, now: datetime.datetime) -> None:
    outcomes: Counter[str] = Counter()
    for run in Run.objects.select_related(*RELATED):
        data = explain(run, now)
        codes = {finding["code"] for finding in data["findings"]}
        assert "shape.inconsistent" not in codes
        named = codes & {"score.disagrees", "score.stale_peaks", "score.not_recomputable", "check.failed"}
        outcomes["agrees" if data["agrees"] else named.pop()] += 1
        assert not named
    assert outcomes == {
        "agrees": 112,
        "score.disagrees": 21,
        "score.stale_peaks": 4,
        "score.not_recomputable": 25,
        "check.failed": 24,
    }


def test_stale_peaks_name_the_peak_that_explains_them(loaded: Report) -> None:
    for finding in Finding.objects.filter(code="score.stale_peaks"):
        assert finding.data["table"] == {"gpu": "RTX_PRO_6000", "version": 1}
        assert (finding.data["table_peak"], finding.data["current_peak"]) == (200, 500)


def test_no_gpu_is_proven_without_a_historical_reuse_decision(loaded: Report) -> None:
    assert not Assessment.objects.filter(standing="eligible").exists()
    correct = Run.objects.filter(is_correct=True).count()
    assert Finding.objects.filter(code="gpu.unproven", severity="block").count() == correct


def test_the_board_equals_the_published_one_wherever_that_holds_up(
    released: publishing.Release, corpus: Path, now: datetime.datetime
) -> None:
    cells = {(cell.deck, cell.gpu, cell.run_id): cell for cell in boards.read_cells(released, now)}
    compared = 0
    for deck, gpu in BOARDS:
        published = json.loads((corpus / "published" / f"{deck}.{gpu}.json").read_text())
        for entry in (entry for model in published["models"] for entry in model["results"].values()):
            cell = cells.get((deck, gpu, entry["run_id"]))
            if cell is not None and cell.is_published:
                assert cell.score == pytest.approx(entry["peak_fraction"], abs=5.1e-5)
                compared += 1
    assert compared == 83


def test_every_cell_that_is_not_published_has_a_reason(released: publishing.Release) -> None:
    counts = Counter(ReleasedCell.objects.filter(release=released).values_list("status", flat=True))
    assert counts == {"published": 87, "withheld": 53, "failed": 23}
    for cell in ReleasedCell.objects.exclude(status="published"):
        assert cell.reasons
        assert cell.score is None


def test_no_unaudited_cell_is_published(released: publishing.Release) -> None:
    published = ReleasedCell.objects.filter(release=released, status="published")
    assert not published.filter(run__audits__isnull=True).exists()


def test_explain_prints_every_run_as_text_and_as_json(loaded: Report, capsys: pytest.CaptureFixture[str]) -> None:
    for run in Run.objects.all()[:20]:
        call_command("explain", str(run))
        assert "standing" in capsys.readouterr().out
        call_command("explain", str(run), "--json")
        assert json.loads(capsys.readouterr().out)["run_id"] == run.run_id
