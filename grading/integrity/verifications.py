"""Rules on our own grades of a run's source: did it hold, was it as fast, and is the grade still about this source?

Source: docs/method.md "Findings".
"""

from collections.abc import Iterator

from grading.integrity.base import Context, Statement, Verification, range_data, range_text, rule

_SLOWER = 0.15
_PASSES_TO_LIFT = 2


def _latest(context: Context) -> Verification | None:
    """Return the grade that counts: the newest that came to a verdict about this source and version of the problem.

    A failure that two grades agree on outlives one that passes: a race loses its luck only now and then.
    """
    said = [item for item in _fresh(context) if item.outcome != "inconclusive"]
    failures = [place for place, item in enumerate(said) if item.outcome == "failed" and item.is_confirmed]
    if failures and len(said) - 1 - failures[-1] < _PASSES_TO_LIFT:
        return said[failures[-1]]
    return said[-1] if said else None


def _fresh(context: Context) -> list[Verification]:
    """Return the grades of this very source and this version of the problem, oldest first."""
    own = next((entry.digest for entry in context.record.files if entry.role == "solution"), None)
    return [
        item
        for item in context.verifications
        if item.solution_digest in (None, own) and item.problem_version in (None, context.problem.version)
    ]


@rule("verification.failed", "Our own grade found the source incorrect", "block", is_waivable=False)
def check_failed(context: Context) -> Iterator[Statement]:
    """A grade of this source on our machine failed, and another one agrees.

    Two later grades that pass lift it; one does not, since a race fails only now and then. Example: an answer that
    stayed the same when the input was overwritten. What failed is said, never why.
    """
    latest = _latest(context)
    if latest is not None and latest.outcome == "failed" and latest.is_confirmed:
        yield Statement(f"Our own grade failed: {latest.reason or 'no reason recorded'}.")


@rule("verification.unconfirmed", "A first grade of ours found the source incorrect; a second one decides", "note")
def check_unconfirmed(context: Context) -> Iterator[Statement]:
    """The newest conclusive grade of this source failed, and no other one agrees yet.

    Example: one wrong answer in a first grade. A second, thorough grade is asked for at once, and only two that agree
    withhold a result.
    """
    latest = _latest(context)
    if latest is not None and latest.outcome == "failed" and not latest.is_confirmed:
        yield Statement(f"A first grade of ours failed: {latest.reason or 'no reason recorded'}. A second one decides.")


@rule("verification.needs_audit", "Our own grade saw what a person should judge", "warn")
def check_needs_audit(context: Context) -> Iterator[Statement]:
    """The newest grade of this source that says anything came upon something that no rule may decide.

    Example: two clusters of times, or a forbidden operation in the census. It withholds nothing; an audit, a waiver or
    a later clean grade closes it. The rules that fired are named, never how they found out.
    """
    said = [item for item in _fresh(context) if item.outcome != "inconclusive" or item.is_suspicious]
    if said and said[-1].is_suspicious:
        yield Statement(f"Our own grade asks for an audit: {said[-1].reason or 'no reason recorded'}.")


@rule("verification.slower", "Our own grade was slower than the reported result", "warn")
def check_slower(context: Context) -> Iterator[Statement]:
    """The newest grade passed, and its score is more than 15 percent worse than the recomputed one.

    Example: 0.40 claimed and 0.31 measured. Both intervals are taken at their most favourable ends.
    """
    latest, value = _latest(context), context.score.value
    if latest is None or latest.outcome != "passed" or latest.score is None or value is None:
        return
    is_higher_better = context.problem.metric.higher_is_better
    best, claimed = (latest.score.high, value.low) if is_higher_better else (latest.score.low, value.high)
    is_slower = best < claimed * (1 - _SLOWER) if is_higher_better else best > claimed * (1 + _SLOWER)
    if is_slower:
        yield Statement(
            f"Our own grade gave {range_text(latest.score)}; the run's lines give {range_text(value)}.",
            data={"verified": range_data(latest.score), "recomputed": range_data(value)},
        )


@rule("verification.stale", "Our own grade is about another source or problem version", "note")
def check_stale(context: Context) -> Iterator[Statement]:
    """Every grade that we have is of another file, or of a problem that has changed since.

    Example: the problem's tolerance was tightened after the grade. It neither confirms nor refutes this result.
    """
    if context.verifications and not _fresh(context):
        yield Statement("Our own grades are of another source or of another version of the problem; grade it again.")
