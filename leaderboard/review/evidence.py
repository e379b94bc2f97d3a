"""Everything that a person reads before deciding on one run, with the lines that findings and auditors point to."""

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User

from grading.auditfile import Audit as AuditRecord
from grading.auditfile import Quote
from grading.integrity import RULES, is_waivable
from grading.integrity.audits import standing
from grading.source.files import is_source
from leaderboard import publishing, selection
from leaderboard.boards.excerpts import Excerpt, Line, Texts, cut, is_found, read_texts
from leaderboard.boards.runs import RunView
from leaderboard.models import Audit, Decision, Finding, Publication, Run
from leaderboard.publishing import PublishingError
from leaderboard.review.actions import Seen
from leaderboard.review.queue import differences_of, is_lapsed, read_runs

MAX_SOURCE_LINES = 1_200
MAX_SOURCES = 4
MAX_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Pointed:
    """A finding with the lines around its place."""

    finding: Finding
    excerpt: Excerpt | None


@dataclass(frozen=True, slots=True)
class Quoted:
    """A quote with the source around it; `is_found` tells whether the quoted words stand in those lines."""

    quote: Quote
    excerpt: Excerpt | None
    is_found: bool | None


@dataclass(frozen=True, slots=True)
class Judged:
    """One audit. `is_standing` is false for one that a later audit settled."""

    row: Audit
    audit: AuditRecord
    quotes: tuple[Quoted, ...]
    is_standing: bool
    acknowledge: str | None


@dataclass(frozen=True, slots=True)
class Source:
    """A source file with every line that something points to marked."""

    path: str
    lines: tuple[Line, ...]
    marks: tuple[Line, ...]
    total: int

    @property
    def is_cut(self) -> bool:
        """Whether the file goes on."""
        return self.total > len(self.lines)


@dataclass(frozen=True, slots=True)
class Attempts:
    """Other runs to compare with: of the same cell, and with the same solution byte by byte."""

    same_cell: tuple[Run, ...]
    same_source: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Desk:
    """What the screen of one run shows beside the public page's content."""

    run: Run
    seen: Seen
    findings: tuple[Pointed, ...]
    leads: tuple[Pointed, ...]
    duplicates: tuple[Finding, ...]
    verifications: tuple[Finding, ...]
    audits: tuple[Judged, ...]
    sources: tuple[Source, ...]
    attempts: Attempts
    is_lapsed: bool
    differences: tuple[str, ...]
    obstacle: str | None
    waivable: tuple[str, ...]

    @property
    def state(self) -> str | None:
        """The publication state, None where nobody decided."""
        return selection.state_of(self.run)

    @property
    def is_conflicting(self) -> bool:
        """Whether the standing audits contradict each other."""
        return any(code == "audit.conflict" for code in self.run.assessment.blockers)


def read_desk(view: RunView, person: User, at: datetime.datetime) -> Desk:
    """Return what the desk shows of a run to one person."""
    (run,) = read_runs([view.assessment.pk])
    texts = read_texts(view, _paths(view))
    findings = tuple(Pointed(row, cut(texts, row.file, row.line)) for row in view.findings)
    lapsed = is_lapsed(run, at)
    signed = next((row for row in view.decisions if lapsed and row.pk == run.publication.decision_id), None)
    return Desk(
        run=run,
        seen=Seen(view.assessment.evidence_digest, selection.state_of(run) or "", _last(view)),
        findings=tuple(entry for entry in findings if not _is_lead(entry.finding.code)),
        leads=tuple(entry for entry in findings if _is_lead(entry.finding.code)),
        duplicates=tuple(row for row in view.findings if row.code.startswith("source.")),
        verifications=tuple(row for row in view.findings if row.code.startswith("verification.")),
        audits=_audits(view, texts),
        sources=_sources(view, texts),
        attempts=_attempts(run),
        is_lapsed=lapsed,
        differences=differences_of(signed.details, view.assessment.evidence) if signed else (),
        obstacle=obstacle(run, person, at),
        waivable=tuple(code for code in view.assessment.blockers if is_waivable(code)),
    )


def _is_lead(code: str) -> bool:
    return code in RULES and RULES[code].is_lead


