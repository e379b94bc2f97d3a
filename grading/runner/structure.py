"""Child: the property stage, which looks for results that depend on something other than the current inputs."""

import random
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from grading.runner.compare import Mismatch, compare_outputs
from grading.runner.models import Pair

if TYPE_CHECKING:
    from torch import Tensor

BASE_SEED = 0xC0DE
CALLS_BEFORE_PROBE = 11


def run_property_stage(reference: ModuleType, pair: Pair, inputs: list["Tensor"], property_seed: int) -> None:
    """Raise Mismatch unless the solution stays right on structured inputs, also behind unchanged storages."""
    pristine = [tensor.clone() for tensor in inputs]
    before = [_metadata(tensor) for tensor in inputs]
    for _ in range(CALLS_BEFORE_PROBE):
        pair.solution(*inputs)
    if [_metadata(tensor) for tensor in inputs] != before:
        raise Mismatch("the solution changed its inputs")
    _overwrite(inputs, pristine)
    cases = reference.structural_cases(pristine, random.Random(property_seed))
    for number, (name, case) in enumerate(cases):
        if number == 0:
            _overwrite(inputs, case)
            _compare(reference, pair, case, pair.solution(*inputs), "same storage, other contents")
            _overwrite(inputs, pristine)
        _compare(reference, pair, case, pair.solution(*[tensor.clone() for tensor in case]), name)


def _compare(reference: ModuleType, pair: Pair, case: list["Tensor"], actual: Any, name: str) -> None:
    expected = pair.oracle(*[tensor.clone() for tensor in case])
    try:
        _check_form(expected, actual)
        getattr(reference, "check_structure", _accept)(actual)
        compare_outputs(reference, case, expected, actual, reference.STRUCTURAL_TOLERANCE)
    except (Mismatch, ValueError) as error:
        raise Mismatch(f"property case {name}: {error}") from error


def _check_form(expected: Any, actual: Any) -> None:
    """Raise Mismatch unless the output has exactly the oracle's type, shape, dtype and device, part by part."""
    wanted = expected if isinstance(expected, tuple) else (expected,)
    found = actual if isinstance(actual, tuple | list) else (actual,)
    for ref, sol in zip(wanted, found, strict=True):
        form = [(type(t).__name__, tuple(t.shape), str(t.dtype), str(t.device)) for t in (ref, sol)]
        if form[0] != form[1]:
            raise Mismatch(f"output is {form[1]}; need {form[0]}")


def _accept(actual: Any) -> None:
    """Accept any output: the reference has no further structure to ask for."""


def _overwrite(tensors: list["Tensor"], contents: list["Tensor"]) -> None:
    """Copy contents into the tensors' storages through aliases that leave the version counters alone."""
    for tensor, content in zip(tensors, contents, strict=True):
        tensor.data.copy_(content)


def _metadata(tensor: "Tensor") -> tuple[object, ...]:
    storage = tensor.untyped_storage()
    facts: list[Callable[[], object]] = [tensor.data_ptr, storage.data_ptr, storage.nbytes, tensor.storage_offset]
    return (
        type(tensor),
        id(tensor),
        *(fact() for fact in facts),
        tensor._version,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        str(tensor.device),
        tensor.layout,
    )
