"""The recording of the whole demo: every baseline of the hard deck, and two controls that must be found out."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from grading.hardware import Gpu
from grading.problem import DECKS, load_problem
from grading.runner.job import build_job
from grading.runner.recording import ROOT, Entrant, Limits, Recording

BASELINES = {
    "eager": "pytorch-eager",
    "compiled": "torch-compile",
    "vendor": "vendor-library",
    "chunked": "pytorch-chunked",
}
CONTROL = "control-broken"
ENTRANTS = BASELINES | {
    "masked": "proofline-masked",
    "iterated_maximum": "pytorch-eager",
    "bf16": "pytorch-eager",
    "split_products": "pytorch-eager",
    "kernel": "proofline-reference",
}
KERNELS = {
    "01_fp8_gemm": "fp8_gemm",
    "02_kda_cutlass": "kda",
    "03_paged_attention": "paged_attention",
    "05_topk_bitonic": "topk",
    "06_sonic_moe_swiglu": "moe_swiglu",
    "07_w4a16_gemm": "w4a16_gemm",
    "01_glm52_fused_moe": "fused_moe",
    "02_deepseek_nsa": "block_sparse_attention",
    "03_megaqwen_decode": "qwen_decode",
    "04_grid_mingru_sps": "mingru_rollout",
    "02_kimi_linear_decode": "kimi_decode",
    "01_conv_update": "conv_update",
    "02_kda_recurrence": "kda_verify",
}
CONTROLS = (("01_fp8_gemm", "forged_marker"), ("07_w4a16_gemm", "swapped_nibbles"))
SLOWEST_TO_PREPARE = ("06_sonic_moe_swiglu", "02_kda_cutlass")


@dataclass(frozen=True)
class Planned:
    """One run of the plan."""

    problem: str
    model: str
    solution: Path


def plan_demo(*, with_kernels: bool, only: str = "") -> list[Planned]:
    """Return the runs, those that take longest to prepare first.

    only  a problem's id; empty = all problems
    """
    runs = [
        Planned(problem, model, path)
        for problem in KERNELS
        for name, model in BASELINES.items()
        if (path := DECKS / "hard" / problem / "solutions" / "right" / f"{name}.py").exists()
    ]
    runs += [
        Planned(problem, CONTROL, DECKS / "hard" / problem / "solutions" / "wrong" / f"{name}.py")
        for problem, name in CONTROLS
    ]
    if with_kernels:
        kernels = ROOT / "grading" / "kernels"
        runs += [
            Planned(problem, ENTRANTS["kernel"], kernels / f"{name}.py")
            for problem, name in KERNELS.items()
            if (DECKS / "hard" / problem).exists()
        ]
    order = {problem: rank for rank, problem in enumerate(SLOWEST_TO_PREPARE)}
    chosen = [run for run in runs if not only or run.problem == only]
    return sorted(chosen, key=lambda run: order.get(run.problem, len(order)))


def record_demo(
    runs: Iterable[Planned], gpu: Gpu, device: str, out: Path, limits: Limits, workers: int
) -> Iterator[Recording]:
    """Check the runs, several at once, then benchmark them one by one with the device to themselves; yield each.

    workers  checks at once. They share the device, which changes no verdict; all have ended before the first benchmark
    """
    recordings = [_prepare(run, gpu, device, limits, is_shared=workers > 1) for run in runs]
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(Recording.run_check, recordings))
    for recording in reversed(recordings):
        recording.run_benchmark()
        recording.write(out)
        yield recording


def _prepare(run: Planned, gpu: Gpu, device: str, limits: Limits, *, is_shared: bool) -> Recording:
    problem = load_problem("hard", run.problem)
    entrant = Entrant("baseline", run.model, run.solution.read_text(encoding="utf-8"), run_group="demo")
    return Recording(problem, gpu, build_job(problem, gpu, device), entrant, limits, is_check_shared=is_shared)
