"""Interval arithmetic over ten thousand random problems: the truth is never excluded, and a wrong digit is seen."""

import math
import random

from grading.interval import Interval, exact, geometric_mean, intersect, printed

PROBLEMS = 10_000


def draw(chance: random.Random) -> tuple[list[float], list[float], float, int]:
    """True times in ms, work in operations, a peak in TFLOPS, and the printer's decimals of a time."""
    count = chance.randint(1, 8)
    times = [10 ** chance.uniform(-2, 3) for _ in range(count)]
    work = [10 ** chance.uniform(6, 14) for _ in range(count)]
    return times, work, 10 ** chance.uniform(0, 4), chance.choice([3, 4, 6])


def readings(ms: float, work: float, places: int) -> list[Interval]:
    """What a log prints of one shape, each as an interval of its time."""
    return [printed(f"{ms:.{places}f}"), printed(f"{work / (ms * 1e9):.3f}").inverted(work / 1e9)]


def test_no_printed_log_excludes_its_true_score() -> None:
    chance = random.Random(20260801)
    for _ in range(PROBLEMS):
        times, work, peak, places = draw(chance)
        parts = []
        for ms, operations in zip(times, work, strict=True):
            time = intersect(readings(ms, operations, places))
            assert time is not None
            assert time.low <= ms <= time.high
            parts.append(time.inverted(operations / 1e9 / peak).clamped(1e-9))
        score = geometric_mean(parts)
        fractions = [max(operations / (ms * 1e9) / peak, 1e-9) for ms, operations in zip(times, work, strict=True)]
        truth = math.exp(sum(map(math.log, fractions)) / len(fractions))
        assert score.low <= truth <= score.high
        assert printed(f"{truth:.4f}").meets(score)


def test_one_unit_in_the_last_place_is_seen_wherever_the_interval_allows() -> None:
    chance, seen, possible = random.Random(7), 0, 0
    for _ in range(PROBLEMS):
        times, work, _, places = draw(chance)
        ms, operations = times[0], work[0]
        rate, time = operations / (ms * 1e9), printed(f"{ms:.{places}f}")
        wrong = printed(f"{float(f'{rate:.3f}') + 0.001:.3f}")
        may_be_seen = wrong.inverted(operations / 1e9).high < time.low
        is_seen = intersect([time, wrong.inverted(operations / 1e9)]) is None
        assert is_seen == may_be_seen
        seen, possible = seen + is_seen, possible + may_be_seen
    assert seen == possible > PROBLEMS // 20


def test_arithmetic_never_narrows() -> None:
    chance = random.Random(8)
    for _ in range(PROBLEMS):
        low, high = sorted(10 ** chance.uniform(-6, 6) for _ in range(2))
        value, factor = chance.uniform(low, high), 10 ** chance.uniform(-6, 6)
        held = Interval(value, low, high)
        for result, truth in (
            (held.scaled(factor), value * factor),
            (held.inverted(factor), factor / value),
            (held.divided_by(exact(factor)), value / factor),
            (exact(factor).divided_by(held), factor / value),
        ):
            assert result.low <= truth <= result.high
