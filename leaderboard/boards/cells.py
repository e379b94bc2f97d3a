"""Cells as the public may see them: the rows of a release, masked by what holds today.

A release is immutable; what is shown of it is not. A score whose run was withdrawn, or has a blocking finding, or rests
on an expired waiver, is withheld from that moment on every surface and in every older release.
"""

import datetime
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson
from django.db.models import TextField
from django.db.models.functions import Cast

from grading.problem import Metric, load_decks
from leaderboard import selection
from leaderboard.boards.marks import without_numbers
from leaderboard.boards.memo import Memo
from leaderboard.boards.verifications import VerificationView, latest_of
from leaderboard.models import Audit, Entrant, Release, ReleasedCell


@dataclass(frozen=True, slots=True)
class EntrantView:
    """One row of a board: model, harness and effort."""

    slug: str
    model_slug: str
    model_name: str
    lab: str
    harness: str
    effort: str
    is_baseline: bool

    @property
    def label(self) -> str:
        """The entrant in words."""
        parts = [self.harness, *([self.effort] if self.effort else [])]
        return self.model_name if self.is_baseline else f"{self.model_name} ({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a score is not shown: a code and a sentence without numbers."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class AuditView:
    """The audit of a cell's run. A withheld run's summary is shown on the run's own page only."""

    verdict: str
    auditor: str | None
    summary: str | None
    at: datetime.datetime


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. `score`, `low`, `high`, `rank` and `share_of_best` are None unless the status is published.

    rank           the best and the worst place that the intervals allow, within the board's column
    share_of_best  score over the column's best (or best over score where lower is better)
    """

    id: str
    deck: str
    problem: str
    problem_title: str
    gpu: str
    entrant: EntrantView
    status: str
    metric: Metric
    run_id: str
    release: int
    score: float | None = None
    low: float | None = None
    high: float | None = None
    rank: tuple[int, int] | None = None
    share_of_best: float | None = None
    audit: AuditView | None = None
    reasons: tuple[Reason, ...] = ()
    started_at: datetime.datetime | None = None
    framework: str | None = None
    verification: VerificationView | None = None

    @property
    def is_published(self) -> bool:
        """Whether the score may be shown."""
        return self.status == ReleasedCell.Status.PUBLISHED


_cells: Memo[tuple[Cell, ...]] = Memo(4)


def latest_release() -> Release | None:
    """Return the release that the public site shows, or None before the first."""
    return Release.objects.first()


def read_cells(release: Release | None, at: datetime.datetime, **columns: str) -> list[Cell]:
    """Return a release's cells in order of id, masked and ranked; one query, or three where the state is a new one.

    columns  any of deck, gpu and problem: cells of these only. Ranks are those of whole columns either way.
    """
    if release is None:
        return []
    cells = _cells.get(at, release.pk, lambda: tuple(_read(release, at)))
    return [cell for cell in cells if all(getattr(cell, name) == value for name, value in columns.items())]


# What a cell is made of. Rows of models would take ten times as long to make, and thousands are made at once.
_COLUMNS = (
    "cell", "deck", "gpu", "problem__slug", "problem__title", "status", "score", "score_low", "score_high",
    Cast("reasons", TextField()),
    "run", "run__run_id", "run__started_at", "run__assessment__framework",
)  # fmt: skip
_BASIS = (
    "run__publication__state", "run__assessment__standing", "run__assessment__valid_until",
    Cast("run__assessment__blockers", TextField()),
)  # fmt: skip
_ENTRANT = (
    "entrant__slug", "entrant__model__slug", "entrant__model__name", "entrant__model__lab", "entrant__harness",
    "entrant__effort", "entrant__model__is_baseline",
)  # fmt: skip
_RUN_AT = _COLUMNS.index("run")
_BASIS_AT, _ENTRANT_AT = len(_COLUMNS), len(_COLUMNS) + len(_BASIS)


def _read(release: Release, at: datetime.datetime) -> list[Cell]:
    rows = list(release.cells.order_by("cell").values_list(*_COLUMNS, *_BASIS, *_ENTRANT))
    known = _Known(release.number, _audit_views(release), latest_of([row[_RUN_AT] for row in rows]))
    entrants: dict[tuple[Any, ...], EntrantView] = {}
    cells = []
    for row in rows:
        named = row[_ENTRANT_AT:]
        entrant = entrants.get(named) or entrants.setdefault(named, EntrantView(*named))
        *held, blockers = row[_BASIS_AT:_ENTRANT_AT]
        basis = selection.Basis(*held, _read_codes(blockers))
        cells.append(_cell(_Row(*row[:_BASIS_AT]), basis, entrant, known, at))
    return _rank(cells)


def _read_codes(text: str) -> list[str]:
    """Return a stored list of codes; most are empty and need no parser."""
    return [] if text == "[]" else list(orjson.loads(text))


class _Known(NamedTuple):
    """What is read once for all cells of a release: its number, audits and grades by run."""

    release: int
    audits: Mapping[int, AuditView]
    grades: Mapping[int, VerificationView]


class _Row(NamedTuple):
    """One cell of a release as it is stored, in the order of `_COLUMNS`."""

    cell: str
    deck: str
    gpu: str
    problem: str
    problem_title: str
    status: str
    score: float | None
    low: float | None
    high: float | None
    reasons: str
    run: int
    run_id: str
    started_at: datetime.datetime | None
    framework: str | None


def _audit_views(release: Release) -> dict[int, AuditView]:
    """Return what cells show of the current audit of each run of a release, the summary with it."""
    rows = Audit.objects.filter(run__released_cells__release=release).order_by("ingested_at", "pk")
    found: dict[int, AuditView] = {}
    for run, status, *shown in rows.values_list("run", "status", "verdict", "auditor", "summary", "ingested_at"):
        if run is not None and is_newer(status, run in found):
            found[run] = AuditView(*shown)
    return found


def current_audits(runs: Iterable[int]) -> dict[int, Audit]:
    """Return the newest readable audit of each run, or an unreadable one where there is no other."""
    found: dict[int, Audit] = {}
    rows = Audit.objects.filter(run__in=list(runs)).defer("content").order_by("ingested_at", "pk")
    for row in rows:
        if row.run_id is not None and is_newer(row.status, row.run_id in found):
            found[row.run_id] = row
    return found


def is_newer(status: str, is_held: bool) -> bool:
    """Tell whether an audit, in order of arrival, takes the place of what is held: an unreadable one never does."""
    return status != "unreadable" or not is_held


def entrant_view(entrant: Entrant) -> EntrantView:
    """Return an entrant with its model's names."""
    model = entrant.model
    return EntrantView(
        entrant.slug, model.slug, model.name, model.lab, entrant.harness, entrant.effort, model.is_baseline
    )


