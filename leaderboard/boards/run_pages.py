"""One page of the list of runs: a list that grows while it is read neither repeats nor skips a run."""

import datetime
from dataclasses import dataclass

from django.db.models import QuerySet

from leaderboard.boards.memo import Memo
from leaderboard.boards.runs import RunSummary, list_runs, page_after, run_cursor, summarise_all, visible_assessments
from leaderboard.models import Run

SIZE = 50
FILTERS = (
    "q", "deck", "gpu", "problem", "model", "harness", "effort", "framework", "verified", "verdict", "status", "after",
)  # fmt: skip
_totals: Memo[int] = Memo(512)


@dataclass(frozen=True, slots=True)
class RunPage:
    """Some runs of a list, how many there are in all, and the cursor of what follows."""

    runs: tuple[RunSummary, ...]
    total: int
    following: str | None
    is_first: bool


def read_page(filters: dict[str, str], at: datetime.datetime, *, is_staff: bool = False) -> RunPage:
    """Return the page after the cursor in ``filters["after"]``; three queries at most."""
    runs = list_runs(filters, at, is_staff=is_staff)
    after = filters.get("after") or None
    found = list(page_after(runs, after)[: SIZE + 1])
    shown = found[:SIZE]
    return RunPage(
        runs=tuple(summarise_all(shown, at)),
        total=_total(runs, filters, at, is_staff=is_staff),
        following=run_cursor(shown[-1]) if len(found) > SIZE else None,
        is_first=after is None,
    )


def _total(runs: QuerySet[Run], filters: dict[str, str], at: datetime.datetime, *, is_staff: bool) -> int:
    """Return how many runs a list has; counted once in each state of the site for all of a list's pages."""
    if is_staff:
        return runs.count()
    asked = tuple(sorted((name, value) for name, value in filters.items() if value and name != "after"))
    return _totals.get(at, asked, runs.count if asked else visible_assessments().count)
