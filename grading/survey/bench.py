"""Child: one shape of a problem with its reference and any number of solutions, all in this process.

Solutions are trusted here. What the reference gives is what the grader compares with; the gate is the grader's own.
"""

import importlib.util
import inspect
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from grading.oracle.arenas import has_same_bytes
from grading.oracle.contents import Content, Source, case_names, poked, quiet_seeds
from grading.oracle.gates import Compared, Gate, compare, gate_for, read_gates
from grading.oracle.replay import Call, parts_of, replayed
from grading.oracle.secret import Secret
from grading.problem import Problem, Shape
from grading.runner.models import bind_shape
from grading.survey.items import reference_of
from grading.timing import median_ms, time_calls, wait_for_device

if TYPE_CHECKING:
    from torch import Tensor

# Numbered draws follow from this; a survey keeps nothing secret, and the same number is the same content everywhere.
_DRAWS = Secret(b"proofline survey: numbered draws")


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """What a survey ran on."""

    device_name: str
    python: str
    torch: str
    cuda: str | None
    triton: str | None


@dataclass(frozen=True)
class Pair:
    """Two tensors that have to agree: the reference's and a solution's, and the gate between them."""

    wanted: "Tensor"
    found: "Tensor"
    gate: Gate

    @property
    def dtype(self) -> str:
        """The type of the reference's tensor, for example ``bfloat16``."""
        return str(self.wanted.dtype).removeprefix("torch.")


