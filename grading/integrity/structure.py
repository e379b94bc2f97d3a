"""Rules on the build of a benchmark log: pairs of events, the order of shapes, and what the last lines say.

Source: docs/method.md "Findings".
"""

import math
from collections.abc import Iterator

from grading.integrity.base import Context, Statement, range_data, range_text, rule
from grading.integrity.scores import agreement
from grading.interval import Interval, NumberError, geometric_mean, printed
from grading.moments import Event, events_of
from grading.record import Log, Measurement
from grading.score import reported, reported_text

_VARIANTS = frozenset({"solution", "eager", "compiled", "sota", "eager_ref", "anchor", "baseline"})
_AFTER_SCORE = frozenset({"RESULT", "WARN", "peak_sps", "agent_exit", "agent_done", "check", "device", "launcher"})
_HEADLINES = ("peak_fraction", "speedup", "geomean_speedup_vs_eager", "steps_per_second")


@rule("log.events", "The log's event lines are not whole", "block")
def check_events(context: Context) -> Iterator[Statement]:
    """Every variant of every shape begins once and ends once, the solution before the baselines, none with an error.

    Only logs that have event lines are judged. Example: an end event without its start, or a solution that ends in an
    error and still has a result line.
    """
    benchmark, events = context.record.benchmark, events_of(context.record.benchmark)
    if benchmark is None or not events:
        return
    for fault, event in (*_unpaired(events), *_odd_variants(events), *_late_solution(events)):
        yield Statement(f"Shape {event.shape} ({event.variant}): {fault}.", benchmark.file, event.line)


def _unpaired(events: tuple[Event, ...]) -> Iterator[tuple[str, Event]]:
    open_events: dict[tuple[str, str], Event] = {}
    closed: set[tuple[str, str]] = set()
    for event in events:
        key = (event.shape, event.variant)
        if event.name == "start":
            if key in open_events or key in closed:
                yield "starts twice", event
            open_events[key] = event
        elif key not in open_events:
            yield f"has an {event.name} event and no start", event
        else:
            del open_events[key]
            closed.add(key)
    yield from (("starts and never ends", event) for event in open_events.values())


def _odd_variants(events: tuple[Event, ...]) -> Iterator[tuple[str, Event]]:
    for event in events:
        if event.variant not in _VARIANTS and event.name == "start":
            yield f"no deck times such a variant; accepted are {', '.join(sorted(_VARIANTS))}", event
        if event.name == "error" and event.variant == "solution":
            yield "the solution ended with an error", event


def _late_solution(events: tuple[Event, ...]) -> Iterator[tuple[str, Event]]:
    seen: set[str] = set()
    for event in events:
        if event.name != "start":
            continue
        if event.variant == "solution" and event.shape in seen:
            yield "another variant was timed before the solution", event
        seen.add(event.shape)


@rule("shape.order", "The log's shapes are not in order", "block")
def check_order(context: Context) -> Iterator[Statement]:
    """The harness times shapes in the problem's order; a line out of order was written by something else.

    Example: the result line of shape 2 before that of shape 1.
    """
    benchmark = context.record.benchmark
    for source in ("line", "event", "fraction"):
        last = -1
        for item in _solution_items(benchmark, source):
            index = context.problem.shape_index(item.shape)
            if index is None or benchmark is None:
                continue
            if index < last:
                line = item.readings[0].line
                yield Statement(f"Shape {index} stands after shape {last}.", benchmark.file, line, {"shape": index})
                return
            last = index


def _solution_items(log: Log | None, source: str) -> Iterator[Measurement]:
    for item in log.measurements if log is not None else ():
        if item.source == source and item.variant == "solution" and item.readings:
            yield item


@rule("shape.fraction_missing", "Some shapes have no fraction line", "warn")
def check_fraction_missing(context: Context) -> Iterator[Statement]:
    """The harness prints one fraction for every shape that it timed.

    A log that has fraction lines for some shapes and none for others was cut or edited. Example: rates of five shapes
    and fractions of four. Logs without any fraction lines are older ones and stay silent.
    """
    benchmark, problem = context.record.benchmark, context.problem
    if benchmark is None or problem.metric.kind != "peak_fraction":
        return
    timed = {problem.shape_index(item.shape) for item in _solution_items(benchmark, "line")} - {None}
    printed_for = {problem.shape_index(item.shape) for item in _solution_items(benchmark, "fraction")} - {None}
    missing = sorted(index for index in timed - printed_for if index is not None)
    if printed_for and missing:
        yield Statement(
            f"Shape {', '.join(map(str, missing))} has a rate and no fraction line; the other shapes have both.",
            benchmark.file,
            data={"missing": missing},
        )


