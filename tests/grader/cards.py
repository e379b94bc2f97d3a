"""A driver with two GPUs, as its Python binding shows it: no machine of the suite has one."""

from types import SimpleNamespace


class NoSuchCard(Exception):
    """What the binding raises for an unknown number."""


def _handle(index: int) -> int:
    if index not in (0, 1):
        raise NoSuchCard
    return index


DRIVER_OF_TWO = SimpleNamespace(
    NVMLError=NoSuchCard,
    nvmlInit=lambda: None,
    nvmlDeviceGetHandleByIndex=_handle,
    nvmlDeviceGetCount=lambda: 2,
    nvmlDeviceGetUUID=lambda index: ("GPU-a", "GPU-b")[index],
    # Files need not be numbered as the driver counts.
    nvmlDeviceGetMinorNumber=lambda index: (1, 0)[index],
)
