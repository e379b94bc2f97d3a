"""Made-up run archives in bulk, to measure and to try the site at size. Every name says that it is generated."""

import datetime
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

from grading.hardware import load_gpus
from grading.problem import Problem, load_decks
from grading.yardstick import yardstick

HARNESS = "generated"
_START = datetime.datetime(2026, 7, 1, tzinfo=datetime.UTC)


def write_runs(root: Path, count: int, *, seed: int = 1, gpu: str = "H200") -> Iterator[Path]:
    """Write run directories under ``root/hard/<GPU>/`` and yield each.

    count  how many; problem, model and times follow from the seed
    """
    chance = random.Random(seed)
    problems = [problem for problem in load_decks()["hard"].problems.values() if not problem.retired]
    models = [f"generated-{index:03d}" for index in range(max(4, min(200, count // 20)))]
    for index in range(count):
        problem = problems[index % len(problems)]
        stamp = (_START + datetime.timedelta(seconds=index)).strftime("%Y%m%d_%H%M%S")
        model = chance.choice(models)
        folder = root / "hard" / gpu / f"{stamp}_{HARNESS}_{model}_{problem.id}"
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, problem, model, gpu, chance)
        yield folder


def _write(folder: Path, problem: Problem, model: str, gpu: str, chance: random.Random) -> None:
    log, score = _benchmark(problem, gpu, chance)
    result = {
        "run_id": folder.name,
        "problem": problem.id,
        "harness": HARNESS,
        "model": model,
        "reasoning_effort": "",
        "has_solution": True,
        "correct": True,
        "failure_reason": "pass",
        "peak_fraction": round(score, 4),
        "template_mutated": False,
        "elapsed_seconds": chance.randrange(600, 20000),
        "usage": {"output_tokens": chance.randrange(10_000, 900_000)},
    }
    (folder / "result.json").write_text(json.dumps(result, indent=2))
    (folder / "benchmark.log").write_text(log)
    (folder / "check.log").write_text("PASS\n")


def _benchmark(problem: Problem, gpu: str, chance: random.Random) -> tuple[str, float]:
    table = load_gpus()[gpu].current
    stick = yardstick(problem, gpu, table)
    is_compute, peak = problem.metric.regime == "compute", stick.peak or 1.0
    lines, logs = [], []
    for index, yard in enumerate(stick.shapes):
        ms = max((yard.floor_ms or 0.01) / chance.uniform(0.05, 0.7), 0.005)
        tflops, gbps = (yard.flops or 0.0) / (ms * 1e9), (yard.bytes or 0.0) / (ms * 1e6)
        fraction = (tflops if is_compute else gbps) / peak
        logs.append(math.log(fraction))
        lines.append(f"shape={index} variant=solution tflops={tflops:.3f} gbps={gbps:.3f} ms={ms:.3f}")
        lines.append(f"shape={index} solution_peak_fraction={fraction:.4f}")
    score = math.exp(sum(logs) / len(logs))
    return "\n".join([*lines, f"peak_fraction: {score:.4f}", "RESULT: OK", ""]), score
