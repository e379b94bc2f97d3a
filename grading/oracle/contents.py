"""What a call is given: the kinds of content, each drawn from the secret.

nominal      the reference's own inputs
stress       the deck's numeric stress: inputs or state entries times a constant
structural   the reference's structural cases: inputs that vary meaning, not size
camouflage   a structural case hidden in rows at secret places of nominal inputs
exact        whole numbers, so that every order of summation gives the same bits (references with ``exact_case``)
edit         the slot's own content with one element set to a large value
same, label  the slot's own content again; content that was kept under a label
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from grading.oracle.exactcases import exact_case_of
from grading.oracle.secret import Secret

if TYPE_CHECKING:
    from torch import Tensor

_CAMOUFLAGED = ("hard/01_fp8_gemm", "hard/05_topk_bitonic")
_EDIT_FACTOR = 64.0
_SIZED_BY = 1 << 20
# Half of a standard normal distribution lies within so much of zero.
_MEDIAN_OF_NORMAL = 0.6745


@dataclass
class Content:
    """The inputs of one call, the factors of state entries that go with it, and whether bits must agree."""

    inputs: "list[Tensor]"
    state: "dict[str, Tensor]" = field(default_factory=dict)
    is_exact: bool = False
    kind: str = "nominal"


@dataclass(frozen=True)
class Source:
    """What contents are drawn from: the bound reference, its model, the deck's stress cases, the secret."""

    problem: str
    reference: ModuleType
    model: Any
    names: list[str]
    stress: Mapping[str, Mapping[str, float]]
    secret: Secret
    prefix: str
    device: str

    def draw(self, kind: str, name: str, index: int) -> Content:
        """Return new content of a kind. Raises KeyError for a case that the problem does not have."""
        import torch

        label = f"{self.prefix}/{kind}/{name}/{index}"
        inputs = self._nominal(label)
        if kind == "nominal":
            return Content(inputs)
        if kind == "stress":
            return self._stress(inputs, self.stress[name])
        rng = self.secret.rng(label + "/case")
        if kind == "exact":
            state = {key: value.clone() for key, value in state_of(self.model).items()}
            made: tuple[dict[str, Tensor], list[Tensor]] = exact_case_of(self.problem, self.reference)(
                state, inputs, rng
            )
            return Content(made[1], made[0], is_exact=True)
        with quiet_seeds(self.secret.seed(label + "/case")), torch.device(self.device):
            if kind == "camouflage" and hasattr(self.reference, "camouflaged_cases"):
                return Content(_named(self.reference.camouflaged_cases(inputs, rng), name))
            case = _named(self.reference.structural_cases([tensor.clone() for tensor in inputs], rng), name)
        return Content(case if kind == "structural" else _hide_rows(inputs, case, rng), kind=kind)

    def _nominal(self, label: str) -> "list[Tensor]":
        import torch

        # Drawn on the device: another stream of the same distribution, and the only one that is fast enough there.
        with quiet_seeds(self.secret.seed(label)), torch.device(self.device):
            return [tensor.to(self.device) for tensor in self.reference.get_inputs()]

    def _stress(self, inputs: "list[Tensor]", scale: Mapping[str, float]) -> Content:
        factors = [scale.get(name) for name in self.names]
        scaled = [t if f is None else _scaled(t, f) for t, f in zip(inputs, factors, strict=True)]
        state = state_of(self.model)
        return Content(scaled, {name: _scaled(state[name], f) for name, f in scale.items() if name not in self.names})


def case_names(source: Source) -> dict[str, list[str]]:
    """Return the names of the structural and camouflaged cases, and of the exact one, that a problem has."""
    import torch

    reference, inputs = source.reference, source._nominal("names")
    names: dict[str, list[str]] = {"structural": [], "camouflage": []}
    with torch.device(source.device):
        if hasattr(reference, "structural_cases"):
            cases = reference.structural_cases([tensor.clone() for tensor in inputs], random.Random(0))
            names["structural"] = [name for name, _ in cases]
        if hasattr(reference, "camouflaged_cases"):
            names["camouflage"] = [name for name, _ in reference.camouflaged_cases(inputs, random.Random(0))]
        elif _has_free_rows(source) and inputs[0].shape[0] >= 2:
            names["camouflage"] = names["structural"]
    names["exact"] = ["whole_numbers"] if exact_case_of(source.problem, reference) else []
    return names


