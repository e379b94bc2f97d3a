"""What a child process has to know to check and time one solution."""

from pathlib import Path
from typing import Literal

import msgspec

from grading.hardware import Gpu, peak_rate
from grading.problem import DECKS, Problem, Shape, Stress
from grading.tomldata import CatalogueError

BASELINE_MARK = "# baseline: uses calls that the deck forbids to submissions"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One problem on one device; everything that is the same for all solutions.

    peak          the peak of the regime, TFLOPS or GB/s
    flops, bytes  nominal work per shape, in the order of ``shapes``
    """

    reference: str
    device: str
    shapes: list[Shape]
    seeds: list[int]
    tolerance: dict[str, float]
    stress: list[Stress]
    property_stage: bool
    forbidden_text: list[str]
    regime: Literal["compute", "memory"]
    peak: float
    flops: list[float]
    bytes: list[float]
    warmup: int
    trials: int
    flush_bytes: int
    result_ok: float
    clamp: float


def build_job(
    problem: Problem, gpu: Gpu, device: str, shapes: list[Shape] | None = None, peak: float | None = None
) -> Job:
    """Return the job of a roofline problem.

    shapes, peak  stand in for the problem's shapes and the GPU's peak, for tests at small sizes
    Raises CatalogueError for a problem with another metric or timing, and for a GPU without the needed peak.
    """
    metric, timing = problem.metric, problem.timing
    if metric.kind != "peak_fraction" or timing.method != "deck" or timing.result_ok is None:
        raise CatalogueError(f"{problem.key}: only problems scored as peak_fraction with the deck's timing can be run")
    peak = peak if peak is not None else peak_rate(gpu.current, metric.regime, metric.dtype)
    if peak is None:
        raise CatalogueError(f"gpu {gpu.key} has no {metric.regime} peak for {metric.dtype!r}")
    used = shapes or problem.shapes
    return Job(
        reference=str(reference_path(problem)),
        device=device,
        shapes=used,
        seeds=problem.check.seeds,
        tolerance=problem.check.tolerance,
        stress=problem.check.stress,
        property_stage=problem.check.property_stage,
        forbidden_text=problem.rules.forbidden_text,
        regime=metric.regime,
        peak=peak,
        flops=[problem.flops(shape) for shape in used],
        bytes=[problem.bytes(shape) for shape in used],
        warmup=timing.warmup,
        trials=timing.trials,
        flush_bytes=timing.flush_bytes,
        result_ok=timing.result_ok,
        clamp=metric.clamp,
    )


def reference_path(problem: Problem) -> Path:
    """Return where a problem's reference lies."""
    return DECKS / problem.deck / problem.id / "reference.py"


def may_use_forbidden(harness: str, solution: str) -> bool:
    """Tell whether the forbidden-text rule does not apply: our own baselines that say so on their first line."""
    return harness == "baseline" and solution.startswith(BASELINE_MARK)
