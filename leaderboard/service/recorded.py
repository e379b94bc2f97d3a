"""Grades that were made without the service: archives that ``grade`` or a survey wrote become verifications.

Whoever loads them vouches for where they come from. What they say is judged here, by the rules of today and against
the times that are published here, like what a host of the service hands in.
"""

import datetime
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.db import transaction

from grading.evidence import Evidence
from grading.hardware import load_gpus
from grading.parcel import pack, read_folder
from grading.record import RecordError
from grading.rundir import EVIDENCE, PACKED_EVIDENCE, unpack_evidence
from grading.words import counted
from leaderboard import jobs
from leaderboard.models import Run, Verification
from leaderboard.recompute import recompute_all
from leaderboard.service import hosts, results


@dataclass(slots=True)
class Loaded:
    """What came of it: the word by run, how many were held already, and by path why others were passed over."""

    words: list[tuple[str, str]] = field(default_factory=list)
    held: int = 0
    passed_over: list[tuple[str, str]] = field(default_factory=list)

    def summary(self) -> str:
        """Return one line."""
        return f"{counted(len(self.words), 'grade')} new, {self.held} already held, {len(self.passed_over)} passed over"


def load_grades(root: Path, at: datetime.datetime) -> Loaded:
    """Take the graded archives below a folder as verifications of the runs with the same sources.

    Each is taken as a whole or not at all, and once. Raises nothing for what it finds: that is told by path.
    """
    loaded, touched = Loaded(), set()
    for folder in _archives(root):
        try:
            files, evidence = _read(folder)
            runs = list(_runs_of(files, evidence))
            if not runs:
                raise results.ResultError("no run here has this source on this GPU")
            for run in runs:
                word = _take(run, files, evidence, at)
                if word is None:
                    loaded.held += 1
                else:
                    loaded.words.append((str(run), word))
                    touched.add(run.pk)
        except (results.ResultError, RecordError, OSError) as error:
            loaded.passed_over.append((str(folder), str(error)))
    if touched:
        recompute_all(runs=sorted(touched))
    return loaded


def _archives(root: Path) -> Iterator[Path]:
    marks = (EVIDENCE, PACKED_EVIDENCE)
    yield from sorted({path.parent for mark in marks for path in root.rglob(mark) if not path.is_symlink()})


def _read(folder: Path) -> tuple[dict[str, bytes], Evidence]:
    """Return an archive's files, its evidence unpacked. Raises what cannot be read as an error for a person."""
    files = read_folder(folder)
    if EVIDENCE not in files:
        files[EVIDENCE] = unpack_evidence(files.pop(PACKED_EVIDENCE))
    return files, results.decode_evidence(files[EVIDENCE])


def _runs_of(files: dict[str, bytes], evidence: Evidence) -> Iterator[Run]:
    """Yield the runs of the same problem and source on a GPU that the evidence proves."""
    deck, _, slug = evidence.problem.partition("/")
    source = hashlib.sha256(files.get("solution.py", b"")).hexdigest()
    known = Run.objects.filter(deck_id=deck, problem__slug=slug, solution_digest=source)
    for run in known.select_related("problem").order_by("pk"):
        if load_gpus()[run.gpu_id].is_proven_by(evidence.device_name or ""):
            yield run


def _take(run: Run, files: dict[str, bytes], evidence: Evidence, at: datetime.datetime) -> str | None:
    """Record one grade of one run; None where it is held. Raises ResultError for evidence that is no answer."""
    packed = pack(files)
    if Verification.objects.filter(run=run, evidence_digest=hashlib.sha256(packed).hexdigest()).exists():
        return None
    try:
        began = datetime.datetime.fromisoformat(evidence.started_at)
    except ValueError as error:
        raise results.ResultError(f"started_at is {evidence.started_at[:40]!r}; need a time") from error
    if began.tzinfo is None or began > at:
        raise results.ResultError(f"started_at is {evidence.started_at[:40]!r}; need a time that is past, with a zone")
    if evidence.tier not in jobs.Tier.values:
        raise results.ResultError(f"tier is {evidence.tier[:20]!r}; accepted are {', '.join(jobs.Tier.values)}")
    uuid, driver = (str(evidence.host.get(name, "unknown")) for name in ("uuid", "driver"))
    with transaction.atomic():
        holder = hosts.of_archives(uuid, run.gpu_id, evidence.device_name or "", driver, at)
        job, _ = jobs.request(run, jobs.Wish(run.gpu_id, evidence.tier, jobs.Reason.PERSON), began)
        return results.enter(job, holder, packed, evidence, began)
