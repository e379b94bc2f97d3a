"""Survey ``grades``: the grader itself on pairs of problem and solution, archived, with what a table needs of each."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import msgspec

from grading.evidence import Evidence
from grading.hardware import Gpu
from grading.problem import Problem
from grading.rundir import pack_evidence
from grading.survey.book import Book, Entry, Item, ItemFailed, OutOfTime, limited
from grading.survey.items import Solution, reference_of
from grading.verdict_timing import LONG_MS, Summary, do_agree, summarise
from grading.warden.archiveout import Entry as Archived
from grading.warden.archiveout import write_archive
from grading.warden.bundles import baselines_of
from grading.warden.grade import Grade, Request, Tier, grade
from grading.warden.lock import DeviceBusy, hold_device
from grading.warden.oraclehost import OracleHost
from grading.warden.progress import Progress

RUNS = Path("archive/runs")
# Before a grade would be cut off, so long no further shape is begun: all else of it is worth keeping.
_LAST_SECONDS = 30.0
# About what a right solution takes on a GPU: full, the median of the recorded ones; quick, of two problems.
UNKNOWN_SECONDS: dict[Tier, float] = {"quick": 30.0, "full": 90.0}


class ShapeGrade(msgspec.Struct, frozen=True, kw_only=True):
    """One shape of a grade: times of the first pass, device time by pass, the largest error in tolerances."""

    shape: dict[str, float]
    times: Summary | None
    by_pass_ms: list[float | None]
    largest_error: float | None
    seconds: float


class Graded(msgspec.Struct, frozen=True, kw_only=True):
    """A grade. ``digest`` is the solution's; ``expects`` the verdict that a wrong one names, empty for a right one.

    ``gpu_seconds`` is how long the GPU was held, None on a processor.
    """

    digest: str
    tier: str
    verdict: str
    expects: str
    kind: str
    isolation: str
    rules: list[str]
    archive: str
    passes: int
    gpu_seconds: float | None
    shapes: list[ShapeGrade]


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """One shape in two grades: milliseconds of device time with the 5th and 95th percentile of each."""

    problem: str
    solution: str
    shape: int
    first: tuple[float, float, float]
    second: tuple[float, float, float]
    is_long: bool
    agrees: bool

    @property
    def ratio(self) -> float:
        """The second time over the first."""
        return self.second[0] / self.first[0]


@dataclass(frozen=True)
class Grader:
    """How all grades of a survey are made.

    out   the survey's folder; its archive grows in ``archive``
    host  the oracle of all grades
    """

    solutions: dict[str, Solution]
    gpu: Gpu
    device: str
    tier: Tier
    out: Path
    host: OracleHost

    def measure(self, item: Item, seconds: float, before: Entry | None) -> Graded:
        """Grade one item and archive it. Raises ItemFailed or OutOfTime."""
        solution = self.solutions[f"{item.problem}/{item.solution}"]
        # An archive says when to the second; what is written from its evidence again has to be the same.
        started = datetime.now(UTC).replace(microsecond=0)
        request = Request(
            problem=solution.problem,
            reference=reference_of(solution.problem),
            bundle=solution.bundle.files,
            device=self.device,
            tier=self.tier,
            is_exempt=solution.bundle.is_exempt,
            gpu=self.gpu,
            baselines=_divided(solution.problem),
            until=monotonic() + seconds - _LAST_SECONDS,
        )
        try:
            with limited(seconds), hold_device(self.device) as held, Progress(sys.stderr) as progress:
                done = grade(request, progress.on_step, self.host)
            done = done.with_gpu_seconds(held.seconds)
            entry = Archived(solution.problem, self.gpu, solution.bundle, done, started, datetime.now(UTC))
            archive = self._archive(entry)
        except OutOfTime:
            # The oracle may be in the middle of an answer, which the next grade would take for its own.
            self.host.is_dirty = True
            raise
        except (OSError, DeviceBusy) as error:
            raise ItemFailed(str(error)) from error
        return graded_of(solution, done, archive)

    def _archive(self, entry: Archived) -> str:
        """Write a run directory in one step, packed; return it, below the survey's folder. Raises OSError."""
        self.out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".grade-", dir=self.out) as staging:
            fresh = write_archive(entry, Path(staging))
            pack_evidence(fresh)
            archive = RUNS / fresh.relative_to(staging)
            (self.out / archive).parent.mkdir(parents=True, exist_ok=True)
            fresh.rename(self.out / archive)
        return str(archive)


def graded_of(solution: Solution, done: Grade, archive: str) -> Graded:
    """Return what the book keeps of a grade.

    archive  its run directory, below the survey's folder
    """
    return Graded(
        digest=solution.digest,
        tier=done.evidence.tier,
        verdict=done.verdict.word,
        expects=solution.expects,
        kind=solution.kind,
        isolation=done.verdict.isolation,
        rules=sorted(done.verdict.rules()),
        archive=archive,
        passes=len(done.evidence.passes),
        gpu_seconds=done.evidence.gpu_seconds,
        shapes=_shapes(done.evidence),
    )


