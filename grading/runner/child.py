"""Child process: the deck's check or benchmark of the solution in the working folder.

Usage: ``python -m grading.runner.child check|benchmark JOB.json OUT.json``. What the solution prints lands in the same
log. An early exit with status 0 is turned into a failure.
"""

import importlib
import math
import os
import platform
import secrets
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType

import msgspec

from grading.problem import Stress
from grading.runner.compare import Mismatch, compare_outputs, first_tensor, nominal_tolerance
from grading.runner.job import Job
from grading.runner.models import Pair, build_pair, draw_inputs, draws_on_device, import_reference, stressed
from grading.runner.structure import BASE_SEED, run_property_stage
from grading.timing import median_ms, time_calls, time_empty_call

BENCHMARK_SEED = 2026


class Fail(Exception):
    """The check failed; the message follows ``FAIL:`` in the log."""


class Measured(msgspec.Struct, kw_only=True):
    """What only the child can know: versions, and raw samples in milliseconds per shape."""

    cuda: str | None
    torch: str
    triton: str | None
    python: str
    device_name: str | None
    inputs_drawn_on: str | None = None
    samples_ms: list[list[float]] = []
    empty_call_ms: list[float] = []


def check(job: Job, measured: Measured) -> None:
    """Run the deck's check and print its log. Raises Fail at the first failure."""
    import torch

    reference = _import_reference(job, measured)
    property_seed = int(os.environ.get("KBH_PROPERTY_SEED") or str(secrets.randbits(64)), 0)
    if job.property_stage:
        _say(f"PROPERTY_SEED: {property_seed}")
    solution = _import_solution()
    _check_text(job)
    with torch.no_grad():
        for index, shape in enumerate(job.shapes):
            try:
                pair = build_pair(reference, solution, shape, job.device)
            except RuntimeError as error:
                raise Fail(f"state_dict mismatch at shape {index} ({shape}): {error}") from error
            _check_shape(job, reference, pair, index)
            if job.property_stage and index == min(reference.STRUCTURAL_SHAPE, len(job.shapes) - 1):
                _check_structure(job, reference, pair, index, property_seed)
            del pair
            _release(job)
    _say("PASS")


def benchmark(job: Job, measured: Measured) -> None:
    """Run the deck's benchmark of the solution alone and print its log."""
    import torch

    reference, solution = _import_reference(job, measured), _import_solution()
    fractions = []
    with torch.no_grad():
        for index, shape in enumerate(job.shapes):
            pair = build_pair(reference, solution, shape, job.device)
            call = partial(pair.solution, *draw_inputs(reference, BENCHMARK_SEED, job.device))
            samples = _time_shape(job, index, call)
            measured.samples_ms.append(samples)
            fractions.append(_print_shape(job, index, median_ms(samples)))
            del pair, call
            _release(job)
    score = math.exp(sum(math.log(max(fraction, job.clamp)) for fraction in fractions) / len(fractions))
    _say(f"peak_fraction: {score:.4f}")
    _say(f"RESULT: {'OK' if score >= job.result_ok else 'LOW'}")
    measured.empty_call_ms = time_empty_call(job.device, job.flush_bytes)


def _import_reference(job: Job, measured: Measured) -> ModuleType:
    reference = import_reference()
    measured.inputs_drawn_on = job.device if draws_on_device(reference) else "cpu"
    return reference


def _check_text(job: Job) -> None:
    text = Path("solution.py").read_text(encoding="utf-8")
    for pattern in job.forbidden_text:
        if pattern in text:
            raise Fail(f"forbidden op used: {pattern}")


def _check_shape(job: Job, reference: ModuleType, pair: Pair, index: int) -> None:
    cases: list[Stress | None] = [None, *job.stress]
    for seed in job.seeds:
        inputs = draw_inputs(reference, seed, job.device)
        for case in cases:
            try:
                with stressed(pair, inputs, case) as used:
                    expected, actual = pair.oracle(*used), pair.solution(*used)
                    tolerance = (case.atol, case.rtol) if case else nominal_tolerance(job, first_tensor(expected))
                    compare_outputs(reference, used, expected, actual, tolerance)
            except Mismatch as error:
                name = case.name if case else "nominal"
                raise Fail(f"shape {index} {job.shapes[index]} seed {seed} case {name}: {error}") from error
            del expected, actual, used


def _check_structure(job: Job, reference: ModuleType, pair: Pair, index: int, property_seed: int) -> None:
    try:
        run_property_stage(reference, pair, draw_inputs(reference, BASE_SEED, job.device), property_seed)
    except Mismatch as error:
        raise Fail(f"shape {index} {job.shapes[index]} property stress: {error}") from error


def _time_shape(job: Job, index: int, call: Callable[[], object]) -> list[float]:
    event = f"shape={index} variant=solution"
    _say(f"benchmark_event event=variant_start {event} ts={_now()}")
    started = time.monotonic()
    try:
        samples = time_calls(call, job.device, job.warmup, job.trials, job.flush_bytes)
    except Exception as error:
        elapsed = f"elapsed_s={time.monotonic() - started:.3f}"
        _say(f"benchmark_event event=variant_error {event} ts={_now()} {elapsed} error={type(error).__name__}")
        raise
    elapsed = f"elapsed_s={time.monotonic() - started:.3f}"
    _say(f"benchmark_event event=variant_end {event} ts={_now()} {elapsed} ms={median_ms(samples):.6f}")
    return samples


def _print_shape(job: Job, index: int, ms: float) -> float:
    tflops, gbps = job.flops[index] / (ms * 1e9), job.bytes[index] / (ms * 1e6)
    fraction = (tflops if job.regime == "compute" else gbps) / job.peak
    _say(f"shape={index} variant=solution tflops={tflops:.3f} gbps={gbps:.3f} ms={ms:.3f}")
    _say(f"shape={index} solution_peak_fraction={fraction:.4f}")
    return fraction


def _import_solution() -> ModuleType:
    try:
        return importlib.import_module("solution")
    except Exception as error:
        raise Fail(f"solution import error: {type(error).__name__}: {error}") from error


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _release(job: Job) -> None:
    import torch

    if job.device != "cpu":
        torch.cuda.empty_cache()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _versions(job: Job) -> Measured:
    import torch

    try:
        triton: str | None = importlib.import_module("triton").__version__
    except ImportError:
        triton = None
    return Measured(
        cuda=torch.version.cuda,
        torch=str(torch.__version__),
        triton=triton,
        python=platform.python_version(),
        device_name=None if job.device == "cpu" else torch.cuda.get_device_name(job.device),
    )


def main(phase: str, job_file: str, out_file: str) -> int:
    """Run a phase; return the exit status."""
    job = msgspec.json.decode(Path(job_file).read_bytes(), type=Job)
    measured = _versions(job)
    try:
        {"check": check, "benchmark": benchmark}[phase](job, measured)
    except Fail as error:
        _say(f"FAIL: {error}")
        return 1
    except SystemExit as error:
        if error.code in (None, 0):
            _say(f"FAIL: {phase}.py exited successfully before normal completion")
            return 1
        raise
    Path(out_file).write_bytes(msgspec.json.encode(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
