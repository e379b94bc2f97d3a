"""The shapes of grades that are asked for: jobs, how far they are, and what came of them."""

from typing import Literal

from pydantic import Field

from leaderboard.api.schemas import Strict, Verification
from leaderboard.models import GradeEvent, GradeJob


class JobProgress(Strict):
    """How far a grade is, as its host says."""

    step: str
    shape: int | None
    percent: float


class JobEvent(Strict):
    """One thing that happened to a job."""

    kind: Literal[tuple(GradeEvent.Kind.values)]  # type: ignore[valid-type]
    at: str


class JobLinks(Strict):
    """Where to read more."""

    job: str
    api_job: str
    api_run: str | None


class Job(Strict):
    """A grade that was asked for. What only the staff may know is null to everyone else."""

    id: int
    kind: Literal[tuple(GradeJob.Kind.values)]  # type: ignore[valid-type]
    state: Literal[tuple(GradeJob.State.values)]  # type: ignore[valid-type]
    tier: Literal[tuple(GradeJob.Tier.values)]  # type: ignore[valid-type]
    gpu: str
    run: str | None = Field(description="null for the calibration of a host")
    attempt: int
    max_attempts: int
    progress: JobProgress | None
    device: str | None = Field(description="the GPU that took it")
    host: str | None = Field(description="for the staff")
    requested_by: str | None = Field(description="for the staff")
    cause: str | None = Field(description="why it ended or waits again, for the staff")
    requested_at: str
    started_at: str | None
    ended_at: str | None
    gpu_seconds: float | None = Field(
        description="for how long it held its GPU, where its evidence says and it is shown"
    )
    events: list[JobEvent]
    verification: Verification | None
    links: JobLinks


class JobList(Strict):
    """Every grade that was asked for of one run, newest first."""

    count: int
    results: list[Job]
