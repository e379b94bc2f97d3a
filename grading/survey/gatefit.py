"""From measured errors to a gate: pure arithmetic on the largest error of each honest solution and of each cheat.

Errors are in tolerances of the gate that stood when they were measured, so a gate is proposed as a multiple of it. The
proposal is the multiple nearest to 1 that leaves a factor of `ROOM` on both sides: above the largest honest error, and
below the least cheat. Where there is no such multiple it is the geometric mean of the two; where a cheat is no further
off than an honest solution there is none.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from grading.oracle.gates import Gate

ROOM = 2.0
LEAST_HONEST, LEAST_CHEATS = 2, 3


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of one solution under one gate, over all shapes and contents.

    gate      its name, see `grading.oracle.gates.gate_key`; of whole numbers, which have no gate, their type
    largest   in tolerances; None = not finite where the reference is, another form, or another whole number
    at        the content and shape of the largest
    nominal   50th, 99th and 99.9th percentile over the elements of nominal answers, each the largest of all shapes
    is_plain  a cheat that gave the honest bits everywhere, so that it is none here
    """

    solution: str
    digest: str
    is_honest: bool
    gate: str
    largest: float | None
    at: str
    nominal: tuple[float, float, float] | None = None
    is_plain: bool = False


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A gate's proposal. ``room_above`` and ``room_below`` are the factors to the nearest honest solution and cheat.

    proposed  None where no gate separates them; ``cheat`` and ``room_below`` None where none shows under this gate
    """

    gate: str
    present: Gate
    proposed: Gate | None
    honest: str
    largest_honest: float | None
    cheat: str | None
    least_cheat: float | None
    room_above: float | None = None
    room_below: float | None = None


def fit_gates(spreads: Sequence[Spread], present: Mapping[str, Gate]) -> list[Fit]:
    """Return a proposal for each gate. A cheat counts under the gate that shows it best: one is enough to catch it."""
    homes = _homes(spreads)
    return [
        _fit(
            name,
            gate,
            [spread for spread in spreads if spread.gate == name and spread.is_honest],
            [spread for spread in spreads if homes.get(spread.solution) == name and spread.gate == name],
        )
        for name, gate in present.items()
    ]


def lacks(spreads: Iterable[Spread]) -> str:
    """Return what a calibration still lacks in solutions, or an empty text."""
    rows = list(spreads)
    wrong = sorted({row.solution for row in rows if row.is_honest and row.largest is None})
    if wrong:
        return f"{', '.join(wrong)} should be honest but gave another form or number"
    honest = {row.solution for row in rows if row.is_honest}
    cheats = {row.solution for row in rows if not row.is_honest and not row.is_plain}
    if len(honest) < LEAST_HONEST or len(cheats) < LEAST_CHEATS:
        return f"{len(honest)} honest solutions and {len(cheats)} cheats; need {LEAST_HONEST} and {LEAST_CHEATS}"
    return ""


def _homes(spreads: Sequence[Spread]) -> dict[str, str]:
    """Return under which gate each cheat is furthest off."""
    best: dict[str, Spread] = {}
    for spread in spreads:
        if spread.is_honest or spread.is_plain:
            continue
        if spread.solution not in best or _size(spread) > _size(best[spread.solution]):
            best[spread.solution] = spread
    return {name: spread.gate for name, spread in best.items()}


def _size(spread: Spread) -> float:
    return math.inf if spread.largest is None else spread.largest


def _fit(name: str, present: Gate, honest: Sequence[Spread], cheats: Sequence[Spread]) -> Fit:
    worst = max(honest, key=_size)
    nearest = min(cheats, key=_size, default=None)
    high, low = _size(worst), math.inf if nearest is None else _size(nearest)
    scale = _scale(high, low)
    return Fit(
        gate=name,
        present=present,
        proposed=None if scale is None else _scaled(present, scale),
        honest=worst.solution,
        largest_honest=worst.largest,
        cheat=nearest.solution if nearest else None,
        least_cheat=nearest.largest if nearest else None,
        room_above=None if scale is None or high == 0 else scale / high,
        room_below=None if scale is None or math.isinf(low) else low / scale,
    )


def _scale(high: float, low: float) -> float | None:
    """Return the multiple of the present gate; ``high`` the largest honest error, ``low`` the least cheat's."""
    if not high < low:
        return None
    least, most = high * ROOM, low / ROOM
    return min(max(1.0, least), most) if least <= most else math.sqrt(high * low)


def _scaled(gate: Gate, scale: float) -> Gate:
    """Return a gate times a number, to three digits; the present one as it is for 1."""
    if scale == 1.0:
        return gate
    share, rtol, atol = (float(f"{part * scale:.3g}") for part in (gate.share, gate.rtol, gate.atol))
    return Gate(share, rtol, atol, gate.floor)
