"""The course of each survey: its items in order, its book, and what it shows at the end."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from grading.cpushapes import shapes_for
from grading.hardware import Gpu, load_gpus
from grading.problem import Problem
from grading.survey import agreement, floors, grades, kernels, seeds, tolerances
from grading.survey.book import Book, Budget, Entry, Item, OutOfTime, Survey, SurveyError, say
from grading.survey.items import (
    NUMERIC_CHEATS,
    Solution,
    cheats_of,
    every_solution,
    gradeable_problems,
    is_asked_for,
    matching,
    own_solutions,
    spread_out,
    told_solutions,
    variant_of,
)
from grading.survey.planning import plan
from grading.survey.work import Named, Runner, Work
from grading.warden.grade import Tier
from grading.warden.oraclehost import OracleHost
from grading.warden.process import limits_on

SEEDS, DRAWS = 1000, 3


@dataclass(frozen=True)
class Options:
    """What the command line said; see ``--help``."""

    what: str
    device: str
    gpu: str | None
    out: Path
    only: list[str]
    budget: float | None
    each: float | None
    retry: bool
    all: bool
    tier: Tier
    twice: bool
    variant: list[Path]
    seeds: int | None
    first: int
    store: bool
    plan: bool = False

    def board(self) -> Gpu:
        """Return the board. Raises SurveyError for a key that is not known."""
        key = self.gpu or ("CPU" if self.device == "cpu" else None)
        if key not in load_gpus():
            raise SurveyError(f"--gpu is {key!r}; accepted are {', '.join(load_gpus())}")
        return load_gpus()[key]

    def open_book(self, what: str) -> Book:
        """Return a survey's book in the folder of results."""
        has_usual = what == "grades" and self.device != "cpu"
        unknown_seconds = grades.UNKNOWN_SECONDS[self.tier] if has_usual else 0.0
        return Book(self.out / f"{what}.json", what, self.device, unknown_seconds)

    def survey(self, book: Book, each_seconds: float | None = None) -> Survey:
        """Return the course over a book."""
        return Survey(book, Budget(self.budget), each_seconds, self.retry)

    def runner(self) -> Runner:
        """Return what runs children."""
        return Runner(self.out / "sources")


def survey_grades(options: Options) -> tuple[int, str]:
    """Grade; with ``--twice`` each a second time, once all have had their first."""
    gpu, choose = options.board(), every_solution if options.all else told_solutions
    chosen = _some(matching(spread_out([choose(problem) for problem in gradeable_problems()]), options.only))
    attempts = (1, 2) if options.twice else (1,)
    items = [_item(solution, attempt, options.tier) for attempt in attempts for solution in chosen]
    book, known = options.open_book("grades"), {solution.key: solution for solution in chosen}
    if options.plan:
        return plan(options.survey(book), items)
    # The references lie in the package, which every oracle sees.
    with OracleHost(options.device, [], limits_on(options.device)) as host:
        grader = grades.Grader(known, gpu, options.device, options.tier, options.out, host)
        left = options.survey(book, options.each).run(items, grader.measure)
    return left, grades.table(book)


def survey_agreement(options: Options) -> tuple[int, str]:
    """Time solutions outside the grader; the folder's own ``grades.json`` is what they are compared with."""
    gpu, runner, book = options.board(), options.runner(), options.open_book("agreement")
    known = spread_out([own_solutions(problem, "right") for problem in gradeable_problems()])
    chosen = {solution.key: solution for solution in _some(matching(known, options.only))}

    def measure(item: Item, seconds: float, before: Entry | None) -> Any:
        solution = chosen[item.key]
        return runner.run(_work(options, gpu, solution.problem, [runner.name(solution)]), seconds, agreement.Times)

    left = options.survey(book, options.each).run([_item(solution) for solution in chosen.values()], measure)
    rows = agreement.agreements(book, options.open_book("grades"))
    return left, agreement.table(rows)


