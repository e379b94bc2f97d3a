"""What readers may know of grading: hosts and queues in words, and jobs of runs that they may know of.

A stranger sees that a job ran, how far it is and what the grader said. Who asked, what a host wrote and every time of a
run whose score is withheld are for the staff.
"""

import datetime
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from leaderboard.boards.marks import without_numbers
from leaderboard.boards.runs import RunView, read_run, visible_runs
from leaderboard.boards.verifications import (
    HostHealth,
    JobView,
    Queue,
    VerificationView,
    hosts,
    job_view,
    job_views,
    queues,
    recent_jobs,
)
from leaderboard.models import Blob, GradeJob


@dataclass(frozen=True, slots=True)
class GradingView:
    """The hosts, and what waits and runs, of one GPU or of all; `jobs` are the newest that a reader may know of."""

    hosts: tuple[HostHealth, ...]
    queues: tuple[Queue, ...]
    jobs: tuple[GradeJob, ...]
    at: datetime.datetime


@dataclass(frozen=True, slots=True)
class JobPage:
    """A job as one reader may see it. `run` is None for a calibration."""

    view: JobView
    run: RunView | None
    is_staff: bool
    at: datetime.datetime

    @property
    def is_open(self) -> bool:
        """Whether it may still change."""
        return self.view.job.state in GradeJob.OPEN

    @property
    def grades(self) -> tuple[VerificationView, ...]:
        """What came of it, as the page of a run lists it."""
        return (self.view.verification,) if self.view.verification is not None else ()

    @property
    def shows_numbers(self) -> bool:
        """Whether this reader may see times and take the evidence."""
        return self.run is None or self.run.is_published or self.is_staff

    @property
    def gpu_seconds(self) -> float | None:
        """For how long the recorded grade held its GPU, where this reader may see it and the evidence says."""
        return self.view.job.gpu_seconds if self.shows_numbers else None

    @property
    def waited_seconds(self) -> int:
        """For how long it waited, or waits, before a GPU took it the last time."""
        job = self.view.job
        return int(((job.leased_at or job.ended_at or self.at) - job.requested_at).total_seconds())


def read_grading(at: datetime.datetime, gpu: str | None = None, *, is_staff: bool = False) -> GradingView:
    """Return what is known about grading on one GPU key, or on all."""
    waiting = queues(at)
    chosen = [queue for key, queue in sorted(waiting.items()) if gpu in (None, key)]
    jobs = recent_jobs(gpu)
    return GradingView(tuple(hosts(at, gpu)), tuple(chosen), tuple(_known(jobs, at, is_staff=is_staff)), at)


def _known(jobs: Iterable[GradeJob], at: datetime.datetime, *, is_staff: bool) -> list[GradeJob]:
    """Return the jobs about runs that a reader may know of, and those about none."""
    held = list(jobs)
    runs = visible_runs(at, is_staff=is_staff).filter(pk__in={job.run_id for job in held if job.run_id})
    known = set(runs.values_list("pk", flat=True))
    return [job for job in held if job.run_id is None or job.run_id in known]


def evidence_of(digest: str) -> bytes | None:
    """Return the archive that a grade left, or None where it was not kept."""
    blob = Blob.objects.filter(pk=digest).first()
    return zlib.decompress(bytes(blob.content)) if blob is not None else None


def read_job(pk: int, at: datetime.datetime, *, is_staff: bool = False) -> JobPage | None:
    """Return a job, or None where there is none that this reader may know of."""
    view = job_view(pk)
    if view is None:
        return None
    row = view.job.run
    if row is None:
        return JobPage(view, None, is_staff, at)
    run = read_run(row.deck_id, row.gpu_id, row.run_id, at, is_staff=is_staff)
    return _page(view, run, at, is_staff=is_staff) if run is not None else None


def read_jobs(key: tuple[str, str, str], at: datetime.datetime, *, is_staff: bool = False) -> list[JobPage] | None:
    """Return every job about one run, newest first, or None where there is no run that this reader may know of.

    key  deck, GPU and run id
    """
    run = read_run(*key, at, is_staff=is_staff)
    if run is None:
        return None
    rows = GradeJob.objects.filter(run__deck=key[0], run__gpu=key[1], run__run_id=key[2]).order_by("-pk")
    return [_page(view, run, at, is_staff=is_staff) for view in job_views(rows)]


def _page(view: JobView, run: RunView, at: datetime.datetime, *, is_staff: bool) -> JobPage:
    page = JobPage(view, run, is_staff, at)
    if page.shows_numbers:
        return page
    return replace(page, view=replace(view, verification=without_numbers(view.verification)))
