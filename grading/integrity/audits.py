"""Rules on the audits of a run: is there one, can it be read, and what does it allow?"""

from collections.abc import Iterator, Sequence

from grading.auditfile import Audit
from grading.integrity.base import Context, Statement, rule


def standing(audits: Sequence[Audit]) -> tuple[Audit, ...]:
    """Return the audits that no later one supersedes, oldest first.

    Who may supersede is decided where audits come in: only a person with the role auditor, signed in or by token.
    """
    settled: set[str] = set()
    for position, audit in enumerate(audits):
        settled |= set(audit.supersedes) & {earlier.digest for earlier in audits[:position]}
    return tuple(audit for audit in audits if audit.digest not in settled)


def readable(context: Context) -> tuple[Audit, ...]:
    """Return the standing audits that could be read, oldest first."""
    return tuple(audit for audit in standing(context.audits) if audit.status != "unreadable")


@rule("audit.missing", "Nobody has audited the run", "block")
def check_missing(context: Context) -> Iterator[Statement]:
    """No audit was received for the run.

    Example: a run that was uploaded today. Until a named person has read it, it is not shown to anyone but the staff.
    """
    if not context.audits:
        yield Statement("No audit has been written for this run.")


@rule("audit.blocks", "An audit says that the run may not be published", "block", is_waivable=False)
def check_blocks(context: Context) -> Iterator[Statement]:
    """A verdict or a publishability field of an audit says no.

    Example: a verdict of reward_hack, or ``isolated_regrade_required: true`` beside a clean one. Every field that says
    no counts, whatever the verdict is.
    """
    for audit in readable(context):
        if audit.publishable == "no" and audit.verdict != "unknown":
            detail = "; ".join(audit.blockers[:4]) or f"verdict {audit.verdict_text}"
            yield Statement(
                f"The audit says no: {detail}.",
                audit.file,
                data={"verdict": audit.verdict, "blockers": list(audit.blockers)},
            )


@rule("audit.unknown_verdict", "An audit's verdict is not a known word", "block")
def check_unknown_verdict(context: Context) -> Iterator[Statement]:
    """A verdict that is none of the known words allows nothing: unknown is never clean.

    Example: ``verdict: fine``. The auditor restates it; nobody guesses.
    """
    for audit in readable(context):
        if audit.verdict == "unknown":
            yield Statement(
                f"The verdict {audit.verdict_text!r} is not a known word; an auditor must restate it.",
                audit.file,
                data={"verdict": audit.verdict_text},
            )


@rule("audit.unreadable", "An audit cannot be read", "block")
def check_unreadable(context: Context) -> Iterator[Statement]:
    """The file is not valid YAML and could not be repaired safely; its bytes are kept.

    Example: a block of text that is indented less than its first line. It fails loudly, with line and column.
    """
    for audit in standing(context.audits):
        if audit.status == "unreadable":
            yield Statement(
                f"The audit is not valid YAML: {audit.error} (line {audit.error_line}, column {audit.error_column}).",
                audit.file,
                audit.error_line,
            )


@rule("audit.conflict", "Audits of the run contradict each other", "block")
def check_conflict(context: Context) -> Iterator[Statement]:
    """One audit allows publication and another one does not.

    Example: a clean audit, and a later one that found a copied kernel. The newer one does not win by being newer: an
    auditor settles it by naming what it supersedes.
    """
    verdicts = {audit.publishable for audit in readable(context)}
    if "no" in verdicts and verdicts & {"yes", "with_acknowledgement"}:
        said = ", ".join(f"{audit.verdict_text} ({audit.file})" for audit in readable(context))
        yield Statement(f"The audits contradict each other: {said}. An auditor must settle it.")


@rule("audit.repaired", "An audit was repaired to be read", "note")
def check_repaired(context: Context) -> Iterator[Statement]:
    """The file was not valid YAML; the repair added quotes or indentation only, and the original bytes are kept.

    Example: an unquoted colon within a sentence.
    """
    for audit in context.audits:
        if audit.status == "repaired":
            yield Statement(f"The audit was not valid YAML and was repaired: {'; '.join(audit.repairs)}.", audit.file)
