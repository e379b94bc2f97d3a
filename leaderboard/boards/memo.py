"""Answers that are kept for as long as the public state stays what it is; nothing kept outlives a withdrawal."""

import datetime
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from leaderboard.boards.state import read_state

T = TypeVar("T")
_every: list["Memo[Any]"] = []


def forget_all() -> None:
    """Forget every answer of every question."""
    for memo in _every:
        memo.forget()


class Memo(Generic[T]):
    """The last few answers to one question, by the state's token and what was asked."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._held: OrderedDict[tuple[str, Hashable], T] = OrderedDict()
        _every.append(self)

    def get(self, at: datetime.datetime, asked: Hashable, make: Callable[[], T]) -> T:
        """Return the answer in the state of a moment. The state is read before the answer is made; one query."""
        key = (read_state(at).token, asked)
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        answer = make()
        with self._lock:
            self._held[key] = answer
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        return answer

    def forget(self) -> None:
        """Forget all answers."""
        with self._lock:
            self._held.clear()
