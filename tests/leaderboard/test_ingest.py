"""Archives become rows: once, whole, and never over one another."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from leaderboard.models import Audit, Blob, Finding, Rejection, Run
from tests.database import Ingest
from tests.factories import make_audit_text, write_archive


def test_a_run_directory_becomes_a_row_with_its_bytes(tmp_path: Path, ingest: Ingest) -> None:
    folder = write_archive(tmp_path)
    report = ingest(folder)
    assert report.runs_new == 1
    run = Run.objects.get()
    assert (run.deck_id, run.gpu_id, run.run_id) == ("hard", "H200", folder.name)
    assert Blob.objects.count() == len(list(folder.iterdir()))


def test_the_same_tree_again_changes_nothing(tmp_path: Path, ingest: Ingest) -> None:
    write_archive(tmp_path)
    (tmp_path / "stray.csv").write_text("a,b\n")
    ingest(tmp_path)
    before = [list(model.objects.values().order_by("pk")) for model in (Run, Audit, Blob, Rejection, Finding)]
    report = ingest(tmp_path)
    after = [list(model.objects.values().order_by("pk")) for model in (Run, Audit, Blob, Rejection, Finding)]
    assert (report.runs_new, report.runs_held) == (0, 1)
    assert before == after


def test_other_content_under_the_same_key_is_a_conflict_and_the_first_stands(tmp_path: Path, ingest: Ingest) -> None:
    folder = write_archive(tmp_path)
    ingest(folder)
    digest = Run.objects.get().content_digest
    (folder / "solution.py").write_text("import triton\n")
    report = ingest(folder)
    assert [name for name, _ in report.conflicts] == [f"hard/H200/{folder.name}"]
    assert Run.objects.get().content_digest == digest
    assert Rejection.objects.get().is_conflict
    assert Finding.objects.filter(code="run.conflicting_content").exists()


def test_the_conflicting_bytes_are_kept(tmp_path: Path, ingest: Ingest) -> None:
    folder = write_archive(tmp_path)
    ingest(folder)
    count = Blob.objects.count()
    (folder / "solution.py").write_text("import triton\n")
    ingest(folder)
    assert Blob.objects.count() == count + 1


def test_one_bad_run_does_not_stop_the_others(tmp_path: Path, ingest: Ingest) -> None:
    write_archive(tmp_path)
    bad = write_archive(tmp_path, model="broken")
    (bad / "result.json").write_text('{"run_id": ')
    report = ingest(tmp_path)
    assert report.runs_new == 1
    assert any("result.json" in path + reason for path, reason in report.rejected)


def test_an_unknown_gpu_is_named_with_what_is_accepted(tmp_path: Path, ingest: Ingest) -> None:
    folder = write_archive(tmp_path)
    folder.parent.rename(folder.parent.parent / "A100")
    report = ingest(tmp_path)
    assert report.runs_new == 0
    assert "A100" in str(report.rejected)
    assert "H200" in str(report.rejected)


def test_a_bundle_gives_the_same_run_as_its_directory(tmp_path: Path, ingest: Ingest) -> None:
    folder = write_archive(tmp_path / "tree")
    bundle = tmp_path / "bundle.tar.gz"
    with tarfile.open(bundle, "w:gz") as tar:
        tar.add(folder, f"hard/H200/{folder.name}")
    assert ingest(bundle).runs_new == 1
    assert ingest(folder).runs_held == 1


def test_a_bundle_that_reaches_out_of_its_place_is_refused_whole(tmp_path: Path, ingest: Ingest) -> None:
    bundle = tmp_path / "bundle.tar.gz"
    with tarfile.open(bundle, "w:gz") as tar:
        member = tarfile.TarInfo("../../escaped.txt")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    report = ingest(bundle)
    assert len(report.rejected) == 1
    assert not (tmp_path.parent / "escaped.txt").exists()
    assert Run.objects.count() == 0


def test_a_dry_run_stores_nothing(tmp_path: Path, ingest: Ingest) -> None:
    write_archive(tmp_path)
    report = ingest(tmp_path, is_dry_run=True)
    assert report.runs_new == 1
    assert (Run.objects.count(), Blob.objects.count()) == (0, 0)


def test_an_audit_that_arrives_first_is_linked_when_its_run_comes(tmp_path: Path, ingest: Ingest) -> None:
    folder = write_archive(tmp_path / "tree")
    audit = tmp_path / "audits" / "hard" / f"{folder.name}.yaml"
    audit.parent.mkdir(parents=True)
    audit.write_text(make_audit_text(folder.name))
    ingest(audit)
    assert Audit.objects.get().run is None
    ingest(folder)
    assert Audit.objects.get().run == Run.objects.get()


def test_an_audit_that_could_mean_two_boards_is_linked_to_neither(tmp_path: Path, ingest: Ingest) -> None:
    folder = write_archive(tmp_path / "tree")
    write_archive(tmp_path / "tree", gpu="B200", device_name="NVIDIA B200")
    audit = tmp_path / "audits" / "hard" / f"{folder.name}.yaml"
    audit.parent.mkdir(parents=True)
    audit.write_text(make_audit_text(folder.name))
    ingest(tmp_path / "tree", audit)
    assert Audit.objects.get().run is None


def test_an_audit_that_names_its_gpu_is_linked_to_that_board(tmp_path: Path, ingest: Ingest) -> None:
    folder = write_archive(tmp_path / "tree")
    write_archive(tmp_path / "tree", gpu="B200", device_name="NVIDIA B200")
    audit = tmp_path / "audits" / "hard" / f"{folder.name}.yaml"
    audit.parent.mkdir(parents=True)
    audit.write_text(make_audit_text(folder.name, gpu="B200"))
    ingest(tmp_path / "tree", audit)
    assert Audit.objects.get().run.gpu_id == "B200"


def test_an_audit_of_another_gpus_run_is_not_taken_for_the_only_one_held(tmp_path: Path, ingest: Ingest) -> None:
    folder = write_archive(tmp_path / "tree")
    audit = tmp_path / "audits" / "hard" / f"{folder.name}.yaml"
    audit.parent.mkdir(parents=True)
    audit.write_text(make_audit_text(folder.name, gpu="B200"))
    ingest(tmp_path / "tree", audit)
    assert Audit.objects.get().run is None


@pytest.mark.parametrize(
    "name", ["智谱", "🚀", "---", "<img src=x onerror=alert(1)>", "=1+1", "GPT-5", "gpt-5", "a" * 200]
)
def test_any_model_name_gets_an_address_of_its_own(tmp_path: Path, ingest: Ingest, name: str) -> None:
    folder = write_archive(tmp_path)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "model": name}))
    report = ingest(tmp_path)
    assert report.rejected == []
    model = Run.objects.get().entrant.model
    assert model.name == name
    assert model.slug.isascii()
    assert len(model.slug) <= 80


def test_names_that_differ_only_in_case_stay_apart(tmp_path: Path, ingest: Ingest) -> None:
    for index, name in enumerate(["GPT-5", "gpt-5"]):
        write_archive(tmp_path, model=name, stamp=f"2026070{index + 1}_120000")
    ingest(tmp_path)
    assert len({run.entrant.model.slug for run in Run.objects.all()}) == 2
