"""Our own grades as the rules see them: which word means what, and when two of them agree.

Only a grade on the run's own GPU speaks for or against a result; on another GPU it proves an answer and no more, and a
wrong answer there may be that GPU's. A first grade that failed is a note until a second one agrees.
"""

import hashlib
from collections.abc import Collection
from typing import Literal

import msgspec

from grading.integrity import Verification as Seen
from grading.interval import exact
from leaderboard.models import Verification

Outcome = Literal["passed", "failed", "inconclusive"]
_PASSED, _FAILED = ("verified", "verified_note", "not_reproduced"), ("incorrect", "integrity")
_SUSPICIOUS = "needs_audit"
_SENTENCES = {
    "incorrect": "an answer was wrong",
    "integrity": "what it reported about itself does not hold",
}


def outcome_of(word: str) -> Outcome:
    """Return what a verdict's word means for a result; slower than published is judged by its times."""
    return "passed" if word in _PASSED else "failed" if word in _FAILED else "inconclusive"


def of_runs(runs: Collection[int]) -> dict[int, tuple[Seen, ...]]:
    """Return, by run, its grades as the rules see them, oldest first; one query."""
    found: dict[int, list[Verification]] = {}
    for row in Verification.objects.filter(run__in=runs).order_by("pk"):
        found.setdefault(row.run_id, []).append(row)
    return {run: tuple(_seen(rows, index) for index in range(len(rows))) for run, rows in found.items()}


def _seen(rows: list[Verification], index: int) -> Seen:
    row = rows[index]
    outcome: Outcome = "inconclusive" if row.outcome == "failed" and not row.counts_for_board else row.outcome
    is_suspicious = row.word == _SUSPICIOUS and row.counts_for_board
    return Seen(
        outcome=outcome,
        score=exact(row.score) if row.score is not None else None,
        problem_version=row.problem_version,
        solution_digest=row.solution_digest or None,
        reason=_rules(row, (_SUSPICIOUS,)) if is_suspicious else _reason(row),
        is_confirmed=outcome != "failed" or _agrees(rows, index),
        is_suspicious=is_suspicious,
    )


def _agrees(rows: list[Verification], index: int) -> bool:
    """Tell whether the conclusive grade before this one, of the same source and version, also failed."""
    row = rows[index]
    for earlier in reversed(rows[:index]):
        same = (earlier.solution_digest, earlier.problem_version) == (row.solution_digest, row.problem_version)
        if same and earlier.counts_for_board and earlier.outcome != "inconclusive":
            return earlier.outcome == "failed"
    return False


def _reason(row: Verification) -> str | None:
    """Return what failed, with the rules that say so; never how they found out."""
    if row.outcome != "failed":
        return None
    said, rules = _SENTENCES.get(row.word, row.word), _rules(row, _FAILED)
    return f"{said} ({rules})" if rules else said


def _rules(row: Verification, words: Collection[str]) -> str:
    """Return the rules that fired with one of the words; never how they found out."""
    return ", ".join(sorted({item["rule"] for item in row.fired if item["word"] in words}))


def digest_of(seen: tuple[Seen, ...]) -> str:
    """Return the digest of everything about a run's grades that can change its findings."""
    return hashlib.sha256(msgspec.json.encode([[*_fields(item)] for item in seen])).hexdigest() if seen else ""


def _fields(item: Seen) -> list[object]:
    score = [item.score.low, item.score.high] if item.score is not None else None
    about = [item.problem_version, item.solution_digest, item.reason, item.is_confirmed, item.is_suspicious]
    return [item.outcome, score, *about]
