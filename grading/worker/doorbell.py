"""The doorbell: one shared page with counters. It carries no data and no verdict.

The warden counts ``GO`` up to start a call, the worker counts ``DONE`` up when its answer stands in the arena. The
warden and the oracle share a second page, which the worker never maps: ``RELEASE`` asks the oracle to complete the
inputs, ``RELEASED`` says that they are, and ``SNAPPED`` that it holds its copy of the answer.
"""

import fcntl
import mmap
import os
from time import monotonic, sleep

PAGE_BYTES = 4096
GO, DONE = 0, 8
RELEASE, RELEASED, SNAPPED = 0, 8, 16
_SPINS = 2000
_ADD_SEALS, _SEALS = 1033, 1 | 2 | 4


def make_page() -> int:
    """Return the descriptor of a new page that nobody can cut off: a shorter file would kill whoever looks at it."""
    page = os.memfd_create("doorbell", os.MFD_ALLOW_SEALING)
    os.ftruncate(page, PAGE_BYTES)
    os.fchmod(page, 0o600)
    fcntl.fcntl(page, _ADD_SEALS, _SEALS)
    return page


class Doorbell:
    """Counters of 64 bits, each in a cache line of its own.

    pause_seconds  sleep between looks after the first thousands; 0 = give up the processor only, for pinned cores
    """

    def __init__(self, descriptor: int, *, writable: bool = True, pause_seconds: float = 2e-5) -> None:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._page = mmap.mmap(descriptor, PAGE_BYTES, prot=protection)
        self._cells = memoryview(self._page).cast("Q")
        self._pause = pause_seconds

    def read(self, cell: int) -> int:
        """Return a counter."""
        return self._cells[cell]

    def ring(self, cell: int, value: int) -> None:
        """Set a counter."""
        self._cells[cell] = value

    def wait(self, cell: int, value: int, deadline: float) -> None:
        """Return once a counter has reached a value. Raises TimeoutError past the deadline (monotonic clock)."""
        cells, looks = self._cells, 0
        while cells[cell] < value:
            looks += 1
            if looks < _SPINS:
                continue
            if monotonic() > deadline:
                raise TimeoutError("the doorbell was not answered in time")
            if self._pause:
                sleep(self._pause)
            else:
                os.sched_yield()
