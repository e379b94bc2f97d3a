"""A prepared site, copied for each test that runs real processes."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kombu import Connection

from grading.tasks import CONTROL_QUEUE, gpu_queue
from tests.service.support import ROOT, RedisServer, Site

RUNS = 40
RABBIT = os.environ.get("PROOFLINE_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//")
PREPARE = "import django; django.setup(); from tests.service.prepare import main; main({runs})"


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a site with forty runs, and the key of its host alpha."""
    folder = tmp_path_factory.mktemp("prepared")
    environment = {
        **os.environ,
        "PROOFLINE_VAR_DIR": str(folder),
        "DJANGO_SETTINGS_MODULE": "leaderboard.settings",
    }
    environment.pop("DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, "-c", PREPARE.format(runs=RUNS)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder, done.stdout.strip()


@pytest.fixture
def make_site(prepared: tuple[Path, str], tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Make a site on a broker; what it started is stopped when the test ends."""
    made: list[Site] = []

    def make(broker: str = "", **environment: str) -> Site:
        folder = tmp_path / f"site-{len(made)}"
        shutil.copytree(prepared[0], folder)
        site = Site(folder, broker or f"filesystem://{folder / 'broker'}", prepared[1], **environment)
        made.append(site)
        return site

    yield make
    for site in made:
        site.stop()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis server of the test's own; the test skips, and says so, where none is installed."""
    if not RedisServer.is_installed():
        pytest.skip("redis-server is not installed")
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def rabbit() -> Iterator[str]:
    """The address of a RabbitMQ server; the test skips, and says so, where none answers."""
    with socket.socket() as probe:
        probe.settimeout(2)
        address = Connection(RABBIT)
        if probe.connect_ex((address.hostname, address.port or 5672)) != 0:
            pytest.skip("no RabbitMQ server answers; set PROOFLINE_TEST_RABBITMQ to use one")
    forget_queues()
    yield RABBIT
    forget_queues()


def forget_queues() -> None:
    """Delete the queues that an earlier test left on the shared server."""
    with Connection(RABBIT) as connection:
        for queue in (CONTROL_QUEUE, gpu_queue("CPU")):
            with contextlib.suppress(*connection.channel_errors):
                connection.channel().queue_delete(queue)
