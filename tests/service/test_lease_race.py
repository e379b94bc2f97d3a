"""Many workers ask for the same jobs at once, on PostgreSQL: each job has one holder, and one result at most."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone

from leaderboard import jobs
from leaderboard.models import GradeEvent, GradeJob, HostGpu, Run
from leaderboard.service import policies
from leaderboard.service.minutes import Account
from tests.database import Ingest, make_user
from tests.factories import write_archive
from tests.service.worker import PROBLEM, Worker

HANDS, JOBS = 8, 12
pytestmark = [
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="one writer at a time is PostgreSQL's test"),
]


def together(work: Callable[[int], None]) -> list[Exception]:
    barrier, faults = threading.Barrier(HANDS), []

    def run(number: int) -> None:
        try:
            barrier.wait(timeout=30)
            work(number)
        except Exception as error:  # noqa: BLE001 - the test shows whatever a thread raised
            faults.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(HANDS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return faults


def test_every_job_has_one_holder_and_one_end(tmp_path: Path, ingest: Ingest) -> None:
    assert connection.vendor == "postgresql"
    for index in range(JOBS):
        write_archive(tmp_path, problem_id=PROBLEM, stamp=f"202607{index + 1:02d}_120000")
    ingest(tmp_path)
    at, workers = timezone.now(), [Worker(f"host-{number}") for number in range(HANDS)]
    for worker in workers:
        worker.say_hello()
        worker.pass_calibration()
    gpus: list[HostGpu] = [worker.row for worker in workers]
    asked = [jobs.request(run, jobs.Wish("CPU", "quick", "person"), at)[0].pk for run in Run.objects.order_by("pk")]
    held: list[tuple[int, int, int]] = []

    def ask(number: int) -> None:
        for pk in asked:
            try:
                held.append((pk, number, jobs.lease(pk, gpus[number], f"{number:016x}", at).token))
            except jobs.JobError:
                continue

    assert together(ask) == []
    assert sorted(pk for pk, _, _ in held) == sorted(asked)
    ended: list[int] = []

    def end(number: int) -> None:
        for pk, holder, token in held:
            if number % 2:
                jobs.give_back(pk, token, "lost", at)
            elif jobs.record(pk, token, gpus[holder], at, "verified", ""):
                ended.append(pk)

    assert together(end) == []
    states = dict(GradeJob.objects.filter(pk__in=asked).values_list("pk", "state"))
    assert {pk for pk, state in states.items() if state == "recorded"} == set(ended)
    assert len(ended) == len(set(ended))
    closing = GradeEvent.objects.filter(job__in=asked, kind__in=["recorded", "retried"])
    assert closing.count() == JOBS


def test_nobody_overdraws_minutes_by_asking_at_once(tmp_path: Path, ingest: Ingest, settings: Any) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "verification": (10, 86400)}
    for index in range(HANDS):
        write_archive(tmp_path, problem_id=PROBLEM, stamp=f"202607{index + 1:02d}_120000")
    ingest(tmp_path)
    runs, account, at = (
        list(Run.objects.select_related("problem").order_by("pk")),
        Account(make_user("eve")),
        timezone.now(),
    )
    faults = together(lambda number: policies.ask(runs[number], account, at))
    assert [type(fault) for fault in faults] == [policies.TooMuch] * 3
    assert GradeJob.objects.count() == 5


def test_the_same_wish_at_once_is_one_job(tmp_path: Path, ingest: Ingest) -> None:
    ingest(write_archive(tmp_path, problem_id=PROBLEM))
    run, at = Run.objects.select_related("problem").get(), timezone.now()
    accounts = [Account(make_user(f"person-{number}")) for number in range(HANDS)]
    found: list[tuple[int, bool]] = []

    def ask(number: int) -> None:
        job, is_new = policies.ask(run, accounts[number], at)
        found.append((job.pk, is_new))

    assert together(ask) == []
    assert len({pk for pk, _ in found}) == 1 and sum(is_new for _, is_new in found) == 1
