"""One page of the list of runs: a list that grows while it is read neither repeats nor skips a run."""

import datetime
from dataclasses import dataclass

from leaderboard.boards.runs import RunSummary, list_runs, page_after, run_cursor, summarise

SIZE = 50


@dataclass(frozen=True, slots=True)
class RunPage:
    """Some runs of a list, how many there are in all, and the cursor of what follows."""

    runs: tuple[RunSummary, ...]
    total: int
    following: str | None
    is_first: bool


def read_page(filters: dict[str, str], at: datetime.datetime, *, is_staff: bool = False) -> RunPage:
    """Return the page after the cursor in ``filters["after"]``; two queries."""
    runs = list_runs(filters, at, is_staff=is_staff)
    after = filters.get("after") or None
    found = list(page_after(runs, after)[: SIZE + 1])
    shown = found[:SIZE]
    return RunPage(
        runs=tuple(summarise(run, at, was_published=run.was_published) for run in shown),  # type: ignore[attr-defined]
        total=runs.count(),
        following=run_cursor(shown[-1]) if len(found) > SIZE else None,
        is_first=after is None,
    )
