"""Rules on the device itself (P21, P22), as pure functions on what was read before, during and after a pass.

Source: docs/grader.md "Timing rules".
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from grading.evidence import PassEvidence
from grading.verdict_timing import do_agree, summarise

DeviceWord = Literal["needs_audit", "inconclusive", "verified_note"]
CALIBRATION_SHARE = 0.02
# NVML's reasons that are a fault of the host: slowdown by hardware or heat, and the power brake.
# The power cap is not among them: every large product reaches it.
_SLOWED = 0x8 | 0x20 | 0x40 | 0x80


class DeviceRule(msgspec.Struct, frozen=True):
    """A rule on the device that fired."""

    rule: str
    word: DeviceWord
    message: str


def judge_device(taken: PassEvidence, passes: Sequence[PassEvidence]) -> Iterator[DeviceRule]:
    """Yield the rules that fire on one pass.

    passes  all passes of the grade
    """
    yield from _judge_calibration(taken, passes)
    foreign = sorted({pid for sample in taken.samples for pid in sample.foreign})
    if foreign:
        yield DeviceRule("P21.foreign_process", "inconclusive", f"other processes used the GPU: {foreign[:5]}")
    most = max((sample.worker_processes for sample in taken.samples), default=0)
    if most > 1:
        message = f"{most} processes of the candidate used the GPU at once"
        yield DeviceRule("P21.processes", "needs_audit", message)
    slowed = sum(1 for sample in taken.samples if sample.throttle & _SLOWED)
    if slowed:
        message = f"the GPU was slowed down by heat or hardware in {slowed} of {len(taken.samples)} samples"
        yield DeviceRule("P22.throttled", "verified_note", message)


def _judge_calibration(taken: PassEvidence, passes: Sequence[PassEvidence]) -> Iterator[DeviceRule]:
    """A device that changed during a pass proves no times, unless a pass in which it did not has the same ones.

    In 3 of 46 recorded passes on H200s that nothing disturbed the two readings were 2.2 to 2.7 % apart; the times of
    our kernel of verify 02, which was one of them, agreed with the other pass's within 0.4 % on all calls above 50 us.
    """
    if not _has_drifted(taken):
        return
    before, after = taken.calibration_before_ms, taken.calibration_after_ms
    message = f"the calibration kernel took {before:.4f} ms before and {after:.4f} ms after"
    if any(not _has_drifted(other) and _has_same_times(taken, other) for other in passes):
        yield DeviceRule("P22.calibration", "verified_note", f"{message}; another pass has the same times")
    else:
        yield DeviceRule("P22.calibration", "inconclusive", message)


def _has_drifted(taken: PassEvidence) -> bool:
    before, after = taken.calibration_before_ms, taken.calibration_after_ms
    return before is not None and after is not None and abs(after / before - 1) > CALIBRATION_SHARE


def _has_same_times(taken: PassEvidence, other: PassEvidence) -> bool:
    pairs = [(summarise(one), summarise(two)) for one, two in zip(taken.shapes, other.shapes, strict=False)]
    is_whole = bool(pairs) and len(taken.shapes) == len(other.shapes)
    return is_whole and all(one is not None and two is not None and do_agree(one, two) for one, two in pairs)
