"""Calls of a reference of thousands of launches, replayed as a CUDA graph: a judge should cost what its kernels cost.

A call is recorded once a shape, where a call takes long, the host's launches fill it, and nothing in it waits for the
device (that cannot be recorded). It is kept only if a replay gives bit for bit what the call gave. Every so many
replays the call is made beside it; if only the replay differs, the oracle fails rather than judge by it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

# A call is recorded from so many seconds on, if its launches take this share of it.
_LEAST_SECONDS, _LAUNCHES_SHARE = 0.02, 0.7
_CHECKED_ONE_IN = 32
# The first call of a model compiles and allocates.
_RECORDED_AT = 2

Answer = list["Tensor"]
Call = Callable[[list["Tensor"]], Answer]


class ReplayDiffers(RuntimeError):
    """A replay gave another answer than the call, which gave the same one twice."""


@dataclass
class Recording:
    """A recorded call: put inputs into its own tensors, and replay."""

    inputs: "list[Tensor]"
    answer: Answer
    replay: Callable[[], None]

    def __call__(self, inputs: "list[Tensor]") -> Answer:
        """Return the answer's own tensors; the next replay overwrites them."""
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        self.replay()
        return self.answer


@dataclass
class Replayed:
    """A call that replays itself where that pays; without gradients, on one device.

    call     returns parts of an answer and may write to the inputs it is given
    record   makes a recording of a call; raises RuntimeError for one that waits for the device
    settle   waits for the device
    """

    call: Call
    record: Callable[[Call, "list[Tensor]"], Recording]
    settle: Callable[[], None]
    recording: Recording | None = None
    is_open: bool = True
    count: int = field(default=0, init=False)

    def __call__(self, inputs: "Sequence[Tensor]") -> Answer:
        """Return the parts of an answer. Raises ReplayDiffers."""
        self.count += 1
        if self.recording is None:
            return self._call_plainly(inputs)
        answer = _copied(self.recording(list(inputs)))
        if self.count % _CHECKED_ONE_IN:
            return answer
        return self._checked(answer, inputs)

    def _call_plainly(self, inputs: "Sequence[Tensor]") -> Answer:
        self.settle()
        began = monotonic()
        answer = self.call(_copied(inputs))
        launched = monotonic() - began
        self.settle()
        took = monotonic() - began
        is_worth_it = took >= _LEAST_SECONDS and launched >= _LAUNCHES_SHARE * took
        if self.is_open and self.count >= _RECORDED_AT:
            self.is_open = False
            if is_worth_it:
                self._try_to_record(answer, inputs)
        return answer

    def _try_to_record(self, answer: Answer, inputs: "Sequence[Tensor]") -> None:
        try:
            recording = self.record(self.call, _copied(inputs))
        except RuntimeError:
            return
        if _is_same(answer, recording(list(inputs))):
            self.recording = recording

    def _checked(self, answer: Answer, inputs: "Sequence[Tensor]") -> Answer:
        """Hold a replay's answer against the call's; where calls differ among themselves, none is replayed any more."""
        plain = self.call(_copied(inputs))
        if _is_same(plain, answer):
            return answer
        if _is_same(plain, self.call(_copied(inputs))):
            raise ReplayDiffers(f"replay {self.count} of the reference differs from its call")
        self.recording = None
        return plain


def parts_of(model: Any, in_place: Sequence[int]) -> Call:
    """Return a model's call as parts of its answer, then the inputs at the given places, which it changes."""

    def call(inputs: "list[Tensor]") -> Answer:
        answer = model(*inputs)
        parts = list(answer) if isinstance(answer, tuple | list) else [answer]
        return [part.detach().clone() for part in parts] + [inputs[place] for place in in_place]

    return call


def replayed(call: Call, device: str) -> Call:
    """Return a call that replays itself on a GPU; on a processor, the call with copies of its inputs."""
    if device == "cpu":
        return lambda inputs: call(_copied(inputs))
    return Replayed(call, _record_graph, torch.cuda.synchronize)


def _record_graph(call: Call, inputs: "list[Tensor]") -> Recording:
    """Record a call as a CUDA graph; first see that it waits for nothing, since a broken recording leaves traces."""
    cuda: Any = torch.cuda
    before = cuda.get_sync_debug_mode()
    cuda.set_sync_debug_mode("error")
    try:
        call(_copied(inputs))
    finally:
        cuda.set_sync_debug_mode(before)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, capture_error_mode="thread_local"):
        answer = call(inputs)
    return Recording(inputs, answer, graph.replay)


def _copied(tensors: "Sequence[Tensor]") -> "list[Tensor]":
    return [tensor.clone() for tensor in tensors]


def _is_same(one: Answer, other: Answer) -> bool:
    return all(torch.equal(_bits(a), _bits(b)) for a, b in zip(one, other, strict=True))


def _bits(tensor: "Tensor") -> "Tensor":
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor
