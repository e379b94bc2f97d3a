"""The stub: builds the candidate's model and calls it when the doorbell rings. One entry point for every kind of call.

Everything that the stub needs is bound before the bundle is imported. A candidate can still reach into this module:
what it could gain is a false ``claim_ns``, which the warden holds against its own clock.
"""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

from grading.worker.adapted import load_adapter
from grading.worker.census import take_census
from grading.worker.doorbell import DONE, GO, Doorbell
from grading.worker.identity import compare_identity, take_identity
from grading.worker.memory import Arena
from grading.worker.protocol import Channel

if TYPE_CHECKING:
    from torch import Tensor

_copy: Any = torch.Tensor.copy_
_zero: Any = torch.Tensor.zero_
_detach: Any = torch.Tensor.detach
_SPARE_BLOCKS = 3


class OutputFault(Exception):
    """The candidate's answer has not the agreed form; the first word is the fault's name."""


class Session:
    """State of a worker: the candidate's module and model, and the arenas of the current shape."""

    def __init__(self, channel: Channel, doorbell: Doorbell, device: str) -> None:
        self._channel = channel
        self._bell = doorbell
        self._device = device
        self._before = take_identity()
        self._module: Any = None
        self._model: Any = None
        self._slots: list[list[Arena]] = []
        self._inputs: list[list[Tensor]] = []
        self._outputs: list[Tensor] = []
        self._blanks: list[Tensor] = []
        self._flush: Tensor | None = None
        self._states: dict[str, Tensor] = {}
        self._timer: Callable[[], Any] = perf_counter_ns

    def import_bundle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Import ``solution``; only from here on the bundle's folder is on the import path.

        An adapter, where one is named, stands in for the module: it calls ``solution`` through the deck's entry points.
        """
        sys.path.insert(0, os.getcwd())
        self._module = importlib.import_module("solution")
        if message["adapter"]:
            self._module = load_adapter(message["adapter"])
        return {"event": "built", "changed": compare_identity(self._before, take_identity())[:40]}

    def build_model(self, message: dict[str, Any]) -> dict[str, Any]:
        """Construct the candidate's model as the decks do: on the host, then moved."""
        self._model = None
        gc.collect()
        model = self._module.Model(*message["arguments"])
        self._model = model.to(self._device).eval()
        return {"event": "ready"}

    def map_arenas(self, message: dict[str, Any]) -> dict[str, Any]:
        """Map inputs (by slot), outputs and state entries; the descriptors came with the message, in that order."""
        descriptors = iter(self._channel.take_descriptors())
        self._inputs, self._outputs, self._states, self._slots = [], [], {}, []
        gc.collect()
        specs = message["inputs"]
        for _ in range(int(message["slots"])):
            slot = [self._map(next(descriptors), spec, bool(spec["writable"])) for spec in specs]
            self._slots.append(slot)
            self._inputs.append([arena.tensor() for arena in slot])
        self._outputs = [self._map(next(descriptors), spec, True).tensor() for spec in message["outputs"]]
        self._blanks = [_noise_like(part) for part in self._outputs]
        self._states = {spec["name"]: self._map(next(descriptors), spec, False).tensor() for spec in message["states"]}
        return {"event": "mapped"}

    def load_state(self, message: dict[str, Any]) -> dict[str, Any]:
        """Load all weights with a strict ``load_state_dict``."""
        self._model.load_state_dict(dict(self._states), strict=True)
        return {"event": "loaded"}

    def poke_state(self, message: dict[str, Any]) -> dict[str, Any]:
        """Overwrite the named state entries in place, as the decks' numeric stress does."""
        own = dict(self._model.named_parameters()) | dict(self._model.named_buffers())
        with torch.no_grad():
            for name in message["names"]:
                _copy(own[name], self._states[name])
        return {"event": "poked"}

    def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Arm, wait for the doorbell, call, copy out, ring."""
        number, slot = int(message["number"]), int(message["slot"])
        if message["renew"]:
            self._inputs[slot] = []
            gc.collect()
            self._inputs[slot] = [arena.tensor() for arena in self._slots[slot]]
        if message["bump"]:
            for tensor in self._inputs[slot]:
                _zero(tensor[:0])
        spare = self._poison_spare(int(message["poison"]))
        if self._device != "cpu":
            _synchronize()
        inputs, bell, blank = self._inputs[slot], self._bell, self._blanks if message["noop"] else None
        as_deck, flush_bytes = bool(message["as_deck"]), int(message["flush_bytes"])
        self._channel.send({"event": "armed", "number": number})
        del spare
        bell.wait(GO, number, monotonic() + float(message["seconds"]))
        if as_deck:
            self._do_as_a_deck(slot, flush_bytes)
        claim_ns, fault = self._run(inputs, blank)
        bell.ring(DONE, number)
        return {"event": "called", "number": number, "claim_ns": claim_ns, "fault": fault}

    def census(self, message: dict[str, Any]) -> dict[str, Any]:
        """Profile one call on the current contents of a slot."""
        inputs = self._inputs[int(message["slot"])]
        try:
            with torch.no_grad():
                return {"event": "counted", "rows": take_census(lambda: self._model(*inputs), self._device)}
        except Exception as error:  # noqa: BLE001 (border to untrusted code; no census is not a failed grade)
            return {"event": "counted", "rows": [], "error": f"{type(error).__name__}: {error}"[:500]}

    def repeat(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make calls in a row on the current contents of a slot, each after a flush, or the flushes alone."""
        inputs = self._inputs[int(message["slot"])]
        try:
            with torch.no_grad():
                for _ in range(int(message["count"])):
                    self._flush_cache(int(message["flush_bytes"]))
                    if not message["noop"]:
                        self._model(*inputs)
                _synchronize()
        except Exception as error:  # noqa: BLE001 (border to untrusted code; every answer was judged before)
            return {"event": "repeated", "error": f"{type(error).__name__}: {error}"[:500]}
        return {"event": "repeated"}

    def report_identity(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say what changed in the process since before the import, and which modules are loaded."""
        changed = compare_identity(self._before, take_identity())[:40]
        return {"event": "identity", "changed": changed, "modules": len(sys.modules)}

    def _map(self, descriptor: int, spec: dict[str, Any], writable: bool) -> Arena:
        return Arena(descriptor, spec, self._device, writable=writable)

    def _poison_spare(self, byte: int) -> list["Tensor"]:
        """Fill blocks of the answer's size with a pattern; the caller frees them, so that the next ones hold it."""
        blocks = [torch.empty_like(part) for _ in range(_SPARE_BLOCKS) for part in self._outputs]
        for block in blocks:
            block.view(torch.uint8).fill_(byte) if block.dim() else block.fill_(0)
        return blocks

    def _do_as_a_deck(self, slot: int, flush_bytes: int) -> None:
        """Do what precedes a timed call in a deck: another call, a flush, a wait until the device is idle.

        The other call, on what another address holds, is not judged; it warms the host's caches, which go cold within a
        millisecond where other machines share its cores. The flush is this process's own, so the time is held against
        the device's.
        """
        if self._device == "cpu":
            return
        with contextlib.suppress(Exception), torch.no_grad():
            self._model(*self._inputs[(slot + 1) % len(self._inputs)])
        self._flush_cache(flush_bytes)
        _synchronize()

    def _flush_cache(self, size: int) -> None:
        if self._flush is None or self._flush.numel() != size:
            self._flush = torch.empty(size, dtype=torch.uint8, device=self._device)
        _zero(self._flush)

    def _run(self, inputs: list["Tensor"], blank: "list[Tensor] | None") -> tuple[int, dict[str, str] | None]:
        try:
            with torch.no_grad():
                return self._timed(inputs, blank), None
        except OutputFault as error:
            return 0, {"kind": "output", "text": str(error)[:500]}
        except Exception as error:  # noqa: BLE001 (border to untrusted code)
            return 0, {"kind": "raised", "text": f"{type(error).__name__}: {error}"[:500]}

    def _timed(self, inputs: list["Tensor"], blank: "list[Tensor] | None") -> int:
        if self._device != "cpu":
            return self._timed_on_gpu(inputs, blank)
        start_ns = self._timer()
        answer = self._model(*inputs) if blank is None else blank
        end_ns = self._timer()
        self._deliver(answer)
        return int(end_ns - start_ns)

    def _timed_on_gpu(self, inputs: list["Tensor"], blank: "list[Tensor] | None") -> int:
        start, end = _Event(enable_timing=True), _Event(enable_timing=True)
        _record(start)
        answer = self._model(*inputs) if blank is None else blank
        _record(end)
        self._deliver(answer)
        _synchronize()
        return int(_elapsed(start, end) * 1e6)

    def _deliver(self, answer: Any) -> None:
        """Copy the answer into the arena, in the same stream. Raises OutputFault for any other form than agreed."""
        parts = list(answer) if isinstance(answer, tuple | list) else [answer]
        if len(parts) != len(self._outputs):
            raise OutputFault(f"parts: {len(parts)} instead of {len(self._outputs)}")
        for arena, part in zip(self._outputs, parts, strict=True):
            _copy(arena, _checked(part, arena))


def _noise_like(part: "Tensor") -> "Tensor":
    """Return random bytes in the form of an answer: zeros cost less power to move, and a no-op must not be cheaper."""
    flat = torch.randint(0, 256, (part.numel() * part.element_size(),), dtype=torch.uint8, device=part.device)
    return flat.view(part.dtype).reshape(part.shape)


def _checked(part: Any, arena: "Tensor") -> "Tensor":
    if type(part) is torch.nn.Parameter:
        part = _detach(part)
    if type(part) is not torch.Tensor:
        raise OutputFault(f"type: {type(part).__name__} instead of torch.Tensor")
    if part.__dict__:
        raise OutputFault(f"attributes: the tensor carries {sorted(part.__dict__)[0]!r}")
    if part.dtype != arena.dtype or part.shape != arena.shape:
        raise OutputFault(f"form: {part.dtype} {tuple(part.shape)} instead of {arena.dtype} {tuple(arena.shape)}")
    if part.device != arena.device:
        raise OutputFault(f"device: {part.device} instead of {arena.device}")
    if any(stride == 0 and size > 1 for stride, size in zip(part.stride(), part.shape, strict=True)):
        raise OutputFault("strides: a stride is 0")
    return part


_Event: Any = torch.cuda.Event
_record: Any = torch.cuda.Event.record
_elapsed: Any = torch.cuda.Event.elapsed_time
_synchronize: Any = torch.cuda.synchronize
