"""The integrity rules: what files alone can prove, disprove or leave open about a run.

`judge` runs every rule over one run's evidence and returns the findings in the order of the registry.
"""

from grading.integrity import (
    audits,
    checks,
    clocks,
    gpus,
    leads,
    logs,
    provenance,
    regrades,
    runs,
    scores,
    shapes,
    sources,
    structure,
    transcripts,
    twins,
    verifications,
)
from grading.integrity.base import RULES, Context, Finding, Rule, Statement, Verification, lead, rule
from grading.integrity.transcripts import may_publish_transcript
from grading.problem import Severity

__all__ = [
    "RULES",
    "RULES_VERSION",
    "Context",
    "Finding",
    "Rule",
    "Statement",
    "Verification",
    "is_waivable",
    "judge",
    "lead",
    "may_publish_transcript",
    "rule",
    "severity_of",
]
RULES_VERSION = "3"
_MODULES = (
    *(scores, shapes, logs, structure, clocks, checks, runs, regrades),
    *(provenance, gpus, audits, sources, leads, twins, transcripts, verifications),
)


def judge(context: Context) -> tuple[Finding, ...]:
    """Return every finding on one run, with the severity that its deck and problem give."""
    return tuple(
        Finding(
            entry.code,
            severity_of(entry, context),
            statement.message,
            statement.file,
            statement.line,
            statement.data,
        )
        for entry in RULES.values()
        for statement in entry.check(context)
    )


def severity_of(entry: Rule, context: Context) -> Severity:
    """Return a rule's severity on a deck: the deck's own, or a note where the problem's metric may exceed one."""
    if entry.code == "score.above_peak" and context.problem.metric.may_exceed_one:
        return "note"
    override = context.deck.severity.get(entry.code)
    return override.severity if override else entry.severity


def is_waivable(code: str) -> bool:
    """Tell whether an approver may except a finding code; unknown codes may not be excepted."""
    return code in RULES and RULES[code].is_waivable
