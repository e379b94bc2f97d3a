"""The results of a survey as one JSON file, written anew after every item, and the budget that its items share."""

import hashlib
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from types import FrameType
from typing import Any, Literal

import msgspec

from grading.warden.lock import hold_name

BOOK_SCHEMA = 1
_PAUSE_SECONDS = 0.01
_WITHHELD = ("wrong", "cheat")
# Roles for which nothing is built; a cheat is the eager solution with something behind it.
_PLAIN = ("vendor", "eager", "cheat")
State = Literal["done", "failed", "overran", "cut"]


class SurveyError(Exception):
    """The survey as a whole cannot be made as asked; the message is for a person."""


class ItemFailed(Exception):
    """One item gave no result; the message says why, and the survey goes on."""


class OutOfTime(Exception):
    """An item's time was over; ``partial`` is what it has until then."""

    def __init__(self, partial: object = None) -> None:
        super().__init__("out of time")
        self.partial = partial


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a survey.

    solution  its name; empty where the item is a whole problem
    digest    of what was measured: an entry with another digest is measured again
    state     ``done``; ``failed``; ``overran`` its own limit; ``cut`` by the survey's budget, to be gone on with
    seconds   that the item took, which is the time that it held the device; of a cut one so far
    result    what the survey in question writes; of an item that was stopped, what it had until then
    """

    problem: str
    solution: str
    attempt: int
    digest: str
    state: State
    seconds: float
    at: str
    result: Any = None
    detail: str = ""

    @property
    def key(self) -> str:
        """The entry's name in the book."""
        return key_of(self.problem, self.solution, self.attempt)

    @property
    def kind(self) -> str:
        """Its solution's kind where the result says it, else empty."""
        return str(self.result.get("kind", "")) if isinstance(self.result, dict) else ""

    @property
    def role(self) -> str:
        """What the solution is to its problem; see `role_of`."""
        return role_of(self.kind, self.solution)


class BookFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file: which survey on which device, and its entries by key."""

    schema: int
    survey: str
    device: str
    entries: dict[str, Entry]


@dataclass(frozen=True)
class Item:
    """One thing to measure; see `Entry`. ``kind`` is its solution's, empty where the item is a whole problem."""

    problem: str
    solution: str
    digest: str
    attempt: int = 1
    kind: str = ""

    @property
    def key(self) -> str:
        """The item's name in the book and on the terminal."""
        return key_of(self.problem, self.solution, self.attempt)

    @property
    def role(self) -> str:
        """What the solution is to its problem; see `role_of`."""
        return role_of(self.kind, self.solution)