def _cell(row: _Row, basis: selection.Basis, entrant: EntrantView, known: _Known, at: datetime.datetime) -> Cell:
    was_published = row.status == ReleasedCell.Status.PUBLISHED
    is_shown = was_published and basis.is_showable(at)
    is_masked = was_published and not is_shown
    codes = basis.reason_codes(at) if is_masked else _read_codes(row.reasons)
    audit, grade = known.audits.get(row.run), known.grades.get(row.run)
    return Cell(
        id=row.cell,
        deck=row.deck,
        problem=row.problem,
        problem_title=row.problem_title,
        gpu=row.gpu,
        entrant=entrant,
        status=str(ReleasedCell.Status.WITHHELD) if is_masked else row.status,
        metric=load_decks()[row.deck].problems[row.problem].metric,
        run_id=row.run_id,
        release=known.release,
        score=row.score if is_shown else None,
        low=row.low if is_shown else None,
        high=row.high if is_shown else None,
        audit=audit if is_shown or audit is None else replace(audit, summary=None),
        reasons=tuple(Reason(code, selection.reason_title(code)) for code in codes),
        started_at=row.started_at,
        framework=row.framework,
        verification=grade if is_shown else without_numbers(grade),
    )


def _rank(cells: list[Cell]) -> list[Cell]:
    columns: Mapping[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell.is_published:
            columns[cell.deck, cell.problem, cell.gpu].append(cell)
    ranked = {cell.id: cell for column in columns.values() for cell in _rank_column(column)}
    return [ranked.get(cell.id, cell) for cell in cells]


def _rank_column(column: list[Cell]) -> list[Cell]:
    """Give each cell of one column its rank range and its share of the best.

    A cell's best place counts those that are better beyond doubt; its worst place counts all that may be better.
    """
    sign = 1.0 if column[0].metric.higher_is_better else -1.0
    spans = [(sign * (c.low or 0.0), sign * (c.high or 0.0)) for c in column]
    lows = sorted(min(span) for span in spans)
    highs = sorted(max(span) for span in spans)
    best = max(sign * (c.score or 0.0) for c in column)
    ranked = []
    for cell, span in zip(column, spans, strict=True):
        better = len(lows) - bisect_right(lows, max(span))
        possibly = len(highs) - bisect_left(highs, min(span))
        ranked.append(
            replace(cell, rank=(better + 1, max(possibly, better + 1)), share_of_best=_share(cell, best, sign))
        )
    return ranked


def _share(cell: Cell, best: float, sign: float) -> float | None:
    if not cell.score or not best:
        return None
    return cell.score / best if sign > 0 else -best / cell.score