def _has_free_rows(source: Source) -> bool:
    """Tell whether rows of the inputs can be exchanged for others without touching the rest of the answer."""
    return source.problem in _CAMOUFLAGED or bool(getattr(source.reference, "ROWS_ARE_INDEPENDENT", False))


def edit_one(inputs: "list[Tensor]", rng: random.Random, in_place: frozenset[int]) -> "list[Tensor]":
    """Return copies of the inputs in which one element of one floating-point input has become large.

    Where all inputs are whole numbers, seeds, the last one becomes another seed.
    """
    import torch

    places = [i for i, t in enumerate(inputs) if t.dtype.is_floating_point and t.numel() and i not in in_place]
    edited = [tensor.clone() for tensor in inputs]
    if not places:
        edited[-1].view(-1)[0] = rng.randrange(1 << 31)
        return edited
    target = edited[rng.choice(places)]
    flat = target.reshape(-1)
    value = min(_EDIT_FACTOR * _usual_size(flat), float(torch.finfo(target.dtype).max) / 4) * rng.choice((-1, 1))
    flat[rng.randrange(flat.numel())] = torch.tensor(value, dtype=torch.float32).to(target.dtype)
    return edited


def _usual_size(flat: "Tensor") -> float:
    """Return the root mean square of a normal distribution of elements like these, those that are 0 left out.

    By their median, which earlier edits do not move: a few thousand elements have their root mean square doubled by
    one, and ten edits in a row would reach sizes at which rounding alone fails.
    """
    seen = flat[:: max(1, flat.numel() // _SIZED_BY)].float().abs()
    seen = seen[seen > 0]
    return float(seen.median()) / _MEDIAN_OF_NORMAL if seen.numel() else 1.0


def state_of(model: Any) -> "dict[str, Tensor]":
    """Return a model's state by name, as a strict load sees it."""
    return dict(model.state_dict())


@contextmanager
def poked(model: Any, state: "Mapping[str, Tensor]") -> Iterator[None]:
    """Put the state that a content asks for into a model; take it out again afterwards."""
    own = state_of(model)
    kept = {name: own[name].clone() for name in state}
    try:
        for name, value in state.items():
            own[name].copy_(value)
        yield
    finally:
        for name, value in kept.items():
            own[name].copy_(value)


@contextmanager
def quiet_seeds(seed: int) -> Iterator[None]:
    """Seed PyTorch's generators, and keep the reference from seeding them again with a constant."""
    import torch

    manual_seed = torch.manual_seed
    # Each generator by itself: `torch.manual_seed` takes most of a millisecond, for devices that are not there.
    devices = torch.cuda.default_generators if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    for generator in (torch.default_generator, *devices):
        generator.manual_seed(seed)
    torch.manual_seed = lambda seed: torch.default_generator
    try:
        yield
    finally:
        torch.manual_seed = manual_seed


def _scaled(tensor: "Tensor", factor: float) -> "Tensor":
    return (tensor.float() * factor).to(tensor.dtype)


def _named(cases: "Iterator[tuple[str, list[Tensor]]]", name: str) -> "list[Tensor]":
    return next(case for found, case in cases if found == name)


def _hide_rows(inputs: "list[Tensor]", case: "list[Tensor]", rng: random.Random) -> "list[Tensor]":
    """Return nominal inputs in which an eighth of the rows, never the first or last ones, come from the case."""
    rows = inputs[0].shape[0]
    inner = range(1, rows - 1) if rows > 2 else range(rows)
    chosen = rng.sample(list(inner), max(1, len(inner) // 8))
    mixed = [tensor.clone() for tensor in inputs]
    for tensor, other in zip(mixed, case, strict=True):
        for row in chosen:
            tensor[row] = other[row]
    return mixed
