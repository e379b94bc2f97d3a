"""Survey ``kernels``: all right solutions of a problem, and candidates, by the deck's own method in one process.

At each shape every solution is first compared with the reference by the grader's gate, on nominal contents and on every
case; one that is wrong anywhere is not timed from there on. The solutions of a shape are timed one after the other.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from time import monotonic
from typing import Any

import msgspec

from grading.hardware import load_gpus
from grading.problem import Problem, load_problem
from grading.survey.bench import Bench, Versions, read_versions
from grading.survey.book import Entry, OutOfTime, limited
from grading.survey.work import Work
from grading.timing import wait_for_device
from grading.yardstick import mean_value, values_of

COMPARED_WITH = ("eager", "compiled", "vendor")
# A problem's child as a whole may take this many times what one solution may; a hung device ends it.
WHOLE_LIMIT = 8


class Row(msgspec.Struct, kw_only=True):
    """One solution of the problem.

    state          ``right``, ``wrong``, ``overran`` or ``failed``; only a right one has all times
    times_ms       by shape, as far as it came
    largest_error  over all contents, in tolerances; None = not finite, or another form
    score          the problem's, where times alone give it
    speedups       geometric mean of the times of eager, compiled and vendor over this one's
    """

    name: str
    kind: str
    digest: str
    state: str = "right"
    detail: str = ""
    times_ms: list[float] = []
    largest_error: float | None = 0.0
    seconds: float = 0.0
    score: float | None = None
    speedups: dict[str, float] = {}


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """All solutions of one problem; ``contents`` were compared at each shape that came to an end.

    spent  seconds for making shapes, drawing contents and asking the reference; a row's own stand with it
    """

    versions: Versions
    shapes: list[dict[str, float]]
    contents: list[int]
    rows: list[Row]
    spent: dict[str, float] = {}


def measure_kernels(work: Work) -> Iterator[Compared]:
    """Child: compare and time every solution, shape by shape; yield what there is after each solution."""
    problem, versions = load_problem(*work.problem.split("/", 1)), read_versions(work.device)
    rows = {named.name: Row(name=named.name, kind=named.kind, digest=named.digest) for named in work.solutions}
    shapes: list[dict[str, float]] = []
    contents: list[int] = []
    spent = Spent(work.device)

    def result() -> Compared:
        return Compared(
            versions=versions, shapes=shapes, contents=contents, rows=list(rows.values()), spent=spent.seconds
        )

    for _, shape in work.chosen_shapes():
        bench = spent.on("shapes", partial(Bench, problem, shape, work.device))
        models = {
            named.name: model
            for named in work.solutions
            if (model := _attempt(rows[named.name], work, partial(bench.add, Path(named.path)))) is not None
        }
        shapes.append(shape)
        contents.append(_check(bench, models, rows, work, spent))
        yield result()
        inputs = bench.source.draw("nominal", "", 0).inputs
        for name, model in models.items():
            ms = _attempt(rows[name], work, partial(bench.sample_ms, model, inputs))
            if ms is not None:
                rows[name].times_ms = [*rows[name].times_ms, ms]
            yield result()
        models.clear()
        bench.close()
    _conclude(problem, work, rows)
    yield result()


class Spent:
    """Seconds by purpose, the device's work included."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.seconds: dict[str, float] = {}

    def on(self, purpose: str, act: Callable[[], Any]) -> Any:
        """Return what an act gives, and count its time."""
        began = monotonic()
        found = act()
        wait_for_device(self._device)
        self.seconds[purpose] = round(self.seconds.get(purpose, 0.0) + monotonic() - began, 3)
        return found


def _check(bench: Bench, models: dict[str, Any], rows: dict[str, Row], work: Work, spent: Spent) -> int:
    """Compare all models on all contents, each answer of the reference computed once; return the number of contents."""
    count, left = 0, bench.contents(work.draws)
    while (drawn := spent.on("contents", partial(next, left, None))) is not None:
        name, content = drawn
        count += 1
        wanted = spent.on("reference", partial(bench.wanted, content))
        for key, model in models.items():
            row = rows[key]
            found = _attempt(row, work, partial(bench.judge, model, content, wanted))
            if found is None:
                continue
            is_finite = row.largest_error is not None and found.ratio is not None
            row.largest_error = max(row.largest_error or 0.0, found.ratio or 0.0) if is_finite else None
            if found.bad or found.ratio is None:
                row.state, row.detail = "wrong", f"{found.bad} elements at {bench.shape}, {name}"
    return count


def _attempt(row: Row, work: Work, act: Callable[[], Any]) -> Any:
    """Return what an act gives, or None for a solution that is out: wrong, overran in sum, or raised."""
    if row.state != "right":
        return None
    started = monotonic()
    left = math.inf if work.each_seconds is None else work.each_seconds - row.seconds
    try:
        with limited(left):
            return act()
    except OutOfTime:
        row.state, row.detail = "overran", f"more than {work.each_seconds:g} s"
    except Exception as error:  # noqa: BLE001 (a candidate in work may raise anything)
        row.state, row.detail = "failed", f"{type(error).__name__}: {error}"[:300]
    finally:
        row.seconds = round(row.seconds + monotonic() - started, 3)
    return None


def _conclude(problem: Problem, work: Work, rows: dict[str, Row]) -> None:
    """Add the scores and the speed-ups of those that came through all shapes."""
    right = {name: row for name, row in rows.items() if row.state == "right"}
    is_own_shapes = work.device != "cpu" and not work.shapes
    for row in right.values():
        values = values_of(problem, load_gpus()[work.gpu], row.times_ms) if is_own_shapes else None
        row.score = None if values is None else mean_value(problem, values)
        row.speedups = {
            name: geometric_mean([a / b for a, b in zip(right[name].times_ms, row.times_ms, strict=True)])
            for name in COMPARED_WITH
            if name in right
        }


def table(entry: Entry) -> str:
    """Return a problem's solutions, a line each."""
    if entry.result is None:
        return f"{entry.problem}: {entry.state} {entry.detail}"
    found = msgspec.convert(entry.result, Compared)
    spent = ", ".join(f"{purpose} {seconds:.1f} s" for purpose, seconds in found.spent.items())
    lines = [f"{entry.problem}, {entry.state}, {sum(found.contents)} contents compared; {spent}"]
    for row in found.rows:
        score = "-" if row.score is None else f"{row.score:.4f}"
        error = "-" if row.largest_error is None else f"{row.largest_error:.3g}"
        faster = " ".join(f"{name} x{value:.2f}" for name, value in row.speedups.items())
        times = " / ".join(f"{ms:.4f}" for ms in row.times_ms)
        state = row.state if not row.detail else f"{row.state} ({row.detail})"
        lines.append(f"  {row.name:<20} {state:<8} error {error} tol, score {score}, {faster}; ms {times}")
    return "\n".join(lines)
