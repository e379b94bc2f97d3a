"""Runs: which ones the public may see, lists of them, and everything about one."""

import datetime
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from django.db.models import Exists, OuterRef, Q, QuerySet

from grading.auditfile import Audit as AuditRecord
from grading.integrity import RULES
from grading.problem import Problem, load_decks
from grading.record import ArchiveFile, Record, decode
from leaderboard import selection
from leaderboard.boards.cells import EntrantView, Reason, entrant_view
from leaderboard.boards.marks import best_of, with_mark, without_any_numbers, without_numbers
from leaderboard.boards.verifications import VerificationView, history_of, latest_of
from leaderboard.models import Assessment, Audit, Blob, Decision, Finding, Publication, ReleasedCell, Run, Waiver

_PUBLISHED = ReleasedCell.objects.filter(run=OuterRef("pk"), status=ReleasedCell.Status.PUBLISHED)
_HELD = (Assessment.Standing.BLOCKED, Assessment.Standing.FAILED)
_STATUSES = ("published", "withheld", "failed", "pending")
_AUDIT_DECODER = msgspec.json.Decoder(AuditRecord)
_MOST_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in a list. `score` is None unless the run is published and may still be shown."""

    deck: str
    gpu: str
    run_id: str
    problem: str
    problem_title: str
    entrant: EntrantView
    status: str
    score: float | None
    low: float | None
    high: float | None
    decimals: int
    verdict: str | None
    reasons: tuple[Reason, ...]
    started_at: datetime.datetime | None
    framework: str | None = None
    verification: VerificationView | None = None


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything about one run. What belongs to the evidence block only is marked so in the template and the API.

    is_published  whether `summary.score` is shown as a result
    """

    summary: RunSummary
    record: Record
    problem: Problem
    assessment: Assessment
    findings: tuple[Finding, ...]
    audits: tuple[tuple[Audit, AuditRecord], ...]
    decisions: tuple[Decision, ...]
    waivers: tuple[Waiver, ...]
    releases: tuple[int, ...]
    is_published: bool
    grades: tuple[VerificationView, ...] = ()
    attempts: tuple[tuple[str, datetime.datetime | None], ...] = ()

    @property
    def files(self) -> tuple[ArchiveFile, ...]:
        """The archive's files."""
        return self.record.files


def visible_runs(at: datetime.datetime, *, is_staff: bool = False) -> QuerySet[Run]:
    """Return the runs that a reader may know of: published once, withheld, failed or withdrawn; staff see all."""
    runs = Run.objects.filter(assessment__isnull=False)
    if is_staff:
        return runs
    is_withdrawn = Q(publication__state=Publication.State.WITHDRAWN)
    return runs.filter(Q(assessment__standing__in=_HELD) | is_withdrawn | Q(Exists(_PUBLISHED)))


def visible_assessments() -> QuerySet[Assessment]:
    """Return the assessments of the runs that strangers may know of, for what asks about all of them at once.

    The same as `visible_runs`, by sets of keys that indexes hold: a third of the time where all rows are wanted.
    """
    withdrawn = Publication.objects.filter(state=Publication.State.WITHDRAWN)
    published = ReleasedCell.objects.filter(status=ReleasedCell.Status.PUBLISHED).order_by()
    is_known = Q(pk__in=withdrawn.values("run")) | Q(pk__in=published.values("run"))
    return Assessment.objects.filter(Q(standing__in=_HELD) | is_known)


def list_runs(filters: dict[str, str], at: datetime.datetime, *, is_staff: bool = False) -> QuerySet[Run]:
    """Return the visible runs that match, newest run id first.

    filters  any of deck, gpu, problem, model, harness, effort, framework, verified, status, verdict, q (words, as
             one would say them)
    """
    runs = visible_runs(at, is_staff=is_staff).annotate(was_published=Exists(_PUBLISHED))
    columns = {
        "deck": "deck", "gpu": "gpu", "problem": "problem__slug", "model": "entrant__model__slug",
        "harness": "entrant__harness", "effort": "entrant__effort", "verdict": "assessment__verdict",
    }  # fmt: skip
    for name, column in columns.items():
        if filters.get(name):
            runs = runs.filter(**{column: filters[name]})
    if filters.get("verified") in ("true", "false"):
        runs = with_mark(runs, is_wanted=filters["verified"] == "true")
    if filters.get("framework"):
        runs = runs.filter(assessment__framework__contains=filters["framework"])
    words = filters.get("q", "").casefold().split()[:8]
    said = next((word for word in words if word in _STATUSES), "")
    for word in words:
        if word != said:
            runs = runs.filter(_mentions(word))
    runs = _with_status(runs, filters.get("status", "") or said, at)
    related = ("problem", "entrant__model", "assessment", "publication")
    return (
        runs.select_related(*related)
        .defer("record", "assessment__shapes", "assessment__evidence")
        .order_by("-run_id", "deck", "gpu")
    )


def _mentions(word: str) -> Q:
    """Return which runs a word of a search means: by id, model, harness, problem, deck, GPU or audit."""
    anywhere = ("run_id", "entrant__model__name", "entrant__harness", "problem__title", "gpu__key", "gpu__name")
    whole = ("deck", "assessment__verdict", "entrant__effort")
    found = Q()
    for column in anywhere:
        found |= Q(**{f"{column}__icontains": word})
    for column in whole:
        found |= Q(**{f"{column}__iexact" if column != "deck" else column: word})
    return found


def run_cursor(run: Run) -> str:
    """Return the cursor that continues a list after a run."""
    return f"{run.run_id}|{run.deck_id}|{run.gpu_id}"


