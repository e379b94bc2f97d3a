"""The arguments and the course of the ``grade`` command, for Django's command and for ``python -m grading.warden``."""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from grading.hardware import Gpu, load_gpus
from grading.problem import DECKS, Problem, load_decks
from grading.tomldata import CatalogueError
from grading.verdict import EXIT_CODES
from grading.warden.archiveout import Entry, summaries, write_archive
from grading.warden.bundles import Bundle, baselines_of, bundle_of_archive, bundle_of_file, bundle_of_reference
from grading.warden.grade import Request, grade
from grading.warden.lock import DeviceBusy, hold_device
from grading.warden.progress import Progress, table


class GradeError(Exception):
    """Nothing could be graded or written; the message is for a person. The exit status is 4."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the candidate, the device and the tier."""
    parser.add_argument("problem", help="for example hard/01_fp8_gemm")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--solution", type=Path, help="the solution's file, or a folder with solution.py in it")
    source.add_argument("--reference", help="one of the problem's own solutions, for example eager")
    source.add_argument("--archive", type=Path, help="a run directory whose sources and times are graded")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0 (default: cpu)")
    parser.add_argument("--gpu", help="key of the board, for example H200; needed on a GPU")
    parser.add_argument("--tier", choices=("quick", "full"), default="quick")
    parser.add_argument(
        "--baselines", action="store_true", help="first time the problem's eager, compiled and vendor ones"
    )
    parser.add_argument("--model", default="unnamed", help="who wrote the solution, for --solution")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets DECK/GPU/RUN_ID")
    parser.add_argument("--decks", type=Path, default=DECKS, help="folder of decks (default: our own)")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON instead of a table")


def run(options: dict[str, Any], write: Callable[[str], object]) -> int:
    """Grade, write the archive, print the table; return the verdict's exit status. Raises GradeError."""
    started = datetime.now(UTC)
    try:
        problem = _problem(options["problem"], options["decks"])
        gpu, bundle = _gpu(options), _bundle(problem, options)
        request = Request(
            problem=problem,
            reference=options["decks"] / problem.deck / problem.id / "reference.py",
            bundle=bundle.files,
            device=options["device"],
            tier=options["tier"],
            is_exempt=bundle.is_exempt,
            published_ms=bundle.published_ms,
            baselines=baselines_of(problem, options["decks"]) if options["baselines"] else {},
            gpu=gpu,
        )
        with hold_device(options["device"]) as held, Progress(sys.stderr) as progress:
            done = grade(request, progress.on_step)
        done = done.with_gpu_seconds(held.seconds)
    except (CatalogueError, OSError, DeviceBusy) as error:
        raise GradeError(str(error)) from error
    entry = Entry(problem, gpu, bundle, done, started, datetime.now(UTC))
    try:
        folder = write_archive(entry, options["out"])
    except OSError as error:
        raise GradeError(f"inconclusive: the archive could not be written: {error}") from error
    if options["json"]:
        write(msgspec.json.encode(done.verdict).decode())
    else:
        write(table(done, summaries(entry)))
        write(f"archive: {folder}")
    return EXIT_CODES[done.verdict.word]


def _problem(key: str, decks: Path) -> Problem:
    deck, _, name = key.partition("/")
    known = load_decks(decks)
    if deck not in known or name not in known[deck].problems:
        names = [f"{item.id}/{problem}" for item in known.values() for problem in item.problems]
        raise CatalogueError(f"problem is {key!r}; accepted are {', '.join(names)}")
    return known[deck].problems[name]


def _gpu(options: dict[str, Any]) -> Gpu:
    key = options["gpu"] or ("CPU" if options["device"] == "cpu" else None)
    if key not in load_gpus():
        raise CatalogueError(f"--gpu is {key!r}; accepted are {', '.join(load_gpus())}")
    return load_gpus()[key]


def _bundle(problem: Problem, options: dict[str, Any]) -> Bundle:
    if options["solution"] is not None:
        return bundle_of_file(options["solution"], options["model"])
    if options["reference"] is not None:
        return bundle_of_reference(problem, options["reference"], options["decks"])
    return bundle_of_archive(problem, options["archive"])
