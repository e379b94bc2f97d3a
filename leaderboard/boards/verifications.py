"""Our own grades, the hosts that make them and the jobs that wait, as the pages and the API show them."""

import datetime
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from django.conf import settings
from django.db.models import Count, Min, OuterRef, Q, QuerySet, Subquery, Sum

from grading.cpushapes import shapes_for
from grading.problem import load_decks
from grading.verdict import UNTIMED
from leaderboard import jobs
from leaderboard.models import Calibration, GradeEvent, GradeJob, Host, HostGpu, HostState, Verification

COST_DAYS = 30
_SILENT_AFTER_LEASES = 2
_SAME_START = datetime.timedelta(seconds=5)
_HELD = ("verified", "verified_note")


@dataclass(frozen=True, slots=True)
class VerificationView:
    """One grade of ours of one run.

    counts_for_board  made on the run's own GPU; else it proves the answer and no time
    is_timed          it claims a time; else it too proves the answer only
    is_current        about the source and the problem's version of today
    shapes            [{shape, ms, p5_ms, p95_ms, published_ms, ratio}], older ones without percentiles; numbers of the
                      run: only where its score may be shown
    gpu_seconds       for how long it held its GPU; also a number of the run, None where its evidence does not say
    is_the_run        the run is this very grade, whose archive was ingested: nothing was measured a second time
    """

    run: int
    job: int
    word: str
    outcome: str
    gpu: str
    tier: str
    counts_for_board: bool
    is_timed: bool
    is_current: bool
    recorded_at: datetime.datetime
    shapes: list[dict[str, Any]]
    fired: list[dict[str, Any]]
    evidence_digest: str
    gpu_seconds: float | None = None
    is_the_run: bool = False

    def age_days(self, at: datetime.datetime) -> int:
        """Return how many whole days ago it was recorded."""
        return (at - self.recorded_at).days

    @property
    def is_verified(self) -> bool:
        """Tell whether a board may mark the run as verified: this source, its own GPU, its time, and it held."""
        return self.counts_for_board and self.is_timed and self.is_current and self.word in _HELD


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """One GPU of a host, and whether it would take a job now."""

    row: HostGpu
    is_alive: bool
    job: GradeJob | None
    calibration: Calibration | None

    @property
    def is_ready(self) -> bool:
        """Tell whether it takes jobs."""
        return self.is_alive and self.row.state == HostState.HEALTHY


