"""What runs share with each other, kept in the database, and previews of changed rules."""

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from grading.hardware import load_gpus
from grading.problem import load_decks
from grading.proposal import read_proposal
from grading.tomldata import CatalogueError
from leaderboard import crossrun, publishing
from leaderboard.models import Finding, Run, SharedKey, Signature
from leaderboard.preview import preview
from leaderboard.publishing import Act
from leaderboard.recompute import recompute_all
from tests.rulebook.twins import kernel, renamed

pytestmark = pytest.mark.django_db
Make = Callable[..., Run]


def codes(run: Run) -> set[str]:
    return set(run.findings.values_list("code", flat=True))


def test_a_copy_is_found_when_it_arrives_and_its_original_stays_as_it_was(publishable: Make) -> None:
    original = publishable(solution=kernel(1))
    digest = original.assessment.evidence_digest
    copy = publishable(model="other", stamp="20260702_120000", solution=renamed(kernel(1)))
    original = Run.objects.select_related("assessment").get(pk=original.pk)
    assert "source.duplicate" in codes(copy)
    assert "source.duplicate" not in codes(original)
    assert original.assessment.evidence_digest == digest
    assert crossrun.twins_of(copy)["copies"] == [(str(original), 1.0)]


def test_a_finding_never_names_the_other_run(publishable: Make) -> None:
    original = publishable(None, solution=kernel(1))
    copy = publishable(model="other", stamp="20260702_120000", solution=kernel(1))
    for finding in Finding.objects.filter(run=copy):
        assert original.run_id not in finding.message
        assert original.run_id not in str(finding.data)


def test_signatures_are_rebuilt_to_the_same_bytes(publishable: Make) -> None:
    for number in range(3):
        publishable(model=f"m{number}", stamp=f"2026070{number + 1}_120000", solution=kernel(number % 2))
    before = list(Signature.objects.order_by("pk").values_list("pk", "content", "neighbours_digest"))
    keys = sorted(SharedKey.objects.values_list("value", "run"))
    crossrun.forget_all()
    assert recompute_all().assessed == 0
    assert list(Signature.objects.order_by("pk").values_list("pk", "content", "neighbours_digest")) == before
    assert sorted(SharedKey.objects.values_list("value", "run")) == keys


def test_runs_without_a_signature_are_signed_before_a_newer_one(publishable: Make) -> None:
    publishable(solution=kernel(1))
    crossrun.forget_all()
    copy = publishable(model="other", stamp="20260702_120000", solution=kernel(1))
    assert "source.duplicate" in codes(copy)


def test_a_run_is_assessed_again_only_when_what_it_shares_changed(publishable: Make) -> None:
    publishable(solution=kernel(1))
    publishable(model="other", stamp="20260702_120000", solution=kernel(2))
    assert recompute_all().assessed == 0


def proposal(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "new.toml"
    path.write_text(text)
    return path


STRICT = '[severity.hard]\n"log.missing" = { severity = "block", reason = "why" }\n'
LOOSE = '[severity.hard]\n"gpu.unproven" = { severity = "warn", reason = "why" }\n'
PEAKS = (
    '[[peaks]]\ngpu = "H200"\nsince = 2026-12-01\nsource = "test"\nbandwidth_gbps = 9600\ntflops = { bf16 = 989.5 }\n'
)


def test_a_preview_shows_what_is_gained_and_changes_nothing(
    publishable: Make, tmp_path: Path, now: datetime.datetime
) -> None:
    run = publishable(device_name=None)
    found = preview(read_proposal(proposal(tmp_path, LOOSE)), now)
    assert len(found.gained) == 1
    assert not found.lost
    assert Run.objects.get(pk=run.pk).assessment.standing == "blocked"
    assert recompute_all().assessed == 0
    assert "gpu.unproven" not in load_decks()["hard"].severity


def test_a_preview_shows_what_a_peak_table_moves_and_which_approvals_lapse(
    publishable: Make, act: Act, tmp_path: Path, now: datetime.datetime
) -> None:
    run = publishable()
    publishing.approve(run, act)
    found = preview(read_proposal(proposal(tmp_path, PEAKS)), now)
    assert [move.after[1] / move.before[1] for move in found.moved] == [pytest.approx(0.5)]
    assert len(found.published_lost) == 1
    assert load_gpus()["H200"].current.version == 1
    assert Run.objects.get(pk=run.pk).assessment.score == run.assessment.score


def test_the_command_previews_and_names_what_is_wrong_with_a_proposal(
    publishable: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publishable(device_name=None)
    call_command("recompute", "--rules", str(proposal(tmp_path, LOOSE)))
    assert "1 cell gained, 0 lost, 0 moved" in capsys.readouterr().out
    call_command("recompute", "--dry-run")
    assert "nothing was changed" in capsys.readouterr().out
    with pytest.raises(CommandError, match="which is no rule"):
        call_command("recompute", "--rules", str(proposal(tmp_path, STRICT.replace("log.missing", "log.misssing"))))
    with pytest.raises(CatalogueError, match="accepted are"):
        read_proposal(proposal(tmp_path, PEAKS.replace("H200", "H2000")))
