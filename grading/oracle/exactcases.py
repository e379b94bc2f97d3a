"""Cases with whole numbers, and answers in double precision, for deck problems whose references do not bring their own.

The numbers are so few and small that every partial sum is at most 256, which even bf16 holds exactly, so libraries that
add split sums in bf16 give the same bits too. What is caught is a dropped term, a skipped tail, a wrong weight row.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    Case = tuple[dict[str, Tensor], list[Tensor]]

_TERMS = 16


def fp8_case(state: "dict[str, Tensor]", inputs: "list[Tensor]", rng: random.Random) -> "Case":
    """hard/01: sixteen terms of at most 4 times 4 per row, the ragged end always among them."""
    import torch

    x, weight = inputs[0], state["weight"]
    generator = torch.Generator(device=x.device).manual_seed(rng.randrange(1 << 30))
    drawn = torch.randint(-4, 5, weight.shape, generator=generator, device=x.device)
    sparse = _sparse_rows(x, 4, rng)
    ones = torch.ones_like(state["weight_scale"])
    return {"weight": drawn.to(weight.dtype), "weight_scale": ones}, [sparse.to(x.dtype)]


def int4_case(state: "dict[str, Tensor]", inputs: "list[Tensor]", rng: random.Random) -> "Case":
    """hard/07: any nibbles, zero points of 8 and scales of 1, against sixteen terms of at most 2 per row."""
    import torch

    x, packed = inputs[0], state["w_q"]
    generator = torch.Generator(device=x.device).manual_seed(rng.randrange(1 << 30))
    drawn = torch.randint(0, 256, packed.shape, generator=generator, device=x.device).to(packed.dtype)
    changed = {
        "w_q": drawn,
        "scales": torch.ones_like(state["scales"]),
        "zeros": torch.full_like(state["zeros"], 8),
    }
    return changed, [_sparse_rows(x, 2, rng).to(x.dtype)]


def fp8_exact(model: Any, x: "Tensor") -> "Tensor":
    """hard/01 in double precision."""
    product: Tensor = (x.double() @ model.weight.double().T) * model.weight_scale.double()
    return product


CASES: "dict[str, Callable[[dict[str, Tensor], list[Tensor], random.Random], Case]]" = {
    "hard/01_fp8_gemm": fp8_case,
    "hard/07_w4a16_gemm": int4_case,
}
FORWARDS: "dict[str, Callable[..., Tensor]]" = {"hard/01_fp8_gemm": fp8_exact}


def exact_case_of(problem: str, reference: Any) -> Any:
    """Return the function that makes a problem's exact case, or None."""
    return getattr(reference, "exact_case", None) or CASES.get(problem)


def exact_forward_of(problem: str, reference: Any) -> Any:
    """Return the function that gives a problem's answer in double precision, or None."""
    return getattr(reference, "exact_forward", None) or FORWARDS.get(problem)


def _sparse_rows(x: "Tensor", largest: int, rng: random.Random) -> "Tensor":
    """Return rows of zeros with whole numbers at secret places, one of them the last column."""
    import torch

    sparse = torch.zeros(x.shape, device=x.device)
    for row in sparse:
        places = rng.sample(range(x.shape[1]), min(_TERMS, x.shape[1]))
        places[0] = x.shape[1] - 1
        values = [float(rng.choice((-1, 1)) * rng.randint(1, largest)) for _ in places]
        row[torch.tensor(places, device=x.device)] = torch.tensor(values, device=x.device)
    return sparse
