"""What an ELF library says of itself: which slots hold the addresses of clocks and CUDA calls, and what is sealed.

Only 64-bit little-endian files of the two architectures below are known; others have no slots here, which is no claim
that nothing was patched. Read from the file, never from the process that has it mapped.

Source: the System V ABI with its x86-64 and AArch64 supplements.
"""

import mmap
import re
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec

PAGE_BYTES = mmap.PAGESIZE
_LOAD, _DYNAMIC, _RELRO = 1, 2, 0x6474E552
_EXECUTABLE, _WRITABLE = 1, 2
_LEAST_BYTES = 64
_STRINGS, _SYMBOLS, _RELOCATIONS, _RELOCATION_BYTES = 5, 6, 7, 8
_CALLS, _CALL_BYTES, _RELATIVE_COUNT, _HASH = 23, 2, 0x6FFFFFF9, 0x6FFFFEF5
_TEXT_RELOCATIONS, _FLAGS, _TEXT_FLAG = 22, 30, 4
_SYMBOL_BYTES, _RELOCATION_SIZE, _LONGEST_NAME = 24, 24, 64
# By machine: the relocation types that put a function's address into a slot.
_SLOT_TYPES = {62: (6, 7), 183: (1025, 1026)}
_WATCHED = re.compile(rb"(cuda[A-Z]\w*|cu[A-Z]\w*|clock_gettime|gettimeofday|time|nanosleep|clock_nanosleep)\Z")


class Library(msgspec.Struct, frozen=True):
    """Addresses as the file has them, before it is loaded somewhere.

    texts  file offset, address and size of what is executable and never written to; empty where the loader writes to it
    slots  names of watched functions with the addresses of their slots
    relro  start and end, in whole pages, of what the loader makes read-only once it has filled it in
    """

    texts: list[tuple[int, int, int]]
    slots: list[tuple[str, int]]
    relro: list[tuple[int, int]]

    def is_text(self, offset: int) -> bool:
        """Tell whether a page of the file is text, and must therefore stay as the file has it."""
        return any(_page(first) <= offset < first + size for first, _, size in self.texts)


class _Segment(msgspec.Struct, frozen=True):
    kind: int
    flags: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int


@cache
def read_library(path: str, size: int, modified_ns: int) -> Library | None:
    """Return what a library holds, None for other files; remembered as long as size and time stay the same.

    Raises OSError.
    """
    if size < _LEAST_BYTES:
        return None
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            return None
        try:
            segments = list(_segments(data))
            said = _dynamic(data, segments)
            slots = list(_slots(data, segments, said))
        except (struct.error, ValueError, IndexError):
            return None
    loaded = [s for s in segments if s.kind == _LOAD and s.flags & (_EXECUTABLE | _WRITABLE) == _EXECUTABLE]
    is_written = _TEXT_RELOCATIONS in said or bool(said.get(_FLAGS, 0) & _TEXT_FLAG)
    texts = [] if is_written else [(s.offset, s.address, s.file_bytes) for s in loaded]
    sealed = [(_page(s.address), _page(s.address + s.memory_bytes)) for s in segments if s.kind == _RELRO]
    return Library(texts, slots, [(start, end) for start, end in sealed if start < end])


def _segments(data: mmap.mmap) -> Iterator[_Segment]:
    (first,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        place = first + number * size
        kind, flags, offset, address, _, on_file, in_memory = struct.unpack_from("<IIQQQQQ", data, place)
        yield _Segment(kind, flags, offset, address, on_file, in_memory)


def _dynamic(data: mmap.mmap, segments: Sequence[_Segment]) -> dict[int, int]:
    """Return the dynamic section's entries by tag; empty for a program that is linked statically."""
    for segment in segments:
        if segment.kind == _DYNAMIC:
            return dict(struct.iter_unpack("<QQ", data[segment.offset : segment.offset + segment.file_bytes]))
    return {}


def _slots(data: mmap.mmap, segments: Sequence[_Segment], said: Mapping[int, int]) -> Iterator[tuple[str, int]]:
    """Yield the watched functions that the library takes from others, with the address of each one's slot."""
    (machine,) = struct.unpack_from("<H", data, 18)
    if machine not in _SLOT_TYPES:
        return
    names = dict(_watched_names(data, segments, said))
    wanted = {(number << 32) | kind: name for number, name in names.items() for kind in _SLOT_TYPES[machine]}
    skipped = said.get(_RELATIVE_COUNT, 0) * _RELOCATION_SIZE
    for start, size, skip in ((_RELOCATIONS, _RELOCATION_BYTES, skipped), (_CALLS, _CALL_BYTES, 0)):
        if start not in said:
            continue
        first = _offset(segments, said[start])
        words = array("Q", data[first + skip : first + said.get(size, 0)])
        for place, info in enumerate(words[1::3]):
            if info in wanted:
                yield wanted[info], words[3 * place]


def _watched_names(data: mmap.mmap, segments: Sequence[_Segment], said: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """Yield number and name of watched symbols that other libraries define: they stand before the hashed ones."""
    if not {_SYMBOLS, _STRINGS, _HASH} <= set(said):
        return
    symbols, strings, hashed = (_offset(segments, said[tag]) for tag in (_SYMBOLS, _STRINGS, _HASH))
    (count,) = struct.unpack_from("<I", data, hashed + 4)
    for number in range(1, count):
        (name,) = struct.unpack_from("<I", data, symbols + number * _SYMBOL_BYTES)
        text = data[strings + name : strings + name + _LONGEST_NAME].partition(b"\0")[0]
        if _WATCHED.match(text):
            yield number, text.decode("ascii", "replace")


def _offset(segments: Sequence[_Segment], address: int) -> int:
    """Return where in the file an address is. Raises ValueError."""
    for segment in segments:
        if segment.kind == _LOAD and segment.address <= address < segment.address + segment.file_bytes:
            return address - segment.address + segment.offset
    raise ValueError(f"address {address:#x} is in no loaded segment")


def _page(address: int) -> int:
    return address // PAGE_BYTES * PAGE_BYTES
