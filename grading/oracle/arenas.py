"""Oracle side of the arenas: memory that it owns and the worker maps.

On ``cpu`` a memory file, sealed so that no later mapping of it can write, where its contents are the candidate's input;
the data stands at the end of its last page, see `grading.worker.guarded`.
On ``cuda`` memory of the driver's virtual-memory interface, exported as a descriptor; see `grading.worker.cudavmm`.
"""

import fcntl
import mmap
import os
import warnings
from typing import TYPE_CHECKING, Any

from grading.worker.guarded import place_of

if TYPE_CHECKING:
    from torch import Tensor

_ADD_SEALS, _SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE = 1033, 1, 2, 4, 16
_LINE_BYTES, _HELD_ONE_IN = 128, 64


class OracleArena:
    """One tensor's shared memory. `tensor` writes through; `descriptor` goes to the worker and is closed after.

    writable  the worker may write to it: outputs, and inputs that the contract changes in place
    """

    def __init__(self, like: "Tensor", device: str, *, writable: bool) -> None:
        import torch

        self.bytes = like.numel() * like.element_size()
        self._mapping: Any = None
        self._held: Tensor | None = None
        if device == "cpu":
            self.arena_bytes, self.first = place_of(self.bytes)
            self.descriptor = os.memfd_create("arena", os.MFD_ALLOW_SEALING)
            os.fchmod(self.descriptor, 0o600)
            os.ftruncate(self.descriptor, self.arena_bytes)
            self._mapping = mmap.mmap(self.descriptor, self.arena_bytes)
            seals = _SEAL_SEAL | _SEAL_SHRINK | _SEAL_GROW | (0 if writable else _SEAL_FUTURE_WRITE)
            fcntl.fcntl(self.descriptor, _ADD_SEALS, seals)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                flat = torch.frombuffer(self._mapping, dtype=torch.uint8, count=self.bytes, offset=self.first)
        else:
            from grading.worker.cudavmm import export_memory, wrap_bytes

            self.descriptor, mapped = export_memory(self.bytes, int(device.partition(":")[2] or 0))
            self.arena_bytes, self.first = mapped.size, 0
            flat = wrap_bytes(mapped, self.bytes, device)
        self.flat = flat
        self.tensor = flat.view(like.dtype).reshape(like.shape)
        self.writable = writable

    def hold_back(self, content: "Tensor") -> None:
        """Write content of which lines are still wrong: all of them on a processor, one in 64 at random on a GPU."""
        import torch

        flat = as_bytes(content)
        lines = max(1, self.bytes // _LINE_BYTES)
        if self._mapping is not None or lines == 1:
            self._held = None
            self.flat.copy_(_noise(flat))
            return
        self.flat.copy_(flat)
        self._held = torch.randint(lines, (max(1, lines // _HELD_ONE_IN),), device=flat.device)
        table = self.flat[: lines * _LINE_BYTES].view(lines, _LINE_BYTES)
        table[self._held] = _noise(table[self._held])

    def complete(self, content: "Tensor") -> None:
        """Put right what `hold_back` left wrong. So few lines do not warm the cache that was flushed in between."""
        flat = as_bytes(content)
        if self._held is None:
            self.flat.copy_(flat)
            return
        lines = self.bytes // _LINE_BYTES
        table = self.flat[: lines * _LINE_BYTES].view(lines, _LINE_BYTES)
        table[self._held] = flat[: lines * _LINE_BYTES].view(lines, _LINE_BYTES)[self._held]

    def describe(self) -> dict[str, Any]:
        """Return what the worker needs to map it."""
        tensor = self.tensor
        return {
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "bytes": self.bytes,
            "arena_bytes": self.arena_bytes,
            "first": self.first,
            "writable": self.writable,
        }

    def close_descriptor(self) -> None:
        """Close the descriptor once it has been sent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _noise(like: "Tensor") -> "Tensor":
    """Return random bytes: a pattern that is known could be taken off again."""
    import torch

    return torch.randint(0, 256, like.shape, dtype=torch.uint8, device=like.device)


def has_same_bytes(one: "Tensor", other: "Tensor") -> "Tensor":
    """Tell on the device whether two tensors of one size hold the same; eight bytes at a time where that is even."""
    import torch

    pair = as_bytes(one), as_bytes(other)
    if all(flat.numel() % 8 == 0 and flat.storage_offset() % 8 == 0 for flat in pair):
        pair = pair[0].view(torch.int64), pair[1].view(torch.int64)
    return (pair[0] == pair[1]).all()


def as_bytes(tensor: "Tensor") -> "Tensor":
    """Return a tensor's elements as one row of bytes; a copy only where it is not contiguous."""
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)
