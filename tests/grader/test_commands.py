"""The commands: exit statuses, the archive that ``ingest`` reads, and evidence that can be judged again."""

import io
import json
from pathlib import Path
from time import sleep

import pytest
from django.core.management import CommandError, call_command

from grading.evidence import read_evidence
from grading.verdict import judge
from grading.warden import archiveout, onepass
from grading.warden.lock import DeviceBusy, hold_device
from tests.grader.support import HERE, OPS, candidates

BUNDLE = HERE / "honest" / "h13_loud_comments.py"
DECK = Path(onepass.__file__).parents[1] / "decks" / "hard" / "07_w4a16_gemm" / "solutions"


def run(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=io.StringIO())
    except SystemExit as error:
        return int(error.code or 0), out.getvalue()
    return 0, out.getvalue()


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Path]:
    pytest.importorskip("torch", reason="the oracle and the worker need PyTorch")
    out = tmp_path_factory.mktemp("graded")
    code, text = run("grade", "hard/07_w4a16_gemm", "--reference", "eager", "--out", str(out), "--gpu", "H200")
    return code, text, next(out.glob("hard/H200/*"))


def test_a_right_reference_is_verified_with_a_table(graded: tuple[int, str, Path]) -> None:
    code, text, _ = graded
    assert code == 0, text
    assert "verdict: verified" in text
    assert "M=4 N=32 K=256" in text


def test_the_archive_is_complete(graded: tuple[int, str, Path]) -> None:
    names = {path.name for path in graded[2].iterdir()}
    assert names == {
        "candidate-output-1.log",
        "check.log",
        "environment.json",
        "evidence.json",
        "framework.txt",
        "result.json",
        "solution.py",
        "verdict.json",
    }
    environment = json.loads((graded[2] / "environment.json").read_text())
    assert environment["gpu"] == "CPU"
    assert environment["torch"]
    assert environment["isolation"] in "AB"
    assert len(environment["samples_ms"]) == 2


def test_what_each_step_took_is_in_the_table_and_in_the_archive(graded: tuple[int, str, Path]) -> None:
    _, text, folder = graded
    environment = json.loads((folder / "environment.json").read_text())
    evidence = read_evidence((folder / "evidence.json").read_bytes())
    (taken,) = environment["step_seconds"]
    assert taken == evidence.passes[0].step_seconds
    assert list(taken) == evidence.passes[0].steps
    assert {"start", "rehearse", "build", "commit", "shape 0", "shape 1", "close"} <= set(taken)
    assert all(seconds >= 0 for seconds in taken.values())
    assert 0 < sum(taken.values()) < 600
    assert f"pass 1 took {sum(taken.values()):.1f} s: start" in text
    assert (environment["gpu_seconds"], evidence.gpu_seconds) == (None, None)


@pytest.mark.django_db
def test_ingest_reads_the_archive(graded: tuple[int, str, Path]) -> None:
    code, text = run("ingest", str(graded[2].parents[2]), "--dry-run")
    assert (code, "1 run new" in text, "0 rejected" in text) == (0, True, True), text


def test_recorded_evidence_gives_the_same_verdict_without_torch(graded: tuple[int, str, Path]) -> None:
    code, text = run("rejudge", str(graded[2] / "evidence.json"))
    assert code == 0
    assert json.loads(text) == json.loads((graded[2] / "verdict.json").read_text())


def test_a_wrong_solution_leaves_with_one(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the oracle and the worker need PyTorch")
    wrong = next(DECK.glob("wrong/*.py")).stem
    code, text = run("grade", "hard/07_w4a16_gemm", "--reference", wrong, "--out", str(tmp_path))
    assert code == 1, text
    folder = next(tmp_path.glob("hard/CPU/*"))
    seed, first = (folder / "check.log").read_text().splitlines()[:2]
    assert (seed.startswith("PROPERTY_SEED: "), first.startswith("FAIL: ")) == (True, True)
    assert json.loads((folder / "result.json").read_text())["correct"] is False


def test_a_refused_bundle_leaves_with_four_and_runs_nothing(tmp_path: Path) -> None:
    smuggled = next(item for item in candidates("cheats") if item.path.is_dir())
    arguments = ("--decks", str(OPS), "--solution", str(smuggled.path), "--out", str(tmp_path))
    code, text = run("grade", "toy/M", *arguments)
    assert code == 4
    assert "sitecustomize.py" in text


def test_mistakes_of_the_caller_are_named(tmp_path: Path) -> None:
    for arguments, expected in (
        (("hard/99", "--reference", "eager"), "problem is 'hard/99'; accepted are"),
        (("hard/07_w4a16_gemm", "--reference", "nobody"), "has no reference solution 'nobody'; it has"),
        (("hard/07_w4a16_gemm", "--reference", "eager", "--gpu", "X"), "--gpu is 'X'; accepted are"),
        (("hard/07_w4a16_gemm", "--archive", str(tmp_path / "none")), "none"),
    ):
        with pytest.raises(CommandError, match=expected) as raised:
            run("grade", *arguments, "--out", str(tmp_path))
        assert raised.value.returncode == 4


def test_a_disk_that_cannot_be_written_is_inconclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smuggled = next(item for item in candidates("cheats") if item.path.is_dir())

    def refuse(entry: archiveout.Entry) -> dict[str, bytes]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archiveout, "_files", refuse)
    with pytest.raises(CommandError, match="inconclusive: the archive could not be written") as raised:
        run("grade", "toy/M", "--decks", str(OPS), "--solution", str(smuggled.path), "--out", str(tmp_path))
    assert raised.value.returncode == 4
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_two_graders_never_share_a_gpu() -> None:
    with hold_device("cuda:0"), hold_device("cpu"), hold_device("cpu"), hold_device("cuda:1"):
        with pytest.raises(DeviceBusy), hold_device("cuda:0"):
            pass
    with hold_device("cuda:0") as held:
        assert held.seconds is None
        sleep(0.02)
    assert held.seconds is not None
    assert 0.02 <= held.seconds < 5


def test_doctor_says_what_is_there() -> None:
    pytest.importorskip("torch", reason="doctor loads PyTorch")
    code, text = run("doctor", "--json")
    found = json.loads(text)
    assert code == 0
    assert found["isolation"] in "ABC"
    assert {"torch", "gpu", "cores"} <= {item["name"] for item in found["findings"]}
    assert "isolation" in run("doctor")[1]


def test_judging_needs_no_torch() -> None:
    assert judge.__module__ == "grading.verdict"
