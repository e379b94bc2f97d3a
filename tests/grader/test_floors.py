"""The survey ``floors``: what it reads and counts, how it goes about it, and what was recorded on a GPU."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from grading.formulas import evaluate
from grading.hardware import load_gpus
from grading.problem import DECKS, load_problem
from grading.survey import floors
from grading.survey.__main__ import main
from grading.survey.bench import Versions
from grading.survey.book import Entry
from grading.survey.floors import Floor, Floors, floor_of, measure_floors, scored, table
from grading.survey.items import gradeable_problems
from grading.survey.work import Work

ROOT = DECKS.parents[1]
DOCUMENTS = {
    "hard/01_fp8_gemm": "fp8_gemm",
    "hard/02_kda_cutlass": "kda",
    "hard/03_paged_attention": "paged_attention",
    "hard/05_topk_bitonic": "topk",
    "hard/06_sonic_moe_swiglu": "moe_swiglu",
    "hard/07_w4a16_gemm": "w4a16_gemm",
}
RECORDED = json.loads((ROOT / "leaderboard" / "recordings" / "h200" / "floors.json").read_text())["entries"]
VERSIONS = Versions(device_name="NVIDIA H200", python="3.12", torch="2.11", cuda="13.0", triton="3.6")


def problem_of(key: str):
    return load_problem(*key.split("/", 1))


def make_floors(problem, floor_ms: list[float]) -> Floors:
    rows = [Floor(shape=shape, read_ms=ms, floor_ms=ms) for shape, ms in zip(problem.shapes, floor_ms, strict=False)]
    return Floors(versions=VERSIONS, nothing_ms=0.006, launch_ms=0.01, dense_tflops=800.0, shapes=rows, ceiling=None)


def documented_rows(document: str) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the first table in a kernel document's section "Floors"."""
    text = (ROOT / "docs" / "kernels" / f"{document}.md").read_text()
    section = re.split(r"^## ", text[text.index("\n## Floors") + 4 :], flags=re.MULTILINE)[0]
    lines = [line.strip().strip("|").replace("*", "") for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"\s*\|\s*", line)] for line in lines]
    return cells[0], cells[2:]


@pytest.mark.parametrize("key", DOCUMENTS)
def test_bytes_and_operations_are_those_of_the_kernel_documents(key: str):
    problem, (head, rows) = problem_of(key), documented_rows(DOCUMENTS[key])
    peaks = load_gpus()["H200"].current
    work = {
        "bytes": (problem.metric.floor_bytes, peaks.bandwidth_gbps * 1e3),
        "operations": (problem.metric.floor_flops, peaks.tflops[problem.metric.dtype] * 1e6),
    }
    assert {cell.split()[0].strip(",") for cell in head[1:3]} == set(work)
    for shape, row in zip(problem.shapes, rows, strict=True):
        assert {float(number) for number in row[0].split(",")} <= set(shape.values())
        for name, printed in zip(head[1:3], row[1:3], strict=True):
            formula, each_us = work[name.split()[0].strip(",")]
            unit = 10.0 ** -len(printed.partition(".")[2])
            assert evaluate(formula, shape) / each_us == pytest.approx(float(printed), abs=unit), (shape, name)


def test_every_problem_of_the_survey_has_bytes_operations_and_a_dense_type():
    known = [problem for problem in gradeable_problems() if problem.metric.kind == "peak_fraction"]
    assert set(DOCUMENTS) <= {problem.key for problem in known}
    for problem in known:
        assert problem.metric.dtype in floors._DENSE_TYPES, problem.key
        assert (problem.timing.method, problem.timing.statistic) == ("deck", "median"), problem.key
        for shape in problem.shapes:
            assert evaluate(problem.metric.floor_bytes, shape) > 0 < evaluate(problem.metric.floor_flops, shape)


def test_operations_do_not_bind_top_k():
    problem = problem_of("hard/05_topk_bitonic")
    assert [floor_of(problem, shape, 0.012, 0.010, 700.0) for shape in problem.shapes] == [0.012] * 5


def test_a_floor_is_never_below_an_empty_launch():
    problem = problem_of("hard/03_paged_attention")
    assert all(floor_of(problem, shape, 0.001, 0.010, 800.0) > 0.010 for shape in problem.shapes)


@pytest.mark.parametrize("key", DOCUMENTS)
def test_floors_of_half_the_time_make_twice_the_score(key: str):
    problem = problem_of(key)
    whole = scored(problem, "H200", make_floors(problem, [0.5] * len(problem.shapes)))
    half = scored(problem, "H200", make_floors(problem, [0.25] * len(problem.shapes)))
    assert half.ceiling == pytest.approx(2 * whole.ceiling)


def test_a_part_of_the_shapes_makes_no_score():
    problem = problem_of("hard/01_fp8_gemm")
    found = scored(problem, "H200", make_floors(problem, [0.5]))
    assert found.ceiling is None and found.shapes[0].share is None


