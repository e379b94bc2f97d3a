"""One GPU of a host: its place there, and how a child process gets to see that one and no other.

The driver's number (``cuda:1``, as NVML and ``nvidia-smi`` count) means something to the parent alone. A child has one
card, which it calls `INSIDE`: code that never names a device uses it, and no other card can do a candidate's work.
"""

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

INSIDE = "cuda:0"
_CARD_FILE = re.compile(r"nvidia(\d+)")


@dataclass(frozen=True)
class Card:
    """A GPU as the driver knows it.

    index  its number, from 0, among ``count``; where NVML does not answer the count is taken for index + 1
    uuid   as in ``CUDA_VISIBLE_DEVICES``; empty where NVML does not answer
    minor  number of its file ``/dev/nvidia<minor>``; None where NVML does not answer
    """

    index: int
    count: int
    uuid: str = ""
    minor: int | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Variables that leave a child this card alone. Without a UUID it is chosen by the driver's order."""
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": self.uuid or str(self.index)}

    def device_files(self, names: Iterable[str]) -> list[str]:
        """Return those of the files ``nvidia*`` below ``/dev`` that serve every card or this one, sorted."""
        others = {name for name in names if (found := _CARD_FILE.fullmatch(name)) and int(found[1]) != self.minor}
        is_known = self.minor is not None and f"nvidia{self.minor}" in names
        return sorted(set(names) - others) if is_known else sorted(names)


def find_card(device: str) -> Card | None:
    """Return the card of a device such as ``cuda:1``, or None for a processor."""
    if device == "cpu":
        return None
    index = index_of(device)
    opened = open_driver(index)
    if opened is None:
        return Card(index, index + 1)
    library, handle = opened
    try:
        uuid, minor = library.nvmlDeviceGetUUID(handle), library.nvmlDeviceGetMinorNumber(handle)
        return Card(index, library.nvmlDeviceGetCount(), uuid, minor)
    except library.NVMLError:
        return Card(index, index + 1)


def index_of(device: str) -> int:
    """Return the driver's number of a CUDA device: 1 of ``cuda:1``, 0 of ``cuda``."""
    return int(device.partition(":")[2] or 0)


def open_driver(index: int) -> tuple[Any, Any] | None:
    """Return NVML's binding and its handle of a card, or None where it does not answer."""
    with contextlib.suppress(ImportError):
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            return pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)
    return None


def name_inside(device: str) -> str:
    """Return what a child calls its device: ``cpu``, or `INSIDE` whatever the card's number is."""
    return device if device == "cpu" else INSIDE
