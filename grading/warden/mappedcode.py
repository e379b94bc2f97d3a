"""P12 from outside: the code that is mapped in the worker, compared with the files that it came from.

Nothing is asked of the worker. The kernel says which pages of a library were written to (a private copy takes the place
of the file's page), and only those are read and compared; a library without such pages is its file, whole. What the
first look finds, before the bundle is imported, is what later looks are held against: text that a loader or a driver
changed by itself accuses nobody.

Source: docs/grader.md "Mapped code"; proc(5), "/proc/pid/pagemap".
"""

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import msgspec

from grading.evidence import CodeLook
from grading.warden.elfslots import PAGE_BYTES, Library, read_library

_MOST_LINES = 20
_DELETED = " (deleted)"
# Bits of an entry of the page map: in memory, swapped out, and still the file's own page.
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61
# What no process can unload; of other libraries the text may go, if all of the library goes.
_CORE = ("ld-", "libc.so", "libc-", "libpython", "python3", "libtorch", "libc10", "libcuda.so", "libcudart")
_VDSO = "[vdso]"


class Unread(Exception):
    """The worker's memory cannot be looked at; the message says why."""


@dataclass(frozen=True)
class Mapping:
    """One line of the kernel's list of a process's mappings; ``offset`` is the place in the file."""

    start: int
    end: int
    rights: str
    offset: int
    path: str

    @property
    def is_executable(self) -> bool:
        return "x" in self.rights

    @property
    def is_writable(self) -> bool:
        return "w" in self.rights

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] or "anonymous"


@dataclass
class _First:
    """What stood there before the bundle was imported."""

    mappings: list[Mapping]
    pages: dict[tuple[str, int], bytes] = field(default_factory=dict)
    slots: list[tuple[str, int]] = field(default_factory=list)
    relro: list[tuple[str, int, int]] = field(default_factory=list)


class CodeWatch:
    """Looks at one worker again and again. The first `look` must come before the bundle is imported.

    outer  pid of the outer process of the worker's jail
    binds  the host's paths that the jail shows, read-only, at the same places: the libraries that are compared
    """

    def __init__(self, outer: int, binds: Sequence[str]) -> None:
        self._outer = outer
        self._binds = tuple(f"{path.rstrip('/')}/" for path in binds)
        self._inner = self._program = 0
        self._first: _First | None = None

    def look(self, at: str) -> CodeLook:
        """Return what was seen; a host that does not let the warden see says so in ``unread``. Never raises OSError.

        All processes of the jail are looked at: the stub may go on in a copy of the process that it began in.
        """
        started = monotonic()
        try:
            if self._first is None:
                self._inner = _only_child(self._outer)
                self._program = _only_child(self._inner)
            seen = self._look_at(self._program)
            for pid in sorted(_descendants(self._inner) - {self._program}):
                seen = _joined(seen, pid, self._look_beside(pid))
            return msgspec.structs.replace(seen, at=at, seconds=round(monotonic() - started, 4))
        except (OSError, Unread) as error:
            return CodeLook(at=at, seconds=round(monotonic() - started, 4), unread=str(error)[:200] or "no reason")

    def _look_beside(self, pid: int) -> CodeLook | None:
        """Look at another process of the jail, which may end at any moment: then there is nothing to see."""
        try:
            return self._look_at(pid)
        except (FileNotFoundError, ProcessLookupError, Unread):
            return None

    def _look_at(self, pid: int) -> CodeLook:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            seen = _Look(pid, memory.fileno(), self._binds)
            if self._first is None:
                self._first = seen.remember()
            is_its = pid == self._program or seen.is_copy_of(self._first)
            return seen.compare(self._first, is_its=is_its)