@pytest.mark.parametrize("key", DOCUMENTS)
def test_the_recorded_floors_follow_from_the_recorded_times(key: str):
    problem, found = problem_of(key), msgspec.convert(RECORDED[key]["result"], Floors)
    assert [floor.shape for floor in found.shapes] == problem.shapes
    for floor in found.shapes:
        again = floor_of(problem, floor.shape, floor.read_ms, found.launch_ms, found.dense_tflops)
        assert floor.floor_ms == pytest.approx(again)
    assert scored(problem, "H200", found).ceiling == pytest.approx(found.ceiling)


@pytest.mark.parametrize("key", ["hard/01_fp8_gemm", "hard/03_paged_attention", "hard/05_topk_bitonic"])
def test_the_documents_quote_the_recorded_ceiling(key: str):
    text = (ROOT / "docs" / "kernels" / f"{DOCUMENTS[key]}.md").read_text()
    assert f"**{RECORDED[key]['result']['ceiling']:.4f}**" in text


def make_entry(state: str, result: object, detail: str = "") -> Entry:
    return Entry(
        problem="hard/01_fp8_gemm",
        solution="",
        attempt=1,
        digest="d",
        state=state,
        seconds=1.0,
        at="",
        result=msgspec.to_builtins(result),
        detail=detail,
    )


def test_the_table_names_what_failed_and_leaves_out_a_score_that_is_not_there():
    assert table(make_entry("failed", None, "no compiler")) == "hard/01_fp8_gemm: failed no compiler"
    shown = table(make_entry("done", make_floors(problem_of("hard/01_fp8_gemm"), [0.5])))
    assert "scores -; nothing 6.0 us, an empty launch 10.0 us, the library 800 TFLOPS" in shown
    assert shown.endswith("read 500.0 us, floor 500.0 us, share -")


def test_floors_stand_on_the_read_or_on_the_operations_behind_a_launch():
    problem, reads = problem_of("hard/01_fp8_gemm"), [0.02, 0.02, 0.028, 0.05]
    floors_ms = [floor_of(problem, shape, ms, 0.008, 1400.0) for shape, ms in zip(problem.shapes, reads, strict=True)]
    # 137.4 and 4.3 GFLOP: the first shape stands on its operations, the third on its bytes.
    assert floors_ms[0] == pytest.approx(0.008 + 0.09817, rel=1e-3) and floors_ms[2] == reads[2]
    found = scored(problem, "H200", make_floors(problem, floors_ms))
    assert found.ceiling == pytest.approx(math.prod(floor.share for floor in found.shapes) ** 0.25)
    assert found.shapes[0].share == pytest.approx(0.06945 / floors_ms[0], rel=1e-3)
    shown = table(make_entry("done", found))
    assert f"a kernel on these floors scores {found.ceiling:.4f}" in shown and shown.count("share") == 4


def test_floors_are_refused_on_a_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["floors", "--out", str(tmp_path), "--only", "hard/*"]) == 2
    assert "floors needs a GPU" in capsys.readouterr().err


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch):
    """A device that is none: plans that are bound and calls that are timed are kept; of three reads one takes least."""
    torch = pytest.importorskip("torch", reason="the reads need memory")
    kept = SimpleNamespace(bound=[], timed=[])

    def bind(data: int, count: int, seen: int, blocks: int):
        kept.bound.append((count, blocks))
        ms = 0.01 * (2 + len(kept.bound) % 3) if blocks else 0.01
        return lambda: ms

    def time_calls(call, on: str, *counts: int) -> list[float]:
        kept.timed.append(counts)
        return [call() or 0.006]

    monkeypatch.setattr(floors, "_extension", lambda: SimpleNamespace(bind=bind))
    monkeypatch.setattr(floors, "time_calls", time_calls)
    monkeypatch.setattr(floors, "dense_tflops", lambda dtype, on: 800.0)
    processors = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda on: processors)
    return kept


def test_a_measurement_reads_all_bytes_by_the_decks_counts_and_keeps_the_fastest_plan(device):
    work = Work(survey="floors", device="cpu", problem="hard/05_topk_bitonic", gpu="H200", solutions=[])
    problem, (found,) = problem_of(work.problem), list(measure_floors(work))
    shapes = [shape for _, shape in work.chosen_shapes()]
    assert set(device.timed) == {(problem.timing.warmup, problem.timing.trials, problem.timing.flush_bytes)}
    empty, *plans = device.bound
    assert empty == (0, 0) and found.launch_ms == 0.01 and len(plans) == 3 * len(shapes)
    for place, (shape, floor) in enumerate(zip(shapes, found.shapes, strict=True)):
        own, needed = plans[3 * place : 3 * place + 3], evaluate(problem.metric.floor_bytes, shape)
        assert all(0 <= 16 * count - needed < 16 and 0 < blocks <= -(-count // 512) for count, blocks in own)
        assert floor.read_ms == 0.02
