"""Scores recomputed from per-shape lines, for every kind of metric."""

import math
import random

import pytest

from grading.hardware import PeakTable, load_gpus
from grading.logs import read_benchmark
from grading.problem import Problem, load_decks, load_problem
from grading.record import Record
from grading.score import Recomputed, recompute, reported
from tests.factories import make_benchmark, make_record, make_times


def score_of(record: Record, problem: Problem, gpu: str = "H200") -> Recomputed:
    return recompute(record, problem, gpu, load_gpus()[gpu].current)


def true_score(problem: Problem, gpu: str, times: list[float]) -> float:
    table: PeakTable = load_gpus()[gpu].current
    if problem.metric.regime == "compute":
        peak = table.tflops[problem.metric.dtype]
        parts = [problem.flops(shape) / (ms * 1e9) / peak for shape, ms in zip(problem.shapes, times, strict=True)]
    else:
        parts = [
            problem.bytes(shape) / (ms * 1e6) / (table.bandwidth_gbps or math.nan)
            for shape, ms in zip(problem.shapes, times, strict=True)
        ]
    return math.exp(sum(math.log(part) for part in parts) / len(parts))


ROOFLINE = [
    problem
    for deck in load_decks().values()
    for problem in deck.problems.values()
    if problem.metric.kind == "peak_fraction"
]


@pytest.mark.parametrize("problem", ROOFLINE, ids=lambda problem: problem.key)
@pytest.mark.parametrize("with_events", [True, False])
def test_the_interval_holds_the_true_score_of_a_printed_log(problem: Problem, with_events: bool) -> None:
    chance = random.Random(problem.key)
    for _ in range(400):
        times = [10 ** chance.uniform(-2, 2) for _ in problem.shapes]
        log = make_benchmark(problem, "H200", times, with_events=with_events)
        result = score_of(make_record(problem, log=log), problem)
        assert result.value is not None
        assert all(shape.conflict is None for shape in result.shapes)
        truth = true_score(problem, "H200", times)
        assert result.value.low <= truth <= result.value.high
        headline = reported(make_record(problem, log=log), problem)
        assert headline is not None
        assert headline.meets(result.value)


def test_one_unit_in_the_last_place_of_a_rate_is_seen_where_the_interval_allows() -> None:
    problem = load_problem("hard", "01_fp8_gemm")
    log = make_benchmark(problem, times=[0.1, 0.1, 0.04, 0.3])
    line = next(line for line in log.splitlines() if line.startswith("shape=0 variant=solution"))
    tflops = line.split("tflops=")[1].split(" ")[0]
    changed = log.replace(f"tflops={tflops}", f"tflops={float(tflops) + 0.02:.3f}", 1)
    result = score_of(make_record(problem, log=changed), problem)
    assert result.shapes[0].conflict is not None


def test_event_lines_govern_over_coarser_ones() -> None:
    problem = load_problem("hard", "07_w4a16_gemm")
    coarse = score_of(make_record(problem, log=make_benchmark(problem, with_events=False)), problem)
    fine = score_of(make_record(problem, log=make_benchmark(problem)), problem)
    assert coarse.value and fine.value
    assert fine.value.high - fine.value.low < coarse.value.high - coarse.value.low


def test_doubling_every_time_halves_the_score() -> None:
    problem = load_problem("hard", "03_paged_attention")
    once = score_of(make_record(problem, log=make_benchmark(problem, times=make_times(problem, 0.064))), problem)
    twice = score_of(make_record(problem, log=make_benchmark(problem, times=make_times(problem, 0.128))), problem)
    assert once.value and twice.value
    assert twice.value.value == pytest.approx(once.value.value / 2, rel=1e-4)


def test_a_missing_shape_is_missing_and_never_counted() -> None:
    problem = load_problem("hard", "01_fp8_gemm")
    lines = [line for line in make_benchmark(problem).splitlines() if "shape=2" not in line]
    result = score_of(make_record(problem, log="\n".join(lines) + "\n"), problem)
    assert result.value is None
    assert result.missing == (2,)
    assert "shape 2" in (result.reason or "")


