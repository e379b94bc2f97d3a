"""What the driver says about the GPU during a pass: clocks, power, temperature, throttling, and who else uses it.

Read through NVML between calls, in the warden's own thread and never while a clock runs. On a processor, or where NVML
does not answer, there are no samples, and the evidence says so by holding none.
"""

from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from grading.card import index_of, open_driver
from grading.evidence import DeviceSample
from grading.runner.device import identify_device

_UNKNOWN_PARENT = 0


def read_host(device: str) -> dict[str, object]:
    """Return which device it is, as the driver names it; empty on a processor."""
    identity = identify_device(device)
    return msgspec.structs.asdict(identity) if identity is not None else {}


class Sampler:
    """Takes samples of one GPU. `sample` returns None on a processor and where NVML does not answer."""

    def __init__(self, device: str) -> None:
        self._started = monotonic()
        opened = None if device == "cpu" else open_driver(index_of(device))
        self._driver: tuple[Any, Any] = opened or (None, None)

    def sample(self, worker: int = 0, oracle: int = 0) -> DeviceSample | None:
        """Return the device's state now.

        worker, oracle  pids of the two jails' outer processes; compute processes below neither of them are foreign
        """
        library, handle = self._driver
        if library is None:
            return None
        try:
            pids = [process.pid for process in library.nvmlDeviceGetComputeRunningProcesses(handle)]
            owners = [_owner(pid, worker, oracle) for pid in pids]
            return DeviceSample(
                at_s=round(monotonic() - self._started, 3),
                sm_mhz=library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
                memory_mhz=library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM),
                power_w=library.nvmlDeviceGetPowerUsage(handle) / 1000,
                temperature_c=library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
                throttle=library.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
                worker_processes=owners.count("worker"),
                foreign=[pid for pid, owner in zip(pids, owners, strict=True) if owner == "foreign"],
            )
        except library.NVMLError:
            return None


def _owner(pid: int, worker: int, oracle: int) -> str:
    """Return whose process a pid is, by its line of parents; one that is gone already is nobody's to accuse."""
    while pid > 1:
        if pid in (worker, oracle):
            return "worker" if pid == worker else "oracle"
        parent = _parent(pid)
        if parent == _UNKNOWN_PARENT:
            return "gone"
        pid = parent
    return "foreign"


def _parent(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return _UNKNOWN_PARENT
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")), _UNKNOWN_PARENT)
