"""Real workers and brokers that are killed: every job ends in exactly one recorded result."""

import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.service.support import LEASE_SECONDS, RedisServer, Site, children_of, grader, kill, seconds_between, wait_for

JOBS = 40


# Limits of time are for a machine that does much else; docs/operate.md has what was measured on a quiet one.


def assert_each_recorded_once(site: Site, count: int) -> None:
    states = dict(
        site.rows("SELECT state, count(*) FROM leaderboard_gradejob WHERE kind='verification' GROUP BY state")
    )
    assert states == {"recorded": count}
    assert site.count("verification") == count
    recorded = site.rows(
        "SELECT count(*) FROM leaderboard_gradeevent JOIN leaderboard_gradejob j ON j.id = job_id "
        "WHERE leaderboard_gradeevent.kind = 'recorded' AND j.kind = 'verification' GROUP BY job_id"
    )
    assert recorded == [(1,)] * count


def redelivery_seconds(site: Site, kills: list[float]) -> tuple[list[float], list[float]]:
    """Return, for every job that was given back, how long after the kill it waited again, and somebody held it again.

    The second figure holds the queue before it: whoever is given back stands in line behind the others.
    """
    events = site.rows("SELECT job_id, at, kind FROM leaderboard_gradeevent ORDER BY id")
    back, held, waiting = [], [], {}
    for job, at, kind in events:
        moment = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
        if kind == "retried":
            killed = max((time for time in kills if time <= moment), default=moment)
            waiting[job] = killed
            back.append(round(moment - killed, 1))
        elif kind == "leased" and job in waiting:
            held.append(round(moment - waiting.pop(job), 1))
    return back, held


@pytest.mark.redis
def test_forty_jobs_survive_kills_of_everything(
    redis_server: RedisServer, make_site: Callable[..., Site], record_property: Callable[[str, object], None]
) -> None:
    site, rng, kills = make_site(redis_server.url), random.Random(8), []
    control = site.start_control()
    host = site.start_host(slots=3, grader=grader(pause=0.2))
    site.wait_until_ready(3)
    started = time.monotonic()
    site.queue(JOBS)

    def done() -> int:
        return site.count("verification")

    def kill_worker() -> None:
        workers = children_of(host)
        if workers:
            kill(rng.choice(workers))
            kills.append(time.time())

    for share in (3, 7, 11):
        wait_for(lambda share=share: done() >= share, 120, f"{share} results")
        kill_worker()
    redis_server.stop()
    time.sleep(1)
    redis_server.start()
    for share in (16, 22):
        wait_for(lambda share=share: done() >= share, 120, f"{share} results after Redis was restarted")
        kill_worker()
    control.kill()
    control.wait()
    site.start_control()
    wait_for(lambda: done() >= 28, 120, "results after the control worker was restarted")
    kill_worker()
    wait_for(lambda: done() >= JOBS, 180, "all results")
    wait_for(lambda: site.count("gradejob", "state IN ('leased', 'running', 'queued')") == 0, 60, "quiet")
    assert_each_recorded_once(site, JOBS)
    back, held = redelivery_seconds(site, kills)
    figures = f"{time.monotonic() - started:.1f} s in all; seconds until queued again {back}, until held again {held}"
    record_property("redelivery", figures)
    sys.stdout.write(figures)
    assert back
    assert max(back) < 60
    assert statistics.median(back) < LEASE_SECONDS + 10


def test_the_embedded_broker_survives_a_killed_worker(
    make_site: Callable[..., Site], record_property: Callable[[str, object], None]
) -> None:
    site, count = make_site(), 4
    site.start_control()
    host = site.start_host(grader=grader(pause=0.5))
    site.wait_until_ready(1)
    site.queue(1)
    wait_for(lambda: site.count("verification") == 1, 60, "a first result")
    overhead = seconds_between(site, "requested", "started")
    record_property("overhead", overhead)
    sys.stdout.write(f"requested to started: {overhead} s\n")
    assert max(overhead) < 5
    site.queue(count - 1, tier="full")
    wait_for(lambda: site.count("gradejob", "state = 'running'") > 0, 60, "a running job")
    (worker,) = children_of(host)
    kill(worker)
    wait_for(lambda: site.count("verification") == count, 120, "all results")
    wait_for(lambda: site.count("gradejob", "state IN ('leased', 'running', 'queued')") == 0, 60, "quiet")
    assert_each_recorded_once(site, count)
    assert site.count("gradeevent", "kind = 'retried'") >= 1