@dataclass
class Book:
    """A survey's results. Opening it reads what an earlier call left.

    Several calls can share a book, one a GPU: each item is taken by one of them, and each entry is added to what the
    others have written meanwhile.

    unknown_seconds  what an item is expected to take while nothing is known of its like; 0 = it is begun at any time
    """

    path: Path
    survey: str
    device: str
    unknown_seconds: float = 0.0
    entries: dict[str, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the file if there is one. Raises SurveyError for one of another survey, kind of device or form."""
        self.reload()

    def reload(self) -> None:
        """Read the entries anew, with those of other calls. Raises SurveyError as opening does."""
        if not self.path.exists():
            return
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=BookFile)
        except (msgspec.DecodeError, OSError) as error:
            raise SurveyError(f"{self.path}: {error}") from error
        kinds = [device.partition(":")[0] for device in (found.device, self.device)]
        if (found.schema, found.survey, kinds[0]) != (BOOK_SCHEMA, self.survey, kinds[1]):
            raise SurveyError(
                f"{self.path} holds {found.survey} on {found.device}; need {self.survey} on {self.device}"
            )
        self.entries = found.entries

    def add(self, entry: Entry) -> None:
        """Keep an entry beside what is in the file by now, and write the file in one step."""
        with _waited(self._name("")):
            self.reload()
            self.entries[entry.key] = entry
            content = BookFile(schema=BOOK_SCHEMA, survey=self.survey, device=self.device, entries=self.entries)
            write_json(self.path, content)

    def claim(self, item: Item) -> AbstractContextManager[bool]:
        """Take an item for the block; what it yields is False where another call has it."""
        return hold_name(self._name(item.key))

    def _name(self, key: str) -> str:
        whole = f"{self.path.absolute()}\0{key}"
        return f"survey-{hashlib.sha256(whole.encode()).hexdigest()}"

    def before(self, item: Item) -> Entry | None:
        """Return what is known of an item as it is now."""
        entry = self.entries.get(item.key)
        return entry if entry is not None and entry.digest == item.digest else None

    def expected_seconds(self, item: Item) -> float:
        """Return what an item will take by what like ones took, and no less than it had before it was stopped.

        The longest of its own; else of its role in its problem, since a wrong solution is mostly settled early; else,
        unless it is wrong, of its problem's right ones, of vendor and eager where nothing is built for it; else its
        role's median in other problems; else `unknown_seconds`. Only what was done tells a cost.
        """
        entries = list(self.entries.values())
        known = [entry for entry in entries if entry.state == "done"]
        nearest = [entry.seconds for entry in _nearest([e for e in known if e.problem == item.problem], item)]
        elsewhere = [entry.seconds for entry in known if entry.role == item.role]
        own = [e for e in entries if (e.problem, e.solution) == (item.problem, item.solution)]
        stopped = [entry.seconds for entry in own if entry.state in ("cut", "overran")]
        usual = statistics.median(elsewhere) if elsewhere else self.unknown_seconds
        return max([max(nearest, default=usual), *stopped])


def _nearest(here: list[Entry], item: Item) -> list[Entry]:
    """Return those of its problem's entries that are the most like an item; see `Book.expected_seconds`."""
    right = [entry for entry in here if entry.kind not in _WITHHELD]
    plain = [entry for entry in right if entry.role in _PLAIN]
    choices = (
        [entry for entry in here if entry.solution == item.solution],
        [entry for entry in here if entry.role == item.role],
        plain if item.role in _PLAIN else [],
        right if item.kind != "wrong" else [],
    )
    return next(filter(None, choices), [])


@dataclass
class Budget:
    """The seconds that a survey may take in all; None = as long as it takes."""

    seconds: float | None
    started: float = field(default_factory=monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left; infinite without a budget."""
        return float("inf") if self.seconds is None else self.seconds - (monotonic() - self.started)


Measure = Callable[[Item, float, Entry | None], Any]


@dataclass
class Survey:
    """The course of a survey: items that are not done yet, as far as they fit into the budget.

    each_seconds  the limit of one item; None = the budget alone
    is_retry      items that failed or overran are tried again
    can_go_on     a cut item loses nothing, so one is begun whatever it will take
    """

    book: Book
    budget: Budget
    each_seconds: float | None = None
    is_retry: bool = False
    can_go_on: bool = False

    def run(self, items: Sequence[Item], measure: Measure) -> int:
        """Measure what is left to measure; return how many items still are, so that 0 means complete.

        measure  is given the item, the seconds that it may take and what a cut call left; it returns the result, or
                 raises ItemFailed or OutOfTime
        """
        left: list[Item] = []
        for number, item in enumerate(items, 1):
            with self.book.claim(item) as is_ours:
                self.book.reload()
                before = self.book.before(item)
                if not is_ours or (before is not None and self.is_settled(before)):
                    continue
                expected = self.book.expected_seconds(item)
                if self.budget.left <= (0 if self.can_go_on else expected):
                    say(f"[{number}/{len(items)}] {item.key}: left, takes about {expected:.0f} s")
                    left.append(item)
                    continue
                entry = self._measure(item, measure, before)
                self._keep(entry)
            left += [item] if entry.state == "cut" else []
            say(f"[{number}/{len(items)}] {item.key}: {entry.state} in {entry.seconds:.1f} s {entry.detail}".rstrip())
        if left:
            seconds = sum(map(self.book.expected_seconds, left))
            say(f"{len(left)} of {len(items)} are left and take about {seconds:.0f} s")
        return len(left)

    def is_settled(self, entry: Entry) -> bool:
        """Tell whether an item with this entry is not measured again."""
        return entry.state == "done" or (entry.state in ("failed", "overran") and not self.is_retry)

    def _keep(self, entry: Entry) -> None:
        """Keep an entry; one that was cut with nothing to show does not replace what an earlier source came to."""
        older = self.book.entries.get(entry.key)
        is_empty = entry.state == "cut" and entry.result is None
        if not (is_empty and older is not None and older.state == "done"):
            self.book.add(entry)

    def _measure(self, item: Item, measure: Measure, before: Entry | None) -> Entry:
        own = float("inf") if self.each_seconds is None else self.each_seconds
        limit, started = min(own, self.budget.left), monotonic()
        state, result, detail = "done", None, ""
        try:
            result = measure(item, limit, before)
        except ItemFailed as error:
            state, detail = "failed", str(error)
        except OutOfTime as error:
            state, result = ("overran" if own <= limit else "cut"), error.partial
        return Entry(
            problem=item.problem,
            solution=item.solution,
            attempt=item.attempt,
            digest=item.digest,
            state=state,  # type: ignore[arg-type]
            seconds=round(monotonic() - started, 3),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            result=msgspec.to_builtins(result),
            detail=detail[-600:],
        )


def grades_in(out: Path) -> Path:
    """Return the book of a folder's grades. Raises SurveyError when there is none."""
    path = out / "grades.json"
    if not path.exists():
        raise SurveyError(f"{path} does not exist; run the survey 'grades' first")
    return path


def role_of(kind: str, solution: str) -> str:
    """Return what a solution is to its problem: its kind where it has to be withheld, else its name."""
    return kind if kind in _WITHHELD else solution


def key_of(problem: str, solution: str, attempt: int) -> str:
    """Return an item's name, for example ``hard/01_fp8_gemm/kernel`` or ``hard/01_fp8_gemm/kernel#2``."""
    name = f"{problem}/{solution}" if solution else problem
    return name if attempt == 1 else f"{name}#{attempt}"


@contextmanager
def _waited(name: str) -> Iterator[None]:
    """Hold a name for the block, once nobody else does."""
    while True:
        with hold_name(name) as is_ours:
            if is_ours:
                yield
                return
        sleep(_PAUSE_SECONDS)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the block once its seconds are over; in the main thread only."""
    if seconds == float("inf"):
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def write_json(path: Path, content: object) -> None:
    """Write a JSON file in one step: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.new")
    try:
        staged.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


def say(text: str) -> None:
    """Show a line of progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
