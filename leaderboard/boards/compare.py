"""Two to four entrants of one board, shape by shape: paired times, a sign test for each pair, and what that means."""

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from grading.hardware import load_gpus
from grading.problem import Problem, load_decks
from leaderboard.boards.cells import Cell, EntrantView, latest_release, read_cells
from leaderboard.models import Assessment

MOST = 4
LEVEL = 0.05
Span = tuple[float, float, float]
_Times = dict[tuple[str, int], Span]


@dataclass(frozen=True, slots=True)
class Timing:
    """One entrant's time on one shape. `share_of_best` is the fastest compared time over this one."""

    cell: Cell
    ms: float
    low: float
    high: float
    share_of_best: float
    is_first: bool


@dataclass(frozen=True, slots=True)
class ShapeLine:
    """One shape with a timing, or None, for each entrant."""

    label: str
    timings: tuple[Timing | None, ...]


@dataclass(frozen=True, slots=True)
class ProblemPart:
    """The shapes of one problem that at least one of the entrants has."""

    problem: Problem
    cells: tuple[Cell | None, ...]
    lines: tuple[ShapeLine, ...]


@dataclass(frozen=True, slots=True)
class Contest:
    """Two entrants on the shapes that both have. `ratio` is how many times as fast the first is, geometric mean.

    p         two-sided sign test over the shapes that are not tied; None where all are
    adjusted  p after Holm's correction for the number of pairs compared
    """

    first: EntrantView
    second: EntrantView
    wins: int
    losses: int
    ties: int
    ratio: float
    p: float | None
    adjusted: float | None = None

    @property
    def shared(self) -> int:
        """The number of shapes that both have."""
        return self.wins + self.losses + self.ties

    @property
    def is_settled(self) -> bool:
        """Whether chance alone is an unlikely reason for the difference."""
        return self.adjusted is not None and self.adjusted <= LEVEL

    @property
    def leader(self) -> EntrantView:
        """Who is faster on more shapes."""
        return self.first if self.wins >= self.losses else self.second

    @property
    def leads(self) -> int:
        """On how many shapes the leader is faster."""
        return max(self.wins, self.losses)

    @property
    def first_share(self) -> float:
        """The share of shapes that the first wins."""
        return self.wins / (self.shared or 1)

    @property
    def tie_share(self) -> float:
        """The share of shapes that neither wins."""
        return self.ties / (self.shared or 1)

    @property
    def second_start(self) -> float:
        """The share of shapes that the second does not win."""
        return 1.0 - self.second_share

    @property
    def second_share(self) -> float:
        """The share of shapes that the second wins."""
        return self.losses / (self.shared or 1)

    @property
    def times_as_fast(self) -> float:
        """How many times as fast the leader is."""
        return self.ratio if self.wins >= self.losses else 1 / self.ratio


@dataclass(frozen=True, slots=True)
class Comparison:
    """A board's entrants that may be compared, those that are, and the result."""

    boards: tuple[tuple[str, str, str], ...]
    deck: str
    gpu: str
    title: str
    choices: tuple[EntrantView, ...]
    entrants: tuple[EntrantView, ...]
    parts: tuple[ProblemPart, ...]
    contests: tuple[Contest, ...]
    unknown: tuple[str, ...]


def read_comparison(board: str, slugs: Sequence[str], at: datetime.datetime) -> Comparison:
    """Return a comparison; four queries at most. Only cells that are published now take part.

    board  ``deck/gpu``, or anything else for the first board with published cells
    slugs  of entrants, in order; those without a published cell on the board are named as unknown
    """
    published = [cell for cell in read_cells(latest_release(), at) if cell.is_published]
    keys = list(dict.fromkeys((cell.deck, cell.gpu) for cell in published))
    deck, gpu = next((key for key in keys if f"{key[0]}/{key[1]}" == board), (*keys, ("", ""))[0])
    own = [cell for cell in published if (cell.deck, cell.gpu) == (deck, gpu)]
    known = {cell.entrant.slug: cell.entrant for cell in own}
    wanted = list(dict.fromkeys(slug for slug in slugs if slug))[:MOST]
    entrants = tuple(known[slug] for slug in wanted if slug in known)
    cells = {(cell.entrant.slug, cell.problem): cell for cell in own}
    times = _read_times(deck, gpu, [cells[key] for key in cells if key[0] in wanted]) if len(entrants) > 1 else {}
    return Comparison(
        boards=tuple((key[0], key[1], _title(*key)) for key in keys),
        deck=deck,
        gpu=gpu,
        title=_title(deck, gpu) if deck else "",
        choices=tuple(sorted(known.values(), key=lambda entrant: (entrant.is_baseline, entrant.label.casefold()))),
        entrants=entrants,
        parts=_parts(deck, entrants, cells, times),
        contests=_correct([_contest(a, b, times) for a, b in combinations(entrants, 2)]) if times else (),
        unknown=tuple(slug for slug in wanted if slug not in known),
    )


