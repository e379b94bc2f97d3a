"""The oracle's state: reference and model of a shape, the arenas, and what each slot holds now."""

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from grading.oracle.arenas import OracleArena, as_bytes, has_same_bytes
from grading.oracle.calibration import calibrate
from grading.oracle.contents import Content, Source, case_names, edit_one, poked, quiet_seeds, state_of
from grading.oracle.exactcases import exact_forward_of
from grading.oracle.gates import Compared, Gate, class_ratio, compare, gate_for, is_within
from grading.oracle.loading import load_reference
from grading.oracle.replay import Call, parts_of, replayed
from grading.oracle.secret import Secret
from grading.worker.doorbell import DONE, RELEASE, RELEASED, SNAPPED, Doorbell
from grading.worker.protocol import Channel

if TYPE_CHECKING:
    from torch import Tensor

POISONS = (0xFF, 0x7B)
_EDIT_TRIES = 8
_POISONED_SHARE = 0.1
_HASHED_BYTES = 4 << 20
_EDIT_MOVE = 20.0
# At the clocks of a Hopper card; how long it really was is measured each time.
_CYCLES_PER_US = 2000
_sleep: Any = torch.cuda._sleep
_Event: Any = torch.cuda.Event


@dataclass
class _Slot:
    arenas: list[OracleArena]
    content: Content | None = None
    expected: "list[Tensor]" = field(default_factory=list)


