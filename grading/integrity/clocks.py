"""Rules on time: do the moments and durations that a run states fit each other?

Source: docs/method.md "Findings".
"""

import datetime
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from grading.integrity.base import Context, Statement, rule
from grading.interval import Interval, NumberError, printed
from grading.moments import Event, events_of, parse_time
from grading.record import RUN_ID, Measurement, Record

_START_SECONDS = 120
_RECEIPT_SECONDS = 300
_EVENT_SECONDS = 0.05
_SLACK_SECONDS = 2


@rule("run.start_mismatch", "The run id and the recorded start tell different times", "warn")
def check_start_mismatch(context: Context) -> Iterator[Statement]:
    """The stamp in the run id is the start in the launching machine's local time.

    It may differ from the recorded start by two minutes, read in the record's own offset or in UTC. Example: an id
    that begins with 20260701_120000 and a start at 09:30 UTC on the same day. A session of one machine was filed
    under the id of another, or the file was edited.
    """
    match, started = RUN_ID.fullmatch(context.record.key.run_id), context.record.started_at
    if match is None or started is None:
        return
    try:
        stamp = datetime.datetime.strptime(match.group(1), "%Y%m%d_%H%M%S").replace(tzinfo=datetime.UTC)
    except ValueError:
        return
    local = started.replace(tzinfo=datetime.UTC)
    nearest = min(abs((stamp - moment).total_seconds()) for moment in (local, started))
    if nearest > _START_SECONDS:
        yield Statement(
            f"The run id says {match.group(1)}; started_at is {started.isoformat()}, {nearest:.0f} seconds away.",
            "result.json",
            data={"run_id": match.group(1), "started_at": started.isoformat(), "seconds": nearest},
        )


@rule("run.impossible_times", "The run's times cannot all be true", "block")
def check_impossible_times(context: Context) -> Iterator[Statement]:
    """Start, end of the agent and end of the run must follow each other, and durations must be their differences.

    Nothing may lie after the archive was received (five minutes are allowed for clocks). Example: a run that ended
    at 14:00, started at 13:00 and lasted 200 seconds. Times in seconds since 1970 and written times must agree to a
    second.
    """
    times = _Times(context.record)
    yield from _order(times)
    yield from _durations(context.record, times)
    yield from _written(context.record, times)
    if context.received_at is not None:
        limit = context.received_at.timestamp() + _RECEIPT_SECONDS
        for name, value in times.known():
            if value > limit:
                yield _times_statement(
                    f"{name} lies {value - limit + _RECEIPT_SECONDS:.0f} seconds after the archive arrived"
                )


class _Times:
    """The moments that a record states, in seconds since 1970."""

    def __init__(self, record: Record) -> None:
        self.start = _epoch(record, "start_epoch")
        self.agent_end = _epoch(record, "harness_end_epoch")
        self.end = _epoch(record, "end_epoch")
        self.started_at = record.started_at.timestamp() if record.started_at else None
        self.finished_at = record.finished_at.timestamp() if record.finished_at else None

    def known(self) -> Iterator[tuple[str, float]]:
        names = ("start_epoch", "harness_end_epoch", "end_epoch", "started_at", "finished_at")
        for name, value in zip(
            names, (self.start, self.agent_end, self.end, self.started_at, self.finished_at), strict=True
        ):
            if value is not None:
                yield name, value


def _epoch(record: Record, name: str) -> float | None:
    text = record.extra.get(name)
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 13 else None


def _times_statement(message: str) -> Statement:
    return Statement(f"{message}. Which of them is wrong must be known before this time can be trusted.", "result.json")


def _order(times: _Times) -> Iterator[Statement]:
    steps = [("start_epoch", times.start), ("harness_end_epoch", times.agent_end), ("end_epoch", times.end)]
    known = [(name, value) for name, value in steps if value is not None]
    for (name, value), (later_name, later) in pairwise(known):
        if value > later:
            yield _times_statement(f"{name} is {value:.0f} and {later_name} is {later:.0f}, which is earlier")
    if times.started_at is not None and times.finished_at is not None and times.started_at > times.finished_at:
        yield _times_statement("finished_at lies before started_at")


def _durations(record: Record, times: _Times) -> Iterator[Statement]:
    pairs = (
        ("elapsed_seconds", record.elapsed_seconds, times.start, times.agent_end),
        ("total_elapsed_seconds", record.total_elapsed_seconds, times.start, times.end),
    )
    for name, said, first, last in pairs:
        if said is not None and first is not None and last is not None and abs(last - first - said) > 1:
            yield _times_statement(f"{name} is {said}; the moments it spans are {last - first:.0f} seconds apart")
    graded = (record.check_elapsed_seconds or 0) + (record.benchmark_elapsed_seconds or 0)
    if times.agent_end is not None and times.end is not None and record.regrade is None:
        passed = times.end - times.agent_end
        if passed < graded - _SLACK_SECONDS:
            yield _times_statement(
                f"check and benchmark took {graded} seconds; {passed:.0f} passed after the agent's end"
            )
    total, agent = record.total_elapsed_seconds, record.elapsed_seconds
    if total is not None and agent is not None and total < agent:
        yield _times_statement(f"total_elapsed_seconds is {total}, less than the session's {agent}")


