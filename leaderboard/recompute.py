"""Rows become scores and findings: deterministic, and incremental by a digest of everything that goes in.

A run is assessed again when its record, audits, waivers, conflicts or our own grades of it, its problem's version, its
deck's rules, its GPU's peaks, what it shares with other runs, the method or the rules changed. The same evidence always
gives the same bytes.
"""

import datetime
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import F

from grading.auditfile import Audit as AuditRecord
from grading.hardware import Gpu, load_gpus, peaks_digest
from grading.harnesses import load_harnesses
from grading.integrity import RULES_VERSION, Context, Finding, Verification, judge
from grading.integrity.audits import standing
from grading.integrity.crossrun import NO_NEIGHBOURS, Neighbours
from grading.integrity.scores import agreement
from grading.interval import Interval
from grading.names import find_model, load_models
from grading.problem import Deck, Problem, load_decks
from grading.record import Record, decode
from grading.score import METHOD_VERSION, Recomputed, ShapeScore, recompute
from grading.source.framework import FRAMEWORKS_VERSION, framework_of
from grading.words import counted
from leaderboard import crossrun, eligibility, verdicts
from leaderboard.models import Assessment, Audit, Rejection, Revision, Run, Waiver
from leaderboard.models import Finding as FindingRow

BATCH = 500
_AUDIT_DECODER = msgspec.json.Decoder(AuditRecord)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that decides one run's assessment, apart from the files, which the record names by digest."""

    run: Run
    audits: tuple[Audit, ...]
    conflicts: tuple[str, ...]
    waivers: dict[str, datetime.datetime | None]
    neighbours: Neighbours = NO_NEIGHBOURS
    neighbours_digest: str = NO_NEIGHBOURS.digest
    verifications: tuple[Verification, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """One run's score, findings and standing, before they become rows."""

    record: Record
    problem: Problem
    gpu: Gpu
    score: Recomputed
    agrees: bool | None
    findings: tuple[Finding, ...]
    standing: eligibility.Standing
    audits: tuple[AuditRecord, ...]
    framework: str | None


@dataclass
class Report:
    """What one recompute did."""

    seen: int = 0
    assessed: int = 0

    def summary(self) -> str:
        """Return the one line that the command prints."""
        return f"{counted(self.assessed, 'run')} assessed, {self.seen - self.assessed} unchanged"


def recompute_all(*, is_forced: bool = False, runs: Collection[int] | None = None) -> Report:
    """Assess every run whose evidence changed, in batches of one transaction each.

    is_forced  assess also runs whose evidence did not change
    runs       only these primary keys
    """
    report = Report()
    if runs is None and crossrun.is_outdated():
        crossrun.forget_all()
    keys = iter(sorted(runs) if runs is not None else Run.objects.order_by("pk").values_list("pk", flat=True))
    late = crossrun.sign_earlier(min(runs)) if runs else set()
    while batch := list(islice(keys, BATCH)):
        with transaction.atomic():
            late |= _assess_batch(batch, report, is_forced=is_forced)
    later = iter(sorted(late))
    while batch := list(islice(later, BATCH)):
        with transaction.atomic():
            _assess_batch(batch, Report(), is_forced=False)
    return report


def gather(keys: list[int], neighbours: Mapping[int, tuple[Neighbours, str]]) -> Iterator[Evidence]:
    """Yield the evidence of runs in order of primary key; five queries whatever their number.

    neighbours  by run, what it shares with others and the digest of that
    """
    audits, conflicts, waivers = _by_run(keys)
    verifications = verdicts.of_runs(keys)
    rows = Run.objects.filter(pk__in=keys).annotate(held_digest=F("assessment__input_digest"))
    for run in rows.select_related("problem").order_by("pk"):
        yield Evidence(
            run,
            tuple(audits.get(run.pk, ())),
            tuple(conflicts.get(run.pk, ())),
            waivers.get(run.pk, {}),
            *neighbours.get(run.pk, (NO_NEIGHBOURS, NO_NEIGHBOURS.digest)),
            verifications=verifications.get(run.pk, ()),
        )


def _by_run(keys: list[int]) -> tuple[dict[int, list[Audit]], dict[int, list[str]], dict[int, dict[str, Any]]]:
    audits: dict[int, list[Audit]] = {}
    for audit in Audit.objects.filter(run__in=keys).order_by("ingested_at", "file", "digest"):
        audits.setdefault(audit.run_id, []).append(audit)
    conflicts: dict[int, list[str]] = {}
    for run, digest in Rejection.objects.filter(run__in=keys).order_by("digest").values_list("run", "digest"):
        conflicts.setdefault(run, []).append(digest)
    waivers: dict[int, dict[str, Any]] = {}
    rows = Waiver.runs.through.objects.filter(run__in=keys)
    for run, code, expires_at in rows.values_list("run", "waiver__code", "waiver__expires_at"):
        held = waivers.setdefault(run, {})
        held[code] = _later(held[code], expires_at) if code in held else expires_at
    return audits, conflicts, waivers


def _later(first: datetime.datetime | None, second: datetime.datetime | None) -> datetime.datetime | None:
    return None if first is None or second is None else max(first, second)


def assess(evidence: Evidence, record: Record, files: Mapping[str, bytes]) -> Judged:
    """Return the score, findings and standing that the evidence gives."""
    deck, gpu = _catalogue(record)
    problem = deck.problems[record.problem]
    score = recompute(record, problem, gpu.key, gpu.current)
    audits = tuple(_AUDIT_DECODER.decode(bytes(row.content)) for row in evidence.audits)
    has_transcript = any(entry.role == "transcript" for entry in record.files)
    context = Context(
        record=record,
        problem=problem,
        deck=deck,
        gpu=gpu,
        score=score,
        audits=audits,
        conflicts=evidence.conflicts,
        files=files,
        neighbours=crossrun.with_scores(evidence.neighbours, evidence.run) if has_transcript else evidence.neighbours,
        received_at=evidence.run.ingested_at,
        is_known_model=find_model(record.model) is not None,
        is_known_harness=record.harness in load_harnesses(),
        verifications=evidence.verifications,
    )
    findings = judge(context)
    standing = eligibility.decide(findings, score.value, evidence.waivers)
    return Judged(record, problem, gpu, score, agreement(context), findings, standing, audits, framework_of(files))


def _catalogue(record: Record) -> tuple[Deck, Gpu]:
    return load_decks()[record.key.deck], load_gpus()[record.key.gpu]


def assess_all(evidence: Iterable[Evidence]) -> Iterator[Judged]:
    """Yield what `assess` returns for each run, with the files that its record names."""
    held = list(evidence)
    records = [decode(bytes(item.run.record)) for item in held]
    for item, record, files in zip(held, records, crossrun.files_of(records), strict=True):
        yield assess(item, record, files)


def _assess_batch(keys: list[int], report: Report, *, is_forced: bool) -> set[int]:
    """Sign and assess runs; return older ones that must be assessed again because of them."""
    neighbours, late = crossrun.sign_runs(keys)
    rows: list[Assessment] = []
    findings: list[FindingRow] = []
    everything = [(evidence, input_digest(evidence)) for evidence in gather(keys, neighbours)]
    report.seen += len(everything)
    stale = [(item, digest) for item, digest in everything if is_forced or item.run.held_digest != digest]
    for (evidence, digest), judged in zip(stale, assess_all([evidence for evidence, _ in stale]), strict=True):
        rows.append(_assessment(evidence, judged, digest))
        findings.extend(_finding_rows(evidence.run.pk, judged.findings))
    report.assessed += len(rows)
    done = [row.pk for row in rows]
    FindingRow.objects.filter(run__in=done).delete()
    Assessment.objects.filter(pk__in=done).delete()
    Assessment.objects.bulk_create(rows)
    FindingRow.objects.bulk_create(findings)
    if rows:
        Revision.advance()
    return late


def input_digest(evidence: Evidence) -> str:
    """Return the digest of everything that can change a run's assessment."""
    run = evidence.run
    problem = load_decks()[run.deck_id].problems[run.problem.slug]
    parts = [
        METHOD_VERSION,
        RULES_VERSION,
        FRAMEWORKS_VERSION,
        run.content_digest,
        hashlib.sha256(bytes(run.record)).hexdigest(),
        problem.version,
        load_decks()[run.deck_id].digest,
        peaks_digest(load_gpus()[run.gpu_id]),
        evidence.neighbours_digest,
        _registry_digest(),
        [(row.file, row.digest) for row in evidence.audits],
        evidence.conflicts,
        sorted((code, str(expiry)) for code, expiry in evidence.waivers.items()),
        verdicts.digest_of(evidence.verifications),
    ]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


@cache
def _registry_digest() -> str:
    """Return the digest of the names that the catalogue knows and of every peak table, which explain scores."""
    parts = [
        sorted(load_harnesses()),
        sorted((entry.slug, sorted(entry.strings)) for entry in load_models().values()),
        [msgspec.json.encode(gpu.peaks, order="deterministic").decode() for gpu in load_gpus().values()],
    ]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def forget_catalogue() -> None:
    """Forget what was read of the catalogue, which a proposal changes for a while."""
    _registry_digest.cache_clear()


def _assessment(evidence: Evidence, judged: Judged, digest: str) -> Assessment:
    value, summary = judged.score.value, _summary(evidence, judged)
    audits = standing(judged.audits)
    current = next((audit for audit in reversed(audits) if audit.status != "unreadable"), None)
    return Assessment(
        run_id=evidence.run.pk,
        score=value.value if value else None,
        score_low=value.low if value else None,
        score_high=value.high if value else None,
        reason=judged.score.reason,
        agrees=judged.agrees,
        shapes=[shape_data(shape, judged.problem) for shape in judged.score.shapes],
        standing=judged.standing.standing,
        blockers=list(judged.standing.blockers),
        waived=list(judged.standing.waived),
        valid_until=judged.standing.valid_until,
        verdict=current.verdict if current else None,
        framework=judged.framework,
        needs_acknowledgement=any(audit.publishable == "with_acknowledgement" for audit in audits),
        method_version=METHOD_VERSION,
        problem_version=judged.problem.version,
        peak_version=judged.gpu.current.version,
        evidence=summary,
        evidence_digest=hashlib.sha256(msgspec.json.encode(summary, order="deterministic")).hexdigest(),
        input_digest=digest,
    )


def _summary(evidence: Evidence, judged: Judged) -> dict[str, Any]:
    """Return what an approval signs: record, score, findings, audits, waivers, peak and problem versions.

    Of our own grades only what blocks is part of it: a grade that holds, or a first one that does not, must not take a
    cell away before anybody, or a second grade, has looked.
    """
    return {
        "record": hashlib.sha256(bytes(evidence.run.record)).hexdigest(),
        "content": evidence.run.content_digest,
        "problem": judged.problem.version,
        "peaks": {"version": judged.gpu.current.version, "digest": peaks_digest(judged.gpu)},
        "score": _range(judged.score.value),
        "findings": [
            [finding.code, finding.severity, finding.message]
            for finding in judged.findings
            if finding.severity == "block" or not finding.code.startswith("verification.")
        ],
        "audits": [[row.file, row.digest, row.verdict] for row in evidence.audits],
        "waivers": sorted([code, str(expiry)] for code, expiry in evidence.waivers.items()),
    }


def shape_data(shape: ShapeScore, problem: Problem) -> dict[str, Any]:
    """Return one shape of a score as plain data, as `explain` prints it and pages show it."""
    return {
        "index": shape.index,
        "label": problem.shape_label(shape.index),
        "value": _range(shape.value),
        "ms": _range(shape.ms),
        "floor_ms": shape.floor_ms,
        "floor_bound": shape.floor_bound,
        "share_of_attainable": _range(shape.share_of_attainable),
        "readings": [{"quantity": clue.quantity, "text": clue.text, "line": clue.line} for clue in shape.clues],
        "is_consistent": shape.conflict is None,
    }


def _range(interval: Interval | None) -> list[float] | None:
    """Return [value, low, high], with a bound that is not finite as null."""
    if interval is None:
        return None
    return [bound if abs(bound) < 1e300 else None for bound in (interval.value, interval.low, interval.high)]  # type: ignore[misc]


def _finding_rows(run: int, findings: Iterable[Finding]) -> Iterator[FindingRow]:
    for position, finding in enumerate(findings):
        yield FindingRow(
            run_id=run,
            position=position,
            code=finding.code,
            severity=finding.severity,
            message=finding.message,
            file=finding.file,
            line=finding.line,
            data=dict(finding.data),
        )
