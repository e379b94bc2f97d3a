"""What the driver says about the GPU around a pass: clocks, power, temperature, and who else uses it."""

import subprocess

import msgspec

from grading.runner.device import identify_device, read_device


def read_state(device: str) -> dict[str, float | str] | None:
    """Return clocks, power and temperature now; None on a processor, or where they cannot be read."""
    reading = read_device(device)
    return msgspec.structs.asdict(reading) if reading is not None else None


def read_host(device: str) -> dict[str, object]:
    """Return which device it is, as the driver names it; empty on a processor."""
    identity = identify_device(device)
    return msgspec.structs.asdict(identity) if identity is not None else {}


def foreign_processes(device: str) -> list[int]:
    """Return the pids of compute processes on the GPU. Call it before a grade starts its own; empty on a processor."""
    if device == "cpu":
        return []
    index = device.partition(":")[2] or "0"
    command = ["nvidia-smi", f"--id={index}", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [int(line) for line in done.stdout.split() if line.isdigit()]
