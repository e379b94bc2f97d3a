"""Reference of hard/06_sonic_moe_swiglu: gate and up projections of grouped experts, with SwiGLU.

Written from the specification. The grader assigns ``T_total``, ``H``, ``I``, ``E`` and ``K`` before it calls the
functions below.
"""

import random
from collections.abc import Iterator
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

T_total, H, I, E, K = 4096, 2048, 1024, 64, 4  # noqa: E741 (the deck's names)
UNSEEDED_WEIGHTS = True
LARGE_INPUTS = True
STRUCTURAL_SHAPE = 1
STRUCTURAL_TOLERANCE = (0.1, 0.05)
CANONICAL = {"receiver": 0, "donor": 1, "row_delta": 129, "prefix_rows": 64, "suffix_scale": 8}
PARAMETERS = {
    "receiver": range(128),
    "donor": range(128),
    "row_delta": (1, 7, 63, 127, 129, 257),
    "prefix_rows": (1, 16, 32, 64, 127),
    "suffix_scale": range(4, 13),
}


class Model(nn.Module):
    """Expert by expert: two bf16 products of the expert's rows, then bf16 silu and product."""

    def __init__(self, T_total: int, H: int, I: int, E: int, K: int) -> None:  # noqa: E741
        super().__init__()
        self.W_gate = nn.Parameter(torch.empty(E, H, I, dtype=torch.bfloat16).normal_(0.0, 0.02))
        self.W_up = nn.Parameter(torch.empty(E, H, I, dtype=torch.bfloat16).normal_(0.0, 0.02))

    def forward(self, hidden_states: Tensor, expert_offsets: Tensor) -> Tensor:
        bounds = expert_offsets.tolist()
        out = torch.empty(
            hidden_states.shape[0], self.W_gate.shape[2], dtype=hidden_states.dtype, device=hidden_states.device
        )
        for expert, (first, last) in enumerate(pairwise(bounds)):
            rows = hidden_states[first:last]
            out[first:last] = F.silu(rows @ self.W_gate[expert]) * (rows @ self.W_up[expert])
        return out


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments."""
    return [T_total, H, I, E, K]


def get_inputs() -> list[Tensor]:
    """Draw the rows; experts share them equally, the first ones take the remainder."""
    rows = T_total * K
    hidden = torch.randn(rows, H, dtype=torch.bfloat16) * 0.1
    counts = torch.tensor([rows // E + (expert < rows % E) for expert in range(E)])
    offsets = torch.zeros(E + 1, dtype=torch.int32)
    offsets[1:] = counts.cumsum(0)
    return [hidden, offsets]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield the fixed case and two drawn ones with ragged experts and rows that grow after the start."""
    yield "canonical", ragged_inputs(inputs, **CANONICAL)
    for number in range(2):
        drawn = {name: rng.choice(values) for name, values in PARAMETERS.items()}
        yield f"drawn_{number}", ragged_inputs(inputs, **drawn)


def ragged_inputs(
    inputs: list[Tensor], *, receiver: int, donor: int, row_delta: int, prefix_rows: int, suffix_scale: int
) -> list[Tensor]:
    """Return inputs in which ``row_delta`` rows changed owner and all rows after the prefix are scaled."""
    hidden, offsets = inputs
    counts = offsets.diff().tolist()
    receiver, giver = receiver % len(counts), donor % len(counts)
    if giver == receiver:
        giver = (giver + 1) % len(counts)
    missing = row_delta
    for step in range(len(counts)):
        expert = (giver + step) % len(counts)
        if expert == receiver:
            continue
        moved = min(missing, max(counts[expert] - 1, 0))
        counts[expert] -= moved
        counts[receiver] += moved
        missing -= moved
    start = max(64, -(-65536 // hidden.shape[1]), prefix_rows)
    scaled, ragged = hidden.clone(), offsets.clone()
    scaled[start:] *= suffix_scale
    ragged[1:] = torch.tensor(counts).cumsum(0)
    return [scaled, ragged]
