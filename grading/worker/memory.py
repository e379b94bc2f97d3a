"""Worker side of the arenas: descriptors become tensors, read-only where the contract allows.

On ``cpu`` an arena is a sealed memory file: any write through the mapping faults. On ``cuda`` it is an exported handle
of the CUDA driver, see `grading.worker.cudavmm`. On both, what lies on either side of a mapping cannot be touched.
"""

import os
import warnings
from math import prod
from typing import TYPE_CHECKING, Any

from grading.worker.guarded import Guarded

if TYPE_CHECKING:
    from torch import Tensor


class Arena:
    """One tensor's shared memory, mapped once; `tensor` makes a new tensor over it each time.

    spec      ``{"shape": [...], "dtype": "bfloat16", "bytes": n, "first": m}`` as the oracle describes it
    writable  False maps it read-only
    """

    def __init__(self, descriptor: int, spec: dict[str, Any], device: str, *, writable: bool) -> None:
        self._spec = spec
        self._device = device
        if device == "cpu":
            self._guarded = Guarded(descriptor, int(spec["arena_bytes"]), writable=writable)
        else:
            from grading.worker.cudavmm import import_memory

            index = int(device.partition(":")[2] or 0)
            self._mapped = import_memory(descriptor, int(spec["arena_bytes"]), index, writable=writable)
        os.close(descriptor)

    def tensor(self) -> "Tensor":
        """Return a new tensor over the arena, with a storage and a version counter of its own."""
        import torch

        shape, count = [int(size) for size in self._spec["shape"]], int(self._spec["bytes"])
        dtype = getattr(torch, str(self._spec["dtype"]))
        if self._device == "cpu":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                flat = torch.frombuffer(self._guarded.window(int(self._spec["first"]), count), dtype=torch.uint8)
        else:
            from grading.worker.cudavmm import wrap_bytes

            flat = wrap_bytes(self._mapped, count, self._device)
        assert prod(shape) * dtype.itemsize == count
        return flat.view(dtype).reshape(shape)
