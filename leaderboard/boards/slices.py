"""Part of a long list, and where the parts before and after it start."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SIZE = 100
_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Slice:
    """Some items of a list. `previous` and `following` are the starts of the neighbouring parts, or None."""

    items: Sequence[Any]
    start: int
    total: int
    previous: int | None
    following: int | None

    @property
    def first(self) -> int:
        """The number of the first item, from 1."""
        return self.start + 1

    @property
    def last(self) -> int:
        """The number of the last item."""
        return self.start + len(self.items)


def cut(items: Sequence[Any], start: str = "", size: int = SIZE) -> Slice:
    """Return the part of a list that starts at a number given as text; any other text means the first part."""
    number = int(start) if start.isascii() and start.isdigit() and len(start) < 8 else 0
    begin = number if number < min(len(items), _MOST) else 0
    end = begin + size
    return Slice(
        items=items[begin:end],
        start=begin,
        total=len(items),
        previous=max(0, begin - size) if begin else None,
        following=end if end < len(items) else None,
    )
