"""Rows and views as plain data for the API, exports and embedded JSON: one function per thing, null for unknown."""

import datetime
from typing import Any

import msgspec
from django.conf import settings

from grading.hardware import Gpu
from grading.problem import Metric, Problem
from leaderboard import selection
from leaderboard.boards import Cell, EntrantView, RunView
from leaderboard.boards.grading import GradingView, JobPage
from leaderboard.boards.marks import ratio_of
from leaderboard.boards.runs import RunSummary, rule_title
from leaderboard.boards.verifications import GpuHealth, VerificationView
from leaderboard.models import Finding, LanguageModel, Release


def rfc3339(moment: datetime.datetime | None) -> str | None:
    """Return a time in UTC with Z, to the second."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None


def entrant_data(entrant: EntrantView) -> dict[str, Any]:
    """Return an entrant."""
    return {
        "id": entrant.slug,
        "model": {"slug": entrant.model_slug, "name": entrant.model_name, "lab": entrant.lab or None},
        "harness": entrant.harness,
        "effort": entrant.effort,
    }


def metric_data(metric: Metric) -> dict[str, Any]:
    """Return a metric."""
    return {"kind": metric.kind, "unit": metric.unit, "higher_is_better": metric.higher_is_better}


def cell_data(cell: Cell) -> dict[str, Any]:
    """Return a cell in the shape that design section 6 fixes."""
    run_path = f"/runs/{cell.deck}/{cell.gpu}/{cell.run_id}"
    audit = cell.audit
    return {
        "id": cell.id,
        "deck": cell.deck,
        "problem": cell.problem,
        "gpu": cell.gpu,
        "entrant": entrant_data(cell.entrant),
        "status": cell.status,
        "metric": metric_data(cell.metric),
        "score": cell.score,
        "interval": [cell.low, cell.high] if cell.score is not None else None,
        "rank": list(cell.rank) if cell.rank else None,
        "share_of_best": cell.share_of_best,
        "run_id": cell.run_id,
        "framework": cell.framework,
        "audit": {
            "verdict": audit.verdict,
            "summary": audit.summary,
            "auditor": audit.auditor,
            "at": rfc3339(audit.at),
        }
        if audit
        else None,
        "verification": verification_data(cell.verification),
        "reasons": [{"code": reason.code, "message": reason.message} for reason in cell.reasons],
        "release": cell.release,
        "links": {
            "run": f"{settings.SITE_URL}{run_path}/",
            "api_run": f"{settings.SITE_URL}/api/v1{run_path}",
            "board": f"{settings.SITE_URL}/boards/{cell.deck}/{cell.gpu}/",
        },
    }


def verification_data(grade: VerificationView | None) -> dict[str, Any] | None:
    """Return a grade of ours; it holds no ratio where the run's score may not be shown."""
    if grade is None:
        return None
    return {
        "verdict": grade.word,
        "outcome": grade.outcome,
        "tier": grade.tier,
        "gpu": grade.gpu,
        "at": rfc3339(grade.recorded_at),
        "ratio": ratio_of(grade),
        "gpu_seconds": grade.gpu_seconds,
        "counts": grade.counts_for_board and grade.is_timed and grade.is_current,
    }


def grading_data(view: GradingView) -> dict[str, Any]:
    """Return hosts and queues."""
    return {
        "queues": [
            {
                "gpu": queue.gpu,
                "ready_gpus": queue.ready_gpus,
                "running": queue.running,
                "waiting": queue.waiting,
                "oldest_at": rfc3339(queue.oldest_at),
                "grades_30_days": queue.grades,
                "gpu_seconds_30_days": queue.gpu_seconds,
            }
            for queue in view.queues
        ],
        "hosts": [
            {"name": health.host.name, "gpus": [_host_gpu_data(gpu) for gpu in health.gpus]} for health in view.hosts
        ],
    }


def _host_gpu_data(health: GpuHealth) -> dict[str, Any]:
    row, last = health.row, health.calibration
    return {
        "gpu": row.gpu_id,
        "name": row.name,
        "driver": row.driver or None,
        "state": row.state,
        "is_ready": health.is_ready,
        "reason": row.reason or None,
        "calibrated_at": rfc3339(last.recorded_at) if last else None,
    }


def job_data(page: JobPage) -> dict[str, Any]:
    """Return a grade as its reader may see it: who asked, why it ended and the host's name are for the staff."""
    job = page.view.job
    return {
        "id": job.pk,
        "kind": job.kind,
        "state": job.state,
        "tier": job.tier,
        "gpu": job.gpu_id,
        "run": str(job.run) if job.run else None,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "progress": job.progress or None,
        "device": job.holder.name or None if job.holder else None,
        "host": job.holder.host.name if job.holder and page.is_staff else None,
        "requested_by": str(job.requested_by) if job.requested_by and page.is_staff else None,
        "cause": job.cause or None if page.is_staff else None,
        "requested_at": rfc3339(job.requested_at),
        "started_at": rfc3339(job.started_at),
        "ended_at": rfc3339(job.ended_at),
        "gpu_seconds": page.gpu_seconds,
        "events": [{"kind": event.kind, "at": rfc3339(event.at)} for event in page.view.events],
        "verification": verification_data(page.view.verification),
        "links": {
            "job": f"{settings.SITE_URL}/jobs/{job.pk}/",
            "api_job": f"{settings.SITE_URL}/api/v1/jobs/{job.pk}",
            "api_run": f"{settings.SITE_URL}/api/v1/runs/{job.run}" if job.run else None,
        },
    }