def survey_kernels(options: Options) -> tuple[int, str]:
    """Compare and time all right solutions of each problem, and candidates for one problem."""
    gpu, runner, book = options.board(), options.runner(), options.open_book("kernels")
    asked = {problem.key: _asked_for(problem, options.only) for problem in gradeable_problems()}
    if options.variant and sum(map(bool, asked.values())) != 1:
        raise SurveyError("--variant needs --only with one problem")
    named = {key: _with_variants(options, runner, own) for key, own in asked.items() if own}

    def measure(item: Item, seconds: float, before: Entry | None) -> Any:
        work = _work(options, gpu, _problem(item.problem), named[item.problem])
        return runner.run(work, seconds, kernels.Compared)

    items = [Item(key, "", _joint_digest(found)) for key, found in _some(named.items())]
    whole_seconds = None if options.each is None else kernels.WHOLE_LIMIT * options.each
    left = options.survey(book, whole_seconds).run(items, measure)
    return left, "\n".join(kernels.table(book.entries[item.key]) for item in items if item.key in book.entries)


def survey_seeds(options: Options) -> tuple[int, str]:
    """Draw numbered contents for each kernel at each shape; a cut stretch is gone on with."""
    gpu, runner, book = options.board(), options.runner(), options.open_book("seeds")
    known = [s for problem in gradeable_problems() for s in own_solutions(problem, "right")]
    named = [s for s in matching(known, options.only) if options.only or s.name == "kernel"]
    shapes = {s.key: range(len(shapes_for(s.problem, options.device))) for s in _some(named)}
    parts = {f"{s.key}/shape{index}": (s, index) for s in named for index in shapes[s.key]}
    count, first = options.seeds or SEEDS, options.first

    def measure(item: Item, seconds: float, before: Entry | None) -> Any:
        solution, index = parts[item.key]
        done = msgspec.convert(before.result, seeds.Drawn) if before is not None and before.result else None
        done = done if before is not None and before.state == "cut" else None
        start = done.first + done.done if done else first
        work = _work(options, gpu, solution.problem, [runner.name(solution)])
        work = msgspec.structs.replace(work, shapes=[index], draws=first + count - start, first=start)
        try:
            return seeds.joined(done, runner.run(work, seconds, seeds.Drawn))
        except OutOfTime as error:
            assert error.partial is None or isinstance(error.partial, seeds.Drawn)
            raise OutOfTime(seeds.joined(done, error.partial) if error.partial else done) from None

    items = [
        Item(s.problem.key, f"{s.name}/shape{index}", _digest(s.digest, f"{first}+{count}"))
        for s, index in sorted(parts.values(), key=lambda part: part[1])
    ]
    left = replace(options.survey(book), can_go_on=True).run(items, measure)
    done = [entry for entry in book.entries.values() if entry.result]
    return left, "\n".join(seeds.line(entry.key, msgspec.convert(entry.result, seeds.Drawn)) for entry in done)


def survey_tolerances(options: Options) -> tuple[int, str]:
    """Measure errors of honest solutions and cheats; with ``--store`` write what separates them beside the problem."""
    if options.store and options.device == "cpu":
        raise SurveyError("--store needs a GPU: a processor's shapes are not the deck's")
    gpu, runner, book = options.board(), options.runner(), options.open_book("tolerances")
    problems = {problem.key: problem for problem in gradeable_problems()}
    named = {key: _calibration_solutions(options, runner, problem) for key, problem in problems.items()}

    def measure(item: Item, seconds: float, before: Entry | None) -> Any:
        work = _work(options, gpu, problems[item.problem], named[item.problem])
        return runner.run(work, seconds, tolerances.Errors)

    items = [Item(key, "", _joint_digest(found)) for key, found in _some((k, v) for k, v in named.items() if v)]
    left = options.survey(book, options.each).run(items, measure)
    entries = [book.entries[item.key] for item in items if item.key in book.entries]
    if options.store:
        for entry in entries:
            _store(problems[entry.problem], entry, options, gpu)
    return left, "\n".join(map(tolerances.table, entries))


