"""The desk's queue: what waits for a decision or an audit, ordered by what matters. The queries do not grow with it."""

import datetime
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from grading.problem import Metric, load_decks
from leaderboard import selection
from leaderboard.boards.cells import EntrantView, Reason, entrant_view
from leaderboard.changes import describe
from leaderboard.models import Assessment, Publication, Run

SIZE = 50
# Each tab with the acts that make sense for many of its runs at once.
TABS = {
    "decide": ("approve", "reject", "withdraw"),
    "pending": ("waive", "reject"),
    "blocked": ("waive", "reject"),
    "decided": ("withdraw", "approve", "reject"),
}
Standing, State = Assessment.Standing, Publication.State
_COLUMNS = (
    "pk", "deck_id", "gpu_id", "run_id", "problem__slug", "entrant_id", "ingested_at", "assessment__score",
    "assessment__standing", "assessment__valid_until", "assessment__evidence_digest", "publication__state",
    "publication__evidence_digest",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One run as the order of the queue needs it.

    is_publishable  approved on exactly the evidence of today, and eligible
    is_lapsed       approved, but not publishable any more
    """

    run: int
    deck: str
    gpu: str
    run_id: str
    problem: str
    entrant: int
    waiting_since: datetime.datetime
    score: float | None
    is_eligible: bool
    is_pending: bool
    state: str | None
    is_publishable: bool

    @property
    def is_lapsed(self) -> bool:
        """Whether an approval no longer counts."""
        return self.state == State.APPROVED and not self.is_publishable

    @property
    def tab(self) -> str | None:
        """The tab on which the run waits, None where nothing is to be done."""
        if self.is_lapsed or (self.state is None and self.is_eligible):
            return "decide"
        return "pending" if self.is_pending and self.state is None else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run would stand on its board if it were approved now.

    place    its place by score among the approved cells of its column
    of       how many entrants the column would have
    better   how many runs of the column that wait as well score better
    is_best  better than everything approved and everything that waits
    """

    place: int
    of: int
    better: int
    is_best: bool


@dataclass(frozen=True, slots=True)
class Queue:
    """Everything that waits, by tab, in order; and the place that each run would take."""

    tabs: Mapping[str, tuple[Entry, ...]]
    places: Mapping[int, Place]

    def neighbours(self, tab: str, run: int) -> tuple[Entry | None, Entry | None, int | None]:
        """Return the entries before and after a run and its position from 1; for one not in it, the first is next."""
        entries = self.tabs.get(tab, ())
        position = next((index for index, entry in enumerate(entries) if entry.run == run), None)
        if position is None:
            return None, (entries[0] if entries else None), None
        before = entries[position - 1] if position else None
        after = entries[position + 1] if position + 1 < len(entries) else None
        return before, after, position + 1


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the queue."""

    run: Run
    entrant: EntrantView
    metric: Metric
    place: Place | None
    is_lapsed: bool
    differences: tuple[str, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of one tab."""

    tab: str
    rows: tuple[Row, ...]
    counts: Mapping[str, int]
    number: int
    total: int

    @property
    def is_last(self) -> bool:
        """Whether nothing follows."""
        return self.number * SIZE >= self.total

    @property
    def has_places(self) -> bool:
        """Whether the tab's runs could stand on a board."""
        return self.tab in ("decide", "pending")

    @property
    def acts(self) -> tuple[str, ...]:
        """The acts that make sense for many runs of this tab."""
        return TABS[self.tab]


def read_queue(at: datetime.datetime, filters: Mapping[str, str] | None = None) -> Queue:
    """Return everything that waits; one query.

    filters  any of deck, gpu, q; places are always counted over whole columns
    """
    wanted = Q(assessment__standing__in=[Standing.ELIGIBLE, Standing.PENDING]) | Q(publication__state=State.APPROVED)
    entries = [_entry(row, at) for row in Run.objects.filter(wanted).values_list(*_COLUMNS)]
    places = _places(entries)
    tabs: dict[str, list[Entry]] = {"decide": [], "pending": []}
    for entry in entries:
        if entry.tab is not None and _matches(entry, filters or {}):
            tabs[entry.tab].append(entry)
    return Queue({name: tuple(sorted(held, key=_order(places))) for name, held in tabs.items()}, places)


def _entry(row: tuple[Any, ...], at: datetime.datetime) -> Entry:
    pk, deck, gpu, run_id, problem, entrant, ingested_at, score, standing, until, digest, state, signed = row
    is_eligible = standing == Standing.ELIGIBLE and (until is None or until > at)
    is_publishable = is_eligible and state == State.APPROVED and signed == digest
    is_pending = standing == Standing.PENDING
    return Entry(
        pk, deck, gpu, run_id, problem, entrant, ingested_at, score, is_eligible, is_pending, state, is_publishable
    )


def _matches(entry: Entry, filters: Mapping[str, str]) -> bool:
    words = filters.get("q", "").lower().split()
    return (
        filters.get("deck", "") in ("", entry.deck)
        and filters.get("gpu", "") in ("", entry.gpu)
        and all(word in f"{entry.run_id} {entry.problem}".lower() for word in words)
    )


def _order(places: Mapping[int, Place]) -> Any:
    def key(entry: Entry) -> tuple[bool, bool, datetime.datetime, str, str]:
        place = places.get(entry.run)
        return not (place and place.is_best), not entry.is_lapsed, entry.waiting_since, entry.run_id, entry.gpu

    return key


def _places(entries: Iterable[Entry]) -> dict[int, Place]:
    columns: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.score is not None and (
            entry.is_publishable or (entry.tab and (entry.is_eligible or entry.is_pending))
        ):
            columns[entry.deck, entry.gpu, entry.problem].append(entry)
    return {run: place for column in columns.values() for run, place in _column_places(column)}


def _column_places(column: Sequence[Entry]) -> Iterable[tuple[int, Place]]:
    metric = load_decks()[column[0].deck].problems[column[0].problem].metric
    sign = 1.0 if metric.higher_is_better else -1.0
    worth = {entry.run: sign * (entry.score or 0.0) for entry in column}
    held: dict[int, float] = {}
    for entry in column:
        if entry.is_publishable:
            held[entry.entrant] = max(worth[entry.run], held.get(entry.entrant, worth[entry.run]))
    best = max(worth.values())
    waiting = sorted(worth[entry.run] for entry in column if not entry.is_publishable)
    for entry in column:
        others = [value for entrant, value in held.items() if entrant != entry.entrant]
        place = 1 + sum(1 for value in others if value > worth[entry.run])
        better = len(waiting) - bisect_right(waiting, worth[entry.run])
        yield entry.run, Place(place, len(others) + 1, better, worth[entry.run] == best)


def read_page(tab: str, filters: Mapping[str, str], number: int, at: datetime.datetime) -> Page:
    """Return one page of a tab; the queries are the same for one run and for thousands."""
    queue = read_queue(at, filters)
    others = {"blocked": _blocked(at, filters), "decided": _decided(filters)}
    counts = {name: len(entries) for name, entries in queue.tabs.items()}
    counts |= {name: runs.count() for name, runs in others.items()}
    start = (number - 1) * SIZE
    if tab in queue.tabs:
        chosen = [entry.run for entry in queue.tabs[tab][start : start + SIZE]]
    else:
        chosen = list(others[tab].values_list("pk", flat=True)[start : start + SIZE])
    return Page(tab, _rows(chosen, queue, at), counts, number, counts[tab])


def _blocked(at: datetime.datetime, filters: Mapping[str, str]) -> QuerySet[Run]:
    expired = Q(assessment__standing=Standing.ELIGIBLE, assessment__valid_until__lte=at)
    runs = Run.objects.filter(Q(assessment__standing=Standing.BLOCKED) | expired)
    return _filtered(runs, filters).exclude(publication__state=State.APPROVED).order_by("ingested_at", "run_id", "pk")


def _decided(filters: Mapping[str, str]) -> QuerySet[Run]:
    return _filtered(Run.objects.filter(publication__isnull=False), filters).order_by(
        "-publication__decision__sequence"
    )


def _filtered(runs: QuerySet[Run], filters: Mapping[str, str]) -> QuerySet[Run]:
    for name in ("deck", "gpu"):
        if filters.get(name):
            runs = runs.filter(**{name: filters[name]})
    for word in filters.get("q", "").split()[:8]:
        runs = runs.filter(Q(run_id__icontains=word) | Q(problem__slug__icontains=word))
    return runs


def read_runs(keys: Iterable[int]) -> list[Run]:
    """Return assessed runs with what the desk shows of them, in the order of their keys; one query."""
    related = ("problem", "entrant__model", "assessment", "publication__decision__actor")
    heavy = ("record", "assessment__shapes", "assessment__evidence", "publication__decision__details")
    wanted = list(keys)
    runs = Run.objects.filter(pk__in=wanted, assessment__isnull=False).select_related(*related).defer(*heavy)
    found = {run.pk: run for run in runs}
    return [found[key] for key in wanted if key in found]


def _rows(keys: Sequence[int], queue: Queue, at: datetime.datetime) -> tuple[Row, ...]:
    runs = read_runs(keys)
    lapsed = {run.pk for run in runs if is_lapsed(run, at)}
    rows = Publication.objects.filter(run__in=lapsed).values_list(
        "run", "decision__details", "run__assessment__evidence"
    )
    differences = {run: differences_of(details, evidence) for run, details, evidence in rows}
    return tuple(
        Row(
            run=run,
            entrant=entrant_view(run.entrant),
            metric=load_decks()[run.deck_id].problems[run.problem.slug].metric,
            place=queue.places.get(run.pk),
            is_lapsed=run.pk in lapsed,
            differences=differences.get(run.pk, ()),
            reasons=tuple(Reason(code, selection.reason_title(code)) for code in selection.reason_codes(run, at)),
        )
        for run in runs
    )


def is_lapsed(run: Run, at: datetime.datetime) -> bool:
    """Tell whether a run was approved and its approval no longer counts."""
    return selection.state_of(run) == State.APPROVED and not selection.is_publishable(run, at)


def differences_of(details: Mapping[str, Any], evidence: dict[str, Any]) -> tuple[str, ...]:
    """Return in words what changed since an approval signed its evidence."""
    signed = details.get("evidence")
    return tuple(describe(signed, evidence)) if signed else ()
