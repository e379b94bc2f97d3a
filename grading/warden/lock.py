"""One grade per GPU: a name in the kernel's abstract socket space, which vanishes with its holder; no file is left."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic


class DeviceBusy(Exception):
    """Another grader of this host holds the device."""


@dataclass
class Hold:
    """A device that is held; ``seconds`` says for how long it was, None until its release and on a processor."""

    seconds: float | None = None


@contextmanager
def hold_device(device: str) -> Iterator[Hold]:
    """Hold a GPU for one grade; a processor can be shared. Raises DeviceBusy."""
    hold = Hold()
    if device == "cpu":
        yield hold
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as holder:
        try:
            holder.bind(f"\0proofline-grader-{device}")
        except OSError as error:
            raise DeviceBusy(f"inconclusive: another grader of this host holds {device}") from error
        began = monotonic()
        try:
            yield hold
        finally:
            hold.seconds = round(monotonic() - began, 3)