def _title(deck: str, gpu: str) -> str:
    return f"{load_decks()[deck].title} on {load_gpus()[gpu].name}"


def _read_times(deck: str, gpu: str, cells: list[Cell]) -> dict[str, _Times]:
    """Return the time of every shape, by entrant, then by problem and shape; one query."""
    owner = {cell.run_id: cell for cell in cells}
    rows = Assessment.objects.filter(run__deck=deck, run__gpu=gpu, run__run_id__in=owner)
    found: dict[str, _Times] = {cell.entrant.slug: {} for cell in cells}
    for run_id, shapes in rows.values_list("run__run_id", "shapes"):
        cell = owner[run_id]
        for shape in shapes:
            if shape["ms"] and shape["ms"][0]:
                ms, low, high = shape["ms"]
                span = (ms, low if low is not None else ms, high if high is not None else ms)
                found[cell.entrant.slug][cell.problem, shape["index"]] = span
    return found


def _parts(
    deck: str,
    entrants: tuple[EntrantView, ...],
    cells: dict[tuple[str, str], Cell],
    times: dict[str, _Times],
) -> tuple[ProblemPart, ...]:
    parts = []
    for problem in load_decks()[deck].problems.values() if times else ():
        own = tuple(cells.get((entrant.slug, problem.id)) for entrant in entrants)
        lines = tuple(
            ShapeLine(problem.shape_label(index), _timings(own, problem.id, index, times))
            for index, _ in enumerate(problem.shapes)
        )
        if any(own):
            parts.append(ProblemPart(problem, own, lines))
    return tuple(parts)


def _timings(
    own: tuple[Cell | None, ...], problem: str, index: int, times: dict[str, _Times]
) -> tuple[Timing | None, ...]:
    spans = [times[cell.entrant.slug].get((problem, index)) if cell else None for cell in own]
    held = [span for span in spans if span]
    fastest = min((span[0] for span in held), default=0.0)
    reach = min((span[2] for span in held), default=0.0)
    return tuple(
        Timing(cell, *span, fastest / span[0], span[1] <= reach) if cell and span else None
        for cell, span in zip(own, spans, strict=True)
    )


def _contest(first: EntrantView, second: EntrantView, times: dict[str, _Times]) -> Contest:
    mine, theirs = times[first.slug], times[second.slug]
    shared = [(mine[key], theirs[key]) for key in mine if key in theirs]
    wins = sum(1 for a, b in shared if a[2] < b[1])
    losses = sum(1 for a, b in shared if b[2] < a[1])
    logs = [math.log(b[0] / a[0]) for a, b in shared]
    ratio = math.exp(sum(logs) / len(logs)) if logs else 1.0
    return Contest(first, second, wins, losses, len(shared) - wins - losses, ratio, sign_test(wins, losses))


def sign_test(wins: int, losses: int) -> float | None:
    """Return the exact two-sided p of a sign test, or None where nothing was won or lost."""
    count = wins + losses
    if not count:
        return None
    tail = sum(math.comb(count, k) for k in range(min(wins, losses) + 1))
    return float(min(1.0, 2 * tail / 2**count))


def _correct(contests: list[Contest]) -> tuple[Contest, ...]:
    """Give each contest its p after Holm's correction."""
    order = sorted((index for index, held in enumerate(contests) if held.p is not None), key=lambda i: contests[i].p)
    adjusted, highest = dict[int, float](), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (contests[index].p or 0.0) * (len(order) - place)))
        adjusted[index] = highest
    return tuple(replace(held, adjusted=adjusted.get(index)) for index, held in enumerate(contests))