def test_a_time_of_zero_gives_no_score_and_no_crash() -> None:
    problem = load_problem("hard", "05_topk_bitonic")
    log = make_benchmark(problem, with_events=False)
    line = next(line for line in log.splitlines() if line.startswith("shape=1 variant=solution"))
    result = score_of(
        make_record(problem, log=log.replace(line, "shape=1 variant=solution tflops=0.000 gbps=0.000 ms=0.000")),
        problem,
    )
    assert result.value is None
    assert result.missing == ()


def test_without_a_log_there_is_no_score_and_a_reason() -> None:
    problem = load_problem("hard", "01_fp8_gemm")
    result = score_of(make_record(problem, benchmark=None, score_text="0.3"), problem)
    assert result.value is None
    assert result.reason == "the archive has no benchmark.log"


def test_share_of_attainable_is_floor_over_time() -> None:
    problem = load_problem("hard", "03_paged_attention")
    result = score_of(make_record(problem, log=make_benchmark(problem)), problem)
    shape = result.shapes[0]
    assert shape.ms and shape.floor_ms and shape.share_of_attainable
    assert shape.share_of_attainable.value == pytest.approx(shape.floor_ms / shape.ms.value)


def log_of(deck: str, problem_id: str, text: str, gpu: str) -> tuple[Record, Problem]:
    problem = load_problem(deck, problem_id)
    return make_record(problem, gpu, log=text), problem


def test_tokens_per_second_are_scored_against_the_anchor() -> None:
    text = "".join(
        f"shape={i} variant=solution ctx_len={ctx} decode_steps={steps} tok_s={rate:.3f} "
        f"decode_wall_s={steps / rate:.4f} prefill_wall_s=1.0000 peak_fraction={rate / 50000:.4f}\n"
        for i, (ctx, steps, rate) in enumerate(
            [(2048, 64, 9000.0), (8192, 64, 7000.0), (32768, 32, 2500.0), (131072, 16, 800.0)]
        )
    )
    record, problem = log_of("cuda", "03_megaqwen_decode", text + "peak_fraction: 0.0671\n", "RTX_PRO_6000")
    result = score_of(record, problem, "RTX_PRO_6000")
    expected = math.exp(sum(math.log(rate / 50000) for rate in (9000, 7000, 2500, 800)) / 4)
    assert result.value is not None
    assert result.value.value == pytest.approx(expected, rel=1e-6)
    assert all(shape.conflict is None for shape in result.shapes)


def test_steps_per_second_are_scored_against_the_anchor() -> None:
    cases = [(4096, 32, 9e7), (16384, 32, 1.2e8), (65536, 16, 1.5e8), (8192, 64, 1.1e8)]
    text = "".join(
        f"shape={i} variant=solution num_envs={n} horizon={h} sps={rate:.3f} wall_s={n * h / rate:.4f} "
        f"peak_fraction={rate / 150e6:.4f}\n"
        for i, (n, h, rate) in enumerate(cases)
    )
    record, problem = log_of("cuda", "04_grid_mingru_sps", text + "peak_fraction: 0.7668\n", "RTX_PRO_6000")
    result = score_of(record, problem, "RTX_PRO_6000")
    expected = math.exp(sum(math.log(rate / 150e6) for _, _, rate in cases) / 4)
    assert result.value is not None
    assert result.value.value == pytest.approx(expected, rel=1e-6)


def test_a_speedup_is_recomputed_from_times_because_its_own_digits_are_few() -> None:
    cases = [(2048, 9.871, 0.271), (8192, 10.204, 0.288), (16384, 11.007, 0.299)]
    text = "".join(
        f"shape ctx={ctx}: solution {ms:.3f} ms/tok ({1000 / ms:.0f} tok/s) | baseline {base:.3f} ms/tok | "
        f"speedup {base / ms:.2f}x\n"
        for ctx, base, ms in cases
    )
    record, problem = log_of("mega", "02_kimi_linear_decode", text + "peak_fraction: 36.2200\n", "B200")
    result = score_of(record, problem, "B200")
    expected = math.exp(sum(math.log(base / ms) for _, base, ms in cases) / 3)
    assert result.value is not None
    assert result.value.low <= expected <= result.value.high
    assert result.value.relative_half_width < 0.002


