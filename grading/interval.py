"""Interval arithmetic over printed numbers.

A number printed as ``0.0259`` stands for every value that rounds to it: [0.02585, 0.02595]. An `Interval` carries
that range, with the value in the middle as printed, through the scoring formulas. Bounds are widened by a relative
1e-12 wherever floating-point error could otherwise push the true value out.

Source: docs/method.md "Intervals".
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_NUMBER = re.compile(r"\d{1,15}(?:\.(\d{1,18}))?(?:[eE]([+-]?\d{1,3}))?", re.ASCII)
_SLACK = 1e-12


class NumberError(ValueError):
    """A text that is no plain finite number; the message is safe to show to users."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the range that it may truly have; ``low <= value <= high``."""

    value: float
    low: float
    high: float

    def meets(self, other: "Interval") -> bool:
        """Tell whether the two ranges share a point."""
        return self.low <= other.high and other.low <= self.high

    def scaled(self, factor: float) -> "Interval":
        """Return the interval times a non-negative constant."""
        return Interval(self.value * factor, _down(self.low * factor), _up(self.high * factor))

    def inverted(self, numerator: float) -> "Interval":
        """Return ``numerator / self``; the upper bound is infinite where the interval reaches zero."""
        value = numerator / self.value if self.value > 0 else math.inf
        high = _up(numerator / self.low) if self.low > 0 else math.inf
        low = _down(numerator / self.high) if self.high > 0 else math.inf
        return Interval(value, low, high)

    def divided_by(self, other: "Interval") -> "Interval":
        """Return ``self / other`` for non-negative intervals."""
        value = self.value / other.value if other.value > 0 else math.inf
        high = _up(self.high / other.low) if other.low > 0 else math.inf
        low = _down(self.low / other.high) if other.high > 0 else math.inf
        return Interval(value, low, high)

    def clamped(self, floor: float) -> "Interval":
        """Return the interval with every bound raised to at least ``floor``."""
        return Interval(max(self.value, floor), max(self.low, floor), max(self.high, floor))

    @property
    def relative_half_width(self) -> float:
        """Half the width over the value; infinite where the value is zero or a bound is infinite."""
        if self.value <= 0 or not math.isfinite(self.high):
            return math.inf
        return (self.high - self.low) / (2 * self.value)


def exact(value: float) -> Interval:
    """Return the interval of a number that is known exactly."""
    return Interval(value, value, value)


def printed(text: str, *, places: int | None = None) -> Interval:
    """Return the interval of a non-negative number as a log printed it.

    text    digits with an optional fraction and exponent; no sign, no separators, no ``nan`` or ``inf``
    places  decimals that the printer is known to use, where trailing zeros were lost (JSON)
    Raises NumberError for anything else, also for a value that is not finite.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise NumberError(f"{text[:40]!r} is not a plain number; need digits with an optional fraction")
    decimals = len(match.group(1) or "")
    if places is not None:
        decimals = max(decimals, places)
    value = float(text)
    if not math.isfinite(value):
        raise NumberError(f"{text[:40]!r} is not finite")
    half = 0.5 * 10.0 ** (int(match.group(2) or 0) - decimals)
    return Interval(value, max(0.0, value - half), value + half)


def geometric_mean(parts: Iterable[Interval]) -> Interval:
    """Return the geometric mean as a mean of logarithms; parts are positive (clamp them first).

    Raises NumberError when there is no part or one is not positive.
    """
    items = tuple(parts)
    if not items or any(part.low <= 0 for part in items):
        raise NumberError("a geometric mean needs at least one part and every part above zero")
    value, low, high = (
        math.exp(sum(math.log(bound) for bound in bounds) / len(items)) if all(map(math.isfinite, bounds)) else math.inf
        for bounds in zip(*((part.value, part.low, part.high) for part in items), strict=True)
    )
    return Interval(value, _down(low), _up(high))


def intersect(parts: Iterable[Interval]) -> Interval | None:
    """Return what all intervals share, valued by the narrowest of them, or None where they share nothing."""
    items = sorted(parts, key=lambda part: part.relative_half_width)
    low, high = max(part.low for part in items), min(part.high for part in items)
    if low > high:
        return None
    return Interval(min(max(items[0].value, low), high), low, high)


def _down(value: float) -> float:
    return value * (1 - _SLACK)


def _up(value: float) -> float:
    return value * (1 + _SLACK)
