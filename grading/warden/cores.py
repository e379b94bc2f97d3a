"""Which processor cores a grade's processes keep to: a clock that shares its core with what it times is no clock.

On a host with eight cores or more that grades on a GPU the warden has one core, the oracle another, and the worker the
others, so that compilers it starts still run side by side. Two threads of one physical core slow each other down, and a
virtual machine does not always say which they are: neighbours in number are never given to two processes. On fewer
cores, and on ``cpu``, nobody is pinned. Several GPUs share a host's cores out evenly: grades of two cards never meet.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from grading.card import find_card

_LEAST = 8


@dataclass(frozen=True)
class Cores:
    """Core numbers by process; an empty tuple leaves a process alone."""

    warden: tuple[int, ...] = ()
    oracle: tuple[int, ...] = ()
    worker: tuple[int, ...] = ()

    @property
    def is_split(self) -> bool:
        """Tell whether every process has cores of its own, so that waiting may spin instead of sleep."""
        return bool(self.warden)


def split_cores(device: str) -> Cores:
    """Return who keeps to which of the cores that this process may use."""
    free, card = sorted(os.sched_getaffinity(0)), find_card(device)
    if card is None:
        return Cores()
    free = free[card.index * len(free) // card.count : (card.index + 1) * len(free) // card.count]
    if len(free) < _LEAST:
        return Cores()
    return Cores(tuple(free[-2:]), tuple(free[-4:-2]), tuple(free[:-4]))


@contextlib.contextmanager
def keep_to(cores: tuple[int, ...]) -> Iterator[None]:
    """Keep the calling thread, and threads that it starts meanwhile, to some cores."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
