"""One grade per GPU: a name in the kernel's abstract socket space, which vanishes with its holder; no file is left."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


class DeviceBusy(Exception):
    """Another grader of this host holds the device."""


@contextmanager
def hold_device(device: str) -> Iterator[None]:
    """Hold a GPU for one grade; a processor can be shared. Raises DeviceBusy."""
    if device == "cpu":
        yield
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as holder:
        try:
            holder.bind(f"\0proofline-grader-{device}")
        except OSError as error:
            raise DeviceBusy(f"inconclusive: another grader of this host holds {device}") from error
        yield
