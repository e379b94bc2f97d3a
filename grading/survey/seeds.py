"""Survey ``seeds``: a kernel against the reference on many numbered random contents at one shape, by the grader's gate.

Numbers are consecutive and the same number is the same content everywhere, so a fault that is found can be had again by
``--first NUMBER --seeds 1``. Every hundredth number brings new weights too.
"""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import msgspec

from grading.problem import load_problem
from grading.survey.bench import Bench, Versions, read_versions
from grading.survey.work import Work

WEIGHTS_EVERY = 100
_SHOWN = 20
_WRITE_EVERY_SECONDS = 5.0


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel at one shape.

    done           numbers that were drawn, from ``first`` on
    wrong          how many of them gave a wrong element; ``wrong_numbers`` are the first ones
    largest_error  in tolerances over all numbers whose answers were finite; ``at_number`` drew it
    not_finite     how many answers were not finite where the reference is, or had another form
    """

    versions: Versions
    shape: dict[str, float]
    first: int
    done: int
    wrong: int = 0
    bad_elements: int = 0
    wrong_numbers: list[int] = []
    largest_error: float = 0.0
    at_number: int | None = None
    not_finite: int = 0


def measure_seeds(work: Work) -> Iterator[Drawn]:
    """Child: draw ``work.draws`` numbers; yield what there is every few seconds, and at the end or the time limit."""
    problem = load_problem(*work.problem.split("/", 1))
    (_, shape), *_ = work.chosen_shapes()
    bench = Bench(problem, shape, work.device)
    model = bench.add(Path(work.solutions[0].path))
    found = Drawn(versions=read_versions(work.device), shape=shape, first=work.first, done=0)
    started = shown = monotonic()
    for number in range(work.first, work.first + work.draws):
        if number == work.first or number % WEIGHTS_EVERY == 0:
            bench.renew_weights(number // WEIGHTS_EVERY)
        content = bench.source.draw("nominal", "", number)
        result = bench.judge(model, content, bench.wanted(content))
        found = _count(found, number, result.ratio, result.bad)
        now = monotonic()
        if now - shown > _WRITE_EVERY_SECONDS:
            shown = now
            yield found
        if work.each_seconds is not None and now - started > work.each_seconds:
            break
    yield found


def _count(found: Drawn, number: int, ratio: float | None, bad: int) -> Drawn:
    is_larger = ratio is not None and (found.at_number is None or ratio > found.largest_error)
    return msgspec.structs.replace(
        found,
        done=found.done + 1,
        wrong=found.wrong + bool(bad),
        bad_elements=found.bad_elements + bad,
        wrong_numbers=[*found.wrong_numbers, number][:_SHOWN] if bad else found.wrong_numbers,
        largest_error=ratio if is_larger and ratio is not None else found.largest_error,
        at_number=number if is_larger else found.at_number,
        not_finite=found.not_finite + (ratio is None),
    )


def joined(before: Drawn | None, after: Drawn) -> Drawn:
    """Return two stretches of numbers, the second right behind the first, as one."""
    if before is None:
        return after
    later = after.largest_error > before.largest_error or before.at_number is None
    return msgspec.structs.replace(
        before,
        done=before.done + after.done,
        wrong=before.wrong + after.wrong,
        bad_elements=before.bad_elements + after.bad_elements,
        wrong_numbers=[*before.wrong_numbers, *after.wrong_numbers][:_SHOWN],
        largest_error=after.largest_error if later else before.largest_error,
        at_number=after.at_number if later else before.at_number,
        not_finite=before.not_finite + after.not_finite,
    )


def line(name: str, found: Drawn) -> str:
    """Return one kernel at one shape in words."""
    size = " ".join(f"{key}={value:g}" for key, value in found.shape.items())
    wrong = f"{found.wrong} wrong ({found.bad_elements} elements, numbers {found.wrong_numbers})"
    largest = f"largest error {found.largest_error:.3g} tolerances at number {found.at_number}"
    return f"{name} [{size}]: {found.done} numbers from {found.first}, {wrong if found.wrong else '0 wrong'}, {largest}"
