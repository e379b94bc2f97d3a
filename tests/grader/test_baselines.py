"""Baselines are timed in workers of their own, before the candidate's begins, and stand in evidence and log."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from grading.archive import KeyHint, read_run
from grading.evidence import GRADER_VERSION, Baseline
from grading.hardware import Gpu, load_gpus
from grading.problem import Problem, load_decks
from grading.score import recompute, reported
from grading.verdict import judge
from grading.warden.archiveout import Entry, write_archive
from grading.warden.bundles import Bundle, baselines_of
from grading.warden.grade import Grade, grade
from grading.warden.oraclehost import OracleHost
from tests.grader.made import make_call, make_evidence, make_pass, make_shape
from tests.grader.support import HERE, files_of, make_request

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
PLAIN = files_of(HERE / "honest" / "h13_loud_comments.py")


def test_a_baseline_is_timed_before_the_candidate_is_imported(host: OracleHost) -> None:
    steps: list[str] = []
    request = make_request("M", PLAIN, baselines={"eager": PLAIN})
    done = grade(request, lambda name, taken: steps.append(name), host)
    (baseline,) = done.evidence.baselines
    assert (baseline.variant, baseline.ended, len(baseline.shapes)) == ("eager", "complete", 2)
    assert done.verdict.word == "verified"
    assert steps.index("eager: close") < steps.index("start")


def test_the_problems_own_baselines_carry_the_logs_names() -> None:
    problem = load_decks()["hard"].problems["07_w4a16_gemm"]
    assert list(baselines_of(problem)) == ["eager", "compiled", "sota"]
    assert list(baselines_of(load_decks()["hard"].problems["02_kda_cutlass"])) == ["eager", "compiled"]


@pytest.fixture
def entry() -> Entry:
    return make_entry(load_decks()["hard"].problems["07_w4a16_gemm"], load_gpus()["H200"])


def make_entry(problem: Problem, gpu: Gpu) -> Entry:
    """A grade on a GPU: 0.1 ms a call, the eager baseline 0.25 ms, and one baseline that answered wrongly."""
    shapes = [
        make_shape(*[make_call(n) for n in range(20)], shape={k: float(v) for k, v in s.items()})
        for s in problem.shapes
    ]
    slower = [make_shape(*[make_call(n, claim_ns=250_000) for n in range(20)]) for _ in shapes]
    wrong = [make_shape(*[make_call(n, bad=1, ratio=3.0) for n in range(20)]) for _ in shapes]
    evidence = msgspec.structs.replace(
        make_evidence(make_pass(1, *shapes, plan_seed=77)),
        baselines=[
            Baseline(variant="eager", digest="d", ended="complete", detail="", shapes=slower),
            Baseline(variant="sota", digest="d", ended="complete", detail="", shapes=wrong),
        ],
    )
    bundle = Bundle({"solution.py": b"import triton\n"}, "vendor-library", "baseline")
    return Entry(problem, gpu, bundle, Grade(evidence, judge(evidence), []), AT, AT)


def test_a_baseline_stands_in_the_log_unless_it_answered_wrongly(entry: Entry, tmp_path: Path) -> None:
    folder = write_archive(entry, tmp_path)
    lines = (folder / "benchmark.log").read_text().splitlines()
    assert [line.split(" ms=")[1] for line in lines if line.startswith("shape=0 variant=")] == ["0.100", "0.250"]
    assert not [line for line in lines if "variant=sota" in line]
    assert (folder / "check.log").read_text() == "PROPERTY_SEED: 77\nPASS\n"
    assert folder.name == "20261130_120000_baseline_vendor-library_07_w4a16_gemm"


@pytest.mark.parametrize(
    ("key", "first"),
    [
        ("cuda/03_megaqwen_decode", "shape=0 variant=solution tok_s=640000.000 decode_wall_s=0.0001"),
        ("cuda/04_grid_mingru_sps", "shape=0 variant=solution sps=1310720000.000 wall_s=0.0001"),
        ("mega/02_kimi_linear_decode", "shape ctx=2048: solution 0.1000 ms/tok (10000 tok/s) | baseline 0.2500"),
    ],
)
def test_a_rate_and_a_speedup_are_scored_as_ingest_recomputes_them(key: str, first: str, tmp_path: Path) -> None:
    deck, _, name = key.partition("/")
    problem, gpu = load_decks()[deck].problems[name], load_gpus()["H100"]
    entry = make_entry(problem, gpu)
    folder = write_archive(entry, tmp_path)
    lines = (folder / "benchmark.log").read_text().splitlines()
    assert next(line for line in lines if not line.startswith("benchmark_event")).startswith(first)
    record, _ = read_run(folder, KeyHint(deck=deck, gpu="H100"))
    found = recompute(record, problem, gpu.key, gpu.current)
    said = reported(record, problem)
    assert found.value is not None and said is not None and found.value.meets(said)
    assert record.benchmark is not None and record.benchmark.faults == ()
    assert {problem.shape_index(row.shape) for row in record.benchmark.measurements} == set(range(len(problem.shapes)))


@pytest.mark.parametrize(
    ("deck_us", "logged", "method"), [(120, "0.120", "1"), (None, "0.100", f"grader-{GRADER_VERSION}")]
)
def test_logs_hold_times_as_the_deck_takes_them_where_the_grade_has_any(
    entry: Entry, deck_us: int | None, logged: str, method: str, tmp_path: Path
) -> None:
    """The device's own time is less by a launch, half of a short call: no board may hold both."""
    timed = [make_call(n) for n in range(20)]
    deck = [make_call(50 + n, "as_deck", claim_ns=deck_us * 1000) for n in range(6)] if deck_us else []
    shapes = [make_shape(*timed, *deck, shape={k: float(v) for k, v in s.items()}) for s in entry.problem.shapes]
    evidence = make_evidence(make_pass(1, *shapes))
    folder = write_archive(replace(entry, grade=Grade(evidence, judge(evidence), [])), tmp_path)
    (line,) = [line for line in (folder / "benchmark.log").read_text().splitlines() if line.startswith("shape=0 var")]
    assert line.endswith(f" ms={logged}")
    environment = json.loads((folder / "environment.json").read_bytes())
    assert (environment["method_version"], environment["samples_ms"][0][0]) == (method, float(logged))


def test_a_wrong_solution_prints_no_times_so_its_archive_names_no_other_method(entry: Entry, tmp_path: Path) -> None:
    """A shape that was given up early had timed calls and none as the deck makes them."""
    timed = [make_call(n, bad=9, ratio=50.0) for n in range(12)]
    shapes = [make_shape(*timed, shape={k: float(v) for k, v in s.items()}) for s in entry.problem.shapes]
    evidence = make_evidence(make_pass(1, *shapes))
    folder = write_archive(replace(entry, grade=Grade(evidence, judge(evidence), [])), tmp_path)
    assert not (folder / "benchmark.log").exists()
    assert json.loads((folder / "environment.json").read_bytes())["method_version"] == "1"
