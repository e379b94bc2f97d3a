"""One grade as a child process: on a leash, watched by its lines on standard error, ended by force if need be."""

import contextlib
import os
import re
import signal
import subprocess
from collections import deque
from pathlib import Path
from threading import Thread
from typing import IO

import grading
from grading.host.leash import leashed

_ROOT = Path(grading.__file__).resolve().parents[1]
_STEP = re.compile(r"pass (?P<number>\d+): (?P<step>[a-z]+)(?: (?P<shape>\d+))?")
_LONGEST_LINE = 2000
_KEPT_LINES = 20
_END_SECONDS = 2.0


class Child:
    """A grade in progress.

    shapes, passes  what the tier will go through, for the percentage
    """

    def __init__(self, command: list[str], shapes: int, passes: int) -> None:
        self._shapes, self._passes = max(1, shapes), max(1, passes)
        self._at: tuple[str, int | None, int] = ("start", None, 1)
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process = subprocess.Popen(
            leashed(command),
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stderr is not None
        self._stream = self._process.stderr
        self._reader = Thread(target=self._read, args=(self._stream,), daemon=True)
        self._reader.start()

    @property
    def status(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._process.poll()

    @property
    def step(self) -> str:
        """Return the step that it is at."""
        return self._at[0]

    @property
    def shape(self) -> int | None:
        """Return the index of the shape that it is at."""
        return self._at[1]

    @property
    def percent(self) -> float:
        """Return how far it is: shapes done of those that the tier will go through."""
        _, shape, number = self._at
        done = (number - 1) * self._shapes + (shape or 0)
        return min(99.0, round(100 * done / (self._shapes * self._passes), 1))

    def last_words(self) -> str:
        """Return the last line that it wrote."""
        self._reader.join(_END_SECONDS)
        return self._lines[-1] if self._lines else "it wrote nothing"

    def wait(self, seconds: float) -> int | None:
        """Wait for its end, but not for longer; return the exit status, or None while it runs."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """End it and everything that it started in its session, where it still runs."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(_END_SECONDS)
        if not self._reader.is_alive():
            self._stream.close()

    def _read(self, stream: IO[bytes]) -> None:
        for raw in iter(lambda: stream.readline(_LONGEST_LINE), b""):
            line = raw.decode("utf-8", "replace").strip()
            if line:
                self._lines.append(line)
            if said := _STEP.search(line):
                shape = int(said["shape"]) if said["shape"] is not None else self._at[1]
                self._at = (said["step"], shape if said["step"] != "start" else None, int(said["number"]))
