"""What a host is sent for a job: the deck's files and the run's, by content digest; and what it is then asked."""

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from grading.hardware import load_gpus
from grading.neighbours import NEIGHBOURS
from grading.oracle.gates import TOLERANCE_FILE, read_gates
from grading.problem import ADAPTER, DECKS, Problem, load_decks
from grading.record import ArchiveFile, Record, decode
from grading.regrade import Question
from grading.runner.demo import KERNELS
from grading.score import recompute
from grading.warden.intake import bundle_digest
from leaderboard.models import Blob, GradeJob, Run

_SOURCES = (".py", ".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp", ".ptx")
_LOGS = frozenset(
    {"result.json", "meta.log", "benchmark.log", "check.log", "environment.json", "framework.txt", "cuda_language.json"}
)
_BESIDE = (ADAPTER, NEIGHBOURS, TOLERANCE_FILE)
_KERNEL, _PLAIN = "kernel", "eager"


class ParcelMissing(ValueError):
    """A job for which there is nothing to send; the message is safe to show to users."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Files by path, named by their digest."""

    digest: str
    files: dict[str, bytes]


def problem_of(job: GradeJob) -> Problem:
    """Return the problem that a job grades."""
    return load_decks()[job.problem.deck_id].problems[job.problem.slug]


def reference_of(job: GradeJob) -> str:
    """Return which of our own solutions a calibration grades; empty for a run.

    A processor cannot run our kernels: there the plain PyTorch solution stands for the host.
    """
    if job.kind != GradeJob.Kind.CALIBRATION:
        return ""
    return _PLAIN if job.gpu_id == "CPU" else _KERNEL


def deck_parcel(job: GradeJob) -> Parcel:
    """Return the deck's data, the problem's reference, and for a calibration the solution that is graded."""
    problem = problem_of(job)
    deck, own = DECKS / problem.deck, DECKS / problem.deck / problem.id
    if not (own / "reference.py").exists():
        raise ParcelMissing(f"{problem.key} has no reference; it cannot be graded")
    beside = [own / name for name in _BESIDE if (own / name).exists()]
    paths = [deck / "deck.toml", *sorted(deck.glob("*/problem.toml")), own / "reference.py", *beside]
    files = {str(path.relative_to(DECKS)): path.read_bytes() for path in paths}
    name = reference_of(job)
    if name:
        files[f"{problem.deck}/{problem.id}/solutions/right/{name}.py"] = _reference_source(problem, name)
    return Parcel(bundle_digest(files), files)


def _reference_source(problem: Problem, name: str) -> bytes:
    path = DECKS / problem.deck / problem.id / "solutions" / "right" / f"{name}.py"
    if name == _KERNEL and problem.id in KERNELS:
        path = Path(DECKS).parent / "kernels" / f"{KERNELS[problem.id]}.py"
    if not path.exists():
        raise ParcelMissing(f"{problem.key} has no solution {name!r} to calibrate with")
    return path.read_bytes()


def run_parcel(run: Run) -> Parcel:
    """Return the files of a run that a grade needs: its sources, and the logs that hold its times."""
    entries = [entry for entry in decode(bytes(run.record)).files if _is_needed(entry)]
    rows = Blob.objects.filter(pk__in={entry.digest for entry in entries}).values_list("pk", "content")
    held = {digest: zlib.decompress(bytes(content)) for digest, content in rows}
    missing = [entry.path for entry in entries if entry.digest not in held]
    if missing:
        raise ParcelMissing(f"{run}: the bytes of {missing[0]} are not held")
    files = {entry.path: held[entry.digest] for entry in entries}
    if "solution.py" not in files:
        raise ParcelMissing(f"{run} holds no solution.py; it cannot be graded")
    return Parcel(bundle_digest(files), files)


def _is_needed(entry: ArchiveFile) -> bool:
    return "/" not in entry.path and (entry.path in _LOGS or _is_source(entry))


def _is_source(entry: ArchiveFile) -> bool:
    return entry.role in ("solution", "sidecar") and entry.path.endswith(_SOURCES) and "/" not in entry.path


def question_of(job: GradeJob) -> Question:
    """Return what a job asks of its host, for judging what comes back. Raises ParcelMissing."""
    problem = problem_of(job)
    reference = (DECKS / problem.deck / problem.id / "reference.py").read_bytes()
    bundle, published = None, ()
    if job.run is not None:
        record = decode(bytes(job.run.record))
        sources = {entry.path for entry in record.files if _is_source(entry)}
        bundle = bundle_digest({path: data for path, data in run_parcel(job.run).files.items() if path in sources})
        published = _published_ms(record, problem) if job.gpu_id == job.run.gpu_id else ()
    else:
        bundle = bundle_digest({"solution.py": _reference_source(problem, reference_of(job))})
    return Question(
        problem=problem,
        gpu=load_gpus()[job.gpu_id],
        tier=job.tier,
        reference_digest=hashlib.sha256(reference).hexdigest(),
        bundle=bundle,
        gates=msgspec.to_builtins(read_gates(DECKS / problem.deck / problem.id)),
        published_ms=published,
    )


def _published_ms(record: Record, problem: Problem) -> tuple[float | None, ...]:
    gpu = load_gpus()[record.key.gpu]
    shapes = recompute(record, problem, gpu.key, gpu.current).shapes
    return tuple((shape.ms.low + shape.ms.high) / 2 if shape.ms is not None else None for shape in shapes)
