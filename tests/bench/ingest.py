"""Runs per second of ingest, beside the floor of reading the same files, and of recompute."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from django.utils import timezone

from grading import archive
from leaderboard.ingest import Source, ingest_paths
from leaderboard.loadgen import write_runs
from leaderboard.recompute import recompute_all

COUNT = 6000


def run() -> None:
    """Print runs/s and the time over the floor of each station."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for _ in write_runs(root, COUNT):
            pass
        read_bytes(root)
        floor = timed(lambda: read_bytes(root))
        parse = timed(lambda: sum(1 for _ in archive.read_paths([root])))
        store = timed(lambda: ingest_paths([root], Source(timezone.now())))
        again = timed(lambda: ingest_paths([root], Source(timezone.now())))
        judge = timed(lambda: recompute_all())
        idle = timed(lambda: recompute_all())
    for name, seconds in [
        ("read the files only", floor),
        ("read and parse", parse),
        ("ingest (read, parse, store)", store),
        ("ingest again, all held", again),
        ("recompute", judge),
        ("recompute, nothing changed", idle),
    ]:
        wall, cpu = seconds
        print(  # noqa: T201
            f"{name:32}{COUNT / wall:>10,.0f} runs/s{wall / floor[0]:>8.1f} x floor{COUNT / cpu:>12,.0f} runs/CPU-s"
        )


def read_bytes(root: Path) -> None:
    """Open, read and close every file."""
    for path in root.rglob("*"):
        if path.is_file():
            path.read_bytes()


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Return the wall seconds and the CPU seconds that a call took; the second hardly sees what else the host does."""
    start, start_cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - start, time.process_time() - start_cpu