@dataclass(frozen=True, slots=True)
class HostHealth:
    """A host with its GPUs."""

    host: Host
    gpus: tuple[GpuHealth, ...]


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits and what runs on one GPU key, and what grading on it cost lately.

    oldest_at    when the job at the head was asked for
    grades       how many grades were recorded in the last `COST_DAYS`
    gpu_seconds  for how long they held their GPUs in sum, as their evidence says; None where none of them says
    """

    gpu: str
    waiting: int
    running: int
    ready_gpus: int
    oldest_at: datetime.datetime | None
    grades: int = 0
    gpu_seconds: float | None = None

    def waiting_seconds(self, at: datetime.datetime) -> float | None:
        """Return for how long the job at the head has waited; None where none waits."""
        return None if self.oldest_at is None else (at - self.oldest_at).total_seconds()


@dataclass(frozen=True, slots=True)
class CalibratedShape:
    """One line of a calibration, a shape by its sizes or the yardstick: its time and the record's in milliseconds."""

    sizes: str
    ms: float | None
    record_ms: float | None

    @property
    def ratio(self) -> float | None:
        """Our time over the record's."""
        return self.ms / self.record_ms if self.ms and self.record_ms else None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with everything that happened to it, and what came of it."""

    job: GradeJob
    events: tuple[GradeEvent, ...]
    verification: VerificationView | None
    calibration: Calibration | None
    calibrated: tuple[CalibratedShape, ...] = ()


def latest_of(runs: Collection[int]) -> dict[int, VerificationView]:
    """Return, by run, the grade to show, in one query: the newest on its own GPU, else the newest on another one."""
    found: dict[int, VerificationView] = {}
    for view in _views(Verification.objects.filter(run__in=runs)):
        held = found.get(view.run)
        if held is None or view.counts_for_board >= held.counts_for_board:
            found[view.run] = view
    return found


def history_of(run: int) -> list[VerificationView]:
    """Return every grade of one run, newest first, in one query."""
    return list(_views(Verification.objects.filter(run=run)))[::-1]


def _views(rows: QuerySet[Verification]) -> Iterator[VerificationView]:
    for row in rows.select_related("run__problem", "job").defer("run__record").order_by("pk"):
        problem = load_decks()[row.run.deck_id].problems[row.run.problem.slug]
        is_current = row.problem_version == problem.version and row.solution_digest == row.run.solution_digest
        yield VerificationView(
            run=row.run_id,
            job=row.job_id,
            word=row.word,
            outcome=row.outcome,
            gpu=row.gpu_id,
            tier=row.tier,
            counts_for_board=row.counts_for_board,
            is_timed=all(item["rule"] != UNTIMED for item in row.fired),
            is_current=is_current,
            recorded_at=row.recorded_at,
            shapes=[shape | {"shape": size_text(shape["shape"])} for shape in row.shapes],
            fired=row.fired,
            evidence_digest=row.evidence_digest,
            gpu_seconds=row.job.gpu_seconds,
            is_the_run=_is_the_run(row),
        )


def _is_the_run(row: Verification) -> bool:
    """Tell whether run and grade began at once: an archive names its start to the second, evidence just after it."""
    if row.run.started_at is None:
        return False
    return abs(row.job.requested_at - row.run.started_at) <= _SAME_START


def size_text(sizes: Mapping[str, float]) -> str:
    """Return a shape's sizes as the logs write them."""
    return " ".join(f"{name}={value:g}" for name, value in sizes.items())


def hosts(at: datetime.datetime, gpu: str | None = None) -> list[HostHealth]:
    """Return the hosts that are not retired with their GPUs (of one key, where given), in order of name."""
    rows = HostGpu.objects.select_related("host").exclude(state=HostState.RETIRED).order_by("host__name", "uuid")
    rows = rows.filter(gpu=gpu) if gpu is not None else rows
    held = {job.holder_id: job for job in GradeJob.objects.filter(state__in=jobs.HELD).select_related("run")}
    chosen = [row for row in rows if row.host.state != HostState.RETIRED]
    calibrations = {
        row.host_gpu_id: row
        for row in Calibration.objects.filter(host_gpu__in=chosen).select_related("problem").order_by("pk")
    }
    found: dict[str, tuple[Host, list[GpuHealth]]] = {}
    if gpu is None:
        found = {host.name: (host, []) for host in Host.objects.exclude(state=HostState.RETIRED).order_by("name")}
    for row in chosen:
        health = GpuHealth(row, is_alive(row, at), held.get(row.pk), calibrations.get(row.pk))
        found.setdefault(row.host.name, (row.host, []))[1].append(health)
    return [HostHealth(host, tuple(gpus)) for host, gpus in found.values()]


def is_alive(row: HostGpu, at: datetime.datetime) -> bool:
    """Tell whether a GPU's worker spoke lately."""
    return row.last_seen is not None and (at - row.last_seen).total_seconds() <= silent_seconds()


def silent_seconds() -> int:
    """Return after how many seconds without a word a worker counts as gone."""
    return _SILENT_AFTER_LEASES * settings.LEASE_SECONDS


