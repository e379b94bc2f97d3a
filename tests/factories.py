"""Factories: the smallest honest thing of each kind, with overrides. Nothing here is copied from real archives."""

import json
from pathlib import Path
from typing import Any
from zlib import crc32

from grading.auditfile import Audit, read_audit
from grading.hardware import load_gpus
from grading.integrity import Context
from grading.logs import read_benchmark, read_check
from grading.problem import Problem, load_decks, load_problem
from grading.record import SCHEMA_VERSION, Record, RunKey, model_slug
from grading.score import recompute

RUN_ID = "20260701_120000_codex_gpt-test_07_w4a16_gemm"
H200_NAME = "NVIDIA H200"


def make_times(problem: Problem, ms: float = 0.05) -> list[float]:
    """One plausible time per shape."""
    return [ms * (index + 1) for index in range(len(problem.shapes))]


def make_benchmark(
    problem: Problem, gpu: str = "H200", times: list[float] | None = None, *, with_events: bool = True
) -> str:
    """A roofline log as the deck's harness would print it for the given true times."""
    table = load_gpus()[gpu].current
    metric = problem.metric
    peak = table.tflops[metric.dtype] if metric.regime == "compute" else table.bandwidth_gbps
    lines, fractions = [], []
    for index, (shape, ms) in enumerate(zip(problem.shapes, times or make_times(problem), strict=True)):
        tflops, gbps = problem.flops(shape) / (ms * 1e9), problem.bytes(shape) / (ms * 1e6)
        fraction = (tflops if metric.regime == "compute" else gbps) / peak
        fractions.append(fraction)
        stamp = f"2026-07-01T12:00:{index:02d}+00:00"
        if with_events:
            lines.append(f"benchmark_event event=variant_start shape={index} variant=solution ts={stamp}")
            lines.append(
                f"benchmark_event event=variant_end shape={index} variant=solution ts={stamp} "
                f"elapsed_s=0.500 ms={ms:.6f}"
            )
        lines.append(f"shape={index} variant=solution tflops={tflops:.3f} gbps={gbps:.3f} ms={ms:.3f}")
        lines.append(f"shape={index} solution_peak_fraction={fraction:.4f}")
    score = 1.0
    for fraction in fractions:
        score *= max(fraction, 1e-9) ** (1 / len(fractions))
    is_ok = problem.timing.result_ok is None or score >= problem.timing.result_ok
    lines += [f"peak_fraction: {score:.4f}", f"RESULT: {'OK' if is_ok else 'LOW'}"]
    return "\n".join(lines) + "\n"


def headline_of(log: str) -> str:
    """The score that a log prints."""
    return next(line.split(": ")[1] for line in log.splitlines() if line.startswith("peak_fraction: "))


def make_record(problem: Problem | None = None, gpu: str = "H200", log: str | None = None, **overrides: Any) -> Record:
    """A correct run on a proven GPU with a whole log."""
    problem = problem or load_problem("hard", "07_w4a16_gemm")
    log = make_benchmark(problem, gpu) if log is None else log
    values: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "key": RunKey(problem.deck, gpu, f"20260701_120000_codex_gpt-test_{problem.id}"),
        "problem": problem.id,
        "harness": "codex",
        "model": "gpt-test",
        "has_solution": True,
        "correct": True,
        "failure_reason": "pass",
        "template_mutated": False,
        "session_complete": True,
        "score_text": headline_of(log) if "peak_fraction: " in log else None,
        "device_name": H200_NAME,
        "benchmark": read_benchmark(log.encode(), "benchmark.log") if log else None,
        "check": read_check(b"PASS\n", "check.log"),
    }
    return Record(**{**values, **overrides})


def make_audit_text(run_id: str = RUN_ID, verdict: str = "clean", **fields: Any) -> str:
    """The YAML of an audit as an auditor would write it."""
    data = {"run_id": run_id, "verdict": verdict, "summary": "Read the kernel.", "auditor": "A. Auditor", **fields}
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in data.items())


def make_audit(verdict: str = "clean", **fields: Any) -> Audit:
    """An audit as an auditor would write it, read."""
    return read_audit(make_audit_text(RUN_ID, verdict, **fields).encode(), f"{RUN_ID}.yaml", "hard")


def make_context(record: Record | None = None, audits: tuple[Audit, ...] | None = None, **overrides: Any) -> Context:
    """The evidence of a run with nothing wrong, unless overridden."""
    record = record or make_record()
    deck, gpu = load_decks()[record.key.deck], load_gpus()[record.key.gpu]
    problem = overrides.pop("problem", deck.problems[record.problem])
    values = {
        "record": record,
        "problem": problem,
        "deck": deck,
        "gpu": gpu,
        "score": recompute(record, problem, gpu.key, gpu.current),
        "audits": (make_audit(),) if audits is None else audits,
    }
    return Context(**{**values, **overrides})


def own_time(model: str) -> float:
    """A first shape's time that no two models share, as no two measurements do."""
    return 0.05 if model == "gpt-test" else 0.05 + (1 + crc32(model.encode()) % 97) * 1e-6


def write_archive(
    root: Path,
    *,
    problem_id: str = "07_w4a16_gemm",
    gpu: str = "H200",
    model: str = "gpt-test",
    stamp: str = "20260701_120000",
    log: str | None = None,
    device_name: str | None = H200_NAME,
    solution: str = "import torch\n",
    **fields: Any,
) -> Path:
    """Write a run directory ``hard/<GPU>/<run_id>`` of a correct run; fields override those of its result.json."""
    problem = load_problem("hard", problem_id)
    if log is None:
        log = make_benchmark(
            problem, gpu, make_times(problem, 0.05 + crc32(model.encode()) % 97 * 1e-6 * (model != "gpt-test"))
        )
    folder = root / "hard" / gpu / f"{stamp}_codex_{model_slug(model)}_{problem_id}"
    folder.mkdir(parents=True)
    result = {
        "run_id": folder.name,
        "problem": problem_id,
        "harness": "codex",
        "model": model,
        "reasoning_effort": "high",
        "has_solution": True,
        "correct": True,
        "failure_reason": "pass",
        "peak_fraction": float(headline_of(log)) if "peak_fraction: " in log else None,
        "template_mutated": False,
        "elapsed_seconds": 60,
        "usage": {},
        **fields,
    }
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "benchmark.log").write_text(log)
    if result["correct"]:
        (folder / "check.log").write_text("PASS\n")
    (folder / "solution.py").write_text(solution)
    if device_name is not None:
        (folder / "environment.json").write_text(json.dumps({"device_name": device_name}))
    return folder
