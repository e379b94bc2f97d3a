"""Our own grades as boards, lists and the API show them: what marks a result as verified, and what stays hidden."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from django.db.models import F, OuterRef, QuerySet, Subquery, TextField
from django.db.models.functions import Cast

from grading.verdict import UNTIMED
from leaderboard.boards.verifications import VerificationView
from leaderboard.models import Run, Verification


def without_numbers(grade: VerificationView | None) -> VerificationView | None:
    """Return a grade of a run whose score may not be shown: its word and date, and no time."""
    return _bare(grade) if grade is not None else None


def without_any_numbers(grades: Iterable[VerificationView]) -> tuple[VerificationView, ...]:
    """Return the same of several."""
    return tuple(map(_bare, grades))


def _bare(grade: VerificationView) -> VerificationView:
    return replace(grade, shapes=[], fired=[], gpu_seconds=None)


def ratio_of(grade: VerificationView) -> float | None:
    """Return our time over the published one as a geometric mean over shapes; None where a shape has no ratio."""
    ratios = [shape.get("ratio") for shape in grade.shapes]
    if not ratios or any(not ratio for ratio in ratios):
        return None
    return math.exp(sum(math.log(ratio) for ratio in ratios if ratio) / len(ratios))


def best_of(grades: Sequence[VerificationView]) -> VerificationView | None:
    """Return which of a run's grades, newest first, stands for it: the newest on its own GPU, else the newest."""
    return next((grade for grade in grades if grade.counts_for_board), grades[0] if grades else None)


def is_verified(grade: VerificationView | None) -> bool:
    """Tell whether a run carries the mark."""
    return grade is not None and grade.is_verified


def with_mark(runs: QuerySet[Run], *, is_wanted: bool) -> QuerySet[Run]:
    """Return the runs that carry the mark, or those that do not: `VerificationView.is_verified` of the newest grade."""
    on_board = Verification.objects.filter(counts_for_board=True).alias(said=Cast("fired", TextField()))
    newest = on_board.filter(run=OuterRef("run")).order_by("-pk").values("pk")[:1]
    current = {"solution_digest": F("run__solution_digest"), "problem_version": F("run__assessment__problem_version")}
    timed = on_board.exclude(said__contains=f'"{UNTIMED}"')
    marked = timed.filter(pk=Subquery(newest), outcome="passed", **current).values("run")
    return runs.filter(pk__in=marked) if is_wanted else runs.exclude(pk__in=marked)
