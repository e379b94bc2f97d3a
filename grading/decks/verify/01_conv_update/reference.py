"""Reference of verify/01_conv_update: the short convolution of a verify step over a rolling cache, in place.

Written from the specification of the serving path. The grader assigns ``H``, ``S`` and ``B`` before it calls what
stands below; a token has C = 3 * 128 * H channels.

rows       (B * S, R) bf16, a fused projection of which the first C columns are convolved
weight     (C, 4) fp32, the last column for the current token
pages      (B * S + 1, page bytes) int8, changed in place: bytes of (S + 2, C) bf16 columns first, then the recurrence's
           state, which this operation leaves alone; page 0 is the null page
slots      (B, S) int32, the first of a request is its convolution's page; 0 = null, nothing happens
accepted   (B,) int32, tokens that the step before accepted, 1 to S: where the history begins
answer     (B * S, C) bf16; rows of null requests are not compared
"""

import random
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

H, S, B = 12, 4, 16
TAPS, HEAD = 4, 128
IN_PLACE = ("pages",)
LARGE_INPUTS = True
STRUCTURAL_SHAPE = 0
STRUCTURAL_TOLERANCE = (0.05, 0.01)


class Model(nn.Module):
    """Convolve history and new tokens, then keep the last S + 2 inputs that a later step may start from."""

    def __init__(self, H: int, S: int) -> None:
        super().__init__()
        self.channels, self.width = 3 * HEAD * H, S

    def forward(self, rows: Tensor, weight: Tensor, pages: Tensor, slots: Tensor, accepted: Tensor) -> Tensor:
        S, C = self.width, self.channels
        cache = columns_of(pages, S, C)
        new = rows[:, :C].unflatten(0, (-1, S))
        out = torch.zeros_like(new)
        for request, (slot, start) in enumerate(zip(slots[:, 0].tolist(), (accepted - 1).tolist(), strict=True)):
            if slot == 0:
                continue
            stream = torch.cat((cache[slot, start : start + TAPS - 1], new[request]))
            taps = stream.float().unfold(0, TAPS, 1)
            out[request] = F.silu((taps * weight).sum(-1)).bfloat16()
            cache[slot] = torch.cat((stream[1 : TAPS - 1], new[request]))
        return out.flatten(0, 1)


def columns_of(pages: Tensor, width: int, channels: int) -> Tensor:
    """Return the (pages, S + 2, C) bf16 view of the pages' first bytes."""
    return pages[:, : 2 * (width + 2) * channels].view(torch.bfloat16).unflatten(1, (width + 2, channels))


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments."""
    return [H, S]


def get_inputs() -> list[Tensor]:
    """Draw rows, weights, pages with a used cache and a patterned rest, permuted slots and acceptances."""
    channels = 3 * HEAD * H
    rows = torch.randn(B * S, row_stride(), dtype=torch.bfloat16)
    weight = torch.randn(channels, TAPS) * 0.4
    state_bytes = 4 * H * HEAD * HEAD
    pages = torch.full((B * S + 1, 2 * (S + 2) * channels + state_bytes), 0x2B, dtype=torch.int8)
    columns_of(pages, S, channels)[1:] = torch.randn(B * S, S + 2, channels, dtype=torch.bfloat16) * 0.1
    slots = (1 + torch.randperm(B * S)).view(B, S).to(torch.int32)
    return [rows, weight, pages, slots, torch.randint(1, S + 1, (B,), dtype=torch.int32)]


def row_stride() -> int:
    """Return the fused row's length: q, k, v, gate, 128 and beta, padded to 16."""
    return (4 * HEAD * H + HEAD + H + 15) // 16 * 16


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield every acceptance at its ends, and a batch with a null request."""
    rows, weight, pages, slots, accepted = inputs
    yield "all_accepted", [rows, weight, pages, slots, torch.full_like(accepted, S)]
    yield "one_accepted", [rows, weight, pages, slots, torch.ones_like(accepted)]
    with_null = slots.clone()
    with_null[rng.randrange(B)] = 0
    yield "null_request", [rows, weight, pages, with_null, accepted]
    yield "loud_history", [rows, weight, louder(pages), slots, accepted]


def louder(pages: Tensor) -> Tensor:
    """Return pages whose cached tokens are as large as new ones."""
    changed = pages.clone()
    columns_of(changed, S, 3 * HEAD * H)[1:] *= 10
    return changed


def compared_parts(inputs: list[Tensor], expected: Tensor, actual: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the rows of requests that have a page; without one nothing is written."""
    null = (inputs[3][:, 0] == 0).repeat_interleave(inputs[3].shape[1])
    yield "out", expected, torch.where(null[:, None], expected, actual) if actual.shape == expected.shape else actual
