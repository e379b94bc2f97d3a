"""Rules on the headline: does it follow from the run's own lines, and under which peak table?"""

from collections.abc import Iterator

from grading.hardware import load_gpus, peak_rate
from grading.integrity.base import Context, Statement, range_data, range_text, rule
from grading.interval import Interval, NumberError, printed
from grading.score import reported, reported_text

_LINEAR_LIMIT = 1.02
_COARSE = 0.02


def explaining_tables(context: Context) -> list[tuple[str, int, Interval]]:
    """Return the other peak tables under which the recomputed score meets the reported one.

    Each is (GPU key, version, score under that table), this GPU's own older tables first.
    """
    headline, metric = reported(context.record, context.problem), context.problem.metric
    current = peak_rate(context.gpu.current, metric.regime, metric.dtype)
    if headline is None or context.score.value is None or metric.kind != "peak_fraction" or not current:
        return []
    found = []
    for gpu in sorted(load_gpus().values(), key=lambda gpu: gpu.key != context.gpu.key):
        for table in gpu.peaks:
            peak = peak_rate(table, metric.regime, metric.dtype)
            if peak and peak != current and context.score.value.scaled(current / peak).meets(headline):
                found.append((gpu.key, table.version, context.score.value.scaled(current / peak)))
    return found


def agreement(context: Context) -> bool | None:
    """Tell whether the reported headline meets the recomputed interval; None where either is absent."""
    headline = reported(context.record, context.problem)
    if headline is None or context.score.value is None:
        return None
    return headline.meets(context.score.value)


def _explained_by(context: Context, *, own: bool) -> tuple[str, int, Interval] | None:
    if agreement(context) is not False:
        return None
    tables = explaining_tables(context)
    if not tables or (tables[0][0] == context.gpu.key) is not own:
        return None
    return tables[0]


def _table_data(context: Context, table: tuple[str, int, Interval]) -> dict[str, object]:
    metric = context.problem.metric
    peaks = load_gpus()[table[0]].peaks[table[1] - 1]
    return {
        "reported": reported_text(context.record, context.problem),
        "recomputed": range_data(context.score.value),
        "table": {"gpu": table[0], "version": table[1]},
        "table_peak": peak_rate(peaks, metric.regime, metric.dtype),
        "current_peak": peak_rate(context.gpu.current, metric.regime, metric.dtype),
    }


@rule("score.disagrees", "The reported score cannot come from the run's own lines", "block", is_waivable=False)
def check_disagrees(context: Context) -> Iterator[Statement]:
    """The reported headline and the recomputed interval share no value, under this table or any other.

    Example: a headline of 0.1178 over lines that give 0.1152. Score and lines then come from different
    measurements, and only a new grade or the right log can settle it.
    """
    value = context.score.value
    if value is None or agreement(context) is not False or explaining_tables(context):
        return
    text = reported_text(context.record, context.problem)
    yield Statement(
        f"The reported score {text} cannot come from these lines: they give {range_text(value)}, and no peak table "
        "of any GPU explains the difference. Regrade the run or upload the log that the score came from.",
        "result.json",
        data={"reported": text, "recomputed": range_data(value)},
    )


@rule("score.stale_peaks", "The reported score used an older peak table of this GPU", "warn")
def check_stale_peaks(context: Context) -> Iterator[Statement]:
    """Only an older version of this GPU's peaks explains the headline; the recomputed score stands.

    Example: a headline exactly 2.5 times too high from a time when the tensor peak was entered too low. The finding
    names the table and gives the corrected score.
    """
    table, value = _explained_by(context, own=True), context.score.value
    if table is None or value is None:
        return
    data = _table_data(context, table)
    yield Statement(
        f"The reported score {data['reported']} was computed with version {table[1]} of the {table[0]} peaks "
        f"({data['table_peak']:g}); with the current {data['current_peak']:g} the same lines give "
        f"{value.value:.4g} ({range_text(value)}), and that is the score used here.",
        "result.json",
        data=data,
    )


@rule("score.wrong_gpu_peaks", "The reported score used another GPU's peaks", "block")
def check_wrong_gpu_peaks(context: Context) -> Iterator[Statement]:
    """Only the table of another GPU explains the headline: the run may have been graded as that GPU.

    Example: a B200 run scored with the peak of a workstation card, 4.5 times too high. Every table and version is
    tried; an approver must look before the corrected number stands.
    """
    table, value = _explained_by(context, own=False), context.score.value
    if table is None or value is None:
        return
    data = _table_data(context, table)
    yield Statement(
        f"The reported score {data['reported']} fits the peak {data['table_peak']:g} of {table[0]} "
        f"(version {table[1]}), not the {data['current_peak']:g} of {context.gpu.key}; with this board's peak "
        f"the same lines give {value.value:.4g} ({range_text(value)}). Say on which GPU the run was measured.",
        "result.json",
        data=data,
    )


