"""The one function that says whether a run may be published, and what stands in the way."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grading.integrity import Finding
from grading.interval import Interval
from leaderboard.models import Assessment

PENDING_CODES = frozenset({"audit.missing"})
FAILED_CODES = frozenset({"check.failed"})


@dataclass(frozen=True, slots=True)
class Standing:
    """What the evidence allows.

    blockers     codes of blocking findings that no waiver covers, in order
    waived       codes of blocking findings that a waiver covers
    valid_until  the earliest expiry of a waiver that this standing rests on
    """

    standing: Assessment.Standing
    blockers: tuple[str, ...]
    waived: tuple[str, ...]
    valid_until: datetime.datetime | None


def decide(
    findings: Iterable[Finding], score: Interval | None, waivers: Mapping[str, datetime.datetime | None]
) -> Standing:
    """Return the standing of a run.

    findings  every finding on the run
    score     the recomputed score; a run without one is never eligible
    waivers   finding code -> expiry (None = no expiry) of the waivers in force
    """
    blocking = list(dict.fromkeys(finding.code for finding in findings if finding.severity == "block"))
    waived = tuple(code for code in blocking if code in waivers)
    blockers = tuple(code for code in blocking if code not in waivers)
    expiries = [expiry for code in waived if (expiry := waivers[code]) is not None]
    return Standing(_standing(blockers, score), blockers, waived, min(expiries, default=None))


def _standing(blockers: tuple[str, ...], score: Interval | None) -> Assessment.Standing:
    if FAILED_CODES & set(blockers):
        return Assessment.Standing.FAILED
    if not blockers and score is not None:
        return Assessment.Standing.ELIGIBLE
    if score is not None and set(blockers) <= PENDING_CODES:
        return Assessment.Standing.PENDING
    return Assessment.Standing.BLOCKED
