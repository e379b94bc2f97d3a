"""Rules on regrades and on time that was shared: which pass do score and lines come from, and was the GPU its own?

Source: docs/method.md "Findings".
"""

import datetime
import re
from collections.abc import Iterator

from grading.integrity.base import Context, Statement, range_text, rule
from grading.integrity.provenance import environment_of
from grading.interval import NumberError, printed
from grading.moments import events_of, parse_time, span_of
from grading.record import Regrade

_ISOLATED = "sequential_isolated"
_RECEIPT = datetime.timedelta(seconds=300)
_SPARE_SECONDS = 600
_LOCK_EVENT = re.compile(rb"^(\S{19,40}) (start|end|lock_timeout) pid=([0-9]{1,10})\b", re.MULTILINE)


@rule("timing.contended", "The time was taken while other work used the GPU", "warn")
def check_contended(context: Context) -> Iterator[Statement]:
    """A time that can be ranked was taken alone on its GPU.

    Said where a regrade names another mode than the isolated one, where the grader recorded that it was not alone,
    where the lock log shows two commands at once, or where another run's benchmark on the same device overlaps this
    one. Example: two runs of one host whose event times cross. A wait for the lock is no overlap.
    """
    regrade = context.record.regrade
    if regrade is not None and regrade.mode != _ISOLATED:
        yield Statement(
            f"The regrade's mode is {regrade.mode!r}; need {_ISOLATED!r} for a time that can be ranked.",
            "result.json",
            data={"mode": regrade.mode},
        )
    if environment_of(context).get("is_benchmark_alone") is False:
        yield Statement("The grader recorded that other work used the GPU during the benchmark.", "environment.json")
    yield from _overlapping_locks(context)
    for twin in context.neighbours.overlapping[:1]:
        others = len(context.neighbours.overlapping)
        yield Statement(
            f"The benchmark overlaps with that of {others} other run{'s' if others > 1 else ''} on the same device.",
            "benchmark.log",
            data={"others": others, "is_same_board": twin.is_same_board},
        )


def _overlapping_locks(context: Context) -> Iterator[Statement]:
    """Report the first command that began under the lock while another one held it."""
    data = context.files.get("gpu_lock.log", b"")
    holder: bytes | None = None
    for match in _LOCK_EVENT.finditer(data):
        kind, pid = match[2], match[3]
        if kind == b"start" and holder not in (None, pid):
            line = data.count(b"\n", 0, match.start()) + 1
            yield Statement("Two commands held the GPU lock at once.", "gpu_lock.log", line)
            return
        if kind == b"start":
            holder = pid
        elif kind == b"end" and pid == holder:
            holder = None


@rule("regrade.mixed_passes", "Score and lines come from different passes", "block")
def check_mixed_passes(context: Context) -> Iterator[Statement]:
    """After a regrade, score and benchmark.log must both be the regrade's; the first pass is kept under its own name.

    Said where the lines reproduce the first, contended score and not the regrade's, or where benchmark.log is the kept
    first log byte for byte. Example: the regrade gives 0.4090, the lines give 0.3916, and so did the first pass.
    """
    regrade, value = context.record.regrade, context.score.value
    if regrade is None:
        return
    digests = {entry.path: entry.digest for entry in context.record.files}
    kept = digests.get("benchmark.contended.log")
    if kept is not None and kept == digests.get("benchmark.log"):
        yield Statement(
            "benchmark.log is the kept log of the first pass, byte for byte. Upload the regrade's log.", "benchmark.log"
        )
        return
    if regrade.contended_score_text is None or value is None:
        return
    try:
        first = printed(regrade.contended_score_text, places=context.problem.metric.decimals)
        current = printed(context.record.score_text or "", places=context.problem.metric.decimals)
    except NumberError:
        return
    if first.meets(value) and not current.meets(value):
        yield Statement(
            f"The lines give {range_text(value)}: that is the contended pass ({regrade.contended_score_text}), "
            f"not the regrade's {context.record.score_text}. Upload the regrade's log.",
            "benchmark.log",
            data={"contended": regrade.contended_score_text, "regrade": context.record.score_text},
        )


@rule("regrade.incomplete", "The regrade's own record is not whole", "block")
def check_incomplete(context: Context) -> Iterator[Statement]:
    """A regrade replaces values, so it says when, where, on which device and how, and keeps the first ones.

    It must lie after the run's end and before the archive's arrival, and the log must be the regrade's by its own event
    times. Example: a regrade block without a host, or one dated before the run ended.
    """
    regrade = context.record.regrade
    if regrade is None:
        return
    missing = [name for name in ("at", "host", "gpu_index", "gpu_name", "mode") if getattr(regrade, name) in (None, "")]
    if not regrade.has_contended:
        missing.append("contended")
    if missing:
        yield Statement(
            f"The regrade block lacks {', '.join(missing)}; a replaced score needs all of them.",
            "result.json",
            data={"missing": missing},
        )
    at = parse_time(regrade.at or "")
    if regrade.at and at is None:
        yield Statement("regrade.at is no time with an offset.", "result.json")
    if at is not None:
        yield from _wrong_moment(context, at)
        yield from _log_of_another_pass(context, regrade, at)


def _wrong_moment(context: Context, at: datetime.datetime) -> Iterator[Statement]:
    finished = context.record.finished_at
    if finished is not None and at < finished:
        yield Statement(f"regrade.at is {at.isoformat()}, before the run ended.", "result.json")
    if context.received_at is not None and at > context.received_at + _RECEIPT:
        yield Statement(f"regrade.at is {at.isoformat()}, after the archive arrived.", "result.json")


def _log_of_another_pass(context: Context, regrade: Regrade, at: datetime.datetime) -> Iterator[Statement]:
    """Report a log whose events do not lie in the time that the regrade took."""
    moments = [event.at for event in events_of(context.record.benchmark) if event.at is not None and event.is_zoned]
    span = span_of(moments)
    if span is None:
        return
    seconds = (context.record.check_elapsed_seconds or 0) + (context.record.benchmark_elapsed_seconds or 0)
    earliest = at - datetime.timedelta(seconds=seconds + _SPARE_SECONDS)
    if span[1] > at or span[0] < earliest:
        yield Statement(
            f"The log's events lie between {span[0].isoformat()} and {span[1].isoformat()}; the regrade of "
            f"{regrade.at} cannot have written them.",
            "benchmark.log",
            data={"first": span[0].isoformat(), "last": span[1].isoformat(), "regrade_at": regrade.at},
        )
