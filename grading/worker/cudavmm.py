"""The CUDA driver's virtual-memory interface through ctypes: memory that one process owns and another maps.

Written against ``cuda.h`` of CUDA 13; the layout of the two structures is fixed by the driver's ABI. The calling
process must have a current context (PyTorch's primary one).
"""

import ctypes
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_PINNED, _DEVICE, _POSIX = 1, 1, 1
_READ, _READ_WRITE = 1, 3


class CudaError(Exception):
    """The driver refused a call."""


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Flags(ctypes.Structure):
    _fields_ = [
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", _Flags),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class Mapped:
    """A range of device memory in this process; it is unmapped once nothing refers to it any more.

    Every tensor over the range refers to it, so a candidate that keeps a tensor keeps the memory.
    gap  bytes on either side that are reserved with it and hold nothing: an access there faults
    """

    def __init__(self, address: int, size: int, gap: int) -> None:
        self.address = address
        self.size = size
        self._free = weakref.finalize(self, _unmap, address, size, gap)
        # At the end of the process the driver frees everything; its library may be gone before this runs.
        self._free.atexit = False


def export_memory(size: int, device: int) -> tuple[int, Mapped]:
    """Allocate device memory, map it read-write here, and return a descriptor for others with the mapping."""
    driver, properties, granularity = _driver(), _properties(device), _granularity(device)
    rounded = -(-max(size, 1) // granularity) * granularity
    handle, descriptor = ctypes.c_ulonglong(), ctypes.c_int()
    flags = ctypes.c_ulonglong(0)
    _check(
        driver.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(rounded), ctypes.byref(properties), flags), "create"
    )
    _check(driver.cuMemExportToShareableHandle(ctypes.byref(descriptor), handle, _POSIX, flags), "export")
    return descriptor.value, _map(handle, rounded, device, writable=True)


def import_memory(descriptor: int, size: int, device: int, *, writable: bool) -> Mapped:
    """Map memory that another process exported; read-only unless told otherwise."""
    handle = ctypes.c_ulonglong()
    result = _driver().cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(descriptor), _POSIX)
    _check(result, "import")
    return _map(handle, size, device, writable=writable)


def wrap_bytes(mapped: Mapped, count: int, device: str) -> "Tensor":
    """Return the first bytes of a mapping as a tensor over that very memory."""
    import torch

    return torch.as_tensor(_Interface(mapped, count), device=device)


class _Interface:
    """What PyTorch wraps, and holds for as long as a tensor over it lives."""

    def __init__(self, mapped: Mapped, count: int) -> None:
        self._mapped = mapped
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "|u1",
            "data": (mapped.address, False),
            "version": 3,
        }


def _map(handle: ctypes.c_ulonglong, size: int, device: int, *, writable: bool) -> Mapped:
    driver, reserved, zero = _driver(), ctypes.c_ulonglong(), ctypes.c_ulonglong(0)
    length, none, gap = ctypes.c_size_t(size), ctypes.c_size_t(0), _granularity(device)
    whole = ctypes.c_size_t(size + 2 * gap)
    _check(driver.cuMemAddressReserve(ctypes.byref(reserved), whole, none, zero, zero), "reserve")
    address = ctypes.c_ulonglong(reserved.value + gap)
    _check(driver.cuMemMap(address, length, none, handle, zero), "map")
    access = _Access(_Location(_DEVICE, device), _READ_WRITE if writable else _READ)
    _check(driver.cuMemSetAccess(address, length, ctypes.byref(access), ctypes.c_size_t(1)), "access")
    # The mapping holds the memory from here on; the handle is not needed again.
    _check(driver.cuMemRelease(handle), "release")
    return Mapped(address.value, size, gap)


def _unmap(address: int, size: int, gap: int) -> None:
    """Wait for work that may still use a range, then unmap it. Refusals are left alone: nobody could act on one."""
    driver, start, length = _driver(), ctypes.c_ulonglong(address), ctypes.c_size_t(size)
    if driver.cuCtxSynchronize() == 0 and driver.cuMemUnmap(start, length) == 0:
        driver.cuMemAddressFree(ctypes.c_ulonglong(address - gap), ctypes.c_size_t(size + 2 * gap))


@cache
def _granularity(device: int) -> int:
    """Return the bytes in whose multiples the device maps memory."""
    found, properties = ctypes.c_size_t(), _properties(device)
    _check(_driver().cuMemGetAllocationGranularity(ctypes.byref(found), ctypes.byref(properties), 0), "granularity")
    return found.value


def _properties(device: int) -> _Properties:
    return _Properties(_PINNED, _POSIX, _Location(_DEVICE, device), None, _Flags())


@cache
def _driver() -> Any:
    driver = ctypes.CDLL("libcuda.so.1")
    _check(driver.cuInit(0), "init")
    return driver


def _check(result: int, what: str) -> None:
    if result != 0:
        raise CudaError(f"cuMem {what}: error {result}")
