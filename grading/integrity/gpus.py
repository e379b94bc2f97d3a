"""Rules on the hardware: which GPU ran this, is it the board's, and did it run as it should?

Source: docs/method.md "Findings".
"""

from collections.abc import Iterator

from grading.hardware import identify
from grading.integrity.base import Context, Statement, rule
from grading.integrity.provenance import environment_of

_CLOCK_SHARE = 0.80
_HOT_C = 90.0


@rule("gpu.unproven", "Nothing proves which GPU was used", "block")
def check_unproven(context: Context) -> Iterator[Statement]:
    """No device name was recorded, or it does not say which part of a family it is.

    Example: a bare "H100", which may be the PCIe card, the SXM module or the NVL pair; their peaks differ by half.
    """
    record = context.record
    if record.correct is False or not context.gpu.device_names:
        return
    if record.device_name is None:
        yield Statement(
            f"The archive records no device name, so nothing shows that this ran on {context.gpu.name}.",
            data={"board": context.gpu.key},
        )
    elif not identify(record.device_name) and not _is_other_part(context):
        yield Statement(
            f"The device name {record.device_name!r} does not say which part it is; this board is {context.gpu.name}.",
            data={"board": context.gpu.key, "device_name": record.device_name},
        )


@rule("gpu.mismatch", "The run was measured on another GPU", "block")
def check_mismatch(context: Context) -> Iterator[Statement]:
    """The device name proves another GPU than the board's, or excludes the board's.

    Example: "NVIDIA H100 80GB HBM3", the SXM module, on the board of the PCIe card. Workstation and Server editions
    of a part count alike where the catalogue says so; Max-Q, NVL and slices of a GPU never do.
    """
    name = context.record.device_name
    if name is None:
        return
    proven = identify(name)
    if context.gpu.key in proven:
        return
    if proven or _is_other_part(context):
        what = f"a {proven[0]}" if proven else "a part that this board does not admit"
        yield Statement(
            f"The device name {name!r} is {what}; this board is {context.gpu.key} ({context.gpu.name}).",
            data={"board": context.gpu.key, "device_name": name, "proven": list(proven)},
        )


def _is_other_part(context: Context) -> bool:
    """Tell whether the name excludes the board's GPU outright, for example another family or a laptop part."""
    name = (context.record.device_name or "").lower()
    family = {"H100": "h100", "H100_SXM": "h100", "H100x4": "h100", "RTX_PRO_6000": "rtx pro 6000"}
    word = family.get(context.gpu.key, context.gpu.key.lower())
    is_excluded = any(refused.lower() in name.split() or refused.lower() in name for refused in context.gpu.not_names)
    return word not in name or is_excluded


@rule("gpu.ambiguous", "Several GPUs were visible and none is named as the one used", "warn")
def check_ambiguous(context: Context) -> Iterator[Statement]:
    """A machine with several devices must say which one ran the benchmark.

    Example: two device names in the record and no index. Boards of several GPUs are not meant.
    """
    name, environment = context.record.device_name or "", environment_of(context)
    visible = environment.get("visible_devices", environment.get("device_count"))
    has_index = context.record.regrade is not None and context.record.regrade.gpu_index is not None
    has_uuid = context.record.environment is not None and bool(context.record.environment.device_uuid)
    several = len([part for part in name.replace(";", ",").split(",") if part.strip()])
    count = visible if isinstance(visible, int) else several
    if count > 1 and not has_index and not has_uuid and "x" not in context.gpu.key:
        yield Statement(
            f"{count} devices were visible and no index or identifier says which one was used.",
            data={"visible": count},
        )


@rule("gpu.throttled", "The GPU ran slowed down or hot", "warn")
def check_throttled(context: Context) -> Iterator[Statement]:
    """The grader reads clocks and temperature before and after; a device below its usual clock measures too slow.

    Said where the clock fell by over 20 percent between the two readings, or the device stood at 90 degrees or more.
    Example: 1980 MHz before and 1200 MHz after. Archives without readings stay silent.
    """
    environment = environment_of(context)
    before, after = environment.get("before"), environment.get("after")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    first, last = _number(before, "sm_clock_mhz"), _number(after, "sm_clock_mhz")
    if first and last and last < first * _CLOCK_SHARE:
        yield Statement(
            f"The clock fell from {first:g} to {last:g} MHz during the benchmark.",
            "environment.json",
            data={"before_mhz": first, "after_mhz": last},
        )
    hottest = max((value for reading in (before, after) if (value := _number(reading, "temperature_c"))), default=0.0)
    if hottest >= _HOT_C:
        yield Statement(
            f"The device stood at {hottest:g} degrees.", "environment.json", data={"temperature_c": hottest}
        )


def _number(reading: dict[str, object], name: str) -> float | None:
    value = reading.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
