"""How busy the GPUs were and what the service cost each job, from the events of jobs: nothing is measured for it.

Busy is the time from a grade's first heartbeat to its end, lost attempts among it, over the wall time of a host: from
the first start to the last end, times the GPUs that worked. What a job waited while its GPU graded others is no cost of
the service; what it waited beyond that is.
"""

import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from leaderboard.models import GradeEvent

_Kind = GradeEvent.Kind
_ENDS = frozenset({_Kind.RECORDED, _Kind.RETRIED, _Kind.REFUSED, _Kind.EXPIRED, _Kind.CANCELLED})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one job on one GPU that got as far as grading. `wished_at`: since when the job waited for it."""

    job: int
    host: str
    gpu: int
    wished_at: datetime.datetime
    started_at: datetime.datetime
    ended_at: datetime.datetime
    is_recorded: bool


@dataclass(frozen=True, slots=True)
class HostReport:
    """One host's grades. Seconds; the overhead is from when a job and its GPU were both free to its start."""

    host: str
    gpus: int
    grades: int
    lost: int
    wall_seconds: float
    busy_seconds: float
    waited_median_seconds: float
    overhead_median_seconds: float
    overhead_longest_seconds: float

    @property
    def busy_share(self) -> float | None:
        """Busy seconds over wall seconds, per GPU."""
        return self.busy_seconds / (self.wall_seconds * self.gpus) if self.wall_seconds else None


def read_report(key: str | None, since: datetime.datetime | None) -> list[HostReport]:
    """Return what every host did that graded (on one GPU key, since a moment), in order of name."""
    events = GradeEvent.objects.order_by("job", "pk").select_related("host_gpu__host")
    if key is not None:
        events = events.filter(job__gpu=key)
    if since is not None:
        events = events.filter(job__requested_at__gte=since)
    by_host: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in find_attempts(events.iterator()):
        by_host[attempt.host].append(attempt)
    return [summarise(host, attempts) for host, attempts in sorted(by_host.items())]


def find_attempts(events: Iterable[GradeEvent]) -> Iterator[Attempt]:
    """Yield the attempts that were graded, from the events of each job in order."""
    job, wished, started = None, None, None
    for event in events:
        if event.job_id != job:
            job, wished, started = event.job_id, event.at, None
        if event.kind == _Kind.STARTED:
            started = event
        elif event.kind in _ENDS:
            if started is not None and wished is not None and started.host_gpu is not None:
                yield Attempt(
                    job=event.job_id,
                    host=started.host_gpu.host.name,
                    gpu=started.host_gpu.pk,
                    wished_at=wished,
                    started_at=started.at,
                    ended_at=event.at,
                    is_recorded=event.kind == _Kind.RECORDED,
                )
            wished, started = event.at, None


def summarise(host: str, attempts: Sequence[Attempt]) -> HostReport:
    """Return the figures of one host's attempts, of which there is one at least."""
    by_gpu: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda attempt: attempt.started_at):
        by_gpu[attempt.gpu].append(attempt)
    overheads = [seconds for own in by_gpu.values() for seconds in _overheads(own)]
    wall = max(attempt.ended_at for attempt in attempts) - min(attempt.started_at for attempt in attempts)
    waited = [(attempt.started_at - attempt.wished_at).total_seconds() for attempt in attempts]
    return HostReport(
        host=host,
        gpus=len(by_gpu),
        grades=sum(attempt.is_recorded for attempt in attempts),
        lost=sum(not attempt.is_recorded for attempt in attempts),
        wall_seconds=wall.total_seconds(),
        busy_seconds=sum((attempt.ended_at - attempt.started_at).total_seconds() for attempt in attempts),
        waited_median_seconds=median(waited),
        overhead_median_seconds=median(overheads),
        overhead_longest_seconds=max(overheads),
    )


def _overheads(attempts: Sequence[Attempt]) -> Iterator[float]:
    """Yield, for one GPU's attempts in order, the seconds from when both the job and the GPU were free to the start."""
    free_at: datetime.datetime | None = None
    for attempt in attempts:
        ready_at = max(attempt.wished_at, free_at) if free_at is not None else attempt.wished_at
        yield (attempt.started_at - ready_at).total_seconds()
        free_at = attempt.ended_at
