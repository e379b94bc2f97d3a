"""Cells as the public may see them: the rows of a release, masked by what holds today.

A release is immutable; what is shown of it is not. A score whose run was withdrawn, or has a blocking finding, or rests
on an expired waiver, is withheld from that moment on every surface and in every older release.
"""

import datetime
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from grading.problem import Metric, load_decks
from leaderboard import selection
from leaderboard.boards.memo import Memo
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


def _read(release: Release, at: datetime.datetime) -> list[Cell]:
    rows = list(
        release.cells.all()
        .select_related("problem", "entrant__model", "run__assessment", "run__publication")
        .defer("run__record", "run__assessment__shapes", "run__assessment__evidence")
    )
    audits = current_audits(row.run_id for row in rows)
    return _rank([_cell(row, release.number, audits.get(row.run_id), at) for row in rows])


def current_audits(runs: Iterable[int]) -> dict[int, Audit]:
    """Return the newest readable audit of each run, or an unreadable one where there is no other."""
    found: dict[int, Audit] = {}
    rows = Audit.objects.filter(run__in=list(runs)).defer("content").order_by("ingested_at", "pk")
    for row in rows:
        if row.run_id is not None and (row.status != "unreadable" or row.run_id not in found):
            found[row.run_id] = row
    return found


def entrant_view(entrant: Entrant) -> EntrantView:
    """Return an entrant with its model's names."""
    model = entrant.model
    return EntrantView(
        entrant.slug, model.slug, model.name, model.lab, entrant.harness, entrant.effort, model.is_baseline
    )


def _cell(row: ReleasedCell, number: int, audit: Audit | None, at: datetime.datetime) -> Cell:
    is_shown = row.status == ReleasedCell.Status.PUBLISHED and selection.is_showable(row.run, at)
    status, codes = str(row.status), list(row.reasons)
    if row.status == ReleasedCell.Status.PUBLISHED and not is_shown:
        status, codes = str(ReleasedCell.Status.WITHHELD), selection.reason_codes(row.run, at)
    return Cell(
        id=row.cell,
        deck=row.deck_id,
        problem=row.problem.slug,
        problem_title=row.problem.title,
        gpu=row.gpu_id,
        entrant=entrant_view(row.entrant),
        status=status,
        metric=load_decks()[row.deck_id].problems[row.problem.slug].metric,
        run_id=row.run.run_id,
        release=number,
        score=row.score if is_shown else None,
        low=row.score_low if is_shown else None,
        high=row.score_high if is_shown else None,
        audit=audit_view(audit, is_summary_shown=is_shown) if audit else None,
        reasons=tuple(Reason(code, selection.reason_title(code)) for code in codes),
        started_at=row.run.started_at,
    )


def audit_view(audit: Audit, *, is_summary_shown: bool) -> AuditView:
    """Return an audit as a cell shows it."""
    return AuditView(audit.verdict, audit.auditor, audit.summary if is_summary_shown else None, audit.ingested_at)


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
