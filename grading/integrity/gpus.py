"""Rules on the hardware: which GPU ran this, and is it the board's?"""

from collections.abc import Iterator

from grading.hardware import identify
from grading.integrity.base import Context, Statement, rule


@rule("gpu.unproven", "Nothing proves which GPU was used", "block")
def check_unproven(context: Context) -> Iterator[Statement]:
    """No device name was recorded, or it does not say which part of a family it is."""
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
    """The device name proves another GPU than the board's, or excludes the board's."""
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
