"""Shared memory with guard pages: nothing may be touched for a mebibyte on either side of a mapping.

The data ends where the mapping ends, as closely as their alignment allows, so that an element past the end is already
on a guard page: a read or write there ends the process instead of reaching what some other mapping holds.
"""

import ctypes
import mmap
import weakref
from typing import Any

GUARD_BYTES = 1 << 20
# PyTorch's own allocations on a processor are aligned to this.
ALIGNMENT = 64
_FIXED, _NO_RESERVE, _PROT_NONE = 0x10, 0x4000, 0
_FAILED = ctypes.c_void_p(-1).value


def place_of(size: int) -> tuple[int, int]:
    """Return how many bytes of whole pages hold data of a size, and where in them the data begins."""
    held = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    return held, (held - size) // ALIGNMENT * ALIGNMENT


class Guarded:
    """A file's pages, mapped here between guard pages until nothing refers to the mapping any more.

    size      in bytes, whole pages
    writable  False maps it read-only
    Raises OSError.
    """

    def __init__(self, descriptor: int, size: int, *, writable: bool) -> None:
        whole = size + 2 * GUARD_BYTES
        start = _map(None, whole, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE, -1)
        self.address = start + GUARD_BYTES
        self._free = weakref.finalize(self, _libc().munmap, ctypes.c_void_p(start), ctypes.c_size_t(whole))
        # At the end of the process the kernel unmaps everything; a thread may still compute when this would run.
        self._free.atexit = False
        rights = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        _map(self.address, size, rights, mmap.MAP_SHARED | _FIXED, descriptor)

    def window(self, first: int, count: int) -> Any:
        """Return a part as a buffer, which keeps the mapping for as long as something is made from it."""
        window: Any = (ctypes.c_ubyte * count).from_address(self.address + first)
        window.mapping = self
        return window


def _map(address: int | None, size: int, rights: int, flags: int, descriptor: int) -> int:
    found = _libc().mmap(address, size, rights, flags, descriptor, 0)
    if found == _FAILED:
        raise OSError(ctypes.get_errno(), f"mmap of {size} bytes failed")
    return int(found)


def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    return library
