"""What a rule is: a pure function of one run's evidence that yields sentences with their numbers and places.

No rule reads the database, the clock or the file system. Everything it may use is in the `Context`. A *lead* is a rule
that never judges: it shows an auditor a place in the source or the transcript, is always a note, and honest code may
match it.

Source: docs/method.md "Findings".
"""

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from grading.auditfile import Audit
from grading.hardware import Gpu
from grading.integrity.crossrun import NO_NEIGHBOURS, Neighbours
from grading.interval import Interval
from grading.problem import Deck, Problem, Severity
from grading.record import Record
from grading.score import Recomputed


@dataclass(frozen=True, slots=True)
class Verification:
    """One grade of our own of a run's solution: what was measured, and on which problem version and source.

    is_confirmed   for a failed one: another grade of the same source failed before it
    is_suspicious  for an inconclusive one: what it saw is for a person to judge
    """

    outcome: Literal["passed", "failed", "inconclusive"]
    score: Interval | None = None
    problem_version: str | None = None
    solution_digest: str | None = None
    reason: str | None = None
    is_confirmed: bool = True
    is_suspicious: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """The evidence on one run, as the rules see it.

    audits         every audit received for the run, oldest first
    conflicts      content digests of other archives that arrived under the same key
    files          bytes by path of the solution, its sidecars, the transcripts and the small logs; what is not here is
                   not judged
    neighbours     what an index of all other runs says about this one
    received_at    when the archive arrived, as data; a rule never asks the clock
    is_known_model, is_known_harness  whether the catalogue lists them; None = not asked
    verifications  our own grades of the solution, oldest first
    """

    record: Record
    problem: Problem
    deck: Deck
    gpu: Gpu
    score: Recomputed
    audits: tuple[Audit, ...] = ()
    conflicts: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    neighbours: Neighbours = NO_NEIGHBOURS
    received_at: datetime.datetime | None = None
    is_known_model: bool | None = None
    is_known_harness: bool | None = None
    verifications: tuple[Verification, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """What a rule yields: the sentence a submitter needs, its numbers, and its place in a file."""

    message: str
    file: str | None = None
    line: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's statement on one run, with the code and the severity that apply on this deck."""

    code: str
    severity: Severity
    message: str
    file: str | None
    line: int | None
    data: Mapping[str, Any]


Check = Callable[[Context], Iterable[Statement]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A registered rule. ``is_waivable`` is false for what no approver may except; a lead never judges."""

    code: str
    title: str
    severity: Severity
    is_waivable: bool
    check: Check
    is_lead: bool = False


RULES: dict[str, Rule] = {}


def rule(code: str, title: str, severity: Severity, *, is_waivable: bool = True) -> Callable[[Check], Check]:
    """Register a function as the rule of a code. Raises ValueError for a code that is taken."""

    def register(check: Check) -> Check:
        if code in RULES:
            raise ValueError(f"rule {code} is registered twice")
        RULES[code] = Rule(code, title, severity, is_waivable, check)
        return check

    return register


def range_text(interval: Interval) -> str:
    """Return an interval as ``low to high`` with four significant digits."""
    return f"{interval.low:.4g} to {interval.high:.4g}"


def range_data(interval: Interval | None) -> list[float] | None:
    """Return an interval's bounds for a finding's data."""
    return None if interval is None else [interval.low, interval.high]


def lead(code: str, title: str) -> Callable[[Check], Check]:
    """Register a function as a lead: a note that points an auditor to lines and says nothing about intent."""

    def register(check: Check) -> Check:
        rule(code, title, "note")(check)
        RULES[code] = replace(RULES[code], is_lead=True)
        return check

    return register
