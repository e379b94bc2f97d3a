"""The numeric gate: how far an answer may stand from the reference's, relative to the size of its own row.

An element passes when ``|y - ref| <= share * rms(row of ref) + rtol * |ref|``. The decks' fixed absolute tolerances let
zeros through wherever outputs are small and reject honest rounding wherever they are large; a share of the row's own
size does neither. Rows are the last dimension; no row counts as smaller than a share of the whole answer, a fiftieth
where nothing else is said, since rounding follows intermediate values that a small row does not show.

The defaults follow from the output's type: a bf16 result carries 2^-9 of its own size per rounding, and honest kernels
round up to three times. Problems whose honest kernels keep bf16 intermediates have an entry of their own. Gates that
were measured at the deck's shapes stand in a problem's ``tolerance.json`` and go before the numbers here.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from grading.oracle.arenas import has_same_bytes

if TYPE_CHECKING:
    from torch import Tensor


class Gate(msgspec.Struct, frozen=True):
    """``share`` of the row's root mean square, the relative part, and an absolute part, 0 but for a few cases.

    floor  the least root mean square of a row, as a share of the whole answer's
    """

    share: float
    rtol: float
    atol: float = 0.0
    floor: float = 0.02


DEFAULTS = {
    "float64": Gate(1e-9, 1e-9),
    "float32": Gate(5e-4, 5e-4),
    "float16": Gate(0.01, 0.005),
    "bfloat16": Gate(0.03, 0.02),
}
# Attention and recurrences: honest kernels feed bf16 probabilities and states to tensor cores. MoE: three roundings.
PROBLEMS = {
    # The first tokens read a state that holds little: where q.k happens to cancel, a row is a thousandth of the others,
    # and bf16 operands of that product alone were 7 times the plain gate off on an H200, in one row of half a million.
    "hard/02_kda_cutlass": Gate(0.12, 0.05, floor=0.25),
    "hard/03_paged_attention": Gate(0.05, 0.03),
    "hard/05_topk_bitonic": Gate(1e-5, 1e-5),
    "hard/06_sonic_moe_swiglu": Gate(0.06, 0.03),
    # A step's rounding goes into the next step, through every layer, as far as the reference counts steps: bf16 comes
    # to three quarters of this where tokens are silent, our kernel to 0.62 in one of 734 answers on an H200.
    "cuda/03_megaqwen_decode": Gate(0.2, 0.1),
    # fp32 throughout: three bf16 products of split numbers pass, one does not. A single TF32 product still would.
    "cuda/04_grid_mingru_sps": Gate(6e-5, 6e-5),
    # Four layers of bf16 activations; the states are fp32 but are updated with bf16 numbers, and keys whose convolution
    # cancels write small rows. At the deck's size PyTorch uses three fifths of this, fp8 inputs 4.4 to 9 times it.
    "mega/02_kimi_linear_decode": Gate(0.15, 0.075, floor=0.2),
}
# The structural inputs of hard/02 let the state grow: fp32 in another order already differs by half of the answer's
# size in rows that cancel. The deck's own absolute tolerance stands there; forgetting the state exceeds it.
CASES = {("hard/02_kda_cutlass", "structural"): Gate(0.12, 0.05, atol=0.05, floor=0.25)}
TOLERANCE_FILE = "tolerance.json"
# Squares of rows that count as no smaller than this share of the answer stay in fp32's range, if its largest element
# lies between these.
_LEAST_FLOOR, _NARROW = 0.01, (1e-10, 1e10)


class Compared(msgspec.Struct, frozen=True):
    """How an answer stood: the largest error over its bound (None = not finite as it had to be), and bad elements."""

    ratio: float | None
    bad: int
    is_equal: bool


class StoredGates(msgspec.Struct, frozen=True):
    """What a ``tolerance.json`` decides, by `gate_key`; the rest of the file says how it was measured."""

    gates: dict[str, Gate]


def gate_key(problem: str, dtype: str, kind: str) -> str:
    """Return a gate's name in ``tolerance.json``: the type, and the kind where that has a gate of its own."""
    return f"{dtype}/{kind}" if (problem, kind) in CASES else dtype


