"""Real processes for tests of the service: a site of its own, its control worker, hosts, and a Redis server."""

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# What `make demo` ingests.
RECORDED = ("leaderboard/demo", "leaderboard/recordings/h200/archive")
LEASE_SECONDS = 4


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Return what a condition gives as soon as it gives something; the limit is for a machine that is busy."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s for {what}")


class Site:
    """A site in a folder of its own, with whatever processes it was given."""

    def __init__(self, folder: Path, broker: str, key: str, **environment: str) -> None:
        self.folder, self.broker, self.key = folder, broker, key
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "leaderboard.settings",
            "PROOFLINE_VAR_DIR": str(folder),
            "PROOFLINE_BROKER_URL": broker,
            "PROOFLINE_LEASE_SECONDS": str(LEASE_SECONDS),
            "PROOFLINE_CALIBRATION_PROBLEM": "hard/05_topk_bitonic",
            "PROOFLINE_VERIFY_POLICIES": "",
            "PROOFLINE_JOB_ATTEMPTS": "20",
            **environment,
        }
        self.environment.pop("DATABASE_URL", None)
        self.running: list[subprocess.Popen[bytes]] = []

    def start_control(self) -> subprocess.Popen[bytes]:
        return self.start("control", [sys.executable, "manage.py", "service"], self.environment)

    def start_host(
        self, *, slots: int = 1, grader: str = "", key: str = "", device: str = "cpu"
    ) -> subprocess.Popen[bytes]:
        """Start an agent with its workers; it knows neither the database nor Django."""
        environment = {name: value for name, value in self.environment.items() if not name.startswith("PROOFLINE_")}
        environment.pop("DJANGO_SETTINGS_MODULE")
        environment["PROOFLINE_HOST_KEY"] = key or self.key
        command = [sys.executable, "-m", "grading.host", "--broker", self.broker, "--device", device]
        command += ["--slots", str(slots), "--work", str(self.folder / "host")]
        command += ["--grader", grader] if grader else []
        return self.start("host", command, environment)

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a process of this site; what it says goes into a log of that name."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def run(self, *command: str) -> str:
        """Run a Python command on this site; return what it printed."""
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    def queue(self, count: int, tier: str = "quick", gpu: str = "CPU") -> None:
        """Ask for a grade of the first runs."""
        self.run("-c", QUEUE.format(count=count, tier=tier, gpu=gpu))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what a query finds in the site's database."""
        connection = sqlite3.connect(self.folder / "proofline.sqlite3", timeout=30)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def count(self, table: str, where: str = "1") -> int:
        return int(self.rows(f"SELECT count(*) FROM leaderboard_{table} WHERE {where}")[0][0])

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_until_ready(self, gpus: int, seconds: float = 120) -> None:
        """Wait until so many GPUs have proved themselves."""
        wait_for(lambda: self.count("hostgpu", "state = 'healthy'") >= gpus, seconds, f"{gpus} healthy GPUs")

    def stop(self) -> None:
        """End everything by force; a worker and its grade end with their agent."""
        for process in self.running:
            process.kill()
            process.wait()
        self.running.clear()


QUEUE = """
import django; django.setup()
from django.utils import timezone
from leaderboard import jobs
from leaderboard.models import Run
for run in Run.objects.order_by("pk")[:{count}]:
    jobs.request(run, jobs.Wish("{gpu}", "{tier}", "person"), timezone.now())
"""


def seconds_between(site: Site, first: str, second: str) -> list[float]:
    """Return, for every verification, the time between two of its events."""
    found = site.rows(
        "SELECT a.at, b.at FROM leaderboard_gradeevent a JOIN leaderboard_gradeevent b ON a.job_id = b.job_id "
        f"JOIN leaderboard_gradejob j ON j.id = a.job_id AND j.kind = 'verification' "
        f"WHERE a.kind = '{first}' AND b.kind = '{second}' ORDER BY a.job_id"
    )
    return [round((datetime.fromisoformat(b) - datetime.fromisoformat(a)).total_seconds(), 2) for a, b in found]


def grader(**options: Any) -> str:
    """Return the command of the quick grader: pause=0.5, wrong=True, ..."""
    words = [sys.executable, "-m", "tests.service.quickgrade"]
    for name, value in options.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return " ".join(words)


def children_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the pids of a process's children."""
    try:
        return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    except OSError:
        return []


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class RedisServer:
    """A Redis server of the test's own that keeps nothing on disk, so a restart loses everything."""

    def __init__(self, folder: Path) -> None:
        self.port, self.folder = free_port(), folder
        self.process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("redis-server") is not None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command += ["--proto-max-bulk-len", str(32 * 1024 * 1024), "--dir", str(self.folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self._answers, 10, "the Redis server")

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
