"""How long the oracle keeps the GPU busy while the worker launches, so that events time the device's work alone.

Read on an H200: launches of eager attention over eight sequences take the host 0.2 to 0.7 ms, depending on who shares
its cores. Held for 0.3 ms, one honest solution's times fell into two clusters; so the length follows the calls.
"""

import statistics
from collections.abc import Sequence

from grading.evidence import Call

LEAST_US, MOST_US = 300, 1500
# A host that others share takes up to twice as long for the same launches a moment later.
_TIMES = 2.5


def usual(values: Sequence[float]) -> float:
    """Return the usual one of a shape's first calls: the slowest compiles, of the rest half are no slower."""
    return statistics.median_low(sorted(values)[: max(1, len(values) - 1)])


def hold_us(warmups: Sequence[Call], idle_ns: Sequence[int]) -> int:
    """Return the microseconds for which a shape's calls are held, from warm-up calls that were not.

    idle_ns  outside times of calls that do nothing, without their hold
    """
    answered = [call.done_ns for call in warmups if call.fault is None]
    if not answered or not idle_ns:
        return LEAST_US
    took_ns = usual(answered) - statistics.median(idle_ns)
    return round(min(max(_TIMES * took_ns / 1000, LEAST_US), MOST_US))
