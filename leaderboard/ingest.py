"""Records and audits become rows: in batches of one transaction each, idempotent by content digest.

Nothing is parsed or computed here. A run that arrives again with the same content changes nothing; with other content
it is a conflict, kept aside beside the first and never written over it.
"""

import datetime
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec
from django.contrib.auth.models import User
from django.db import connection, transaction

from grading import archive, record
from grading.auditfile import Audit as AuditRecord
from grading.record import Record
from grading.words import counted
from leaderboard import catalogue
from leaderboard.models import Audit, Blob, Problem, Rejection, Revision, Run

BATCH = 500


@dataclass
class Report:
    """What one ingest did, by counts and names."""

    runs_new: int = 0
    runs_held: int = 0
    audits_new: int = 0
    audits_held: int = 0
    rejected: list[tuple[str, str]] = field(default_factory=list)
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)

    def summary(self) -> str:
        """Return the one line that the command prints."""
        return (
            f"{counted(self.runs_new, 'run')} new, {self.runs_held} already held; "
            f"{counted(self.audits_new, 'audit')} new, {self.audits_held} already held; "
            f"{len(self.rejected)} rejected, {len(self.conflicts)} conflicts"
        )


@dataclass(frozen=True)
class Source:
    """Who brings the files, and when.

    may_settle  a person with the role auditor, whose audits may supersede earlier ones; those of others cannot
    """

    at: datetime.datetime
    uploader: User | None = None
    may_settle: bool = False


class _DryRun(Exception):
    """Raised inside the outermost transaction to undo a dry run."""


def ingest_paths(
    paths: Iterable[Path], source: Source, *, deck: str | None = None, gpu: str | None = None, is_dry_run: bool = False
) -> Report:
    """Read archives and audits from paths and store what is new.

    deck, gpu   used for run directories whose path does not name them
    is_dry_run  do everything, then undo it
    """
    items = archive.read_paths(paths, deck=deck, gpu=gpu)
    if not is_dry_run:
        return ingest_items(items, source)
    report = Report()
    try:
        with transaction.atomic():
            report = ingest_items(items, source)
            raise _DryRun
    except _DryRun:
        return report


def ingest_items(items: Iterable[archive.Item], source: Source) -> Report:
    """Store a stream of read items in batches; each batch is one transaction."""
    catalogue.sync()
    report, book = Report(), catalogue.EntrantBook()
    problems = {(row.deck_id, row.slug): row.pk for row in Problem.objects.all()}
    for batch in _batches(items):
        with transaction.atomic():
            _store_runs([item for item in batch if isinstance(item, archive.RunItem)], source, report, (book, problems))
            _store_audits([item for item in batch if isinstance(item, archive.AuditItem)], source, report)
            _store_rejections([item for item in batch if isinstance(item, archive.Rejection)], source, report)
    Revision.advance()
    return report


def _batches(items: Iterable[archive.Item]) -> Iterator[list[archive.Item]]:
    stream = iter(items)
    while batch := list(islice(stream, BATCH)):
        yield batch


def _store_runs(
    items: list[archive.RunItem],
    source: Source,
    report: Report,
    books: tuple[catalogue.EntrantBook, dict[tuple[str, str], int]],
) -> None:
    held = _held_runs(items)
    fresh: dict[tuple[str, str, str], Run] = {}
    blobs: dict[str, bytes] = {}
    clashes: list[tuple[Record, str, Run]] = []
    for item in items:
        key = (item.record.key.deck, item.record.key.gpu, item.record.key.run_id)
        digest = archive.content_digest(item.record)
        known = held.get(key) or fresh.get(key)
        if known is None:
            fresh[key] = _make_run(item.record, digest, source, books)
            blobs.update(item.blobs)
        elif known.content_digest == digest:
            report.runs_held += 1
        else:
            blobs.update(item.blobs)
            clashes.append((item.record, digest, known))
    _store_blobs(blobs)
    Run.objects.bulk_create(fresh.values())
    report.runs_new += len(fresh)
    report.touched.update(run.pk for run in fresh.values())
    _store_conflicts(clashes, source, report)
    _link_audits({(run.deck_id, run.run_id) for run in fresh.values()}, report)


def _held_runs(items: list[archive.RunItem]) -> dict[tuple[str, str, str], Run]:
    ids = {item.record.key.run_id for item in items}
    rows = Run.objects.filter(run_id__in=ids).defer("record")
    return {(row.deck_id, row.gpu_id, row.run_id): row for row in rows}


def _make_run(
    data: Record, digest: str, source: Source, books: tuple[catalogue.EntrantBook, dict[tuple[str, str], int]]
) -> Run:
    book, problems = books
    solution = next((entry.digest for entry in data.files if entry.role == "solution"), None)
    return Run(
        deck_id=data.key.deck,
        gpu_id=data.key.gpu,
        run_id=data.key.run_id,
        problem_id=problems[data.key.deck, data.problem],
        entrant_id=book.entrant_id(data.model, data.harness, data.effort),
        started_at=data.started_at,
        reported_text=data.score_text,
        is_correct=data.correct,
        solution_digest=solution,
        content_digest=digest,
        record=record.encode(data),
        ingested_at=source.at,
        uploader=source.uploader,
    )