def survey_floors(options: Options) -> tuple[int, str]:
    """Measure what any kernel could reach by the deck's method, for problems whose score times alone give."""
    if options.device == "cpu":
        raise SurveyError("floors needs a GPU: on a processor there are no launches to measure")
    gpu, runner, book = options.board(), options.runner(), options.open_book("floors")
    known = {problem.key: problem for problem in gradeable_problems() if problem.metric.kind == "peak_fraction"}

    def measure(item: Item, seconds: float, before: Entry | None) -> Any:
        return runner.run(_work(options, gpu, known[item.problem], []), seconds, floors.Floors)

    chosen = _some(key for key in known if is_asked_for([key], options.only))
    method = Path(floors.__file__).read_text(encoding="utf-8")
    items = [Item(key, "", _digest(known[key].version, method)) for key in chosen]
    left = options.survey(book, options.each).run(items, measure)
    return left, "\n".join(floors.table(book.entries[item.key]) for item in items if item.key in book.entries)


SURVEYS: dict[str, Callable[[Options], tuple[int, str]]] = {
    "grades": survey_grades,
    "agreement": survey_agreement,
    "floors": survey_floors,
    "kernels": survey_kernels,
    "seeds": survey_seeds,
    "tolerances": survey_tolerances,
}


def _store(problem: Problem, entry: Entry, options: Options, gpu: Gpu) -> None:
    reason = tolerances.why_not_stored(problem, entry, options.device)
    say(f"{problem.key}: not stored, {reason}" if reason else f"{tolerances.store(problem, entry, gpu.key)}: stored")


def _work(options: Options, gpu: Gpu, problem: Problem, solutions: list[Named]) -> Work:
    return Work(
        survey=options.what,
        device=options.device,
        problem=problem.key,
        gpu=gpu.key,
        solutions=solutions,
        draws=options.seeds or DRAWS,
        each_seconds=options.each,
    )


def _asked_for(problem: Problem, patterns: list[str]) -> list[Solution]:
    return list(matching(own_solutions(problem, "right"), patterns))


def _with_variants(options: Options, runner: Runner, own: list[Solution]) -> list[Named]:
    """Return a problem's solutions for the child, and the candidates in place of their namesakes."""
    variants = [variant_of(own[0].problem, path) for path in options.variant]
    taken = {variant.name for variant in variants}
    return [runner.name(solution) for solution in own if solution.name not in taken] + [
        runner.name(variant) for variant in variants
    ]


def _calibration_solutions(options: Options, runner: Runner, problem: Problem) -> list[Named]:
    """Return honest solutions, the plain one first, then the cheats that show in a single call's numbers."""
    right = sorted(own_solutions(problem, "right"), key=lambda solution: solution.name != tolerances.PLAIN)
    wrong = [solution for solution in own_solutions(problem, "wrong") if solution.expects == "incorrect"]
    every = [*right, *wrong, *cheats_of(problem, NUMERIC_CHEATS)]
    return [runner.name(solution) for solution in matching(every, options.only)]


def _item(solution: Solution, attempt: int = 1, beside: str = "") -> Item:
    digest = _digest(solution.digest, beside) if beside else solution.digest
    return Item(solution.problem.key, solution.name, digest, attempt, solution.kind)


def _joint_digest(solutions: list[Named]) -> str:
    return _digest(*(f"{named.name}={named.digest}" for named in solutions))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _problem(key: str) -> Problem:
    return next(problem for problem in gradeable_problems() if problem.key == key)


def _some(found: Any) -> list[Any]:
    """Return what was found as a list. Raises SurveyError when there is nothing to measure."""
    chosen = list(found)
    if not chosen:
        raise SurveyError("--only matches nothing; it takes patterns such as 'hard/*' or '*/kernel'")
    return chosen
