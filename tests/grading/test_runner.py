"""The runner: what a run directory holds, and which gates decide correctness and score."""

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from grading import timing
from grading.hardware import load_gpus
from grading.problem import DECKS, load_problem
from grading.runner import recording as recording_module
from grading.runner.__main__ import main
from grading.runner.child import Measured
from grading.runner.demo import BASELINES, plan_demo
from grading.runner.job import BASELINE_MARK, build_job, may_use_forbidden
from grading.runner.recording import ROOT, Entrant, Limits, Phase, Recording, label_framework
from grading.tomldata import CatalogueError

SHAPES = [{"M": 32, "N": 48, "K": 80}, {"M": 16, "N": 16, "K": 64}]
RUN_ID = re.compile(r"\d{8}_\d{6}_baseline_pytorch-eager_01_fp8_gemm")
EVENT = re.compile(
    r"benchmark_event event=variant_end shape=\d variant=solution ts=\S+ elapsed_s=\d+\.\d{3} ms=\d+\.\d{6}"
)
DECK_LIMITS = Limits()
LINE = re.compile(r"shape=\d variant=solution tflops=\d+\.\d{3} gbps=\d+\.\d{3} ms=\d+\.\d{3}")


def read_solution(kind: str, name: str) -> str:
    return (DECKS / "hard" / "01_fp8_gemm" / "solutions" / kind / f"{name}.py").read_text(encoding="utf-8")


def make_recording(solution: str, *, limits: Limits = DECK_LIMITS, **changes) -> Recording:
    problem, gpu = load_problem("hard", "01_fp8_gemm"), load_gpus()["CPU"]
    job = build_job(problem, gpu, "cpu", shapes=SHAPES, peak=1.0)
    job = msgspec.structs.replace(job, seeds=[42], warmup=1, trials=3, flush_bytes=4096, **changes)
    return Recording(problem, gpu, job, Entrant("baseline", "pytorch-eager", solution), limits)


def make_phase(log: str, exit_code: int = 0) -> Phase:
    return Phase(exit_code, 1, log, Measured(cuda=None, torch="2", triton=None, python="3", device_name=None))


def record(tmp_path: Path, recording: Recording) -> tuple[Path, dict, dict]:
    recording.run_check()
    recording.run_benchmark()
    directory = recording.write(tmp_path)
    read = [json.loads((directory / name).read_text()) for name in ("result.json", "environment.json")]
    return directory, *read


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    pytest.importorskip("torch", reason="the runner's children need PyTorch")
    return record(tmp_path_factory.mktemp("honest"), make_recording(read_solution("right", "eager")))


def test_an_honest_run_has_every_file(honest):
    directory, result, _ = honest
    names = {path.name for path in directory.iterdir()}
    assert names == {
        "result.json",
        "environment.json",
        "check.log",
        "benchmark.log",
        "solution.py",
        "framework.txt",
    }
    assert RUN_ID.fullmatch(directory.name)
    assert result["run_id"] == directory.name


def test_an_honest_run_is_correct_and_scored(honest):
    directory, result, _ = honest
    headline = re.search(r"^peak_fraction: (\d+\.\d{4})$", (directory / "benchmark.log").read_text(), re.MULTILINE)
    assert result["correct"] is True
    assert result["failure_reason"] == "pass"
    assert result["peak_fraction"] == float(headline[1])
    assert result["usage"] == {}


def test_its_benchmark_log_follows_the_grammar(honest):
    lines = (honest[0] / "benchmark.log").read_text().splitlines()
    assert sum(bool(EVENT.fullmatch(line)) for line in lines) == len(SHAPES)
    assert sum(bool(LINE.fullmatch(line)) for line in lines) == len(SHAPES)
    assert lines[-1] in {"RESULT: OK", "RESULT: LOW"}


def test_its_environment_holds_the_raw_samples_and_versions(honest):
    _, _, environment = honest
    assert [len(samples) for samples in environment["samples_ms"]] == [3, 3]
    assert environment["method_version"] == timing.METHOD_VERSION
    assert environment["problem_version"] == load_problem("hard", "01_fp8_gemm").version
    assert environment["device_uuid"] is None
    assert environment["torch"]


def test_its_logged_times_are_the_medians_of_the_samples(honest):
    directory, _, environment = honest
    logged = re.findall(r"variant_end .* ms=(\S+)", (directory / "benchmark.log").read_text())
    assert logged == [f"{timing.median_ms(samples):.6f}" for samples in environment["samples_ms"]]


def test_a_wrong_answer_is_not_benchmarked(tmp_path):
    pytest.importorskip("torch", reason="the runner's children need PyTorch")
    directory, result, _ = record(tmp_path, make_recording(read_solution("wrong", "drops_tail")))
    assert result["correct"] is False
    assert result["peak_fraction"] is None
    assert result["benchmark_exit_code"] is None
    assert not (directory / "benchmark.log").exists()
    assert (directory / "check.log").read_text().startswith("FAIL: shape 0 ")