class Oracle:
    """Answers the warden's commands, one after the other."""

    def __init__(self, channel: Channel, bells: tuple[Doorbell, Doorbell], device: str) -> None:
        torch.use_deterministic_algorithms(mode=False)
        self._channel = channel
        self._bell, self._own_bell = bells
        self._device = device
        self._secret: Secret | None = None
        self._reference: Any = None
        self._facts: dict[str, Any] = {}
        self._source: Source | None = None
        self._slots: list[_Slot] = []
        self._outputs: list[OracleArena] = []
        self._states: dict[str, OracleArena] = {}
        self._altered: set[str] = set()
        self._kept: dict[str, Content] = {}
        self._in_place: frozenset[int] = frozenset()
        self._ask: Call | None = None

    def open(self, message: dict[str, Any]) -> dict[str, Any]:
        """Load the problem's reference; say which constructor arguments each shape takes."""
        self._facts, self._secret, self._source, self._ask = message, None, None, None
        self._slots, self._outputs, self._states, self._kept = [], [], {}, {}
        if self._device != "cpu":
            torch.cuda.empty_cache()
        self._reference = load_reference(message["reference"], is_entry=bool(message["is_entry"]))
        self._gates = msgspec.convert(message["gates"], dict[str, Gate])
        arguments = []
        for shape in message["shapes"]:
            self._bind(shape)
            arguments.append(list(self._reference.get_init_inputs()))
        return {"event": "opened", "arguments": arguments, "torch": str(torch.__version__)}

    def commit(self, message: dict[str, Any]) -> dict[str, Any]:
        """Draw the secret now; say its hash."""
        self._secret = Secret()
        return {"event": "committed", "commitment": self._secret.commitment, "plan_seed": self._secret.seed("plan")}

    def shape(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make model and arenas of a shape; the descriptors go with the answer: inputs by slot, outputs, state."""
        assert self._secret is not None
        index, reference = int(message["index"]), self._reference
        self._slots, self._outputs, self._states, self._kept, self._ask = [], [], {}, {}, None
        self._bind(self._facts["shapes"][index])
        with quiet_seeds(self._secret.seed(f"{index}/first_weights")):
            model = self._new_model()
        names = list(inspect.signature(reference.Model.forward).parameters)[1:]
        stress = {case["name"]: case["scale"] for case in self._facts["stress"]}
        problem = self._facts["problem"]
        self._source = Source(problem, reference, model, names, stress, self._secret, str(index), self._device)
        self._in_place = frozenset(names.index(name) for name in getattr(reference, "IN_PLACE", ()))
        self._ask = replayed(parts_of(model, sorted(self._in_place)), self._device)
        first = self._source.draw("nominal", "", -1)
        free = bool(message["writable_inputs"])
        self._slots = [
            _Slot([self._arena(t, writable=free or i in self._in_place) for i, t in enumerate(first.inputs)])
            for _ in range(int(message["slots"]))
        ]
        self._slots[0].content = Content(first.inputs)
        expected = self._run_reference(self._slots[0].content)
        self._outputs = [self._arena(part, writable=True) for part in expected[: self._answer_parts(expected)]]
        self._states = {name: self._arena(value, writable=False) for name, value in state_of(model).items()}
        arenas = [arena for slot in self._slots for arena in slot.arenas] + self._outputs + [*self._states.values()]
        answer = {
            "event": "shaped",
            "inputs": [arena.describe() for arena in self._slots[0].arenas],
            "outputs": [arena.describe() for arena in self._outputs],
            "states": [arena.describe() | {"name": name} for name, arena in self._states.items()],
            "cases": case_names(self._source) | {"stress": list(stress)},
        }
        self._channel.send(answer, [arena.descriptor for arena in arenas])
        for arena in arenas:
            arena.close_descriptor()
        return {"event": "sent"}

    def weights(self, message: dict[str, Any]) -> dict[str, Any]:
        """Draw new weights into the oracle's model and the state arenas."""
        source, secret = self._need_source(), self._secret
        assert secret is not None
        with quiet_seeds(secret.seed(f"{source.prefix}/weights/{message['number']}")):
            source.model.load_state_dict(self._new_model().state_dict(), strict=True)
        self._show_state(state_of(source.model))
        self._altered = set()
        return {"event": "weighed"}

    def prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        """Put content into a slot and poison into the outputs; the expected answer is computed first, from copies."""
        slot, source = self._slots[int(message["slot"])], self._need_source()
        content, moved = self._content(message, slot)
        if message["kind"] != "edit" and not (message["kind"] == "same" and slot.expected and not self._in_place):
            slot.expected = self._run_reference(content)
        slot.content = content
        if message["keep"]:
            self._kept[message["keep"]] = content
        for arena, tensor in zip(slot.arenas, content.inputs, strict=True):
            arena.hold_back(tensor)
        for arena in self._outputs:
            arena.flat.fill_(POISONS[int(message["number"]) % 2])
        poke = self._poke(content)
        self._settle(0)
        return {
            "event": "prepared",
            "poke": poke,
            "moved": moved,
            "poison": POISONS[int(message["number"]) % 2],
            "state": bool(source.names),
        }

    def idle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Do to inputs and outputs what `prepare` does, for a call that does nothing."""
        slot = self._slots[0]
        assert slot.content is not None
        for arena, tensor in zip(slot.arenas, slot.content.inputs, strict=True):
            arena.hold_back(tensor)
        for arena in self._outputs:
            arena.flat.fill_(POISONS[0])
        self._settle(0)
        return {"event": "idled"}

    def judge(self, message: dict[str, Any]) -> dict[str, Any]:
        """Complete the inputs when told to, wait for the worker's answer, copy the arena at once, then compare."""
        number, slot = int(message["number"]), self._slots[int(message["slot"])]
        deadline = monotonic() + float(message["seconds"])
        self._own_bell.wait(RELEASE, number, deadline)
        held = self._release(slot, int(message["flush_bytes"]), int(message["hold_us"]))
        self._own_bell.ring(RELEASED, number)
        self._bell.wait(DONE, number, deadline)
        copies = [arena.tensor.clone() for arena in self._outputs]
        self._settle(0)
        self._own_bell.ring(SNAPPED, number)
        answer = {"event": "judged", "number": number, "held_ns": round(held() * 1e6)}
        return answer if message["noop"] else answer | self._verdict(slot, copies, number)

    def calibrate(self, message: dict[str, Any]) -> dict[str, Any]:
        """Time the calibration kernel; nothing of the candidate runs meanwhile."""
        return {"event": "calibrated", "ms": calibrate(self._device)}

    def reveal(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say the secret; the worker has ended."""
        return {"event": "revealed", "secret": self._secret.reveal() if self._secret else None}

    def _release(self, slot: _Slot, flush_bytes: int, hold_us: int) -> Callable[[], float]:
        """Evict the L2 cache, then complete the inputs: until now every arena held wrong lines.

        Held, the GPU stays busy here while the worker launches: its context gets the GPU only once this one is idle, so
        its events time the device's work and not the host's launches. The hold is queued right behind the inputs, so
        that no kernel which watches them finds the GPU free. Returns what tells later how many milliseconds it was.
        """
        assert slot.content is not None
        self._settle(flush_bytes)
        for arena, tensor in zip(slot.arenas, slot.content.inputs, strict=True):
            arena.complete(tensor)
        if self._device == "cpu" or not hold_us:
            self._settle(0)
            return lambda: 0.0
        start, end = _Event(enable_timing=True), _Event(enable_timing=True)
        start.record()
        _sleep(hold_us * _CYCLES_PER_US)
        end.record()
        start.synchronize()
        return lambda: float(start.elapsed_time(end))

    def _verdict(self, slot: _Slot, copies: "list[Tensor]", number: int) -> dict[str, Any]:
        content = slot.content
        assert content is not None
        hashed = hashlib.sha256(b"".join(_digest(copy) for copy in copies)).hexdigest()
        pieces: list[tuple[Tensor, Tensor, Gate]] = []
        form = None
        try:
            pieces = self._pieces(content, slot.expected, slot, copies)
            result = self._judge(pieces, content)
            if result.bad and (nearest := self._nearest(content, slot, copies)):
                pieces = self._pieces(content, nearest, slot, copies)
                result = self._judge(pieces, content)
            getattr(self._reference, "check_structure", _accept)(_as_answer(copies))
        except ValueError as error:
            form, result = str(error)[:300], Compared(0.0, 1, is_equal=False)
        return {
            "ratio": result.ratio,
            "bad": result.bad,
            "form": form,
            "hash": hashed,
            "is_within_deck": result.bad > 0 and form is None and self._is_within_deck(pieces),
            "inputs_intact": self._inputs_intact(slot, content),
            "poison_left": self._poison_left(slot, copies, POISONS[number % 2]),
            "class_ratio": self._class_ratio(content, slot, copies),
        }

    def _judge(self, pieces: "list[tuple[Tensor, Tensor, Gate]]", content: Content) -> Compared:
        """Return how an answer stands as a whole. Raises ValueError for a part of another shape."""
        results = [self._compare(wanted, found, gate, content) for wanted, found, gate in pieces]
        ratios = [result.ratio for result in results]
        worst = None if None in ratios else max((ratio or 0.0 for ratio in ratios), default=0.0)
        return Compared(worst, sum(result.bad for result in results), all(result.is_equal for result in results))

    def _nearest(self, content: Content, slot: _Slot, copies: "list[Tensor]") -> "list[Tensor] | None":
        """Return the admissible answer nearest to a copied one, of a model where close decisions have several."""
        model = self._need_source().model
        if not hasattr(model, "nearest"):
            return None
        count = len(copies)
        with torch.no_grad(), poked(model, content.state):
            return [*model.nearest(content.inputs, slot.expected[:count], copies), *slot.expected[count:]]

    def _compare(self, wanted: "Tensor", found: "Tensor", gate: Gate, content: Content) -> Compared:
        if wanted.shape != found.shape:
            raise ValueError(f"shape {tuple(found.shape)} instead of {tuple(wanted.shape)}")
        result = compare(wanted, found, gate)
        if content.is_exact and not result.is_equal:
            unequal = int((wanted != found).sum()) or 1
            return Compared(None if result.ratio is None else max(result.ratio, 2.0), unequal, is_equal=False)
        return result

    def _pieces(
        self, content: Content, wanted: "list[Tensor]", slot: _Slot, copies: "list[Tensor]"
    ) -> "list[tuple[Tensor, Tensor, Gate]]":
        """Return what is compared: the parts that the reference names, else every part, and state changed in place."""
        parts = len(copies)
        pairs = list(zip(wanted[:parts], copies, strict=True))
        if hasattr(self._reference, "compared_parts"):
            named = self._reference.compared_parts(content.inputs, _as_answer(wanted[:parts]), _as_answer(copies))
            pairs = [(ours, found) for _, ours, found in named]
        places = sorted(self._in_place)
        pairs += [(wanted[parts + i], slot.arenas[place].tensor) for i, place in enumerate(places)]
        return [(ours, found, self._gate(ours, content.kind)) for ours, found in pairs]

    def _gate(self, wanted: "Tensor", kind: str = "nominal") -> Gate:
        return gate_for(self._facts["problem"], str(wanted.dtype)[6:], kind, stored=self._gates)

    def _deck_tolerance(self, wanted: "Tensor") -> float:
        return float(self._facts["tolerance"].get(str(wanted.dtype)[6:], 0.0))

    def _is_within_deck(self, pieces: "list[tuple[Tensor, Tensor, Gate]]") -> bool:
        """Tell whether the deck's absolute tolerance lets an answer pass."""
        return all(is_within(wanted, found, self._deck_tolerance(wanted)) for wanted, found, _ in pieces)

    def _class_ratio(self, content: Content, slot: _Slot, copies: "list[Tensor]") -> float | None:
        forward = exact_forward_of(self._facts["problem"], self._reference)
        if forward is None or content.is_exact or content.state:
            return None
        exact = forward(self._need_source().model, *content.inputs)
        return class_ratio(exact, slot.expected[0], copies[0])

    def _inputs_intact(self, slot: _Slot, content: Content) -> bool:
        pairs = enumerate(zip(slot.arenas, content.inputs, strict=True))
        return all(has_same_bytes(arena.flat, tensor) for i, (arena, tensor) in pairs if i not in self._in_place)

    def _poison_left(self, slot: _Slot, copies: "list[Tensor]", byte: int) -> int:
        """Return how many bytes still hold the pattern where the reference has another value; 0 for a few by chance."""
        pairs = zip(copies, slot.expected[: len(copies)], strict=True)
        left = sum(int(((as_bytes(copy) == byte) & (as_bytes(wanted) != byte)).sum()) for copy, wanted in pairs)
        return left if left > _POISONED_SHARE * sum(arena.bytes for arena in self._outputs) else 0

    def _content(self, message: dict[str, Any], slot: _Slot) -> tuple[Content, float | None]:
        kind, source = message["kind"], self._need_source()
        if kind == "label":
            return self._kept[message["name"]], None
        if kind == "same":
            assert slot.content is not None
            return slot.content, None
        if kind == "edit":
            return self._edited(message, slot)
        return source.draw(kind, message["name"], int(message["index"])), None

    def _edited(self, message: dict[str, Any], slot: _Slot) -> tuple[Content, float | None]:
        """Return the slot's content with one edit that moves the reference's answer by a multiple of the tolerance."""
        assert slot.content is not None and self._secret is not None
        rng = self._secret.rng(f"{self._need_source().prefix}/edit/{message['index']}")
        moved: float | None = 0.0
        for _ in range(_EDIT_TRIES):
            content = Content(edit_one(slot.content.inputs, rng, self._in_place))
            expected = self._run_reference(content)
            gates = [self._gate(part) for part in expected]
            results = [compare(old, new, gate) for old, new, gate in zip(slot.expected, expected, gates, strict=True)]
            ratios = [result.ratio for result in results]
            moved = None if None in ratios else max(ratio or 0.0 for ratio in ratios)
            if moved is None or moved >= _EDIT_MOVE:
                break
        slot.expected = expected
        return content, moved

    def _run_reference(self, content: Content) -> "list[Tensor]":
        """Return the reference's answer as parts, then the inputs that it changed in place."""
        assert self._ask is not None, "no shape is open"
        with torch.no_grad(), poked(self._need_source().model, content.state):
            return self._ask(content.inputs)

    def _poke(self, content: Content) -> list[str]:
        """Put the state that a content asks for into the arenas; return the entries that the worker must rewrite."""
        own = state_of(self._need_source().model)
        changed = sorted(set(content.state) | self._altered)
        self._show_state({name: content.state.get(name, own[name]) for name in changed})
        self._altered = set(content.state)
        return changed

    def _show_state(self, state: "dict[str, Tensor]") -> None:
        """Show the worker weights. It may load them as soon as it is told: on a GPU, not before they have arrived."""
        for name, value in state.items():
            self._states[name].tensor.copy_(value)
        self._settle(0)

    def _settle(self, flush_bytes: int) -> None:
        """Evict the L2 cache from this process, and wait; nothing to do on a processor."""
        if self._device == "cpu":
            return
        if flush_bytes:
            if not hasattr(self, "_flush"):
                self._flush = torch.empty(flush_bytes // 4, dtype=torch.float32, device=self._device)
            self._flush.zero_()
        torch.cuda.synchronize()

    def _new_model(self) -> Any:
        # Drawn on the device: the secret seeds them anyway, and a processor takes seconds for a large matrix.
        with torch.device(self._device):
            return self._reference.Model(*self._reference.get_init_inputs()).to(self._device).eval()

    def _arena(self, like: "Tensor", *, writable: bool) -> OracleArena:
        return OracleArena(like, self._device, writable=writable)

    def _answer_parts(self, expected: "list[Tensor]") -> int:
        return len(expected) - len(self._in_place)

    def _bind(self, shape: dict[str, Any]) -> None:
        for key, value in shape.items():
            name = key if hasattr(self._reference, key) else key.upper()
            if not hasattr(self._reference, name):
                raise AttributeError(f"reference has neither {key!r} nor {key.upper()!r}")
            setattr(self._reference, name, int(value))

    def _need_source(self) -> Source:
        assert self._source is not None, "no shape is open"
        return self._source


def _as_answer(parts: "list[Tensor]") -> Any:
    return parts[0] if len(parts) == 1 else tuple(parts)


def _accept(answer: Any) -> None:
    """Accept any output: the reference has no further structure to ask for."""


def _digest(tensor: "Tensor") -> bytes:
    """Return what stands for an answer in its hash: its bytes, or sums over them where they are many on a GPU."""
    flat = as_bytes(tensor)
    if tensor.device.type == "cpu" or flat.numel() <= _HASHED_BYTES or flat.numel() % 4:
        data: bytes = flat.cpu().numpy().tobytes()
        return data
    numbers = flat.view(torch.int32)
    return repr([int(numbers[start::step].sum()) for start, step in ((0, 1), (0, 2), (0, 3), (1, 5))]).encode()
