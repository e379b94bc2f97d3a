"""Real control worker and real hosts over real brokers: poison, a whole real grade, a host that vanishes."""

import contextlib
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Producer

from grading.tasks import CONTROL_QUEUE, CONTROL_TASK, GRADE_TASK, gpu_queue, make_app
from grading.wire import Ask, derive_key, parse_key, seal
from tests.service.support import (
    ROOT,
    RedisServer,
    Site,
    children_of,
    grader,
    kill,
    seconds_between,
    wait_for,
)


def poison(site: Site) -> None:
    """Send everything to both queues that nobody should."""
    app = make_app("stranger", site.broker)
    key = parse_key(site.key)
    forged = seal(Ask(job=1), derive_key("another secret", key.host, key.serial), "up", ("alpha-cpu-0", "a" * 16))
    with app.connection_for_write() as connection:
        producer = Producer(connection.channel())
        for queue in (CONTROL_QUEUE, gpu_queue("CPU")):
            for task, given in (
                (CONTROL_TASK, [forged]),
                (CONTROL_TASK, ["x" * 9_000_000]),
                (CONTROL_TASK, [{"host": "alpha"}, 2, 3]),
                (CONTROL_TASK, []),
                (GRADE_TASK, ["1; DROP TABLE"]),
                (GRADE_TASK, [10**30]),
                (GRADE_TASK, [True]),
                (GRADE_TASK, [1, 2]),
                ("os.system", ["true"]),
            ):
                app.send_task(task, given, queue=queue, connection=connection, retry=False)
            send_raw(producer, queue)


def send_raw(producer: Producer, queue: str) -> None:
    """Send what is no task at all, in content types that must not be opened."""
    common: dict[str, Any] = {"exchange": "", "routing_key": queue}
    producer.publish(
        pickle.dumps(print), content_type="application/x-python-serialize", content_encoding="binary", **common
    )
    producer.publish("no task", content_type="text/plain", content_encoding="utf-8", **common)
    producer.publish("{broken", content_type="application/json", content_encoding="utf-8", **common)
    producer.publish({"task": CONTROL_TASK}, serializer="json", **common)
    producer.publish([], serializer="json", headers={"task": GRADE_TASK, "id": "1"}, **common)


def spoil_redis(server: RedisServer) -> None:
    """Put what is no message at all into the lists behind the queues."""
    connection = redis.Redis.from_url(server.url)
    for queue in (CONTROL_QUEUE, gpu_queue("CPU")):
        for text in ("garbage", "[]", "7", '{"body": "e30="}', "\x80\x04"):
            connection.lpush(f"proofline:{queue}", text)
        with contextlib.suppress(redis.RedisError):
            connection.lpush(f"proofline:{queue}", b"x" * (64 << 20))
    connection.close()


def spoil_folder(site: Site) -> None:
    """Lay what is no message at all into the folder, a gigabyte of it among them."""
    folder = site.folder / "broker" / "messages"
    for queue in (CONTROL_QUEUE, gpu_queue("CPU")):
        for index, text in enumerate((b"", b"garbage", b"[]", b'{"body": "e30="}', b"\x80\x04")):
            (folder / f"{index}_spoilt.{queue}.msg").write_bytes(text)
        with (folder / f"0_huge.{queue}.msg").open("wb") as file:
            file.truncate(1 << 30)


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.redis), "folder"])
def stack(request: pytest.FixtureRequest, make_site: Callable[..., Site]) -> tuple[Site, Callable[[], None]]:
    """A site on a broker, and how to spoil that broker's storage."""
    if request.param == "folder":
        site = make_site()
        return site, lambda: spoil_folder(site)
    server: RedisServer = request.getfixturevalue("redis_server")
    return make_site(server.url), lambda: spoil_redis(server)


def test_poison_is_refused_and_nothing_breaks(stack: tuple[Site, Callable[[], None]]) -> None:
    site, spoil = stack
    control, host = site.start_control(), site.start_host(grader=grader())
    site.wait_until_ready(1)
    (worker,) = children_of(host)
    poison(site)
    spoil()
    site.queue(2)
    wait_for(lambda: site.count("verification") == 2, 90, "two results after the poison")
    assert control.poll() is None
    assert children_of(host) == [worker]
    assert "refused a message: the signature of host 'alpha' does not match" in site.log("control")
    assert "refused a wake-up that names no job" in site.log("host")


def test_a_host_that_stops_or_vanishes_gives_its_job_back(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.start_control()
    host = site.start_host(grader=grader(pause=30))
    wait_for(lambda: site.count("gradejob", "state = 'running'") == 1, 120, "a running job")
    host.terminate()
    wait_for(lambda: site.count("gradejob", "state = 'queued'") == 1, 30, "the job to wait again")
    assert "the host is being stopped" in site.rows("SELECT cause FROM leaderboard_gradejob")[0][0]
    assert host.wait(60) == 0
    host = site.start_host(grader=grader(pause=30))
    wait_for(lambda: site.count("gradejob", "state = 'running'") == 1, 120, "a running job again")
    workers = children_of(host)
    kill(host.pid)
    vanished = time.monotonic()
    wait_for(lambda: site.count("gradejob", "state = 'queued'") == 1, 60, "the job to wait again")
    assert time.monotonic() - vanished < 60
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 30, "the workers' end")
    assert site.rows("SELECT cause FROM leaderboard_gradejob") == [("its host went silent",)]


def test_a_real_grade_from_the_wish_to_the_mark(
    make_site: Callable[..., Site], record_property: Callable[[str, object], None]
) -> None:
    pytest.importorskip("torch", reason="the oracle and the worker need PyTorch")
    site = make_site(PROOFLINE_LEASE_SECONDS="30")
    site.start_control()
    quick = site.start_host(grader=grader())
    site.wait_until_ready(1)
    quick.terminate()
    quick.wait(60)
    site.start_host()
    run = site.rows("SELECT run_id FROM leaderboard_run ORDER BY id LIMIT 1")[0][0]
    said = json.loads(site.run("manage.py", "verify", f"hard/H200/{run}", "--gpu", "CPU", "--json"))
    assert (said["gpu"], said["state"]) == ("CPU", "requested")
    wait_for(lambda: site.count("verification") == 1, 180, "the result")
    assert site.rows("SELECT word, outcome, counts_for_board, isolation FROM leaderboard_verification") in (
        [("verified", "passed", 0, "A")],
        [("verified", "passed", 0, "B")],
    )
    (steps,) = site.rows("SELECT count(*) FROM leaderboard_gradeevent WHERE kind = 'started'")
    assert steps[0] == 2
    (waited,) = seconds_between(site, "leased", "started")
    record_property("lease_to_start", waited)
    sys.stdout.write(f"leased to started: {waited} s\n")
    assert waited < 5


@pytest.mark.rabbitmq
def test_rabbitmq_carries_jobs_and_a_killed_worker_loses_none(rabbit: str, make_site: Callable[..., Site]) -> None:
    site = make_site(rabbit)
    site.start_control()
    host = site.start_host(grader=grader(pause=0.5))
    site.wait_until_ready(1)
    site.queue(3)
    wait_for(lambda: site.count("verification") >= 1, 60, "a result")
    kill(children_of(host)[0])
    wait_for(lambda: site.count("verification") == 3, 120, "all results")


def test_a_host_needs_neither_django_nor_the_database(tmp_path: Path) -> None:
    blocked = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('django', 'leaderboard', 'psycopg', 'torch'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "import grading.host.__main__, grading.host.worker, grading.host.session\n"
        "print('fine')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-c", blocked], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "fine\n", done.stderr
