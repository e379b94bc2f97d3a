"""What happens without a message: wake-ups are sent, and sent again; what a silent host held waits again.

A job is sent again when the queue of its GPU key is empty although the job waits: then its wake-up was lost, whatever
the broker did. A queue that still holds messages is left alone, so they never pile up.
"""

import datetime
import logging
from collections.abc import Callable, Iterable
from threading import Event
from time import monotonic
from typing import Any

from celery import Celery
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections
from django.utils import timezone
from kombu.exceptions import KombuError

from grading import wire
from grading.tasks import GRADE_TASK, add_own_queue, gpu_queue
from leaderboard import jobs
from leaderboard.models import GradeJob, HostState, SeenMessage
from leaderboard.service import hosts

log = logging.getLogger(__name__)
_TICK_SECONDS = 0.25
_AGAIN_SECONDS = 2.0
_PRUNE_SECONDS = 60.0
_MOST_AT_ONCE = 500
_LONGEST_REST_SECONDS = 30


class Sweeper:
    """A loop beside the control worker, with a connection of its own to the broker."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection: Any = None
        self._started = monotonic()
        self._last: dict[str, float] = {}

    def run(self, stopping: Event) -> None:
        """Sweep until told to stop; a database or broker that is gone for a while stops nothing."""
        while not stopping.wait(_TICK_SECONDS):
            for step in (self._return_lost, self._send, self._prune):
                self._try(step)
        self._close()

    def _try(self, step: Callable[[datetime.datetime], None]) -> None:
        try:
            step(timezone.now())
        except (DatabaseError, InterfaceError):
            log.exception("the sweeper waits for the database")
            close_old_connections()
        except self._faults() as error:
            log.warning("the sweeper waits for the broker: %s", str(error)[:200])
            self._close()
        except Exception:
            log.exception("a step of the sweeper failed")

    def _return_lost(self, at: datetime.datetime) -> None:
        """Let jobs wait again that nobody keeps alive.

        After a start, heartbeats that came while nobody read them are taken first: for one lease nothing is lost.
        """
        if monotonic() - self._started > settings.LEASE_SECONDS:
            jobs.return_lost(at)
        if self._is_due("unproven", 1.0):
            jobs.expire_old(at)
            hosts.quarantine_unproven()

    def _send(self, at: datetime.datetime) -> None:
        """Send the wake-up of every job that was not sent yet, and again where it must have been lost."""
        fresh = jobs.waiting().filter(sent_at=None).select_related("target")[:_MOST_AT_ONCE]
        for queue, rows in self._by_queue(job for job in fresh if _is_rested(job, at)).items():
            self._wake(queue, rows, at)
        if self._is_due("again", _AGAIN_SECONDS / 2):
            self._send_again(at)

    def _send_again(self, at: datetime.datetime) -> None:
        late = jobs.waiting().filter(sent_at__lt=at - datetime.timedelta(seconds=_AGAIN_SECONDS))
        for key in late.order_by().values_list("gpu", flat=True).distinct():
            rows = late.filter(gpu=key).select_related("target")[:_MOST_AT_ONCE]
            for queue, chosen in self._by_queue(rows).items():
                if self._depth(queue) == 0:
                    self._wake(queue, chosen, at)

    def _by_queue(self, rows: Iterable[GradeJob]) -> dict[str, list[GradeJob]]:
        found: dict[str, list[GradeJob]] = {}
        for job in rows:
            queue = self._queue_of(job)
            if queue is not None:
                found.setdefault(queue, []).append(job)
        return found

    def _queue_of(self, job: GradeJob) -> str | None:
        """Return where a job's wake-up goes; None for a calibration of a GPU whose worker is not there."""
        if job.target is None:
            return gpu_queue(job.gpu_id)
        if job.target.state == HostState.RETIRED or not job.target.instance:
            return None
        return add_own_queue(self._app, job.gpu_id, job.target.instance)

    def _wake(self, queue: str, rows: list[GradeJob], at: datetime.datetime) -> None:
        connection = self._connect()
        for job in rows:
            self._app.send_task(GRADE_TASK, [job.pk], queue=queue, connection=connection, retry=False)
        jobs.mark_sent([job.pk for job in rows], at)

    def _depth(self, queue: str) -> int:
        """Return how many messages wait in a queue."""
        with self._connect().channel() as channel:
            return int(self._app.amqp.queues[queue](channel).queue_declare().message_count)

    def _prune(self, at: datetime.datetime) -> None:
        """Forget messages that are too old to be accepted again."""
        if self._is_due("prune", _PRUNE_SECONDS):
            SeenMessage.objects.filter(at__lt=at - datetime.timedelta(seconds=2 * wire.MAX_AGE_SECONDS)).delete()

    def _is_due(self, name: str, seconds: float) -> bool:
        now = monotonic()
        if now - self._last.get(name, self._started - seconds) < seconds:
            return False
        self._last[name] = now
        return True

    def _connect(self) -> Any:
        if self._connection is None:
            self._connection = self._app.connection_for_write()
            self._connection.ensure_connection(max_retries=1, timeout=5)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except self._faults():
                log.info("the broker's connection was gone already")
            self._connection = None

    def _faults(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = (OSError, KombuError)
        if self._connection is not None:
            found += tuple(self._connection.connection_errors) + tuple(self._connection.channel_errors)
        return found


def _is_rested(job: GradeJob, at: datetime.datetime) -> bool:
    """Tell whether a job may be tried again: the next try waits longer, counted from when the last one began.

    A grade that fails at once would else use up its attempts in seconds; one that was lost late need not wait.
    """
    pause = min(_LONGEST_REST_SECONDS, 2**job.attempt)
    return job.leased_at is None or _seconds(at, job.leased_at) >= pause


def _seconds(at: datetime.datetime, since: datetime.datetime) -> float:
    return (at - since).total_seconds()
