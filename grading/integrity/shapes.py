"""Rules on single shapes: contradictions between their lines, repeats, and physics."""

from collections.abc import Iterator

from grading.integrity.base import Context, Statement, range_data, range_text, rule
from grading.interval import NumberError, printed

_ABOVE_FLOOR = 1.03
_NEAR_FLOOR = 0.92
_LAUNCH_MS = 0.002


@rule("shape.inconsistent", "Two numbers of one shape contradict each other", "block")
def check_inconsistent(context: Context) -> Iterator[Statement]:
    """Two readings of one shape, turned into times by the deck's formulas, share no value.

    Every printed number stands for the values that round to it. Example: ``ms=0.100`` beside a rate that only 0.102 ms
    can give. One of the two was not printed from this measurement.
    """
    for shape in context.score.shapes:
        if shape.conflict is None:
            continue
        first, second = shape.conflict
        yield Statement(
            f"Shape {shape.index}: {first.quantity}={first.text} means {range_text(first.interval)} ms, "
            f"{second.quantity}={second.text} means {range_text(second.interval)} ms. One of them was not printed "
            "from this measurement.",
            "benchmark.log",
            second.line,
            {
                "shape": shape.index,
                "first": [first.quantity, first.text, *(range_data(first.interval) or [])],
                "second": [second.quantity, second.text, *(range_data(second.interval) or [])],
            },
        )


@rule("shape.duplicate", "A shape has more than one result line", "block")
def check_duplicate(context: Context) -> Iterator[Statement]:
    """The log gives one shape of one variant twice; no line is preferred.

    Example: shape 1 first with 0.300 ms and then with 0.100 ms.
    """
    if context.record.benchmark is None:
        return
    seen: dict[tuple[str, str, str], tuple[str, int]] = {}
    for measurement in context.record.benchmark.measurements:
        if measurement.source == "trial" or not measurement.readings:
            continue
        key = (measurement.shape, measurement.variant, measurement.source)
        reading = measurement.readings[0]
        if key in seen:
            first = seen[key]
            yield Statement(
                f"Shape {key[0]} ({key[1]}, {key[2]}) is given twice: {first[0]} on line {first[1]} and "
                f"{reading.quantity}={reading.text} on line {reading.line}. Neither is taken.",
                context.record.benchmark.file,
                reading.line,
                {"shape": key[0], "variant": key[1], "lines": [first[1], reading.line]},
            )
        else:
            seen[key] = (f"{reading.quantity}={reading.text}", reading.line)


@rule("shape.unknown", "The log times a shape that the problem does not have", "block")
def check_unknown(context: Context) -> Iterator[Statement]:
    """A solution line names a shape outside the problem.

    Example: shape 9 of a problem with five shapes: another version was timed, or an easy shape was added.
    """
    if context.record.benchmark is None:
        return
    for measurement in context.record.benchmark.measurements:
        if measurement.source != "trial" and measurement.variant == "solution" and measurement.readings:
            if context.problem.shape_index(measurement.shape) is None:
                yield Statement(
                    f"Shape {measurement.shape} is not in {context.problem.key}; it has "
                    f"{len(context.problem.shapes)} shapes. Was another version of the problem timed?",
                    context.record.benchmark.file,
                    measurement.readings[0].line,
                    {"shape": measurement.shape},
                )


@rule("shape.below_floor", "A shape is faster than physics allows", "block")
def check_below_floor(context: Context) -> Iterator[Statement]:
    """The time lies under the true floor (unavoidable bytes or operations at peak) by more than 3 percent.

    The floor counts what no correct kernel avoids, not what the deck's formula credits. Example: 0.292 ms for bytes
    that take 0.313 ms at full bandwidth: another GPU, or work left out.
    """
    for shape in context.score.shapes:
        share = shape.share_of_attainable
        if share is not None and shape.ms is not None and share.low > _ABOVE_FLOOR:
            yield Statement(
                f"Shape {shape.index} ({context.problem.shape_label(shape.index)}) takes {range_text(shape.ms)} ms; "
                f"the {shape.floor_bound} that no correct kernel avoids take {shape.floor_ms:.4g} ms on "
                f"{context.gpu.key}.",
                "benchmark.log",
                shape.clues[0].line,
                {"shape": shape.index, "floor_ms": shape.floor_ms, "ms": range_data(shape.ms)},
            )


@rule("shape.near_floor", "A shape is within 8 percent of the physical floor", "warn")
def check_near_floor(context: Context) -> Iterator[Statement]:
    """Utilisation of the true floor above 0.92 was never seen in honest results: read the kernel first.

    Example: 0.95 of what is attainable. It may be a very good kernel, or data that stayed in the cache.
    """
    for shape in context.score.shapes:
        share = shape.share_of_attainable
        if share is not None and _NEAR_FLOOR < share.low <= _ABOVE_FLOOR:
            yield Statement(
                f"Shape {shape.index} reaches {share.low:.3f} of what is attainable; honest kernels have stayed below "
                f"{_NEAR_FLOOR}. An auditor should say how.",
                "benchmark.log",
                shape.clues[0].line,
                {"shape": shape.index, "share": range_data(share)},
            )


@rule("shape.below_launch", "A call is shorter than a kernel launch", "block")
def check_below_launch(context: Context) -> Iterator[Statement]:
    """One event-timed call took less than 2 microseconds, which no launch does.

    Example: 0.001 ms: the work was done before the clock started or after it stopped.
    """
    if context.problem.timing.method != "deck":
        return
    for shape in context.score.shapes:
        if shape.ms is not None and shape.conflict is None and shape.ms.high < _LAUNCH_MS:
            yield Statement(
                f"Shape {shape.index} takes {range_text(shape.ms)} ms per call; an empty launch takes longer. "
                "The work was not inside the timed region.",
                "benchmark.log",
                shape.clues[0].line,
                {"shape": shape.index, "ms": range_data(shape.ms)},
            )


@rule("shape.fraction_disagrees", "A printed fraction does not follow from its shape's rate", "warn")
def check_fraction_disagrees(context: Context) -> Iterator[Statement]:
    """The log's fraction line and this table's fraction of the same shape share no value.

    Example: fractions printed with an older peak table, all 2.5 times too high. The recomputed fraction stands.
    """
    if context.record.benchmark is None or context.problem.metric.kind != "peak_fraction":
        return
    for measurement in context.record.benchmark.measurements:
        index = context.problem.shape_index(measurement.shape)
        if measurement.source != "fraction" or index is None:
            continue
        reading, value = measurement.readings[0], context.score.shapes[index].value
        if reading.quantity != "fraction" or value is None:
            continue
        try:
            fraction = printed(reading.text)
        except NumberError:
            continue
        if not fraction.meets(value):
            yield Statement(
                f"Shape {index}: the log prints the fraction {reading.text}; its own rate gives {range_text(value)} "
                f"with the current peaks of {context.gpu.key}.",
                context.record.benchmark.file,
                reading.line,
                {"shape": index, "printed": reading.text, "recomputed": range_data(value)},
            )
