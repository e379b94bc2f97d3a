"""What a rule is: a pure function of one run's evidence that yields sentences with their numbers and places.

No rule reads the database, the clock or the file system. Everything it may use is in the `Context`.

Source: docs/method.md "Findings".
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from grading.auditfile import Audit
from grading.hardware import Gpu
from grading.interval import Interval
from grading.problem import Deck, Problem, Severity
from grading.record import Record
from grading.score import Recomputed


@dataclass(frozen=True, slots=True)
class Context:
    """The evidence on one run, as the rules see it.

    audits     every audit received for the run, oldest first
    conflicts  content digests of other archives that arrived under the same key
    """

    record: Record
    problem: Problem
    deck: Deck
    gpu: Gpu
    score: Recomputed
    audits: tuple[Audit, ...] = ()
    conflicts: tuple[str, ...] = ()


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
    """A registered rule. ``is_waivable`` is false for what no approver may except."""

    code: str
    title: str
    severity: Severity
    is_waivable: bool
    check: Check


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
