"""Grades of ours as rows, for tests that only read them: a host with its GPU, a job that ended and what came of it."""

import datetime
import hashlib
import zlib
from typing import Any

from grading.problem import load_decks
from leaderboard.models import Blob, GradeEvent, GradeJob, Host, HostGpu, Revision, Run, Verification

AT = datetime.datetime(2026, 7, 2, 9, 30, tzinfo=datetime.UTC)


def make_gpu(key: str = "H200", host: str = "alpha", **fields: Any) -> HostGpu:
    """Return a GPU of a host, ready unless its fields say otherwise."""
    owner, _ = Host.objects.get_or_create(name=host, defaults={"registered_at": AT, "state": "healthy"})
    values = {"name": f"NVIDIA {key}", "driver": "570.1", "state": "healthy", "gpu_id": key, **fields}
    return HostGpu.objects.get_or_create(host=owner, uuid=f"GPU-{host}-{key}", defaults=values)[0]


def make_job(run: Run, gpu: str | None = None, /, **fields: Any) -> GradeJob:
    """Return a job about a run that waits, unless its fields say otherwise."""
    values = {
        "kind": "verification", "run": run, "problem_id": run.problem_id, "gpu_id": gpu or run.gpu_id, "tier": "full",
        "reason": "person", "requested_at": AT, "max_attempts": 3, "state": "queued", **fields,
    }  # fmt: skip
    job = GradeJob.objects.create(**values)
    GradeEvent.objects.create(job=job, at=AT, kind="requested", text="person by the-name-of-who-asked")
    return job


def make_grade(run: Run, gpu: str | None = None, factor: float = 1.01, **fields: Any) -> Verification:
    """Return a grade of a run that held, on its own GPU, with times a factor above the published ones."""
    holder = make_gpu(gpu or run.gpu_id)
    ended = {"state": "recorded", "ended_at": AT, "leased_at": AT, "holder": holder, "attempt": 1, "token": 1}
    job = make_job(run, gpu, **ended)
    GradeEvent.objects.create(job=job, at=AT, kind="recorded", text="the-words-of-a-host", host_gpu=holder)
    times = [shape["ms"][0] for shape in run.assessment.shapes]
    problem = load_decks()[run.deck_id].problems[run.problem.slug]
    content = f"evidence of {run} {times}".encode()
    digest = hashlib.sha256(content).hexdigest()
    Blob.objects.get_or_create(digest=digest, defaults={"size_bytes": len(content), "content": zlib.compress(content)})
    counts = holder.gpu_id == run.gpu_id
    values = {
        "run": run, "job": job, "host_gpu": holder, "gpu_id": holder.gpu_id, "gpu_uuid": holder.uuid, "tier": "full",
        "word": "verified", "outcome": "passed", "counts_for_board": counts, "fired": [], "isolation": "A",
        "shapes": [
            {
                "shape": sizes,
                "ms": ms * factor,
                "p5_ms": ms * factor * 0.99,
                "p95_ms": ms * factor * 1.01,
                "published_ms": ms,
                "ratio": factor,
            }
            for sizes, ms in zip(problem.shapes, times, strict=True)
        ],
        "solution_digest": run.solution_digest, "problem_version": run.assessment.problem_version,
        "rules_version": "1", "grader_version": "1", "evidence_digest": digest, "recorded_at": AT, **fields,
    }  # fmt: skip
    grade = Verification.objects.create(**values)
    Revision.advance()
    return grade
