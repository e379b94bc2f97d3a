"""Child: builds the reference's and the solution's model for a shape, and the inputs, as the decks do."""

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from grading.problem import Shape, Stress

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Pair:
    """Both models of one shape, and the names of their inputs by position."""

    oracle: Any
    solution: Any
    input_names: list[str]


def import_reference() -> ModuleType:
    """Import the reference of the working folder by its bare name, as solutions may do too."""
    return importlib.import_module("reference")


def bind_shape(reference: ModuleType, shape: Shape) -> None:
    """Assign a shape's numbers to the reference's module names. Raises AttributeError for a name it does not have."""
    for key, value in shape.items():
        name = key if hasattr(reference, key) else key.upper()
        if not hasattr(reference, name):
            raise AttributeError(f"reference has neither {key!r} nor {key.upper()!r}")
        setattr(reference, name, int(value))


def build_pair(reference: ModuleType, solution: ModuleType, shape: Shape, device: str) -> Pair:
    """Return the reference's and the solution's model with the same weights, on the device.

    Weights without a seed of their own differ in every process anyway, so they are drawn on the device: it is faster.
    Raises what a strict load raises when the solution's state does not fit.
    """
    import torch

    bind_shape(reference, shape)
    arguments = reference.get_init_inputs()
    with torch.device(device if getattr(reference, "UNSEEDED_WEIGHTS", False) else "cpu"):
        oracle = reference.Model(*arguments).to(device).eval()
    candidate = solution.Model(*arguments).to(device).eval()
    candidate.load_state_dict(oracle.state_dict(), strict=True)
    names = list(inspect.signature(reference.Model.forward).parameters)[1:]
    return Pair(oracle=oracle, solution=candidate, input_names=names)


def draw_inputs(reference: ModuleType, seed: int, device: str) -> list["Tensor"]:
    """Return the inputs of one seed: drawn by PyTorch's global generator on the host, then moved.

    A reference with ``LARGE_INPUTS`` draws on the device instead, from the same seed but another stream: on the host
    its draws would take minutes.
    """
    import torch

    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    with torch.device(device if draws_on_device(reference) else "cpu"):
        return [tensor.to(device) for tensor in reference.get_inputs()]


def draws_on_device(reference: ModuleType) -> bool:
    """Tell whether a reference's inputs are too large to be drawn on the host."""
    return bool(getattr(reference, "LARGE_INPUTS", False))


@contextmanager
def stressed(pair: Pair, inputs: list["Tensor"], case: Stress | None) -> Iterator[list["Tensor"]]:
    """Give the inputs of one numeric case; state entries are scaled in place in both models and restored after."""
    scale = case.scale if case else {}
    states = [dict(model.named_parameters()) | dict(model.named_buffers()) for model in (pair.oracle, pair.solution)]
    scaled_states = {name: factor for name, factor in scale.items() if name not in pair.input_names}
    changed = [(state[name], factor) for name, factor in scaled_states.items() for state in states]
    kept = [tensor.detach().clone() for tensor, _ in changed]
    for tensor, factor in changed:
        tensor.copy_(_scaled(tensor, factor))
    factors = [scale.get(name) for name in pair.input_names]
    try:
        yield [t if f is None else _scaled(t, f) for t, f in zip(inputs, factors, strict=True)]
    finally:
        for (tensor, _), old in zip(changed, kept, strict=True):
            tensor.copy_(old)


def _scaled(tensor: "Tensor", factor: float) -> "Tensor":
    return (tensor.float() * factor).to(tensor.dtype)
