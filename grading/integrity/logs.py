"""Rules on the logs as texts: absent, malformed, forged."""

import re
from collections.abc import Iterator

from grading.integrity.base import Context, Statement, rule
from grading.record import Log

_ONLY_SAYS_PASS = re.compile(r"marker glued to other text: (?!.*(?:FAIL|RESULT|=|:\s*[0-9]|score|fraction)).*\bPASS\b")
_SCORED = ("peak_fraction", "speedup", "geomean_speedup_vs_eager", "steps_per_second")


def _logs(context: Context) -> Iterator[Log]:
    for log in (context.record.benchmark, context.record.check):
        if log is not None:
            yield log


@rule("log.missing", "A log is not in the archive", "warn")
def check_missing(context: Context) -> Iterator[Statement]:
    """The run claims a score, and the log that would show it was not archived.

    Example: a result.json with 0.0446 and no benchmark.log. The number cannot be followed to a measurement.
    """
    if context.record.benchmark is None and context.record.score_text is not None:
        yield Statement(
            f"The archive reports {context.record.score_text} and holds no benchmark.log.",
            "result.json",
            data={"file": "benchmark.log"},
        )


@rule("log.malformed", "A line of a log breaks the grammar", "warn")
def check_malformed(context: Context) -> Iterator[Statement]:
    """A line looks like a result and does not match it as a whole, so it is not used.

    Example: ``ms=nan``, ``ms=1e400``, or digits of another script. Other output is passed over in silence, also where a
    sentence holds the word PASS: whether the check passed is told by its own line.
    """
    for log in _logs(context):
        for fault in log.faults:
            if not fault.is_hostile and not _ONLY_SAYS_PASS.match(fault.reason):
                yield Statement(f"{log.file} line {fault.line}: {fault.reason}.", log.file, fault.line)


@rule("log.forged", "A log holds markers that no harness writes", "block")
def check_forged(context: Context) -> Iterator[Statement]:
    """A deciding line is repeated or carries control characters: it is never taken.

    Example: a second ``peak_fraction:`` line that the solution printed itself. Neither the first nor the last is
    chosen: a marker that does not stand exactly once counts for nothing.
    """
    for log in _logs(context):
        for fault in log.faults:
            if fault.is_hostile:
                yield Statement(f"{log.file} line {fault.line}: {fault.reason}.", log.file, fault.line)
    benchmark = context.record.benchmark
    for name in _SCORED if benchmark is not None else ():
        markers = benchmark.named(name) if benchmark is not None else ()
        if len(markers) > 1 and benchmark is not None:
            shown = " and ".join(f"{marker.text} (line {marker.line})" for marker in markers[:3])
            yield Statement(
                f"The score marker {name} stands {len(markers)} times: {shown}. "
                "The harness writes it once; none is taken.",
                benchmark.file,
                markers[1].line,
                {"marker": name, "lines": [marker.line for marker in markers]},
            )
    yield from _repeated_pass(context.record.check)


def _repeated_pass(check: Log | None) -> Iterator[Statement]:
    passes = check.named("PASS") if check is not None else ()
    if check is not None and len(passes) > 1:
        yield Statement(
            f"PASS stands {len(passes)} times (lines {', '.join(str(marker.line) for marker in passes[:5])}); "
            "the harness writes it once.",
            check.file,
            passes[1].line,
            {"marker": "PASS", "lines": [marker.line for marker in passes]},
        )


@rule("log.order", "A shape line stands after the score", "block")
def check_order(context: Context) -> Iterator[Statement]:
    """The harness prints the score last; a solution line behind it was printed by something else.

    Example: a result line of shape 1 after ``peak_fraction:``.
    """
    benchmark = context.record.benchmark
    scored = [marker for name in _SCORED for marker in benchmark.named(name)] if benchmark is not None else []
    if benchmark is None or not scored or context.problem.metric.aggregate == "best":
        return
    first = min(marker.line for marker in scored)
    for measurement in benchmark.measurements:
        if measurement.readings and measurement.readings[0].line > first:
            yield Statement(
                f"Line {measurement.readings[0].line} gives shape {measurement.shape} after the score on line {first}.",
                benchmark.file,
                measurement.readings[0].line,
                {"shape": measurement.shape, "score_line": first},
            )
            return
