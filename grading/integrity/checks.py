"""Rules on correctness: the check's verdict, and whether the check was whole."""

from collections.abc import Iterator

from grading.integrity.base import Context, Statement, rule


@rule("check.failed", "The solution is not correct", "block", is_waivable=False)
def check_failed(context: Context) -> Iterator[Statement]:
    """The record says so, the check's exit code says so, or its log holds a FAIL line."""
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
            f"The check log says: {failures[0].text[:200]}", log.file, failures[0].line, {"failures": len(failures)}
        )
    if record.check_exit_code not in (None, 0):
        yield Statement(
            f"The check ended with exit code {record.check_exit_code}; need 0.",
            "result.json",
            data={"check_exit_code": record.check_exit_code},
        )


@rule("check.missing", "Nothing shows that the check passed", "block")
def check_missing(context: Context) -> Iterator[Statement]:
    """The run counts as correct, and the check log is absent or has no PASS line; or correctness is not recorded."""
    record = context.record
    if record.correct is None:
        yield Statement("The record does not say whether the check passed.", "result.json")
    elif record.correct and record.check is None:
        yield Statement("The run is recorded as correct and the archive holds no check.log.", "result.json")
    elif record.correct and record.check is not None and not record.check.named("PASS"):
        yield Statement("The run is recorded as correct and check.log has no PASS line.", record.check.file)


@rule("check.stress_disabled", "The numeric stress cases were switched off", "block")
def check_stress_disabled(context: Context) -> Iterator[Statement]:
    """A log or the record shows the switch that leaves only the nominal case."""
    log = context.record.check
    for marker in log.named("STRESS_DISABLED") if log is not None else ():
        yield Statement(
            f"The check ran without its stress cases ({marker.text[:120]}).", log.file if log else None, marker.line
        )
