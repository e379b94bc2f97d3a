"""Command line: record one run, or the whole demo.

``python -m grading.runner hard/01_fp8_gemm --solution FILE --model NAME --gpu H200 --out DIR``
``python -m grading.runner [hard/01_fp8_gemm] --all --gpu H200 --out DIR [--with-kernels]``
"""

import argparse
import sys
from pathlib import Path

from grading.hardware import load_gpus
from grading.problem import load_problem
from grading.runner.demo import plan_demo, record_demo
from grading.runner.job import build_job
from grading.runner.recording import Entrant, Limits, Recording
from grading.tomldata import CatalogueError


def main(arguments: list[str]) -> int:
    """Run the command; return the exit status: 0 when every run was recorded, whatever its verdict."""
    options = _parser().parse_args(arguments)
    limits = Limits(options.check_seconds, options.benchmark_seconds)
    try:
        gpu = load_gpus()[options.gpu]
        if options.all:
            runs = plan_demo(with_kernels=options.with_kernels, only=options.problem.partition("/")[2])
            for recording in record_demo(runs, gpu, options.device, options.out, limits, options.workers):
                _report(recording)
            return 0
        problem = load_problem(*options.problem.split("/", 1))
        entrant = Entrant(options.harness, options.model, options.solution.read_text(encoding="utf-8"))
        recording = Recording(problem, gpu, build_job(problem, gpu, options.device), entrant, limits)
    except (CatalogueError, OSError, KeyError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    recording.run_check()
    recording.run_benchmark()
    recording.write(options.out)
    _report(recording)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m grading.runner", description="Record a run of a hard problem.")
    parser.add_argument("problem", nargs="?", default="", help="for example hard/01_fp8_gemm; optional with --all")
    parser.add_argument("--solution", type=Path, help="the solution's file")
    parser.add_argument("--model", help="the entrant's model string")
    parser.add_argument("--harness", default="baseline")
    parser.add_argument("--gpu", required=True, help="key of the GPU, for example H200")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets the run directory")
    parser.add_argument("--all", action="store_true", help="record the whole demo")
    parser.add_argument("--with-kernels", action="store_true", help="with --all: our reference kernels too")
    parser.add_argument("--workers", type=int, default=1, help="with --all: checks at once")
    parser.add_argument("--check-seconds", type=int, default=1800)
    parser.add_argument("--benchmark-seconds", type=int, default=1800)
    return parser


def _report(recording: Recording) -> None:
    verdict = "correct" if recording.is_correct else "incorrect"
    check = f"check {recording.check.elapsed_seconds} s" if recording.check else "check not run"
    benchmark = f"benchmark {recording.benchmark.elapsed_seconds} s" if recording.benchmark else "benchmark not run"
    sys.stdout.write(f"{recording.run_id}: {verdict}, score {recording.score_text}, {check}, {benchmark}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
