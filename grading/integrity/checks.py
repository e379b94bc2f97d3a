"""Rules on correctness: the check's verdict, and whether the check was whole.

Source: docs/method.md "Findings".
"""

import datetime
from collections.abc import Iterator

from grading.conduct import deeds_of
from grading.integrity.base import Context, Statement, rule
from grading.integrity.provenance import environment_of
from grading.record import RUN_ID
from grading.source.facts import read_python
from grading.source.files import python_files
from grading.transcript import transcripts_in

STRESS_SWITCH = "KBH_NUMERIC_STRESS"
_OFF = ("0", "false", "no", False, 0)
_MAX_SEED = 2**64
_TRAILERS = frozenset({"cuda_language", "WARN", "launcher", "device", "check", "agent_exit", "agent_done"})


@rule("check.failed", "The solution is not correct", "block", is_waivable=False)
def check_failed(context: Context) -> Iterator[Statement]:
    """The record says so, the check's exit code says so, or its log holds a FAIL line.

    Example: ``FAIL: shape 1 {...} seed 42 case nominal: tolerance exceeded``. A PASS elsewhere in the log changes
    nothing.
    """
    record, log = context.record, context.record.check
    failures = log.named("FAIL") if log is not None else ()
    if record.correct is False:
        reason = record.failure_reason or (failures[0].text if failures else "no reason recorded")
        yield Statement(
            f"The run is recorded as not correct ({reason}).", "result.json", data={"failure_reason": reason}
        )
        return
    if failures and log is not None:
        yield Statement(
            f"The check log says: {failures[0].text[:200]}.", log.file, failures[0].line, {"failures": len(failures)}
        )
    if record.check_exit_code not in (None, 0):
        yield Statement(
            f"The check ended with exit code {record.check_exit_code}; need 0.",
            "result.json",
            data={"check_exit_code": record.check_exit_code},
        )


@rule("check.missing", "Nothing shows that the check passed", "block")
def check_missing(context: Context) -> Iterator[Statement]:
    """The run counts as correct, and the check log is absent or has no PASS line; or correctness is not recorded.

    Example: ``correct: true`` in an archive without check.log.
    """
    record = context.record
    if record.correct is None:
        yield Statement("The record does not say whether the check passed.", "result.json")
    elif record.correct and record.check is None:
        yield Statement("The run is recorded as correct and the archive holds no check.log.", "result.json")
    elif record.correct and record.check is not None and not record.check.named("PASS"):
        yield Statement("The run is recorded as correct and check.log has no PASS line.", record.check.file)


@rule("check.stress_disabled", "The numeric stress cases were switched off", "block")
def check_stress_disabled(context: Context) -> Iterator[Statement]:
    """The deck's switch that leaves only the nominal case was set by the source, the session or the grader's record.

    Example: ``os.environ["KBH_NUMERIC_STRESS"] = "0"`` in the solution. The check then says nothing about inputs that
    are small or large.
    """
    for path, data in python_files(context.files):
        for line, name in read_python(data).environment_sets:
            if name == STRESS_SWITCH:
                yield Statement(f"{path} line {line} sets {STRESS_SWITCH}.", path, line)
    for path, transcript in transcripts_in(context.files):
        deed = next((d for d in deeds_of(transcript.actions, context.record.key.run_id) if d.kind == "stress"), None)
        if deed is not None:
            yield Statement(f"The session switched the stress cases off ({STRESS_SWITCH}).", path, deed.line)
    recorded = environment_of(context).get("numeric_stress", context.record.extra.get("numeric_stress"))
    if recorded is not None and recorded in _OFF:
        yield Statement("The grader recorded that it ran without the stress cases.", "environment.json")


@rule("check.too_short", "The check was shorter than a whole one", "warn")
def check_too_short(context: Context) -> Iterator[Statement]:
    """The deck knows how many seconds a whole check takes at least; a passed one that took fewer left cases out.

    Example: a mixture-of-experts check, which takes minutes, recorded with one second.
    """
    least, seconds = context.deck.least_check_seconds.get(context.problem.id), context.record.check_elapsed_seconds
    if context.record.correct and least is not None and seconds is not None and 0 <= seconds < least:
        yield Statement(
            f"The check took {seconds} seconds; a whole one takes at least {least}.",
            "result.json",
            data={"check_elapsed_seconds": seconds, "least": least},
        )


@rule("check.seed", "The random part of the check left no usable seed", "block")
def check_seed(context: Context) -> Iterator[Statement]:
    """A check with random cases prints one 64-bit seed, so that it can be repeated.

    Asked of problems with a property stage, from the day on which the deck has it. Example: a log without
    PROPERTY_SEED, with two of them, or with one of 2^64 or more.
    """
    log, since = context.record.check, context.deck.property_since
    if log is None or not context.record.correct:
        return
    seeds = log.named("PROPERTY_SEED")
    day = _day_of(context)
    is_due = context.problem.check.property_stage and since is not None and day is not None and day > since
    if (is_due and not seeds) or len(seeds) > 1:
        yield Statement(f"PROPERTY_SEED stands {len(seeds)} times in the check log; need one line.", log.file)
    for marker in seeds:
        if not (marker.text.isascii() and marker.text.isdigit() and int(marker.text) < _MAX_SEED):
            yield Statement(f"PROPERTY_SEED on line {marker.line} is no 64-bit number.", log.file, marker.line)


def _day_of(context: Context) -> datetime.date | None:
    match = RUN_ID.fullmatch(context.record.key.run_id)
    try:
        text = match.group(1)[:8] if match else ""
        return datetime.datetime.strptime(text, "%Y%m%d").replace(tzinfo=datetime.UTC).date()
    except ValueError:
        return None


@rule("check.pass_not_last", "The check went on after it passed", "warn")
def check_pass_not_last(context: Context) -> Iterator[Statement]:
    """PASS is the last thing that a check says; what stands behind it was not judged by it.

    Example: a traceback or another marker after PASS. The deck's own trailers stay silent, and so does a traceback
    before PASS, which a library may print while it falls back.
    """
    log = context.record.check
    passes = log.named("PASS") if log is not None else ()
    if log is None or len(passes) != 1 or log.file == "meta.log":
        return
    later = next((item for item in log.markers if item.line > passes[0].line and item.name not in _TRAILERS), None)
    if later is not None and later.name != "FAIL":
        yield Statement(f"{later.name} stands after PASS.", log.file, later.line)
    lines = context.files.get(log.file, b"").splitlines()
    for number, line in enumerate(lines[passes[0].line :], passes[0].line + 1):
        if line.startswith(b"Traceback (most recent call last)"):
            yield Statement("A traceback stands after PASS.", log.file, number)
            return