@rule("score.incomplete", "Some shapes have no timing", "block")
def check_incomplete(context: Context) -> Iterator[Statement]:
    """At least one shape has a line and at least one has none.

    Example: five of six shapes, the slowest one left out. A missing shape is missing; it never counts as anything.
    """
    missing = context.score.missing
    if not missing or len(missing) == len(context.score.shapes):
        return
    names = ", ".join(f"{index} ({context.problem.shape_label(index)})" for index in missing)
    yield Statement(
        f"{len(missing)} of {len(context.score.shapes)} shapes have no usable line: {names}. "
        "A score needs all of them; a missing shape is never counted as anything.",
        "benchmark.log",
        data={"missing": list(missing)},
    )


@rule("score.not_recomputable", "No per-shape lines to recompute the score from", "block")
def check_not_recomputable(context: Context) -> Iterator[Statement]:
    """A score or a passed check is claimed, and the archive holds no lines that this metric can use.

    Example: a log that ends in a score and has no per-shape lines. What cannot be recomputed is not shown as a result.
    """
    record = context.record
    is_claimed = record.correct is True or record.score_text is not None
    if not is_claimed or context.score.value is not None or check_has_lines(context):
        return
    yield Statement(
        f"The score {record.score_text or 'of this run'} cannot be recomputed: {context.score.reason}. "
        "Upload the benchmark log with its per-shape lines.",
        "benchmark.log" if record.benchmark else None,
        data={"reported": record.score_text},
    )


def check_has_lines(context: Context) -> bool:
    """Tell whether some but not all shapes have lines; then `score.incomplete` speaks instead."""
    return 0 < len(context.score.missing) < len(context.score.shapes)


@rule("score.above_peak", "A shape is faster than the GPU's peak allows", "block")
def check_above_peak(context: Context) -> Iterator[Statement]:
    """A shape's fraction lies above 1.02 even at the slow end of its interval.

    Example: 1.07 of the memory bandwidth, which turned out to be another card. Some metrics may exceed one, because
    they count work that need not be done or divide by a declared anchor; the problem then says why, and this is a
    note.
    """
    if context.problem.metric.kind not in ("peak_fraction", "throughput", "busbw"):
        return
    reason = context.problem.metric.may_exceed_one
    for shape in context.score.shapes:
        if shape.value is not None and shape.value.low > _LINEAR_LIMIT:
            because = f" This metric may exceed one: {reason}" if reason else " Nothing can run faster than the peak."
            yield Statement(
                f"Shape {shape.index} ({context.problem.shape_label(shape.index)}) reaches {range_text(shape.value)} "
                f"of the {'anchor' if context.problem.metric.kind == 'throughput' else 'peak'}.{because}",
                "benchmark.log",
                shape.clues[0].line if shape.clues else None,
                {"shape": shape.index, "value": range_data(shape.value)},
            )


@rule("score.coarse", "The log's digits leave a wide interval", "note")
def check_coarse(context: Context) -> Iterator[Statement]:
    """A shape's time is known to worse than 2 percent; ranks inside the interval are ties.

    Example: 0.012 ms with three decimals. Event lines with six decimals would narrow it.
    """
    for shape in context.score.shapes:
        if shape.ms is not None and shape.conflict is None and shape.ms.relative_half_width > _COARSE:
            yield Statement(
                f"The printed digits of shape {shape.index} leave {range_text(shape.ms)} ms; event lines with six "
                "decimals would narrow it.",
                "benchmark.log",
                shape.clues[0].line if shape.clues else None,
                {"shape": shape.index, "ms": range_data(shape.ms)},
            )


@rule("score.differs_from_log", "The record and the log report different scores", "block")
def check_differs_from_log(context: Context) -> Iterator[Statement]:
    """The headline in result.json is not the log's own headline at the printed precision.

    Example: 0.4090 in result.json and ``peak_fraction: 0.3916`` in the log: the files are of two passes.
    """
    record, problem = context.record, context.problem
    name = "speedup" if record.benchmark is not None and record.benchmark.named("speedup") else "peak_fraction"
    markers = record.benchmark.named(name) if record.benchmark is not None else ()
    if len(markers) != 1 or record.score_text is None:
        return
    try:
        in_log = printed(markers[0].text)
        in_result = printed(record.score_text, places=problem.metric.decimals)
    except NumberError:
        return
    if not in_log.meets(in_result):
        yield Statement(
            f"result.json reports {record.score_text}, the log's own {name} line says {markers[0].text}. "
            "They come from different passes: upload the files of one pass.",
            "benchmark.log",
            markers[0].line,
            {"result": record.score_text, "log": markers[0].text},
        )