class _Look:
    """One look: the mappings of this moment, and the process's memory behind a descriptor."""

    def __init__(self, pid: int, memory: int, binds: tuple[str, ...]) -> None:
        self._pid, self._memory, self._binds = pid, memory, binds
        self.mappings = read_mappings(pid)
        self.libraries = [item for item in self.mappings if self._is_library(item)]
        self.texts = [item for item in self.libraries if item.is_executable and _is_text(item)]

    def remember(self) -> _First:
        """Return what later looks are held against."""
        first = _First(self.mappings)
        for text in self.texts:
            for offset, _, theirs in self._odd_pages(text):
                first.pages[text.path, offset] = theirs
            library = _library_of(text.path)
            if library is None or (bias := _bias(library, text)) is None:
                continue
            first.slots += [(f"{text.name}: {name}", address + bias) for name, address in library.slots]
            first.relro += [(text.name, start + bias, end + bias) for start, end in library.relro]
        first.slots = [slot for slot in first.slots if self._points_home(slot[1])]
        first.relro = [span for span in first.relro if not self._is_writable(span)]
        return first

    def compare(self, first: _First, *, is_its: bool) -> CodeLook:
        """Return what differs now from the files and, unless this is another program, from the first look."""
        altered, restored = self._find_altered(first)
        if not is_its:
            first = _First([])
        return CodeLook(
            at="",
            seconds=0.0,
            files=len({text.path for text in self.texts}),
            text_bytes=sum(text.end - text.start for text in self.texts),
            altered=altered[:_MOST_LINES],
            replaced=list(self._find_replaced(first))[:_MOST_LINES],
            restored=restored[:_MOST_LINES],
            slots=[f"{name} -> {self._whose(slot)}" for name, slot in first.slots if not self._points_home(slot)],
            relro=[name for name, start, end in first.relro if self._is_writable((name, start, end))],
            notes=list(self._notes(first))[:_MOST_LINES],
        )

    def is_copy_of(self, first: _First) -> bool:
        """Tell whether a process was forked from that of the first look: most of its code lies at the same places."""
        before = {(item.start, item.path) for item in first.mappings if item.is_executable}
        now = {(item.start, item.path) for item in self.texts}
        return 2 * len(before & now) >= len(before)

    def _find_altered(self, first: _First) -> tuple[list[str], list[str]]:
        """Return pages that are not their file's any more, and those that were written to and are equal again."""
        altered, restored = [], []
        for text in self.texts:
            for offset, ours, theirs in self._odd_pages(text):
                if theirs == first.pages.get((text.path, offset)):
                    continue
                places = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
                if places:
                    altered.append(f"{text.name}+{offset + places[0]:#x}: {len(places)} bytes")
                else:
                    restored.append(f"{text.name}+{offset:#x}")
        vdso = next((item for item in self.mappings if item.path == _VDSO), None)
        if vdso is not None and self._read(vdso.start, vdso.end - vdso.start) != _own_vdso():
            altered.append(f"{_VDSO}: differs from this process's")
        return altered, restored

    def _odd_pages(self, text: Mapping) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield offset, the file's bytes and the process's for each page that is not the file's own any more."""
        with open(f"/proc/{self._pid}/pagemap", "rb", buffering=0) as pages:
            count = (text.end - text.start) // PAGE_BYTES
            entries = array("Q", os.pread(pages.fileno(), 8 * count, 8 * text.start // PAGE_BYTES))
        odd = [i for i, entry in enumerate(entries) if entry & (_PRESENT | _SWAPPED) and not entry & _OF_FILE]
        if not odd:
            return
        with open(text.path, "rb", buffering=0) as file:
            for number in odd:
                offset = text.offset + number * PAGE_BYTES
                ours = os.pread(file.fileno(), PAGE_BYTES, offset).ljust(PAGE_BYTES, b"\0")
                yield offset, ours, self._read(text.start + number * PAGE_BYTES, PAGE_BYTES)

    def _find_replaced(self, first: _First) -> Iterator[str]:
        """Yield library text that another mapping has taken the place of while its library is still there."""
        for old in first.mappings:
            if not old.is_executable or not self._is_library(old) or not _is_text(old):
                continue
            if _is_covered(old, [item for item in self.texts if item.path == old.path]):
                continue
            others = [item for item in first.mappings if item.path == old.path and item is not old]
            stays = any(item.path == old.path and _overlap(item, other) for other in others for item in self.mappings)
            if stays or old.name.startswith(_CORE):
                yield f"{old.name}: its text is no longer mapped at {old.start:#x}"

    def _notes(self, first: _First) -> Iterator[str]:
        """Yield what just-in-time compilers and closures make too, with its size."""
        if first.pages:
            yield f"{len(first.pages)} pages had been written to before the bundle was imported"
        for item in self.libraries:
            if item.is_executable and item not in self.texts:
                yield f"{item.name}: mapped executable, but no text that can be compared"
        before = {(item.start, item.path) for item in first.mappings}
        sizes: dict[str, int] = {}
        for item in self.mappings:
            if not item.is_executable or item.path in (_VDSO, "[vsyscall]"):
                continue
            kind = "writable and executable" if item.is_writable else self._kind(item)
            if kind and (item.start, item.path) not in before:
                sizes[f"{kind}: {item.name}"] = sizes.get(f"{kind}: {item.name}", 0) + item.end - item.start
        yield from (f"{what}, {size >> 10} KiB" for what, size in sizes.items())

    def _kind(self, item: Mapping) -> str:
        if not item.path.startswith("/"):
            return "executable, of no file"
        if item.path.endswith(_DELETED):
            return "executable, of a deleted file"
        return "" if self._is_library(item) else "executable, the candidate's own file"

    def _points_home(self, slot: int) -> bool:
        owner = self._owner(slot)
        return owner is None or owner.path == _VDSO or self._is_library(owner)

    def _whose(self, slot: int) -> str:
        owner = self._owner(slot)
        return owner.name if owner is not None else "nothing"

    def _owner(self, slot: int) -> Mapping | None:
        """Return the mapping that a slot points into; None where it is empty, points nowhere or is gone."""
        try:
            address = int.from_bytes(self._read(slot, 8), "little")
        except OSError:
            return None
        return next((item for item in self.mappings if item.start <= address < item.end), None)

    def _is_writable(self, span: tuple[str, int, int]) -> bool:
        _, start, end = span
        return any(item.is_writable and item.start < end and start < item.end for item in self.mappings)

    def _is_library(self, item: Mapping) -> bool:
        """Tell whether a mapping is of a file that the jail shows from the host, where nobody in it can write."""
        return f"{item.path}/".startswith(self._binds) and not item.path.endswith(_DELETED)

    def _read(self, address: int, size: int) -> bytes:
        data = os.pread(self._memory, size, address)
        if len(data) != size:
            raise Unread(f"{size} bytes at {address:#x} cannot be read")
        return data


def read_mappings(pid: int) -> list[Mapping]:
    """Return a process's mappings in order of address. Raises OSError, and Unread for a process that is ending."""
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        span, rights, offset, _, _, *path = line.split(None, 5)
        start, _, end = span.partition("-")
        found.append(Mapping(int(start, 16), int(end, 16), rights, int(offset, 16), path[0] if path else ""))
    if not found:
        raise Unread("the process has no memory any more")
    return found


def _only_child(pid: int) -> int:
    """Return the pid of a process's only child. Raises OSError and Unread."""
    children = _children(pid)
    if len(children) != 1:
        raise Unread(f"process {pid} has {len(children)} children; expected 1")
    return children.pop()


def _children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


def _descendants(pid: int) -> set[int]:
    """Return all processes below one; those that end meanwhile are left out."""
    try:
        children = _children(pid)
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return children | {deep for child in children for deep in _descendants(child)}


def _joined(seen: CodeLook, pid: int, other: CodeLook | None) -> CodeLook:
    """Return a look with what accuses in another process of the jail added to it."""
    if other is None:
        return seen
    lists = ("altered", "replaced", "restored", "slots", "relro")
    added = {name: [f"{line} in process {pid}" for line in getattr(other, name)] for name in lists}
    return msgspec.structs.replace(
        seen, **{name: getattr(seen, name) + lines for name, lines in added.items() if lines}
    )


def _library_of(path: str) -> Library | None:
    found = os.stat(path)
    return read_library(path, found.st_size, found.st_mtime_ns)


def _bias(library: Library, text: Mapping) -> int | None:
    """Return how far above its file's addresses a library is loaded, None for a mapping of something else in it."""
    for offset, address, _ in library.texts:
        if text.offset == offset // PAGE_BYTES * PAGE_BYTES:
            return text.start - address // PAGE_BYTES * PAGE_BYTES
    return None


def _is_text(item: Mapping) -> bool:
    library = _library_of(item.path)
    return library is not None and library.is_text(item.offset)


def _overlap(one: Mapping, other: Mapping) -> bool:
    return one.start < other.end and other.start < one.end


def _is_covered(old: Mapping, texts: Sequence[Mapping]) -> bool:
    """Tell whether executable mappings of the same part of the same file cover an earlier one."""
    reached = old.start
    for item in texts:
        if item.start - item.offset == old.start - old.offset and item.start <= reached < item.end:
            reached = item.end
    return reached >= old.end


def _own_vdso() -> bytes:
    """Return the kernel's own code as this process, which no candidate runs in, has it mapped."""
    vdso = next(item for item in read_mappings(os.getpid()) if item.path == _VDSO)
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        return os.pread(memory.fileno(), vdso.end - vdso.start, vdso.start)
