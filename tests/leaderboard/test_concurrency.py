"""Decisions from many threads at once on PostgreSQL: none lost, the chain whole, no deadlock."""

import datetime
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection, connections

from leaderboard import publishing
from leaderboard.models import Decision, Run
from leaderboard.publishing import Act, PublishingError
from tests.database import load_run, make_user

pytestmark = pytest.mark.django_db(transaction=True, serialized_rollback=True)
THREADS, RUNS = 8, 50


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="one writer at a time is PostgreSQL's test")
def test_fifty_approvals_withdrawals_and_releases_from_eight_threads(
    publishable: Callable[..., Run], now: datetime.datetime, tmp_path: Path
) -> None:
    assert connection.vendor == "postgresql"
    approver = make_user("ada", "approver")
    runs = [publishable(stamp=f"202607{index // 24 + 1:02d}_{index % 24:02d}0000") for index in range(RUNS)]
    faults: list[Exception] = []
    refused = 0
    lock = threading.Lock()

    def work(mine: list[Run], number: int) -> None:
        nonlocal refused
        try:
            for index, run in enumerate(mine):
                act = Act(approver, "From many threads.", now + datetime.timedelta(seconds=index))
                publishing.approve(run, act)
                try:
                    publishing.release(act)
                except PublishingError:
                    with lock:
                        refused += 1
                publishing.withdraw(run, act)
        except Exception as error:  # noqa: BLE001 - the test shows whatever a thread raised
            faults.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(runs[number::THREADS], number)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert faults == []
    assert not any(thread.is_alive() for thread in threads)
    assert publishing.verify_log() == []
    assert Decision.objects.filter(kind="approve").count() == RUNS
    assert Decision.objects.filter(kind="withdraw").count() == RUNS
    assert Decision.objects.filter(kind="release").count() == RUNS - refused
    assert all(load_run(run.run_id).publication.state == "withdrawn" for run in runs)