def _divided(problem: Problem) -> dict[str, dict[str, bytes]]:
    """Return the baseline whose time a speed-up divides; other metrics need none."""
    known = baselines_of(problem) if problem.metric.kind == "speedup" else {}
    return {name: files for name, files in known.items() if name == "eager"}


def _shapes(evidence: Evidence) -> list[ShapeGrade]:
    rows = []
    for index, shape in enumerate(evidence.passes[0].shapes if evidence.passes else []):
        same = [taken.shapes[index] for taken in evidence.passes if index < len(taken.shapes)]
        times = [summarise(each) for each in same]
        ratios = [call.ratio for each in same for call in each.calls]
        known = [ratio for ratio in ratios if ratio is not None]
        rows.append(
            ShapeGrade(
                shape=shape.shape,
                times=times[0],
                by_pass_ms=[time.median_ms if time else None for time in times],
                largest_error=max(known) if known and len(known) == len(ratios) else None,
                seconds=round(sum(each.took_s for each in same), 3),
            )
        )
    return rows


def read_graded(entry: Entry) -> Graded | None:
    """Return the grade of an entry that came to an end."""
    return msgspec.convert(entry.result, Graded) if entry.state == "done" else None


def repeats(book: Book) -> list[Repeat]:
    """Return each shape that was graded twice: whether the two device times agree."""
    found = []
    for entry in book.entries.values():
        again = book.entries.get(f"{entry.key}#2")
        if entry.attempt != 1 or again is None or again.digest != entry.digest:
            continue
        pair = [read_graded(entry), read_graded(again)]
        for index, both in enumerate(zip(*(each.shapes if each else [] for each in pair), strict=False)):
            first, second = (shape.times for shape in both)
            if first is not None and second is not None:
                found.append(_repeat(entry, index, first, second))
    return found


def _repeat(entry: Entry, index: int, first: Summary, second: Summary) -> Repeat:
    return Repeat(
        problem=entry.problem,
        solution=entry.solution,
        shape=index,
        first=(first.median_ms, first.p5_ms, first.p95_ms),
        second=(second.median_ms, second.p5_ms, second.p95_ms),
        is_long=first.median_ms > LONG_MS,
        agrees=do_agree(first, second),
    )


def table(book: Book) -> str:
    """Return one line a grade, one a shape that was graded twice, and the seconds of a cell."""
    lines = [f"{'item':<46} {'verdict':<15} {'s':>7}  device ms (p5 .. p95) | outside ms | deck ms, by shape"]
    for entry in book.entries.values():
        done = read_graded(entry)
        verdict = done.verdict if done else entry.state
        lines.append(f"{entry.key:<46} {verdict:<15} {entry.seconds:>7.1f}  {_cells(done.shapes if done else [])}")
    again = repeats(book)
    for item in again:
        word = "agrees" if item.agrees else "DIFFERS"
        name = f"{item.problem}/{item.solution} shape {item.shape}"
        lines.append(f"{name}: {item.first[0]:.4f} and {item.second[0]:.4f} ms, ratio {item.ratio:.3f}, {word}")
    if again:
        lines.append(f"{sum(item.agrees for item in again)} of {len(again)} shapes agree between two grades")
    beyond = [1e3 * (time.outside_ms - time.median_ms) for time in _honest_times(book)]
    if beyond:
        spread = f"median {statistics.median(beyond):.0f} us, most {max(beyond):.0f} us, {len(beyond)} shapes"
        lines.append(f"outside clock beyond device time, right solutions: {spread}")
    seconds = [entry.seconds for entry in book.entries.values() if entry.state == "done"]
    if seconds:
        lines.append(f"seconds per cell: median {statistics.median(seconds):.1f}, most {max(seconds):.1f}")
    return "\n".join(lines)


def _honest_times(book: Book) -> list[Summary]:
    grades = [read_graded(entry) for entry in book.entries.values()]
    right = [graded for graded in grades if graded is not None and graded.kind == "right"]
    return [shape.times for graded in right for shape in graded.shapes if shape.times is not None]


def _cells(shapes: Sequence[ShapeGrade]) -> str:
    return "; ".join(_cell(shape.times) for shape in shapes)


def _cell(time: Summary | None) -> str:
    if time is None:
        return "-"
    deck = "-" if time.deck_ms is None else f"{time.deck_ms:.4f}"
    outside = f"{time.outside_ms:.4f} ±{time.spread_ms:.4f}"
    return f"{time.median_ms:.4f} ({time.p5_ms:.4f} .. {time.p95_ms:.4f}) | {outside} | {deck}"