def run_summary_data(run: RunSummary) -> dict[str, Any]:
    """Return a run as lists show it."""
    return {
        "deck": run.deck,
        "gpu": run.gpu,
        "run_id": run.run_id,
        "problem": run.problem,
        "entrant": entrant_data(run.entrant),
        "status": run.status,
        "score": run.score,
        "interval": [run.low, run.high] if run.score is not None else None,
        "verdict": run.verdict,
        "reasons": [{"code": reason.code, "message": reason.message} for reason in run.reasons],
        "started_at": rfc3339(run.started_at),
        "framework": run.framework,
        "verification": verification_data(run.verification),
        "links": {"run": f"{settings.SITE_URL}/runs/{run.deck}/{run.gpu}/{run.run_id}/"},
    }


def run_data(view: RunView) -> dict[str, Any]:
    """Return a run in full. Numbers that are not a result stand under ``evidence`` and nowhere else."""
    assessment, record = view.assessment, view.record
    evidence = {
        "is_result": view.is_published,
        "reported": record.score_text,
        "recomputed": [assessment.score, assessment.score_low, assessment.score_high],
        "agrees": assessment.agrees,
        "reason": assessment.reason,
        "shapes": assessment.shapes,
        "findings": [finding_full_data(row) for row in view.findings],
        "audits": [audit_data(parsed) for _, parsed in view.audits],
    }
    return {
        **run_summary_data(view.summary),
        "metric": metric_data(view.problem.metric),
        "problem_version": assessment.problem_version,
        "peak_version": assessment.peak_version,
        "method_version": assessment.method_version,
        "evidence_digest": assessment.evidence_digest,
        "device_name": record.device_name,
        "failure_reason": record.failure_reason,
        "session_complete": record.session_complete,
        "elapsed_seconds": record.elapsed_seconds,
        "usage": msgspec.to_builtins(record.usage),
        "files": msgspec.to_builtins(view.files),
        "releases": list(view.releases),
        "verifications": [verification_data(grade) for grade in view.grades],
        "evidence": evidence,
    }


def finding_full_data(finding: Finding) -> dict[str, Any]:
    """Return a finding with its numbers, for the evidence of its own run only."""
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "file": finding.file,
        "line": finding.line,
        "data": finding.data,
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    """Return a finding without the run's numbers."""
    run = finding.run
    return {
        "id": finding.pk,
        "code": finding.code,
        "severity": finding.severity,
        "title": rule_title(finding.code),
        "file": finding.file,
        "line": finding.line,
        "run": str(run),
        "links": {"run": f"{settings.SITE_URL}/runs/{run}/"},
    }


def audit_data(audit: Any) -> dict[str, Any]:
    """Return an audit as read."""
    return {
        "file": audit.file,
        "status": audit.status,
        "verdict": audit.verdict,
        "verdict_text": audit.verdict_text,
        "publishable": audit.publishable,
        "blockers": list(audit.blockers),
        "auditor": audit.auditor,
        "summary": audit.summary,
    }


def model_data(model: LanguageModel) -> dict[str, Any]:
    """Return a language model."""
    return {
        "slug": model.slug,
        "name": model.name,
        "lab": model.lab or None,
        "is_baseline": model.is_baseline,
        "links": {"model": f"{settings.SITE_URL}/models/{model.slug}/"},
    }


def problem_data(problem: Problem) -> dict[str, Any]:
    """Return a problem's data."""
    return {
        "deck": problem.deck,
        "problem": problem.id,
        "title": problem.title,
        "operation": problem.operation,
        "version": problem.version,
        "is_retired": bool(problem.retired),
        "metric": {
            **metric_data(problem.metric),
            "regime": problem.metric.regime if problem.metric.kind == "peak_fraction" else None,
            "dtype": problem.metric.dtype or None,
            "flops": problem.metric.flops or None,
            "bytes": problem.metric.bytes or None,
            "floor_flops": problem.metric.floor_flops or None,
            "floor_bytes": problem.metric.floor_bytes or None,
            "may_exceed_one": problem.metric.may_exceed_one or None,
        },
        "shapes": problem.shapes,
        "links": {"problem": f"{settings.SITE_URL}/problems/{problem.deck}/{problem.id}/"},
    }


def gpu_data(gpu: Gpu) -> dict[str, Any]:
    """Return a GPU with its peak tables."""
    return {
        "key": gpu.key,
        "name": gpu.name,
        "sm": gpu.sm or None,
        "memory_gb": gpu.memory_gb,
        "peaks": [
            {
                "version": table.version,
                "since": table.since.isoformat(),
                "source": table.source,
                "tflops": table.tflops,
                "bandwidth_gbps": table.bandwidth_gbps,
            }
            for table in gpu.peaks
        ],
    }


def release_data(release: Release, *, with_counts: bool = False) -> dict[str, Any]:
    """Return a release."""
    data = {
        "number": release.number,
        "digest": release.digest,
        "note": release.note,
        "created_at": rfc3339(release.created_at),
        "links": {
            "release": f"{settings.SITE_URL}/releases/{release.number}/",
            "archive": f"{settings.SITE_URL}/api/v1/releases/{release.number}/archive.tar.gz",
        },
    }
    return {**data, "cells": selection.count(release.cells.all())} if with_counts else data
