"""Grades that were made without the service: our own, recorded on H200s, against the runs of the demo archive."""

import datetime
import gzip
import json
import shutil
from pathlib import Path

import pytest

from leaderboard import jobs
from leaderboard.ingest import Source, ingest_paths
from leaderboard.models import Assessment, Blob, Finding, GradeEvent, GradeJob, HostGpu, Run, Verification
from leaderboard.recompute import recompute_all
from leaderboard.service import hosts
from leaderboard.service.recorded import Loaded, load_grades

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[2]
DEMO, RECORDED = ROOT / "leaderboard" / "demo", ROOT / "leaderboard" / "recordings" / "h200" / "archive" / "runs"
BOOK = json.loads((RECORDED.parents[1] / "grades.json").read_text())["entries"].values()
GRADED = {Path(entry["result"]["archive"]).name: entry["result"]["kind"] for entry in BOOK if entry["state"] == "done"}
# Later than every recorded grade: evidence from the future is refused.
AT = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
VENDOR, BROKEN = "vendor-library_05_topk_bitonic", "control-broken_07_w4a16_gemm"


@pytest.fixture
def runs() -> None:
    """Two runs of the demo archive whose sources were graded: one right, one wrong."""
    found = [path for path in (DEMO / "runs" / "hard" / "H200").iterdir() if path.name.endswith((VENDOR, BROKEN))]
    ingest_paths(sorted(found), Source(AT))
    recompute_all()


def archive_of(name: str) -> Path:
    return next(path for path in (RECORDED / "hard" / "H200").iterdir() if path.name.endswith(name))


def load(tmp_path: Path, *names: str) -> Loaded:
    for name in names:
        shutil.copytree(archive_of(name), tmp_path / archive_of(name).name, dirs_exist_ok=True)
    return load_grades(tmp_path, AT)


@pytest.mark.usefixtures("runs")
def test_a_recorded_grade_verifies_the_run_of_the_same_source(tmp_path: Path) -> None:
    loaded = load(tmp_path, VENDOR)
    assert [word for _, word in loaded.words] == ["verified"] and not loaded.passed_over
    row = Verification.objects.select_related("run", "job").get()
    assert row.run.run_id.endswith(VENDOR) and row.counts_for_board and row.tier == "full"
    assert all(shape["p5_ms"] <= shape["ms"] <= shape["p95_ms"] < shape["published_ms"] for shape in row.shapes)
    assert Blob.objects.filter(pk=row.evidence_digest).exists()
    assert (row.job.state, row.job.gpu_seconds) == ("recorded", pytest.approx(44.2, abs=1))
    assert GradeEvent.objects.filter(job=row.job, kind="recorded", evidence=row.evidence_digest).exists()


@pytest.mark.usefixtures("runs")
def test_it_is_taken_once_and_no_job_goes_to_the_cards_of_archives(tmp_path: Path) -> None:
    load(tmp_path, VENDOR)
    again = load_grades(tmp_path, AT)
    assert (again.words, again.held, Verification.objects.count()) == ([], 1, 1)
    card = HostGpu.objects.get()
    assert (card.state, card.host.name) == ("retired", "archives")
    job = jobs.request(Run.objects.get(run_id__endswith=VENDOR), jobs.Wish("H200", "quick", "person"), AT)[0]
    with pytest.raises(jobs.JobError):
        jobs.lease(job.pk, card, "a" * 16, AT)


@pytest.mark.usefixtures("runs")
def test_a_recorded_grade_that_failed_asks_for_a_second_and_is_a_finding(tmp_path: Path) -> None:
    assert [word for _, word in load(tmp_path, BROKEN).words] == ["incorrect"]
    assert GradeJob.objects.filter(reason="confirm", state="requested").count() == 1
    assert Finding.objects.filter(run__run_id__endswith=BROKEN, code__startswith="verification.").exists()


@pytest.mark.usefixtures("runs")
def test_what_answers_no_run_is_passed_over_by_name_and_leaves_nothing(tmp_path: Path) -> None:
    loaded = load(tmp_path, "proofline-reference_05_topk_bitonic")
    ((path, reason),) = loaded.passed_over
    assert "proofline-reference_05" in path and reason == "no run here has this source on this GPU"
    assert not (Verification.objects.exists() or GradeJob.objects.exists() or HostGpu.objects.exists())


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"tier": "full"', '"tier": "quick"', ""),
        ('"tier": "full"', '"tier": "long"', "tier is 'long'; accepted are quick, full"),
        ('"started_at": "2026', '"started_at": "9999', "need a time that is past"),
        ('"reference_digest": "', '"reference_digest": "0', "reference_digest is"),
        ('"device_name": "NVIDIA H200"', '"device_name": "NVIDIA H100"', "no run here has this source on this GPU"),
        ('"schema": 1', '"schema": [', "evidence.json is malformed"),
    ],
)
def test_evidence_that_is_no_answer_is_passed_over_by_name(tmp_path: Path, old: str, new: str, reason: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(archive_of(VENDOR), folder)
    text = gzip.decompress((folder / "evidence.json.gz").read_bytes()).decode()
    assert old in text
    (folder / "evidence.json.gz").write_bytes(gzip.compress(text.replace(old, new).encode()))
    loaded = load_grades(tmp_path, AT)
    if not reason:
        assert not loaded.passed_over
        return
    assert reason in loaded.passed_over[0][1]
    assert not (Verification.objects.exists() or GradeJob.objects.exists())


@pytest.mark.usefixtures("runs")
def test_a_run_that_is_being_graded_is_left_to_its_host(tmp_path: Path) -> None:
    run = Run.objects.get(run_id__endswith=VENDOR)
    job = jobs.request(run, jobs.Wish("H200", "full", "person"), AT)[0]
    card = hosts.of_archives("GPU-x", "H200", "NVIDIA H200", "580", AT)
    GradeJob.objects.filter(pk=job.pk).update(
        state="running", token=1, attempt=1, holder=card, lease_until=AT, deadline=AT
    )
    assert load(tmp_path, VENDOR).passed_over[0][1] == "the run is being graded just now"
    assert not Verification.objects.exists()


def test_recorded_grades_are_an_archive_of_their_own_that_can_be_published() -> None:
    """Right solutions are eligible by every rule and verified by their own grades; wrong ones failed."""
    archive = RECORDED.parent
    report = ingest_paths([archive], Source(AT))
    assert not report.rejected and report.summary().startswith(f"{len(GRADED)} runs new")
    recompute_all()
    loaded = load_grades(archive, AT)
    assert len(loaded.words) == len(GRADED) and not loaded.passed_over
    standing = dict(Assessment.objects.values_list("run__run_id", "standing"))
    wanted = {name: "eligible" if kind == "right" else "failed" for name, kind in GRADED.items()}
    assert standing == wanted
    verified = Verification.objects.filter(counts_for_board=True, word__startswith="verified")
    right = {name for name, word in wanted.items() if word == "eligible"}
    assert set(verified.values_list("run__run_id", flat=True)) == right
