"""Reference of cuda/01_glm52_fused_moe: shared and routed SwiGLU experts, summed in fp32 and rounded once.

Written from the specification. The grader assigns ``T``, ``E``, ``top_k``, ``n_shared``, ``H`` and ``I`` before it
calls the functions below; ``E_act`` serves the floor only. Only one expert's weights are widened at once.
"""

import random
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

T, E, top_k, n_shared, H, I = 4096, 256, 8, 1, 4096, 2048  # noqa: E741 (the deck's names)
E_act = 0
UNSEEDED_WEIGHTS = True
ROWS_ARE_INDEPENDENT = True
STRUCTURAL_SHAPE = 0
STRUCTURAL_TOLERANCE = (0.08, 0.08)


class Model(nn.Module):
    """Shared experts see every token with weight 1, routed ones the tokens that chose them, by ascending number."""

    def __init__(self, T: int, E: int, top_k: int, n_shared: int, H: int, I: int) -> None:  # noqa: E741
        super().__init__()
        self.w1_routed = draw(E, 2 * I, H)
        self.w2_routed = draw(E, H, I)
        self.w1_shared = draw(n_shared, 2 * I, H)
        self.w2_shared = draw(n_shared, H, I)

    def forward(self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for shared in range(self.w1_shared.shape[0]):
            total += expert(x.float(), self.w1_shared[shared], self.w2_shared[shared])
        for number in expert_ids.unique().tolist():
            token, place = (expert_ids == number).nonzero(as_tuple=True)
            rows = expert(x[token].float(), self.w1_routed[number], self.w2_routed[number])
            total.index_add_(0, token, rows * expert_weights[token, place].float()[:, None])
        return total.bfloat16()


def draw(*sizes: int) -> nn.Parameter:
    """Return a bf16 weight drawn from N(0, 0.02^2)."""
    return nn.Parameter(torch.empty(*sizes, dtype=torch.bfloat16).normal_(0.0, 0.02))


def expert(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    """Return (silu(gate) * up) W2^T in fp32; gate and up are the halves of W1."""
    gate, up = (x @ w1.float().T).chunk(2, dim=1)
    return (F.silu(gate) * up) @ w2.float().T


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments."""
    return [T, E, top_k, n_shared, H, I]


def get_inputs() -> list[Tensor]:
    """Draw the tokens and their experts: lower numbers are preferred a little, by descending logit."""
    x = torch.randn(T, H, dtype=torch.bfloat16)
    kept = (torch.randn(T, E) + torch.linspace(0.3, 0, E)).topk(top_k, dim=1)
    return [x, kept.indices, kept.values.softmax(dim=1).bfloat16()]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield inputs in which the routing is lopsided, or one expert's weight hides among others."""
    x, ids, weights = inputs
    experts, count = E, ids.shape[1]
    first = rng.randrange(experts)
    together = (torch.arange(count, device=ids.device) + first) % experts
    yield "one_choice", [x, together.expand_as(ids).contiguous(), weights]
    last = torch.arange(experts - 1, experts - 1 - count, -1, device=ids.device)
    yield "last_experts", [x, last.expand_as(ids).contiguous(), weights.flip(1).contiguous()]
    # The last choice weighs most, so an answer that keeps only the first choices is far off.
    heavy = torch.full_like(weights, 0.01)
    heavy[:, -1] = 1.0
    yield "heavy_last_choice", [x, ids, heavy]
    order = torch.tensor(rng.sample(range(count), count), device=ids.device)
    signs = torch.where(order % 2 == 0, 1.0, -1.0).to(weights.dtype)
    yield "signed_weights", [x, ids[:, order].contiguous(), (weights[:, order] * signs).contiguous()]
