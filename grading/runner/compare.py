"""Child: the deck's comparison of a solution's output with the oracle's."""

from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from grading.runner.job import Job

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2, "float8_e4m3fn": 1e-1}


class Mismatch(Exception):
    """An output that does not agree with the oracle's; the message is what the check prints."""


def nominal_tolerance(job: Job, output: "Tensor") -> tuple[float, float]:
    """Return the problem's tolerance for the oracle's dtype; one number is both absolute and relative."""
    name = str(output.dtype).removeprefix("torch.")
    value = job.tolerance.get(name, DEFAULT_TOLERANCE.get(name, 0.0))
    return value, value


def first_tensor(output: Any) -> "Tensor":
    """Return the output, or its first part where it has several."""
    tensor: Tensor = output[0] if isinstance(output, tuple | list) else output
    return tensor


def compare_outputs(
    reference: ModuleType, inputs: list["Tensor"], expected: Any, actual: Any, tolerance: tuple[float, float]
) -> None:
    """Raise Mismatch unless every compared part agrees.

    A reference with ``compared_parts`` says what is compared; else the output is one tensor.
    """
    parts: Iterable[tuple[str, Tensor, Tensor]] = [("", expected, actual)]
    if hasattr(reference, "compared_parts"):
        parts = reference.compared_parts(inputs, expected, actual)
    try:
        for name, wanted, found in parts:
            _compare_tensors(f"{name}: " if name else "", wanted, found, *tolerance)
    except ValueError as error:
        raise Mismatch(str(error)) from error


def _compare_tensors(label: str, wanted: "Tensor", found: "Tensor", atol: float, rtol: float) -> None:
    if wanted.shape != found.shape:
        raise Mismatch(f"{label}shape mismatch: ref={tuple(wanted.shape)} sol={tuple(found.shape)}")
    ref, sol = wanted.float(), found.float()
    for name, bad in (("NaN", sol.isnan()), ("Inf", sol.isinf())):
        if bool(bad.any()):
            raise Mismatch(f"{label}solution contains {name}")
    error = (ref - sol).abs_()
    if bool((error <= sol.abs_().mul_(rtol).add_(atol)).all()):
        return
    raise Mismatch(f"{label}{_describe(ref, error, atol, rtol)}")


def _describe(ref: "Tensor", error: "Tensor", atol: float, rtol: float) -> str:
    """Return the deck's diagnostics, which, unlike its decision, count against the reference's magnitude."""
    magnitude = ref.abs()
    bad = int((error > atol + rtol * magnitude).sum())
    flat, worst = int(error.argmax()), []
    for size in reversed(error.shape):
        worst.append(flat % size)
        flat //= size
    relative = float((error / magnitude.clamp_min(1e-12)).max())
    return (
        f"tolerance exceeded: max_abs_diff={float(error.max()):.6g} max_rel_diff={relative:.6g} "
        f"bad={bad}/{error.numel()} worst_idx={tuple(reversed(worst))} (atol={atol:g}, rtol={rtol:g})"
    )