@dataclass
class Bench:
    """A problem at one shape on one device, to be used without gradients. Close it before the next shape."""

    problem: Problem
    shape: Shape
    device: str
    reference: ModuleType = field(init=False)
    oracle: Any = field(init=False)
    source: Source = field(init=False)
    in_place: list[int] = field(init=False)
    gates: dict[str, Gate] = field(init=False)
    ask: Call = field(init=False)
    models: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Load and bind the reference, make its model, and the source of contents."""
        self.reference = load_module(reference_of(self.problem), "reference")
        bind_shape(self.reference, self.shape)
        self.gates = read_gates(reference_of(self.problem).parent)
        self.oracle = self._new_reference(0)
        names = list(inspect.signature(self.reference.Model.forward).parameters)[1:]
        stress = {case.name: case.scale for case in self.problem.check.stress}
        self.source = Source(self.problem.key, self.reference, self.oracle, names, stress, _DRAWS, "0", self.device)
        self.in_place = sorted(names.index(name) for name in getattr(self.reference, "IN_PLACE", ()))
        self.ask = replayed(parts_of(self.oracle, self.in_place), self.device)

    def add(self, path: Path, *, is_sharing: bool = False) -> Any:
        """Return the model of a solution's file, with the reference's weights.

        is_sharing  it uses the reference's own tensors, so that many plain solutions fit beside each other; a kernel
                    that takes hold of its tensors when it is made needs copies
        """
        solution = load_module(path, f"solution_{path.stem}")
        # As the grader's worker does: made on the host, then moved.
        model = solution.Model(*self.reference.get_init_inputs()).to(self.device).eval()
        model.load_state_dict(self.oracle.state_dict(), strict=True, assign=is_sharing)
        self.models.append(model)
        return model

    def renew_weights(self, number: int) -> None:
        """Draw other weights, for the reference and all solutions."""
        drawn = self._new_reference(number).state_dict()
        for model in (self.oracle, *self.models):
            model.load_state_dict(drawn, strict=True)

    def contents(self, draws: int) -> Iterator[tuple[str, Content]]:
        """Yield numbered nominal contents, then one of each stress, structural, camouflaged and exact case."""
        for number in range(draws):
            yield "nominal", self.source.draw("nominal", "", number)
        for kind, names in (case_names(self.source) | {"stress": list(self.source.stress)}).items():
            for name in names:
                yield f"{kind} {name}", self.source.draw(kind, name, 0)

    def wanted(self, content: Content) -> "list[Tensor]":
        """Return the parts of the reference's answer, then the inputs that it changed in place."""
        with poked(self.oracle, content.state):
            return self.ask(content.inputs)

    def call(self, model: Any, content: Content) -> "list[Tensor]":
        """Return the parts of an answer, then the inputs that were changed in place.

        The state that a content asks for is put in before and taken out after. Raises ValueError when an input was
        written to that the problem leaves alone.
        """

        inputs = [tensor.clone() for tensor in content.inputs]
        with poked(model, content.state):
            answer = model(*inputs)
        for place, (now, before) in enumerate(zip(inputs, content.inputs, strict=True)):
            if place not in self.in_place and not has_same_bytes(now, before):
                raise ValueError(f"input {place} was written to")
        parts = list(answer) if isinstance(answer, tuple | list) else [answer]
        return [part.detach().clone() for part in parts] + [inputs[place] for place in self.in_place]

    def pairs(self, content: Content, wanted: "list[Tensor]", found: "list[Tensor]") -> list[Pair]:
        """Return what is compared, as the oracle does. Raises ValueError for an answer of another form."""
        count = len(wanted) - len(self.in_place)
        if [(t.shape, t.dtype) for t in wanted] != [(t.shape, t.dtype) for t in found]:
            raise ValueError(f"the answer's form is {_form(found)}; need {_form(wanted)}")
        if hasattr(self.oracle, "nearest"):
            with poked(self.oracle, content.state):
                wanted = [*self.oracle.nearest(content.inputs, wanted[:count], found[:count]), *wanted[count:]]
        both = list(zip(wanted[:count], found[:count], strict=True))
        if hasattr(self.reference, "compared_parts"):
            answers = (part[0] if count == 1 else tuple(part[:count]) for part in (wanted, found))
            both = [(a, b) for _, a, b in self.reference.compared_parts(content.inputs, *answers)]
        both += list(zip(wanted[count:], found[count:], strict=True))
        return [Pair(a, b, self._gate(a, content.kind)) for a, b in both]

    def _gate(self, wanted: "Tensor", kind: str) -> Gate:
        return gate_for(self.problem.key, str(wanted.dtype)[6:], kind, stored=self.gates)

    def judge(self, model: Any, content: Content, wanted: "list[Tensor]") -> Compared:
        """Return how a model's answer stands as a whole; an answer of another form is not finite."""
        try:
            results = [
                compare(pair.wanted, pair.found, pair.gate)
                for pair in self.pairs(content, wanted, self.call(model, content))
            ]
        except ValueError:
            return Compared(None, 1, is_equal=False)
        ratios = [result.ratio for result in results]
        worst = None if None in ratios else max((ratio for ratio in ratios if ratio is not None), default=0.0)
        bad, is_equal = sum(result.bad for result in results), all(result.is_equal for result in results)
        if content.is_exact and not is_equal:
            return Compared(None if worst is None else max(worst, 2.0), bad or 1, is_equal=False)
        return Compared(worst, bad, is_equal)

    def sample_ms(self, model: Any, inputs: "list[Tensor]") -> float:
        """Return one call's time by the deck's own method and statistic; nothing is flushed on a processor."""
        timing = self.problem.timing
        flush_bytes = 0 if self.device == "cpu" else timing.flush_bytes
        call: Callable[[], object] = lambda: model(*inputs)  # noqa: E731
        if timing.method == "wall":
            call = self._waited(call)
        samples = time_calls(call, self.device, timing.warmup, timing.trials, flush_bytes)
        return min(samples) if timing.statistic == "min" else median_ms(samples)

    def close(self) -> None:
        """Give the memory back and forget what was compiled, which is limited per process."""
        import torch

        self.models.clear()
        del self.source, self.oracle, self.ask
        torch._dynamo.reset()
        if self.device != "cpu":
            torch.cuda.empty_cache()

    def _waited(self, call: Callable[[], object]) -> Callable[[], object]:
        """Return the call with the wait for the device inside: what a clock on the wall reads."""

        def run() -> None:
            call()
            wait_for_device(self.device)

        return run

    def _new_reference(self, weights: int) -> Any:
        import torch

        with quiet_seeds(_DRAWS.seed(f"weights/{weights}")), torch.device(self.device):
            return self.reference.Model(*self.reference.get_init_inputs()).to(self.device).eval()


def load_module(path: Path, name: str) -> ModuleType:
    """Import a file under a name of its own. Raises what its code raises."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_versions(device: str) -> Versions:
    """Return the device's name and the versions of what runs on it."""
    import torch

    triton = importlib.import_module("triton").__version__ if importlib.util.find_spec("triton") else None
    return Versions(
        device_name="CPU" if device == "cpu" else torch.cuda.get_device_name(device),
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        triton=triton,
    )


def _form(parts: "list[Tensor]") -> str:
    return ", ".join(f"{tuple(part.shape)} {str(part.dtype)[6:]}" for part in parts)