def page_after(runs: QuerySet[Run], cursor: str | None) -> QuerySet[Run]:
    """Return the runs of a list that stand after a cursor; a list that grows meanwhile repeats and skips none."""
    if cursor is None:
        return runs
    run_id, deck, gpu = (*cursor.split("|"), "", "")[:3]
    same_deck = Q(run_id=run_id, deck=deck, gpu__gt=gpu)
    return runs.filter(Q(run_id__lt=run_id) | Q(run_id=run_id, deck__gt=deck) | same_deck)


def shown_filter(at: datetime.datetime) -> Q:
    """Return which runs of `list_runs` show their score: `summarise` says the same of one run."""
    is_valid = Q(assessment__valid_until=None) | Q(assessment__valid_until__gt=at)
    state, standing = Publication.State.APPROVED, Assessment.Standing.ELIGIBLE
    return Q(is_valid, was_published=True, publication__state=state, assessment__standing=standing)


def _with_status(runs: QuerySet[Run], status: str, at: datetime.datetime) -> QuerySet[Run]:
    standing = Assessment.Standing
    is_failed = Q(assessment__standing=standing.FAILED)
    is_withheld = (
        Q(assessment__standing=standing.BLOCKED)
        | Q(publication__state=Publication.State.WITHDRAWN)
        | Q(assessment__valid_until__lte=at)
    )
    if status == "published":
        return runs.filter(shown_filter(at))
    if status == "failed":
        return runs.filter(is_failed)
    if status == "withheld":
        return runs.filter(is_withheld).exclude(is_failed)
    if status == "pending":
        return runs.exclude(Q(pk__in=runs.filter(shown_filter(at) | is_failed | is_withheld).values("pk")))
    return runs


def summarise(
    run: Run, at: datetime.datetime, *, was_published: bool, grade: VerificationView | None = None
) -> RunSummary:
    """Return a run as a list shows it; of the grade no number where the score may not be shown."""
    is_shown = was_published and selection.is_showable(run, at)
    status = str(ReleasedCell.Status.PUBLISHED) if is_shown else selection.status_of(run, at) or "pending"
    if status == ReleasedCell.Status.PUBLISHED and not is_shown:
        status = "pending"
    metric = load_decks()[run.deck_id].problems[run.problem.slug].metric
    codes = [] if is_shown else selection.reason_codes(run, at)
    return RunSummary(
        deck=run.deck_id,
        gpu=run.gpu_id,
        run_id=run.run_id,
        problem=run.problem.slug,
        problem_title=run.problem.title,
        entrant=entrant_view(run.entrant),
        status=status,
        score=run.assessment.score if is_shown else None,
        low=run.assessment.score_low if is_shown else None,
        high=run.assessment.score_high if is_shown else None,
        decimals=metric.decimals,
        verdict=run.assessment.verdict,
        reasons=tuple(Reason(code, selection.reason_title(code)) for code in codes),
        started_at=run.started_at,
        framework=run.assessment.framework,
        verification=grade if is_shown else without_numbers(grade),
    )


def summarise_all(runs: Sequence[Run], at: datetime.datetime) -> list[RunSummary]:
    """Return the runs of `list_runs` as a list shows them, each with its grade; one query."""
    grades = latest_of([run.pk for run in runs])
    return [
        summarise(run, at, was_published=run.was_published, grade=grades.get(run.pk))  # type: ignore[attr-defined]
        for run in runs
    ]


def read_run(deck: str, gpu: str, run_id: str, at: datetime.datetime, *, is_staff: bool = False) -> RunView | None:
    """Return everything about one run, or None where there is none that this reader may know of."""
    related = ("problem", "entrant__model", "assessment", "publication")
    runs = visible_runs(at, is_staff=is_staff).annotate(was_published=Exists(_PUBLISHED)).select_related(*related)
    run: Any = runs.filter(deck=deck, gpu=gpu, run_id=run_id).first()
    if run is None:
        return None
    grades = history_of(run.pk)
    summary = summarise(run, at, was_published=run.was_published, grade=best_of(grades))
    audits = Audit.objects.filter(run=run).order_by("-ingested_at", "-pk")
    releases = run.released_cells.filter(status="published").values_list("release__number", flat=True)
    return RunView(
        summary=summary,
        record=decode(bytes(run.record)),
        problem=load_decks()[deck].problems[run.problem.slug],
        assessment=run.assessment,
        findings=tuple(run.findings.all()),
        audits=tuple((row, _AUDIT_DECODER.decode(bytes(row.content))) for row in audits),
        decisions=tuple(run.decisions.select_related("actor").all()),
        waivers=tuple(run.waivers.select_related("decision__actor").all()),
        releases=tuple(sorted(releases)),
        is_published=summary.score is not None,
        grades=tuple(grades) if summary.score is not None or is_staff else without_any_numbers(grades),
        attempts=_other_attempts(run, at, is_staff=is_staff),
    )


def _other_attempts(
    run: Run, at: datetime.datetime, *, is_staff: bool
) -> tuple[tuple[str, datetime.datetime | None], ...]:
    """Return run id and start of what the same entrant did on this problem and GPU besides, newest first."""
    same = visible_runs(at, is_staff=is_staff).filter(entrant=run.entrant, problem=run.problem, gpu=run.gpu_id)
    found = same.exclude(pk=run.pk).order_by("-started_at", "-pk").values_list("run_id", "started_at")
    return tuple(found[:_MOST_ATTEMPTS])


def read_file(view: RunView, path: str) -> bytes | None:
    """Return the stored bytes of one file of a run's archive, or None where the archive has no such file."""
    entry = next((entry for entry in view.files if entry.path == path), None)
    blob = Blob.objects.filter(pk=entry.digest).first() if entry is not None else None
    return zlib.decompress(bytes(blob.content)) if blob is not None else None


def rule_title(code: str) -> str:
    """Return a finding's title for headings."""
    return RULES[code].title if code in RULES else code
