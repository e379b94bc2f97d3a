"""Problems: what is asked, what the shapes cost, and who is best on each GPU and shape."""

import datetime
from collections import Counter
from dataclasses import dataclass

from grading.hardware import load_gpus
from grading.problem import Deck, Problem, load_decks
from grading.yardstick import ShapeYardstick, yardstick
from leaderboard.boards.cells import Cell, latest_release, read_cells
from leaderboard.models import Assessment, Release


@dataclass(frozen=True, slots=True)
class ProblemLine:
    """One problem in the list, with the best published cells of each GPU."""

    problem: Problem
    published: int
    withheld: int
    failed: int
    leaders: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class ShapeCost:
    """One shape: its nominal work, and its floor on each GPU (milliseconds, and what bounds it)."""

    index: int
    label: str
    flops: float | None
    bytes: float | None
    work: float | None
    intensity: float | None
    floors: tuple[tuple[float | None, str | None], ...]


@dataclass(frozen=True, slots=True)
class ShapeWinner:
    """The fastest published run on one shape of one GPU."""

    label: str
    cell: Cell | None
    ms: float | None
    share_of_attainable: float | None


@dataclass(frozen=True, slots=True)
class Standings:
    """A problem's cells on one GPU: the published best first, the others after them."""

    gpu: str
    gpu_name: str
    peak_version: int
    peak_since: datetime.date
    ranked: tuple[Cell, ...]
    others: tuple[Cell, ...]
    winners: tuple[ShapeWinner, ...]


@dataclass(frozen=True, slots=True)
class ProblemView:
    """Everything about one problem."""

    deck: Deck
    problem: Problem
    gpus: tuple[tuple[str, str], ...]
    shapes: tuple[ShapeCost, ...]
    standings: tuple[Standings, ...]
    counts: dict[str, int]
    release: Release | None


def list_problems(at: datetime.datetime) -> list[tuple[Deck, list[ProblemLine]]]:
    """Return every deck with its problems; three queries."""
    by_problem: dict[tuple[str, str], list[Cell]] = {}
    for cell in read_cells(latest_release(), at):
        by_problem.setdefault((cell.deck, cell.problem), []).append(cell)
    return [
        (deck, [_line(problem, by_problem.get((deck.id, problem.id), [])) for problem in deck.problems.values()])
        for deck in load_decks().values()
    ]


def read_problem(deck_id: str, problem_id: str, at: datetime.datetime) -> ProblemView | None:
    """Return one problem, or None where the catalogue has no such; four queries."""
    deck = load_decks().get(deck_id)
    problem = deck.problems.get(problem_id) if deck else None
    if deck is None or problem is None:
        return None
    release = latest_release()
    cells = read_cells(release, at, deck=deck_id, problem=problem_id)
    timings = _timings(release, deck_id, problem_id)
    by_gpu = {gpu: [cell for cell in cells if cell.gpu == gpu] for gpu in deck.gpus}
    return ProblemView(
        deck=deck,
        problem=problem,
        gpus=tuple((gpu, load_gpus()[gpu].name) for gpu in deck.gpus),
        shapes=list_costs(problem, deck.gpus),
        standings=tuple(_standings(problem, gpu, held, timings) for gpu, held in by_gpu.items() if held),
        counts=dict(Counter(cell.status for cell in cells)),
        release=release,
    )


def _line(problem: Problem, cells: list[Cell]) -> ProblemLine:
    counts = Counter(cell.status for cell in cells)
    best: dict[str, Cell] = {}
    for cell in cells:
        if cell.rank is not None and (cell.gpu not in best or _place(cell) < _place(best[cell.gpu])):
            best[cell.gpu] = cell
    return ProblemLine(problem, counts["published"], counts["withheld"], counts["failed"], tuple(best.values()))


def _place(cell: Cell) -> tuple[float, str]:
    return -(cell.share_of_best or 0.0), cell.id


def _timings(release: Release | None, deck: str, problem: str) -> dict[tuple[str, str], list[dict[str, object]]]:
    """Return the assessed shapes of the runs behind a problem's published cells, by GPU and run id."""
    rows = Assessment.objects.filter(
        run__released_cells__release=release,
        run__released_cells__status="published",
        run__deck=deck,
        run__problem__slug=problem,
    )
    return {(gpu, run): shapes for gpu, run, shapes in rows.values_list("run__gpu", "run__run_id", "shapes")}


def list_costs(problem: Problem, gpus: list[str]) -> tuple[ShapeCost, ...]:
    """Return the work and the floors of each shape of a problem, the floors by GPU."""
    sticks = [yardstick(problem, gpu, load_gpus()[gpu].current) for gpu in gpus]
    rows = []
    for index, _ in enumerate(problem.shapes):
        parts: list[ShapeYardstick] = [stick.shapes[index] for stick in sticks]
        first = parts[0]
        rows.append(
            ShapeCost(
                index=index,
                label=problem.shape_label(index),
                flops=first.flops,
                bytes=first.bytes,
                work=first.work,
                intensity=first.flops / first.bytes if first.flops and first.bytes else None,
                floors=tuple((part.floor_ms, part.floor_bound) for part in parts),
            )
        )
    return tuple(rows)


def _standings(
    problem: Problem, gpu: str, cells: list[Cell], timings: dict[tuple[str, str], list[dict[str, object]]]
) -> Standings:
    ranked = sorted((cell for cell in cells if cell.is_published), key=_place)
    table = load_gpus()[gpu].current
    return Standings(
        gpu=gpu,
        gpu_name=load_gpus()[gpu].name,
        peak_version=table.version,
        peak_since=table.since,
        ranked=tuple(ranked),
        others=tuple(cell for cell in cells if not cell.is_published),
        winners=_winners(problem, ranked, timings),
    )


def _winners(
    problem: Problem, ranked: list[Cell], timings: dict[tuple[str, str], list[dict[str, object]]]
) -> tuple[ShapeWinner, ...]:
    """Return the fastest of the published cells on each shape; a run that may not be shown is no candidate."""
    rows = []
    for index, _ in enumerate(problem.shapes):
        times = []
        for cell in ranked:
            shape = next((s for s in timings.get((cell.gpu, cell.run_id), []) if s["index"] == index), None)
            if shape is not None and shape["ms"]:
                times.append((shape["ms"][0], cell.id, cell, shape["share_of_attainable"]))  # type: ignore[index]
        ms, _, cell, share = min(times, default=(None, "", None, None))
        rows.append(ShapeWinner(problem.shape_label(index), cell, ms, share[0] if share else None))  # type: ignore[index]
    return tuple(rows)