def _written(record: Record, times: _Times) -> Iterator[Statement]:
    pairs = (("started_at", times.started_at, times.start), ("finished_at", times.finished_at, times.end))
    for name, written, epoch in pairs:
        if written is not None and epoch is not None and abs(written - epoch) > 1:
            yield _times_statement(f"{name} and its seconds since 1970 are {abs(written - epoch):.0f} seconds apart")
    agent_end = parse_time(record.extra.get("harness_finished_at", ""))
    if agent_end is not None and times.agent_end is not None and abs(agent_end.timestamp() - times.agent_end) > 1:
        yield _times_statement("harness_finished_at and harness_end_epoch differ by more than a second")


@rule("log.impossible_events", "The log's event times cannot be true", "block")
def check_impossible_events(context: Context) -> Iterator[Statement]:
    """Event times never run backwards, span the seconds that the end event prints, and leave room for the timed calls.

    At least half of the timed calls take the median or longer, so a variant of N calls lasts at least half of N
    medians. Example: an end event that prints elapsed_s=0.001 and ms=1.0 for thirty calls. Tolerances follow from
    the printed digits of each number, and a time without fractions is only good to a second.
    """
    events = [event for event in events_of(context.record.benchmark) if event.at is not None]
    for before, after in pairwise(events):
        if before.at and after.at and (before.at - after.at).total_seconds() > before.resolution_s + after.resolution_s:
            yield _event_statement(context, after, f"line {after.line} is dated before line {before.line}")
            break
    for measurement in _timed_events(context):
        yield from _too_short(context, measurement)
        yield from _not_spanned(context, measurement, events)


def _timed_events(context: Context) -> list[Measurement]:
    benchmark = context.record.benchmark
    return [item for item in benchmark.measurements if item.source == "event"] if benchmark is not None else []


def _readings(measurement: Measurement) -> tuple[Interval, Interval, int] | None:
    """Return elapsed seconds, milliseconds per call and the line of an end event."""
    found = {reading.quantity: reading for reading in measurement.readings}
    if "elapsed_s" not in found or "ms" not in found:
        return None
    try:
        return printed(found["elapsed_s"].text), printed(found["ms"].text), found["ms"].line
    except NumberError:
        return None


def _too_short(context: Context, measurement: Measurement) -> Iterator[Statement]:
    read, trials = _readings(measurement), context.problem.timing.trials
    if read is None or context.problem.timing.statistic != "median" or measurement.variant != "solution":
        return
    elapsed, ms, line = read
    least = (trials - trials // 2) * ms.low / 1e3
    if elapsed.high < least - 0.001:
        yield Statement(
            f"Shape {measurement.shape} lasted {elapsed.value:g} seconds; {trials} calls with a median of "
            f"{ms.value:g} ms take at least {least:.3g}.",
            context.record.benchmark.file if context.record.benchmark else None,
            line,
            {"shape": measurement.shape, "elapsed_s": elapsed.value, "least_s": least},
        )


def _not_spanned(context: Context, measurement: Measurement, events: list[Event]) -> Iterator[Statement]:
    read = _readings(measurement)
    mine = [item for item in events if (item.shape, item.variant) == (measurement.shape, measurement.variant)]
    starts = [item for item in mine if item.name == "start"]
    ends = [item for item in mine if item.name == "end"]
    if read is None or len(starts) != 1 or len(ends) != 1:
        return
    first, last = starts[0], ends[0]
    if first.at is None or last.at is None:
        return
    elapsed, span = read[0], (last.at - first.at).total_seconds()
    slack = _EVENT_SECONDS + first.resolution_s + last.resolution_s
    if not elapsed.low - slack <= span <= elapsed.high + slack:
        yield _event_statement(
            context,
            last,
            f"shape {last.shape} ({last.variant}) spans {span:.3f} seconds and prints {elapsed.value:g}",
        )


def _event_statement(context: Context, event: Event, what: str) -> Statement:
    file = context.record.benchmark.file if context.record.benchmark else "benchmark.log"
    return Statement(f"The event times contradict each other: {what}.", file, event.line, msgspec.to_builtins(event))


@rule("log.outlasts_run", "The log's timings last longer than the benchmark", "block")
def check_outlasts_run(context: Context) -> Iterator[Statement]:
    """The seconds of all variants together must fit into the seconds that the benchmark took, plus one.

    Example: variants of 40 seconds in a benchmark of 25. The log then comes from another run than the record.
    """
    limit = context.record.benchmark_elapsed_seconds
    spans = [read[0] for item in _timed_events(context) if (read := _readings(item)) is not None]
    if limit is None or not spans:
        return
    least = sum(span.low for span in spans)
    if least > limit + 1:
        yield Statement(
            f"The log's variants took at least {least:.1f} seconds together; the benchmark is recorded with {limit}.",
            "benchmark.log",
            data={"variants_s": least, "benchmark_elapsed_seconds": limit},
        )
