"""Rules across runs: copies, near copies, repeated logs, times and seeds, and repeats of one source.

A finding never names the other run, which may be invisible to the reader; people who decide see it beside the evidence.

Source: docs/method.md "Findings".
"""

from collections.abc import Iterator
from math import exp, isfinite, log

from grading.integrity.base import Context, Statement, rule
from grading.integrity.crossrun import Twin
from grading.names import find_model
from grading.score import ShapeScore
from grading.source.shingles import reference_sketch, shared_share, sketch_source

_COPIED_REFERENCE = 0.80
_SPREAD = 0.15


def is_baseline(context: Context) -> bool:
    """Tell whether the run is one of our own baselines, which may use everything and repeat each other."""
    entry = find_model(context.record.model)
    return context.record.harness == "baseline" or (entry is not None and entry.kind == "baseline")


def _whose(twins: tuple[Twin, ...]) -> str:
    if any(not twin.is_same_model for twin in twins):
        return "of another model"
    return (
        "of the same model in another harness or effort"
        if any(not twin.is_same_author for twin in twins)
        else "of the same entrant"
    )


@rule("source.duplicate", "The source is a copy of an earlier run's", "warn")
def check_duplicate(context: Context) -> Iterator[Statement]:
    """Another run of the same problem arrived earlier with the same source.

    Compared are digests of the sources without comments, layout, docstrings and with their own names numbered, so a
    copy with other names is the same. Example: a kernel of one model sent again under another model's name. Sources
    shorter than 120 tokens and our own baselines stay silent, and the later arrival is named, never the earlier
    one.
    """
    copies = context.neighbours.copies
    if not copies or is_baseline(context):
        return
    is_exact = any(twin.is_same_source for twin in copies)
    yield Statement(
        f"The source is {'byte for byte' if is_exact else 'apart from names and comments'} that of an earlier run "
        f"{_whose(copies)}. An auditor should say who wrote it.",
        "solution.py",
        data={"runs": len(copies), "is_exact": is_exact, "whose": _whose(copies)},
    )


@rule("source.near_duplicate", "Much of the source stands in an earlier run's", "warn")
def check_near_duplicate(context: Context) -> Iterator[Statement]:
    """At least 40 percent of the source's runs of three lines occur in one earlier run of the same problem.

    Lines of the deck's own files and lines that dozens of runs share are left out first. Example: a copied kernel with
    a new launcher. Common skeletons overlap by 10 to 15 percent and stay silent.
    """
    similar = context.neighbours.similar
    if not similar or is_baseline(context):
        return
    best = similar[0]
    yield Statement(
        f"{best.share:.0%} of the source's runs of three lines stand in an earlier run {_whose((best,))}; sources "
        "that share only a skeleton stay below 40%.",
        "solution.py",
        data={"share": best.share, "whose": _whose((best,)), "runs": len(similar)},
    )


@rule("source.copies_reference", "Most of the source is the deck's own reference", "warn")
def check_copies_reference(context: Context) -> Iterator[Statement]:
    """At least 80 percent of the source's runs of three lines stand in the problem's reference.

    Example: reference.py handed in with another docstring. A solution that keeps the reference's class and constructor
    shares far less.
    """
    reference = reference_sketch(context.problem.deck, context.problem.id)
    own = sketch_source(context.files)
    if reference is None or own is None or is_baseline(context):
        return
    share = shared_share(own, reference)
    if share >= _COPIED_REFERENCE:
        yield Statement(
            f"{share:.0%} of the source is the reference's.", "solution.py", data={"share": round(share, 3)}
        )


@rule("run.repeated_log", "The benchmark log is another run's", "block")
def check_repeated_log(context: Context) -> Iterator[Statement]:
    """Another run arrived earlier with the same benchmark log, byte for byte, and it is not the same work.

    No two measurements print the same digits throughout. Example: one model's files sent under another model's name, or
    the log of one board under another. Logs with fewer than twelve significant digits of timings are not compared.
    """
    twins = tuple(twin for twin in context.neighbours.same_log if not _is_same_work(twin))
    if twins:
        yield Statement(
            f"benchmark.log is that of an earlier run {_whose(twins)}, byte for byte; it belongs to one run.",
            "benchmark.log",
            data={"runs": len(twins), "whose": _whose(twins)},
        )


@rule("run.resubmitted", "The run was sent before under another run id", "warn")
def check_resubmitted(context: Context) -> Iterator[Statement]:
    """The same entrant sent the same source with the same log, for the same board, under an earlier run id.

    Nothing is gained by it, and a repeat measurement must not be made of it. Example: an archive whose folder was
    renamed.
    """
    if any(_is_same_work(twin) for twin in (*context.neighbours.same_log, *context.neighbours.same_times)):
        yield Statement("Source and timings are those of an earlier run of this entrant; it is the same measurement.")


def _is_same_work(twin: Twin) -> bool:
    return twin.is_same_author and twin.is_same_source and twin.is_same_board


@rule("run.repeated_times", "The timings are another run's, digit for digit", "block")
def check_repeated_times(context: Context) -> Iterator[Statement]:
    """Another run arrived earlier with the same digits in every shape, on this board or another one.

    Example: the times of one GPU's run printed again under another GPU's board. Said where the whole log does not
    already repeat.
    """
    logs = {twin.key for twin in context.neighbours.same_log}
    same = [twin for twin in context.neighbours.same_times if not _is_same_work(twin)]
    twins = tuple(twin for twin in same if twin.key not in logs)
    if twins:
        where = "this board" if all(twin.is_same_board for twin in twins) else "another board"
        yield Statement(
            f"Every printed timing equals that of an earlier run on {where}, in all digits. Two measurements never do.",
            "benchmark.log",
            data={"runs": len(twins), "where": where, "is_same_source": any(twin.is_same_source for twin in twins)},
        )


@rule("check.repeated_seed", "The random part of the check repeats another run's", "warn")
def check_repeated_seed(context: Context) -> Iterator[Statement]:
    """The check draws a new 64-bit seed for every run; an equal one means a replayed or a copied check.

    Example: two runs whose check logs print the same PROPERTY_SEED.
    """
    if context.neighbours.same_seed and context.record.check is not None:
        marker = context.record.check.named("PROPERTY_SEED")[0]
        yield Statement(
            "The check's random seed is that of an earlier run; it is drawn anew for every run.",
            context.record.check.file,
            marker.line,
            {"runs": len(context.neighbours.same_seed)},
        )


@rule("score.spread", "Grades of the same source differ", "note")
def check_spread(context: Context) -> Iterator[Statement]:
    """One source was graded several times on this board for this entrant, and the mean times differ by over 15 percent.

    All grades are kept, and none is chosen for being the best. Example: 0.20 and 0.25 from the same file.
    """
    own = typical_ms(context.score.shapes)
    others = [twin.typical_ms for twin in context.neighbours.repeats if twin.typical_ms]
    if own is None or not others:
        return
    spread = max(own, *others) / min(own, *others) - 1
    if spread > _SPREAD:
        yield Statement(
            f"{len(others) + 1} grades of this source differ by {spread:.0%} in their mean time.",
            "benchmark.log",
            data={"grades": len(others) + 1, "spread": round(spread, 4)},
        )


def typical_ms(shapes: tuple[ShapeScore, ...]) -> float | None:
    """Return the geometric mean of the shapes' times, None unless every shape has one."""
    times = [
        shape.ms.value for shape in shapes if shape.ms is not None and 0 < shape.ms.value and isfinite(shape.ms.value)
    ]
    return exp(sum(map(log, times)) / len(times)) if times and len(times) == len(shapes) else None
