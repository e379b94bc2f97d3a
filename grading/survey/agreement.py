"""Survey ``agreement``: the grader's times beside Triton's ``do_bench`` and the deck's method, in a process of its own.

Two comparisons count: ``do_bench`` with the grader's device time, both of the device alone, and the deck's method here
with the grader's "as the deck times it", both with the launches inside. ``do_bench`` needs a GPU.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from grading.problem import load_problem
from grading.survey.bench import Bench, Versions, read_versions
from grading.survey.book import Book, Entry
from grading.survey.grades import ShapeGrade, read_graded
from grading.survey.work import Work

AGREES_WITHIN = 0.03


class ShapeTimes(msgspec.Struct, frozen=True, kw_only=True):
    """One shape in milliseconds, by ``do_bench`` (None on a processor) and by the deck's method; its wrong elements."""

    index: int
    shape: dict[str, float]
    do_bench_ms: float | None
    deck_ms: float
    bad: int


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """One solution outside the grader."""

    versions: Versions
    shapes: list[ShapeTimes]


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """One shape inside and outside the grader; a ratio is the outside time over the grader's."""

    problem: str
    solution: str
    shape: int
    grader_ms: float | None
    do_bench_ms: float | None
    grader_deck_ms: float | None
    deck_ms: float

    @property
    def do_bench_ratio(self) -> float | None:
        """``do_bench`` over the grader's device time."""
        return _ratio(self.do_bench_ms, self.grader_ms)

    @property
    def deck_ratio(self) -> float | None:
        """The deck's method here over the grader's time with launches."""
        return _ratio(self.deck_ms, self.grader_deck_ms)


def measure_agreement(work: Work) -> Iterator[Times]:
    """Child: time one solution at every shape; yield what there is after each."""
    problem, rows, versions = load_problem(*work.problem.split("/", 1)), [], read_versions(work.device)
    for index, shape in work.chosen_shapes():
        bench = Bench(problem, shape, work.device)
        model, content = bench.add(Path(work.solutions[0].path)), bench.source.draw("nominal", "", 0)
        bad = bench.judge(model, content, bench.wanted(content)).bad
        inputs = content.inputs
        deck_ms = bench.sample_ms(model, inputs)
        own = _do_bench(model, inputs) if work.device != "cpu" else None
        rows.append(ShapeTimes(index=index, shape=shape, do_bench_ms=own, deck_ms=deck_ms, bad=bad))
        yield Times(versions=versions, shapes=list(rows))
        del model, content, inputs
        bench.close()


def _do_bench(model: Any, inputs: list[Any]) -> float:
    found: float = importlib.import_module("triton.testing").do_bench(lambda: model(*inputs), return_mode="median")
    return found


def agreements(book: Book, grades: Book | None) -> list[Agreement]:
    """Return every shape beside the first grade of the same solution, where there is one."""
    rows = []
    for entry in book.entries.values():
        times = msgspec.convert(entry.result, Times) if entry.result else None
        graded = _graded(entry, grades)
        for here in times.shapes if times else []:
            inside = graded[here.index].times if here.index < len(graded) else None
            rows.append(
                Agreement(
                    problem=entry.problem,
                    solution=entry.solution,
                    shape=here.index,
                    grader_ms=inside.median_ms if inside else None,
                    do_bench_ms=here.do_bench_ms,
                    grader_deck_ms=inside.deck_ms if inside else None,
                    deck_ms=here.deck_ms,
                )
            )
    return rows


def table(rows: list[Agreement]) -> str:
    """Return a line a shape, and how many ratios are within 3 %."""
    lines = [
        f"{'shape':<50} {'grader ms':>10} {'do_bench':>10} {'ratio':>6} {'grader deck':>11} {'deck':>10} {'ratio':>6}"
    ]
    for row in rows:
        name = f"{row.problem}/{row.solution} {row.shape}"
        times = [_text(value, 4) for value in (row.grader_ms, row.do_bench_ms, row.grader_deck_ms, row.deck_ms)]
        ratios = [_text(value, 3) for value in (row.do_bench_ratio, row.deck_ratio)]
        lines.append(
            f"{name:<50} {times[0]:>10} {times[1]:>10} {ratios[0]:>6} {times[2]:>11} {times[3]:>10} {ratios[1]:>6}"
        )
    for name, values in (
        ("do_bench", [row.do_bench_ratio for row in rows]),
        ("the deck's method", [row.deck_ratio for row in rows]),
    ):
        known = [value for value in values if value is not None]
        within = sum(abs(value - 1) <= AGREES_WITHIN for value in known)
        lines.append(f"{name}: {within} of {len(known)} shapes agree with the grader within {AGREES_WITHIN:.0%}")
    return "\n".join(lines)


def _graded(entry: Entry, grades: Book | None) -> list[ShapeGrade]:
    found = grades.entries.get(entry.key) if grades is not None else None
    graded = read_graded(found) if found is not None else None
    return graded.shapes if graded is not None and graded.digest == entry.digest else []


def _ratio(outside: float | None, inside: float | None) -> float | None:
    return outside / inside if outside is not None and inside else None


def _text(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"
