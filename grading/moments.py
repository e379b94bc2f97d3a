"""The dated events of a benchmark log: which variant of which shape began or ended when.

A time is only as exact as it was printed, so each event carries its resolution in seconds.
"""

import datetime
from collections.abc import Iterable
from typing import Literal

import msgspec

from grading.record import Log

_NAMES = ("variant_start", "variant_end", "variant_error")
EventName = Literal["start", "end", "error"]


class Event(msgspec.Struct, frozen=True):
    """One event line. ``at`` is None where the time cannot be read; without an offset it is taken as UTC."""

    name: EventName
    shape: str
    variant: str
    line: int
    at: datetime.datetime | None
    resolution_s: float
    is_zoned: bool


def events_of(log: Log | None) -> tuple[Event, ...]:
    """Return the event lines of a log in order of their lines."""
    markers = [marker for marker in log.markers if marker.name in _NAMES] if log is not None else []
    return tuple(
        _event(marker.name, marker.text, marker.line) for marker in sorted(markers, key=lambda item: item.line)
    )


def _event(name: str, text: str, line: int) -> Event:
    shape, variant, stamp = (*text.split(" "), "", "", "")[:3]
    at, is_zoned = _moment(stamp)
    kind: EventName = "start" if name == "variant_start" else "end" if name == "variant_end" else "error"
    return Event(kind, shape, variant, line, at, _resolution(stamp), is_zoned)


def _moment(stamp: str) -> tuple[datetime.datetime | None, bool]:
    try:
        moment = datetime.datetime.fromisoformat(stamp)
    except ValueError:
        return None, False
    if moment.tzinfo is None:
        return moment.replace(tzinfo=datetime.UTC), False
    return moment, True


def _resolution(stamp: str) -> float:
    fraction = stamp.partition(".")[2]
    digits = len(fraction) - len(fraction.lstrip("0123456789"))
    return float(10.0**-digits) if digits else 1.0


def parse_time(text: str) -> datetime.datetime | None:
    """Return a dated text with an offset as an aware time, or None for anything else."""
    at, is_zoned = _moment(text.strip().strip('"'))
    return at if is_zoned else None


def span_of(moments: Iterable[datetime.datetime]) -> tuple[datetime.datetime, datetime.datetime] | None:
    """Return the first and the last of some moments, or None where there are none."""
    found = sorted(moments)
    return (found[0], found[-1]) if found else None