def gate_for(
    problem: str, dtype: str, kind: str = "nominal", *, stored: Mapping[str, Gate] = MappingProxyType({})
) -> Gate:
    """Return the gate of an output for one kind of content: exact for whole numbers.

    stored  what `read_gates` found for the problem, which goes before the numbers of this module
    """
    measured = stored.get(gate_key(problem, dtype, kind))
    return measured or CASES.get((problem, kind)) or PROBLEMS.get(problem) or DEFAULTS.get(dtype) or Gate(0.0, 0.0)


def read_gates(folder: Path) -> dict[str, Gate]:
    """Return the gates that were measured for the problem in a folder, none where nothing is stored.

    Raises msgspec.DecodeError for a ``tolerance.json`` that cannot be read.
    """
    path = folder / TOLERANCE_FILE
    return msgspec.json.decode(path.read_bytes(), type=StoredGates).gates if path.exists() else {}


def compare(expected: "Tensor", actual: "Tensor", gate: Gate) -> Compared:
    """Compare every element; non-finite ones must stand in the same places and be the same."""
    import torch

    unlike = torch.ones((), dtype=torch.bool, device=expected.device)
    if expected.dtype == actual.dtype:
        unlike = ~has_same_bytes(expected, actual)
    if not expected.dtype.is_floating_point:
        bad, unequal = torch.stack([(expected != actual).sum(), unlike.long()]).tolist()
        return Compared(0.0 if bad == 0 else None, int(bad), is_equal=not unequal)
    ref, sol = expected.float(), actual.float()
    if not ref.numel():
        return Compared(0.0, 0, is_equal=not unlike)
    ends = torch.stack([*ref.aminmax(), *sol.aminmax()]).tolist()
    same = None
    if not all(map(math.isfinite, ends)):
        finite = ref.isfinite()
        same = (finite == sol.isfinite()) & (finite | (ref == sol) | (ref.isnan() & sol.isnan()))
        ref, sol = ref.where(finite & same, 0.0), sol.where(finite & same, 0.0)
    bound, error = bound_of(ref, gate, most=max(map(abs, ends[:2]))), (ref - sol).abs_()
    failed = (error <= bound).logical_not_()
    if same is not None:
        failed |= ~same
    largest = error.div_(bound.clamp_min(torch.finfo(torch.float32).tiny)).max().double()
    # One transfer for all numbers: each would make a GPU and its host wait for the other.
    is_same = unlike.new_ones(()) if same is None else same.all()
    found = torch.stack([largest, failed.sum().double(), is_same.double(), unlike.double()]).tolist()
    return Compared(found[0] if found[2] else None, int(found[1]), is_equal=not found[3])


def is_within(expected: "Tensor", actual: "Tensor", tolerance: float) -> bool:
    """Tell whether the deck's own absolute and relative tolerance would let an answer pass."""
    ref, sol = expected.float(), actual.float()
    return bool(((ref - sol).abs() <= tolerance + tolerance * sol.abs()).all())


def bound_of(ref: "Tensor", gate: Gate, *, most: float = math.inf) -> "Tensor":
    """Return what each element's error may be, in a form that broadcasts to the answer's.

    most  no element is larger. Where that and the least size of a row leave squares in fp32's range, they are summed in
          fp32: on a GPU a quarter of the time.
    """
    import torch

    if ref.numel() == 0:
        return ref
    is_narrow = gate.floor >= _LEAST_FLOOR and _NARROW[0] < most < _NARROW[1]
    if ref.dim():
        kind = torch.float32 if is_narrow else torch.float64
        rows = torch.linalg.vector_norm(ref, dim=-1, keepdim=True, dtype=kind).double() / math.sqrt(ref.shape[-1])
    else:
        rows = ref.abs().double()
    floor = rows.square().mean().sqrt() * gate.floor
    of_row = (gate.atol + gate.share * rows.clamp_min(floor)).float()
    return torch.add(of_row, ref.abs(), alpha=gate.rtol)


def class_ratio(exact: "Tensor", reference: "Tensor", actual: "Tensor") -> float | None:
    """Return the answer's root-mean-square error over that of the reference at its declared precision."""
    wanted = exact.double()
    declared = (reference.double() - wanted).square().mean().sqrt()
    found = (actual.double() - wanted).square().mean().sqrt()
    ratio = float(found / declared) if float(declared) > 0 else None
    return ratio if ratio is not None and ratio == ratio and ratio != float("inf") else None
