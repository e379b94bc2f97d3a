"""Parent: what the driver says about the device, before and after a run. Nothing is read on a processor."""

import subprocess

import msgspec

_SAMPLE_FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu")


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The device's state at one moment."""

    sm_clock_mhz: float
    memory_clock_mhz: float
    power_w: float
    temperature_c: float
    utilisation_percent: float


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which device it is, as the driver names it."""

    name: str
    uuid: str
    driver: str


def identify_device(device: str) -> Identity | None:
    """Return the driver's name, UUID and version of a CUDA device, or None for a processor or without the tool."""
    values = _query(device, ("name", "uuid", "driver_version"))
    return Identity(name=values[0], uuid=values[1], driver=values[2]) if values else None


def read_device(device: str) -> Reading | None:
    """Return clocks, power and temperature now, or None where they cannot be read."""
    values = _query(device, _SAMPLE_FIELDS)
    try:
        numbers = [float(value) for value in values or []]
    except ValueError:
        return None
    return Reading(**dict(zip(Reading.__struct_fields__, numbers, strict=True))) if numbers else None


def _query(device: str, fields: tuple[str, ...]) -> list[str] | None:
    if device == "cpu":
        return None
    index = device.partition(":")[2] or "0"
    command = ["nvidia-smi", f"--id={index}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return values if len(values) == len(fields) else None
