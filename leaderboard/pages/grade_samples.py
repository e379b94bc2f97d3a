"""Made-up grades, hosts and jobs for the style guide, in every state."""

import datetime

from leaderboard.boards.grading import GradingView, JobPage
from leaderboard.boards.verifications import CalibratedShape, GpuHealth, HostHealth, JobView, Queue, VerificationView
from leaderboard.models import Calibration, GradeEvent, GradeJob, Host, HostGpu, HostState, Problem
from leaderboard.pages.samples import AT

_SHAPES = [
    {"shape": "M=4096", "ms": 0.1213, "p5_ms": 0.1204, "p95_ms": 0.1231, "published_ms": 0.12, "ratio": 1.011},
    {"shape": "M=33", "ms": None, "p5_ms": None, "p95_ms": None, "published_ms": None, "ratio": None},
]


def grades() -> list[VerificationView]:
    """Return a grade that held, on another GPU, without a time, about an older source, failed, without a result."""
    fired = [{"rule": "G12", "message": "shape 2 is wrong in 3 of 8 calls"}]
    kinds = [
        ("verified", "passed", "H200", True, True), ("verified_note", "passed", "B200", False, True),
        ("verified_note", "passed", "H200", True, True), ("verified", "passed", "H200", True, False),
        ("incorrect", "failed", "H200", True, True), ("inconclusive", "inconclusive", "H200", True, True),
    ]  # fmt: skip
    return [
        VerificationView(1, number, word, outcome, gpu, "full", counts, number != 3, is_current, AT,
                         _SHAPES if outcome == "passed" and number != 3 else [],
                         fired if outcome == "failed" else [], "e" * 64,
                         83.0 if outcome == "passed" else None)
        for number, (word, outcome, gpu, counts, is_current) in enumerate(kinds, 1)
    ]  # fmt: skip


def grading() -> GradingView:
    """Return a ready GPU, a busy one, a silent one, one in quarantine, a host without any, and two queues."""
    host = Host(name="alpha", registered_at=AT, state=HostState.HEALTHY)
    rows = [
        _gpu("ready"), _gpu("busy", job=_job("running")), _gpu("silent", is_alive=False),
        _gpu("odd", state=HostState.QUARANTINED, reason="2.4 % off the record"), _gpu("new", state=HostState.NEW),
    ]  # fmt: skip
    waiting = Queue("H200", 3, 1, 2, AT - datetime.timedelta(minutes=4), 41, 3890.0), Queue("B200", 0, 0, 1, None)
    empty = HostHealth(Host(name="beta", registered_at=AT, state=HostState.NEW), ())
    return GradingView((HostHealth(host, tuple(rows)), empty), waiting, (_job("queued"), _job("recorded")), AT)


def _gpu(
    uuid: str, *, state: str = HostState.HEALTHY, reason: str = "", is_alive: bool = True, job: GradeJob | None = None
) -> GpuHealth:
    row = HostGpu(
        uuid=uuid, gpu_id="H200", name="NVIDIA H200", driver="570.1", last_seen=AT, state=state, reason=reason
    )
    last = Calibration(word="verified", ratio=1.004, is_accepted=True, recorded_at=AT) if job is None else None
    return GpuHealth(row, is_alive, job, last)


def _job(state: str) -> GradeJob:
    progress = {"step": "timing", "shape": 2, "percent": 40}
    problem = Problem(deck_id="hard", slug="01_fp8_gemm")
    return GradeJob(pk=7, kind="verification", gpu_id="H200", tier="full", reason="person", requested_at=AT,
                    problem=problem, state=state, attempt=1, max_attempts=3, progress=progress, cause="")  # fmt: skip


def calibrations() -> list[tuple[GradeJob, Calibration, tuple[CalibratedShape, ...]]]:
    """Return the first calibration of a key, one that was accepted, and one that was refused."""
    shapes = (
        CalibratedShape("M=4096", 0.0812, 0.081),
        CalibratedShape("M=33", 0.0131, None),
        CalibratedShape("product and copy", 0.2921, 0.2915),
    )
    figures = {"shapes_ms": [0.0812, 0.0131], "yardstick_ms": 0.2921}
    kinds = ((None, True, ""), (1.0025, True, ""), (1.031, False, "3.1 % off the record of H200"))
    return [
        (_job("recorded"), Calibration(word="verified", figures=figures, ratio=ratio, is_accepted=is_accepted,
                                       reason=reason, recorded_at=AT, evidence_digest="e" * 64), shapes)
        for ratio, is_accepted, reason in kinds
    ]  # fmt: skip


def job_pages() -> list[JobPage]:
    """Return a job that waits, one that runs, and one that ended, as the staff sees it."""
    events = (GradeEvent(kind="requested", at=AT, text="person by approver"), GradeEvent(kind="started", at=AT))
    return [
        JobPage(JobView(_job(state), events, None, None), None, is_staff, AT)
        for state, is_staff in (("queued", False), ("running", False), ("expired", True))
    ]