@rule("log.no_score", "The log ends without a score line", "warn")
def check_no_score(context: Context) -> Iterator[Statement]:
    """A score is reported and the benchmark log has result lines but no score line.

    The number then comes from somewhere else. Example: a log that stops after the last shape, with a score in
    result.json. Also said where something that only comes earlier stands after the score.
    """
    benchmark = context.record.benchmark
    if benchmark is None or context.record.score_text is None:
        return
    scored = [marker for name in _HEADLINES for marker in benchmark.named(name)]
    has_lines = any(item.variant == "solution" for item in benchmark.measurements)
    if not scored and has_lines:
        yield Statement(
            f"The archive reports {context.record.score_text}; its log has shape lines and no score line.",
            benchmark.file,
            data={"reported": context.record.score_text},
        )
    last = max((marker.line for marker in scored), default=None)
    for marker in benchmark.markers if last is not None and benchmark.file != "meta.log" else ():
        if last is not None and marker.line > last and marker.name not in _AFTER_SCORE | set(_HEADLINES):
            yield Statement(f"{marker.name} stands after the score.", benchmark.file, marker.line)
            return


@rule("log.result_word", "The log's RESULT word does not follow from its score", "note")
def check_result_word(context: Context) -> Iterator[Statement]:
    """The deck prints OK at or above its threshold and LOW below; the word itself decides nothing.

    Example: RESULT: OK under a score of 0.02 where the deck asks for 0.1.
    """
    benchmark, threshold = context.record.benchmark, context.problem.timing.result_ok
    words = benchmark.named("RESULT") if benchmark is not None else ()
    headline = reported(context.record, context.problem)
    if threshold is None or len(words) != 1 or headline is None or words[0].text not in ("OK", "LOW"):
        return
    is_ok = words[0].text == "OK"
    if (is_ok and headline.high < threshold) or (not is_ok and headline.low >= threshold):
        yield Statement(
            f"RESULT is {words[0].text}; the score {reported_text(context.record, context.problem)} against the deck's "
            f"{threshold:g} gives {'LOW' if is_ok else 'OK'}.",
            "benchmark.log",
            words[0].line,
            {"threshold": threshold, "reported": range_data(headline)},
        )


@rule("score.differs_from_fractions", "The reported score is not the mean of the log's own fractions", "block")
def check_differs_from_fractions(context: Context) -> Iterator[Statement]:
    """The geometric mean of the printed fractions must hold the reported score, whatever the rates say.

    Said where the rates alone do not show a disagreement already. Example: fractions that give 0.39 under a headline of
    0.41 that the rates reproduce: the fraction lines were edited or come from another pass.
    """
    headline, value = reported(context.record, context.problem), mean_of_fractions(context)
    if headline is None or value is None or agreement(context) is False or headline.meets(value):
        return
    text = reported_text(context.record, context.problem)
    yield Statement(
        f"The reported score {text} is not the mean of the printed fractions: they give {range_text(value)}. Score and "
        "fraction lines come from different passes.",
        "benchmark.log",
        data={"reported": text, "from_fractions": range_data(value)},
    )


def mean_of_fractions(context: Context) -> Interval | None:
    """Return the score that the printed fraction lines give, or None unless every shape has exactly one."""
    problem, parts = context.problem, {}
    if problem.metric.kind != "peak_fraction":
        return None
    for item in _solution_items(context.record.benchmark, "fraction"):
        index = problem.shape_index(item.shape)
        if index is None or index in parts or item.readings[0].quantity != "fraction":
            return None
        try:
            parts[index] = printed(item.readings[0].text).clamped(problem.metric.clamp)
        except NumberError:
            return None
    if len(parts) != len(problem.shapes):
        return None
    mean = geometric_mean(parts.values())
    return mean if math.isfinite(mean.value) else None
