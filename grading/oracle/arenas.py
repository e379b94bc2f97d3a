"""Oracle side of the arenas: memory that it owns and the worker maps.

On ``cpu`` a memory file, sealed so that no later mapping of it can write, where its contents are the candidate's input.
On ``cuda`` memory of the driver's virtual-memory interface, exported as a descriptor; see `grading.oracle.cudaarena`.
"""

import fcntl
import mmap
import os
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_ADD_SEALS, _SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE = 1033, 2, 4, 16


class OracleArena:
    """One tensor's shared memory. `tensor` writes through; `descriptor` goes to the worker and is closed after.

    writable  the worker may write to it: outputs, and inputs that the contract changes in place
    """

    def __init__(self, like: "Tensor", device: str, *, writable: bool) -> None:
        import torch

        self.bytes = like.numel() * like.element_size()
        self._mapping: Any = None
        if device == "cpu":
            self.arena_bytes = max(self.bytes, mmap.PAGESIZE)
            self.descriptor = os.memfd_create("arena", os.MFD_ALLOW_SEALING)
            os.fchmod(self.descriptor, 0o600)
            os.ftruncate(self.descriptor, self.arena_bytes)
            self._mapping = mmap.mmap(self.descriptor, self.arena_bytes)
            seals = _SEAL_SHRINK | _SEAL_GROW | (0 if writable else _SEAL_FUTURE_WRITE)
            fcntl.fcntl(self.descriptor, _ADD_SEALS, seals)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                flat = torch.frombuffer(self._mapping, dtype=torch.uint8, count=self.bytes)
        else:
            from grading.oracle.cudaarena import export_arena

            self.descriptor, self.arena_bytes, flat = export_arena(self.bytes, device)
        self.flat = flat
        self.tensor = flat.view(like.dtype).reshape(like.shape)
        self.writable = writable

    def describe(self) -> dict[str, Any]:
        """Return what the worker needs to map it."""
        tensor = self.tensor
        return {
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "bytes": self.bytes,
            "arena_bytes": self.arena_bytes,
            "writable": self.writable,
        }

    def close_descriptor(self) -> None:
        """Close the descriptor once it has been sent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
