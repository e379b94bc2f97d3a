"""One grade per GPU: a name in the kernel's abstract socket space, which vanishes with its holder; no file is left."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic


class DeviceBusy(Exception):
    """Another grader of this host holds the device."""


@dataclass
class Hold:
    """A device that is held; ``seconds`` says for how long it was, None until its release and on a processor."""

    seconds: float | None = None


@contextlib.contextmanager
def hold_device(device: str) -> Iterator[Hold]:
    """Hold a GPU for one grade; a processor can be shared. Raises DeviceBusy."""
    hold = Hold()
    if device == "cpu":
        yield hold
        return
    with hold_name(f"grader-{device}") as is_ours:
        if not is_ours:
            raise DeviceBusy(f"inconclusive: another grader of this host holds {device}")
        began = monotonic()
        try:
            yield hold
        finally:
            hold.seconds = round(monotonic() - began, 3)


@contextlib.contextmanager
def hold_name(name: str) -> Iterator[bool]:
    """Hold a name of at most 90 bytes in this host; what is yielded tells whether nobody else held it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as holder:
        try:
            holder.bind(f"\0proofline-{name}")
        except OSError:
            yield False
        else:
            yield True
