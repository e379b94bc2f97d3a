"""The agent: one worker process per GPU, started afresh (never forked) and started again when it dies."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from time import monotonic

import msgspec

import grading
from grading.host.leash import leashed
from grading.host.place import Place

log = logging.getLogger(__name__)
_ROOT = Path(grading.__file__).resolve().parents[1]
_WATCH_SECONDS = 0.2
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
_CALM_SECONDS = 60.0
_END_SECONDS = 15.0
_NOT_FOR_WORKERS = ("DJANGO_SETTINGS_MODULE", "PROOFLINE_HOST_KEY", "PROOFLINE_SECRET_KEY", "DATABASE_URL")


class _Slot:
    """One GPU's worker: the process, and when it may be started again."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.process: subprocess.Popen[bytes] | None = None
        self._started = self._not_before = 0.0
        self._pause = _FIRST_PAUSE_SECONDS

    def watch(self) -> None:
        """Start the worker where none runs; wait longer each time that it dies young."""
        if self.process is not None and self.process.poll() is not None:
            log.warning("worker of %s ended with status %s", self.place.gpu.uuid, self.process.returncode)
            is_calm = monotonic() - self._started > _CALM_SECONDS
            self._pause = _FIRST_PAUSE_SECONDS if is_calm else min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
            self._not_before = monotonic() + self._pause
            self.process = None
        if self.process is None and monotonic() >= self._not_before:
            self._start()

    def _start(self) -> None:
        self.place.folder.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_WORKERS}
        command = leashed([sys.executable, "-m", "grading.host.worker"])
        self.process = subprocess.Popen(command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE)
        self._started = monotonic()
        assert self.process.stdin is not None
        try:
            with self.process.stdin as pipe:
                pipe.write(msgspec.json.encode(self.place))
        except BrokenPipeError:
            log.warning("worker of %s ended before it read its configuration", self.place.gpu.uuid)
        log.info("worker %d for %s (%s)", self.process.pid, self.place.gpu.uuid, self.place.gpu.key)


class Agent:
    """Keeps the workers of a host running until a signal ends it."""

    def __init__(self, places: list[Place]) -> None:
        self._slots = [_Slot(place) for place in places]
        self._stopping = Event()

    def run(self) -> int:
        """Watch the workers; on SIGTERM or SIGINT let them give their jobs back, then end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        while not self._stopping.wait(_WATCH_SECONDS):
            for slot in self._slots:
                slot.watch()
        self._end()
        return 0

    def _end(self) -> None:
        running = [slot.process for slot in self._slots if slot.process is not None]
        for process in running:
            process.terminate()
        deadline = monotonic() + _END_SECONDS
        for process in running:
            try:
                process.wait(max(0.1, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