def _last(view: RunView) -> int:
    numbers = [row.sequence for row in view.decisions] + [row.decision.sequence for row in view.waivers]
    return max(numbers, default=0)


def _paths(view: RunView) -> set[str]:
    pointed = {row.file for row in view.findings if row.file and row.line}
    quoted = {quote.file for _, audit in view.audits for quote in audit.quotes if quote.file}
    return pointed | quoted | set(_source_paths(view))


def _source_paths(view: RunView) -> list[str]:
    return [entry.path for entry in view.files if is_source(entry.path)][:MAX_SOURCES]


def _audits(view: RunView, texts: Texts) -> tuple[Judged, ...]:
    oldest_first = [audit for _, audit in reversed(view.audits)]
    kept = {audit.digest for audit in standing(oldest_first)}
    return tuple(
        Judged(
            row,
            audit,
            tuple(_quoted(quote, texts) for quote in audit.quotes),
            audit.digest in kept,
            audit.raw.get("acknowledge"),
        )
        for row, audit in view.audits
    )


def _quoted(quote: Quote, texts: Texts) -> Quoted:
    first, last = (quote.lines[0], quote.lines[-1]) if quote.lines else (None, None)
    return Quoted(quote, cut(texts, quote.file, first, last), is_found(texts, quote))


def _sources(view: RunView, texts: Texts) -> tuple[Source, ...]:
    notes = dict(_notes(view))
    found = []
    for path in _source_paths(view):
        lines = texts.get(path)
        if lines is None:
            continue
        shown = tuple(
            Line(number, text, (path, number) in notes, notes.get((path, number), ()))
            for number, text in enumerate(lines[:MAX_SOURCE_LINES], 1)
        )
        found.append(Source(path, shown, tuple(line for line in shown if line.notes), len(lines)))
    return tuple(found)


def _notes(view: RunView) -> Iterator[tuple[tuple[str, int], tuple[str, ...]]]:
    """Yield what points to each line: findings, leads among them, and auditors' quotes."""
    held: dict[tuple[str, int], list[str]] = {}
    for row in view.findings:
        if row.file and row.line:
            held.setdefault((row.file, row.line), []).append(f"{row.code}: {row.message}")
    for _, audit in view.audits:
        for quote in audit.quotes:
            if quote.file and quote.lines:
                held.setdefault((quote.file, quote.lines[0]), []).append(f"quoted: {quote.label or audit.verdict}")
    yield from ((place, tuple(dict.fromkeys(notes))) for place, notes in held.items())


def _attempts(run: Run) -> Attempts:
    cell = Run.objects.filter(deck=run.deck_id, gpu=run.gpu_id, problem=run.problem_id, entrant=run.entrant_id)
    same_cell = _others(cell, run)
    has_source = run.solution_digest is not None
    same_source = _others(Run.objects.filter(solution_digest=run.solution_digest), run) if has_source else ()
    return Attempts(same_cell, same_source)


def _others(runs: Iterable[Run], run: Run) -> tuple[Run, ...]:
    related = ("problem", "entrant__model", "assessment", "publication")
    chosen = runs.filter(assessment__isnull=False).exclude(pk=run.pk).select_related(*related)  # type: ignore[attr-defined]
    heavy = ("record", "assessment__shapes", "assessment__evidence")
    return tuple(chosen.defer(*heavy).order_by("-run_id")[:MAX_ATTEMPTS])


def obstacle(run: Run, person: User, at: datetime.datetime) -> str | None:
    """Return why this person cannot approve this run now, or None; publishing has the last word."""
    if not run.assessment.is_eligible(at):
        return f"It is not eligible: {publishing.obstacles(run.assessment, at)}."
    if not settings.TWO_PERSON_RULE:
        return None
    try:
        publishing.refuse_same_person(run, person)
    except PublishingError as error:
        return f"{error}."
    return None


def own_decisions(rows: Iterable[Decision]) -> tuple[Decision, ...]:
    """Return a run's decisions, newest first."""
    return tuple(sorted(rows, key=lambda row: -row.sequence))


def is_approved(desk: Desk) -> bool:
    """Tell whether the run is approved, whether or not the approval still counts."""
    return desk.state == Publication.State.APPROVED