def queues(at: datetime.datetime) -> dict[str, Queue]:
    """Return, by GPU key, what waits and runs there and what it cost lately; two queries."""
    is_waiting, is_held = Q(state__in=jobs.WAITING), Q(state__in=jobs.HELD)
    is_recent = Q(state=GradeJob.State.RECORDED, ended_at__gt=at - datetime.timedelta(days=COST_DAYS))
    counted = GradeJob.objects.filter(Q(state__in=jobs.OPEN) | is_recent).order_by().values("gpu")
    rows = counted.annotate(
        waiting=Count("pk", filter=is_waiting),
        running=Count("pk", filter=is_held),
        oldest_at=Min("requested_at", filter=is_waiting),
        grades=Count("pk", filter=is_recent),
        seconds=Sum("gpu_seconds", filter=is_recent),
    )
    ready: dict[str, int] = {}
    for row in HostGpu.objects.select_related("host").filter(state=HostState.HEALTHY):
        if row.host.state not in (HostState.RETIRED, HostState.QUARANTINED) and is_alive(row, at):
            ready[row.gpu_id] = ready.get(row.gpu_id, 0) + 1
    found = {key: Queue(key, 0, 0, count, None) for key, count in ready.items()}
    for row in rows:
        key, cost = row["gpu"], (row["grades"], row["seconds"])
        found[key] = Queue(key, row["waiting"], row["running"], ready.get(key, 0), row["oldest_at"], *cost)
    return found


def recent_jobs(gpu: str | None = None, limit: int = 50) -> list[GradeJob]:
    """Return the newest jobs (of one GPU key, where given) with what a list shows of them; one query.

    `is_accepted` of a calibration says whether the GPU may verify after it, None where nothing came of it.
    """
    accepted = Calibration.objects.filter(job=OuterRef("pk")).values("is_accepted")[:1]
    rows = GradeJob.objects.select_related("run", "problem", "holder__host", "requested_by", "verification")
    rows = rows.annotate(is_accepted=Subquery(accepted))
    rows = rows.filter(gpu=gpu) if gpu is not None else rows
    return list(rows.defer("run__record").order_by("-pk")[:limit])


def job_view(pk: int) -> JobView | None:
    """Return a job in full, or None where there is none of that number."""
    return next(iter(job_views(GradeJob.objects.filter(pk=pk))), None)


def job_views(rows: QuerySet[GradeJob]) -> list[JobView]:
    """Return some jobs in full; three queries, and two more for each calibration."""
    related = ("run__problem", "problem", "holder__host", "target__host", "requested_by")
    found = list(rows.select_related(*related).defer("run__record"))
    events: dict[int, list[GradeEvent]] = {}
    for event in GradeEvent.objects.filter(job__in=found).select_related("host_gpu__host"):
        events.setdefault(event.job_id, []).append(event)
    grades = {view.job: view for view in _views(Verification.objects.filter(job__in=found))}
    return [_in_full(job, tuple(events.get(job.pk, ())), grades.get(job.pk)) for job in found]


def _in_full(job: GradeJob, events: tuple[GradeEvent, ...], grade: VerificationView | None) -> JobView:
    calibration = Calibration.objects.filter(job=job).first() if job.kind == GradeJob.Kind.CALIBRATION else None
    return JobView(job, events, grade, calibration, _calibrated(job, calibration) if calibration else ())


def _calibrated(job: GradeJob, taken: Calibration) -> tuple[CalibratedShape, ...]:
    """Return the shapes of a calibration beside those of the record that its GPU key has now; last its yardstick."""
    problem = load_decks()[job.problem.deck_id].problems[job.problem.slug]
    sizes = shapes_for(problem, "cpu" if job.gpu_id == "CPU" else "cuda")
    held = Calibration.objects.filter(gpu=job.gpu_id, problem=job.problem_id, is_record=True).order_by("-pk").first()
    record = held.figures if held is not None else {"shapes_ms": [], "yardstick_ms": None}
    found = taken.figures["shapes_ms"]
    pairs = zip_longest(sizes, found, record["shapes_ms"][: len(found)])
    rows = [CalibratedShape(size_text(size or {}), ms, record_ms) for size, ms, record_ms in pairs]
    if (own := taken.figures.get("yardstick_ms")) is not None:
        rows.append(CalibratedShape("product and copy", own, record["yardstick_ms"]))
    return tuple(rows)