def test_a_frozen_anchor_is_used_over_the_printed_one() -> None:
    problem = load_problem("multi", "07_gemm_allreduce_overlap")
    text = "".join(
        f"shape={i} variant=solution ms={anchor / 1.1:.4f} anchor_ms={anchor:.4f} speedup=1.1000\n"
        for i, anchor in enumerate(problem.anchors_ms)
        if anchor is not None
    )
    record, problem = log_of("multi", "07_gemm_allreduce_overlap", text + "speedup: 1.1000\n", "H100x4")
    result = score_of(record, problem, "H100x4")
    assert result.value is not None
    assert result.value.low <= 1.1 <= result.value.high


def test_bus_bandwidth_is_scored_against_the_link() -> None:
    problem = load_problem("multi", "01_allreduce_residual")
    times = [0.4, 0.06, 0.02, 0.41]
    text = "".join(
        f"shape={i} variant=solution busbw={problem.bytes(shape) / (ms * 1e6):.2f} ms={ms:.4f} "
        f"peak_fraction={problem.bytes(shape) / (ms * 1e6) / 450:.4f}\n"
        for i, (shape, ms) in enumerate(zip(problem.shapes, times, strict=True))
    )
    record, problem = log_of("multi", "01_allreduce_residual", text + "peak_fraction: 0.3\n", "H100x4")
    result = score_of(record, problem, "H100x4")
    expected = math.exp(
        sum(math.log(problem.bytes(shape) / (ms * 1e6) / 450) for shape, ms in zip(problem.shapes, times, strict=True))
        / 4
    )
    assert result.value is not None
    assert result.value.low <= expected <= result.value.high


def test_the_top_p_headline_is_the_speedup_over_eager() -> None:
    cases = [(0.2101, 0.0503), (1.1120, 0.2210), (1.9100, 0.3777), (1.5001, 0.3033)]
    text = "".join(
        f"shape={i} variant=solution tflops=0.100 gbps=10.000 ms={ms:.4f}\n"
        f"shape={i} variant=eager tflops=0.010 gbps=1.000 ms={eager:.4f}\n"
        f"shape={i} speedup_vs_eager={eager / ms:.4f}\nshape={i} solution_peak_fraction=0.0100\n"
        for i, (eager, ms) in enumerate(cases)
    )
    score = math.exp(sum(math.log(eager / ms) for eager, ms in cases) / 4)
    text += f"geomean_speedup_vs_eager: {score:.4f}\npeak_fraction: 0.0100\nRESULT: OK\n"
    problem = load_problem("mini", "03_topp_mask")
    record = make_record(problem, "H100_SXM", log=text, score_text="0.0100")
    headline = reported(record, problem)
    assert headline is not None
    assert headline.value == pytest.approx(score, abs=1e-4)


def test_ppo_takes_the_best_trial() -> None:
    text = "".join(
        f"trial seed={seed} sps={sps:,} elapsed={5242880 / sps:.3f}s final_return=3.9\n"
        for seed, sps in ((11, 340_000_000), (12, 357_000_000), (13, 351_000_000))
    )
    text += "steps_per_second=357,000,000 peak_sps=25,000,000\npeak_fraction: 14.2800\n"
    record, problem = log_of("mega", "01_rl_grid_ppo", text, "RTX_PRO_6000")
    result = score_of(record, problem, "RTX_PRO_6000")
    assert result.value is not None
    assert result.value.low <= 14.28 <= result.value.high


def test_the_order_of_shapes_in_the_log_does_not_matter() -> None:
    problem = load_problem("hard", "01_fp8_gemm")
    lines = make_benchmark(problem).splitlines()
    straight = score_of(make_record(problem, log="\n".join(lines)), problem)
    mixed = score_of(make_record(problem, log="\n".join(reversed(lines))), problem)
    assert straight.value == mixed.value


def test_reading_the_same_bytes_gives_the_same_log() -> None:
    text = make_benchmark(load_problem("hard", "01_fp8_gemm")).encode()
    assert read_benchmark(text, "benchmark.log") == read_benchmark(text, "benchmark.log")
