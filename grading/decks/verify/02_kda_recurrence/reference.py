"""Reference of verify/02_kda_recurrence: S tokens of the gated delta rule, one fp32 state kept per token, in place.

Written from the specification of the serving path. The grader assigns ``H``, ``S`` and ``B`` before it calls what
stands below; T = B * S tokens, P = 128 * H.

mixed      (T, 3 P) bf16, the convolution's output: q, k and v of all heads side by side
rows       (T, R) bf16, a fused projection whose columns from 4 P + 128 on are the heads' raw rates
raw_g      (T, H, 128) bf16, a_log (H,) fp32, dt_bias (P,) fp32: the decay g = -5 sigmoid(exp(a_log) (raw_g + dt_bias))
pages      (T + 1, page / 4) fp32, changed in place: the convolution's columns first, left alone, then the state
           [head, value, key]; page 0 is the null page
slots      (B, S) int32, the page of each token's state; accepted a (B,) int32: the start is the page of token a - 1
answer     (T, H, 128) bf16; rows of requests that start from the null page are not compared
"""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

H, S, B = 12, 4, 16
HEAD, LOWEST = 128, -5.0
IN_PLACE = ("pages",)
LARGE_INPUTS = True
STRUCTURAL_SHAPE = 0
STRUCTURAL_TOLERANCE = (0.02, 0.02)


class Model(nn.Module):
    """Decay, correct towards v, read, keep; token by token, all requests and heads at once."""

    def __init__(self, H: int, S: int) -> None:
        super().__init__()
        self.heads, self.width = H, S

    def forward(
        self,
        mixed: Tensor,
        rows: Tensor,
        raw_g: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        pages: Tensor,
        slots: Tensor,
        accepted: Tensor,
    ) -> Tensor:
        heads, width = self.heads, self.width
        states = states_of(pages, heads)
        q, k, v = mixed.float().view(-1, width, 3, heads, HEAD).unbind(2)
        q, k = unit(q) * HEAD**-0.5, unit(k)
        decay = (LOWEST * torch.sigmoid(a_log.exp()[:, None] * (raw_g.float() + dt_bias.view(heads, HEAD)))).exp()
        decay = decay.view(-1, width, heads, HEAD)
        rate = torch.sigmoid(rates_of(rows, heads).float()).view(-1, width, heads)
        start = slots.gather(1, (accepted.long() - 1)[:, None])[:, 0]
        live = (start > 0).nonzero().flatten()
        state = states[start[live].long()].clone()
        out = torch.zeros(slots.shape[0], width, heads, HEAD, dtype=torch.bfloat16, device=mixed.device)
        for t in range(width):
            state = state * decay[live, t, :, None, :]
            recalled = (state * k[live, t, :, None, :]).sum(-1)
            update = rate[live, t, :, None] * (v[live, t] - recalled)
            state = state + update[..., None] * k[live, t, :, None, :]
            out[live, t] = (state * q[live, t, :, None, :]).sum(-1).bfloat16()
            kept = slots[live, t] > 0
            states[slots[live, t][kept].long()] = state[kept]
        return out.flatten(0, 1)


def states_of(pages: Tensor, heads: int) -> Tensor:
    """Return the (pages, H, 128, 128) view of the pages' last bytes."""
    return pages[:, -heads * HEAD * HEAD :].unflatten(1, (heads, HEAD, HEAD))


def rates_of(rows: Tensor, heads: int) -> Tensor:
    """Return the (T, H) raw rates inside the fused rows."""
    first = 4 * HEAD * heads + HEAD
    return rows[:, first : first + heads]


def unit(x: Tensor) -> Tensor:
    """Return x over its length."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments."""
    return [H, S]


def get_inputs() -> list[Tensor]:
    """Draw activations, gate parameters, pages with used states and a patterned rest, permuted slots, acceptances."""
    tokens, width = B * S, HEAD * H
    mixed = torch.nn.functional.silu(torch.randn(tokens, 3 * width)).bfloat16()
    rows = torch.randn(tokens, (4 * width + HEAD + H + 15) // 16 * 16, dtype=torch.bfloat16)
    raw_g = torch.randn(tokens, H, HEAD, dtype=torch.bfloat16)
    pages = torch.full((tokens + 1, (S + 2) * 3 * width // 2 + H * HEAD * HEAD), 0.01)
    states_of(pages, H)[1:] = torch.randn(tokens, H, HEAD, HEAD) * 0.05
    slots = (1 + torch.randperm(tokens)).view(B, S).to(torch.int32)
    accepted = torch.randint(1, S + 1, (B,), dtype=torch.int32)
    return [mixed, rows, raw_g, 0.5 * torch.randn(H), 0.1 * torch.randn(width), pages, slots, accepted]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield both ends of acceptance, a null request, and states that outweigh what a step adds."""
    *front, pages, slots, accepted = inputs
    yield "all_accepted", [*front, pages, slots, torch.full_like(accepted, S)]
    yield "one_accepted", [*front, pages, slots, torch.ones_like(accepted)]
    with_null = slots.clone()
    with_null[rng.randrange(B)] = 0
    yield "null_request", [*front, pages, with_null, accepted]
    louder = pages.clone()
    states_of(louder, H)[1:] *= 20
    yield "loud_states", [*front, louder, slots, accepted]
    slow = front[2] - 6.0
    yield "long_memory", [front[0], front[1], slow.bfloat16(), *front[3:], pages, slots, accepted]


def compared_parts(inputs: list[Tensor], expected: Tensor, actual: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the rows of requests that start from a page; what others give is not fixed."""
    slots, accepted = inputs[6], inputs[7]
    null = (slots.gather(1, (accepted.long() - 1)[:, None]) <= 0).expand_as(slots).flatten()
    if actual.shape == expected.shape:
        actual = torch.where(null[:, None, None], expected, actual)
    yield "out", expected, actual