def test_a_forged_marker_leaves_the_run_without_a_score(tmp_path):
    pytest.importorskip("torch", reason="the runner's children need PyTorch")
    directory, result, _ = record(tmp_path, make_recording(read_solution("wrong", "forged_marker")))
    assert (directory / "benchmark.log").read_text().count("peak_fraction: ") == 2
    assert result["peak_fraction"] is None
    assert result["failure_reason"] == "benchmark_failed"


def test_a_solution_that_leaves_early_fails(tmp_path):
    pytest.importorskip("torch", reason="the runner's children need PyTorch")
    directory, result, _ = record(tmp_path, make_recording("import sys\nprint('PASS')\nsys.exit(0)\n"))
    assert result["correct"] is False
    assert "exited successfully before normal completion" in (directory / "check.log").read_text()


def test_a_solution_that_rewrites_the_reference_is_marked(tmp_path):
    pytest.importorskip("torch", reason="the runner's children need PyTorch")
    solution = "open('reference.py', 'a').write('# mine')\n" + read_solution("right", "eager")
    _, result, _ = record(tmp_path, make_recording(solution))
    assert result["template_mutated"] is True
    assert result["failure_reason"] == "template_mutated"


def test_a_hanging_check_is_ended(tmp_path):
    pytest.importorskip("torch", reason="the runner's children need PyTorch")
    _, result, _ = record(tmp_path, make_recording("while True: pass\n", limits=Limits(check_seconds=8)))
    assert result["check_exit_code"] == 124
    assert result["failure_reason"] == "check_timeout"


@pytest.mark.parametrize("log", ["", "PASS\nPASS\n", " PASS\n", "PASSED\n"])
def test_only_one_whole_line_pass_is_correct(log):
    recording = make_recording("")
    recording.check = make_phase(log)
    assert recording.is_correct is False


def test_a_child_that_did_not_reach_its_end_has_neither_verdict_nor_score():
    recording = make_recording("")
    recording.check, recording.benchmark = Phase(0, 1, "PASS\n", None), Phase(0, 1, "peak_fraction: 0.5\n", None)
    assert recording.is_correct is False
    assert recording.score_text is None


@pytest.mark.parametrize("exit_code", [1, 124, 137])
def test_a_pass_with_a_failed_exit_is_not_correct(exit_code):
    recording = make_recording("")
    recording.check = make_phase("PASS\n", exit_code)
    assert recording.is_correct is False


@pytest.mark.parametrize(
    ("log", "score"),
    [
        ("peak_fraction: 0.1234\n", "0.1234"),
        ("peak_fraction: 0.1\npeak_fraction: 0.2\n", None),
        ("peak_fraction: nan\n", None),
        ("peak_fraction: -0.1\n", None),
        ("shape=0 solution_peak_fraction=0.5\n", None),
    ],
)
def test_only_one_finite_headline_is_a_score(log, score):
    recording = make_recording("")
    recording.benchmark = make_phase(log)
    assert recording.score_text == score


def test_forbidden_text_is_waived_only_for_marked_baselines():
    assert may_use_forbidden("baseline", BASELINE_MARK + "\nimport torch\n")
    assert not may_use_forbidden("claude", BASELINE_MARK)
    assert not may_use_forbidden("baseline", "import torch\n" + BASELINE_MARK)


def test_a_gpu_without_the_needed_peak_is_refused():
    with pytest.raises(CatalogueError, match="gpu CPU has no compute peak"):
        build_job(load_problem("hard", "01_fp8_gemm"), load_gpus()["CPU"], "cpu")


def test_a_problem_with_another_metric_is_refused():
    with pytest.raises(CatalogueError, match="only problems scored as peak_fraction"):
        build_job(load_problem("mega", "02_kimi_linear_decode"), load_gpus()["H200"], "cuda:0")


def test_the_command_names_what_is_accepted_for_an_unknown_problem(tmp_path, capsys):
    solution = tmp_path / "s.py"
    solution.write_text("")
    arguments = ["hard/99_none", "--solution", str(solution), "--model", "m", "--gpu", "H200", "--out", str(tmp_path)]
    assert main(arguments) == 2
    assert "01_fp8_gemm" in capsys.readouterr().err


def test_the_demo_plan_holds_three_baselines_a_problem_and_two_controls():
    runs = plan_demo(with_kernels=False)
    assert sum(run.model == "control-broken" for run in runs) == 2
    assert sum(run.model in BASELINES.values() for run in runs) == 18
    assert all(run.solution.is_file() for run in runs)
    assert len(plan_demo(with_kernels=True)) == 26


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("import torch", "unknown"),
        ("import triton\n@triton.jit", "triton"),
        ("@triton.jit\nasm volatile", "ptx"),
        ("__global__ void k()", "cuda_raw"),
        ("cutlass::gemm", "cutlass2"),
    ],
)
def test_a_framework_is_the_first_label_that_matches(text, label):
    assert label_framework(text) == label


def test_the_median_of_no_samples_is_refused():
    with pytest.raises(ValueError, match="samples is empty"):
        timing.median_ms([])


def test_the_parent_does_not_import_torch():
    code = "import sys, grading.runner.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_unreadable_device_state_is_absent(monkeypatch):
    from grading.runner import device

    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(OSError("no driver")))
    assert device.identify_device("cuda:0") is None
    assert device.read_device("cuda:0") is None
    assert recording_module.read_device("cpu") is None