def _store_blobs(blobs: dict[str, bytes]) -> None:
    """Store bytes under their digests, by one statement: the ORM's bulk insert takes thirteen times as long."""
    held = set(Blob.objects.filter(pk__in=blobs).values_list("pk", flat=True))
    rows = [
        (digest, len(content), connection.Database.Binary(zlib.compress(content, 1)))
        for digest, content in blobs.items()
        if digest not in held
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {Blob._meta.db_table} (digest, size_bytes, content) VALUES (%s, %s, %s) "
                "ON CONFLICT DO NOTHING",
                rows,
            )


def _store_conflicts(clashes: list[tuple[Record, str, Run]], source: Source, report: Report) -> None:
    """Keep what arrived under the key of a run that holds other content: (its record, its digest, the run)."""
    found = []
    for data, digest, run in clashes:
        files = ", ".join(f"{entry.path} {entry.digest[:12]}" for entry in data.files)
        reason = f"{data.key} is already held with other content; the first archive stands. Files: {files}"
        found.append(_rejection(str(data.key), digest, reason, source, run))
        report.conflicts.append((str(data.key), digest))
        report.touched.add(run.pk)
    Rejection.objects.bulk_create(found, ignore_conflicts=True)


def _rejection(path: str, digest: str, reason: str, source: Source, run: Run | None = None) -> Rejection:
    return Rejection(
        path=path[:1000], digest=digest, reason=reason, is_conflict=run is not None, run=run, received_at=source.at
    )


def _store_audits(items: list[archive.AuditItem], source: Source, report: Report) -> None:
    names = {item.audit.file for item in items}
    held = {
        (row.deck, row.file, row.digest) for row in Audit.objects.filter(file__in=names).only("deck", "file", "digest")
    }
    fresh: dict[tuple[str, str, str], Audit] = {}
    for item in items:
        row = _make_audit(item.audit, source)
        key = (row.deck, row.file, row.digest)
        if key in held or key in fresh:
            report.audits_held += 1
        else:
            fresh[key] = row
    _store_blobs({item.audit.digest: item.blob for item in items})
    Audit.objects.bulk_create(fresh.values())
    report.audits_new += len(fresh)
    _link_audits({(row.deck, row.named_run) for row in fresh.values() if row.named_run}, report)


def _make_audit(audit: AuditRecord, source: Source) -> Audit:
    if not source.may_settle:
        audit = msgspec.structs.replace(audit, supersedes=())
    return Audit(
        deck=audit.deck or "",
        named_run=audit.run_id,
        gpu=audit.gpu,
        file=audit.file,
        digest=audit.digest,
        status=audit.status,
        verdict=audit.verdict,
        auditor=audit.auditor[:300] if audit.auditor else None,
        summary=audit.summary,
        content=msgspec.json.encode(audit),
        ingested_at=source.at,
        uploader=source.uploader,
    )


def _link_audits(keys: set[tuple[str, str]], report: Report) -> None:
    """Set the run of every audit of the given (deck, run id) pairs; leave it open where several GPUs could be meant."""
    if not keys:
        return
    ids = {run_id for _, run_id in keys}
    candidates: dict[tuple[str, str], dict[str, int]] = {}
    for pk, deck, gpu, run_id in Run.objects.filter(run_id__in=ids).values_list("pk", "deck_id", "gpu_id", "run_id"):
        candidates.setdefault((deck, run_id), {})[gpu] = pk
    changed = []
    for row in Audit.objects.filter(named_run__in=ids).defer("content"):
        target = _meant_run(row, candidates.get((row.deck, row.named_run), {}))
        if row.run_id != target:
            report.touched.update(pk for pk in (row.run_id, target) if pk is not None)
            row.run_id = target
            changed.append(row)
    Audit.objects.bulk_update(changed, ["run"])


def _meant_run(audit: Audit, by_gpu: dict[str, int]) -> int | None:
    """Return the run an audit means: the one on its GPU, or the only one, unless the audit names an unrelated GPU.

    An audit that says H100_SXM means the only run of that id on the H100 board: that the part is wrong is its point.
    """
    if audit.gpu in by_gpu:
        return by_gpu[audit.gpu]
    if len(by_gpu) != 1:
        return None
    (board, run), family = next(iter(by_gpu.items())), (audit.gpu or "").split("_")[0]
    return run if not family or board.split("_")[0] == family else None


def _text_digest(text: str) -> str:
    """Return the digest by which a repeated rejection of one path is recognised."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _store_rejections(items: list[archive.Rejection], source: Source, report: Report) -> None:
    report.rejected.extend((item.path, item.reason) for item in items)
    Rejection.objects.bulk_create(
        [_rejection(item.path, _text_digest(item.reason), item.reason, source) for item in items],
        ignore_conflicts=True,
    )
