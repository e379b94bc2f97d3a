"""Reference of cuda/03_megaqwen_decode: ``decode_steps`` tokens through four transformer blocks, each feeding the next.

Written from the specification. The grader assigns ``ctx_len`` and ``decode_steps`` before it calls the functions below.
What the deck draws from seeds inside a run enters here as tensors, so that every part of it can be secret:

hidden            (1024,) bf16, the output of the step before
tokens            (steps, 1024) bf16, the steps' own inputs
k_cache, v_cache  (layers, 8, ctx_len, 128) bf16, keys turned to their positions
answer            last output (1024,), and the keys and values that the steps appended (layers, 8, steps, 128)

Through the deck's entry points (``ENTRY``) a call is given a seed, and the answer is the last output alone: caches
stay in whatever form the submission keeps them.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ctx_len, decode_steps, num_layers = 2048, 64, 4
HIDDEN, INNER, HEADS, KV_HEADS, HEAD, EPS, THETA = 1024, 3072, 16, 8, 128, 1e-6, 10000.0
UNSEEDED_WEIGHTS = True
LARGE_INPUTS = True
STRUCTURAL_SHAPE = 0
STRUCTURAL_TOLERANCE = (0.08, 0.08)
LOUDER = 4.0
# Each output feeds the next step, and where attention is sharp or tokens are silent a rounding grows from step to step:
# tokens off by 2^-8 are 1.7 % of the keys apart with nominal caches and 80 to 140 % after 64 steps otherwise. bf16
# inside behaves alike (1.4 and 94 %), so steps count as long as such tokens stay this near.
STABLE, TOKEN_ERROR = 0.025, 2.0**-8


class Block(nn.Module):
    """Grouped attention with a bf16 cache and SwiGLU; fp32 inside."""

    def __init__(self) -> None:
        super().__init__()
        self.input_ln = ones(HIDDEN)
        self.q_proj = draw(HEADS * HEAD, HIDDEN)
        self.k_proj, self.v_proj = draw(KV_HEADS * HEAD, HIDDEN), draw(KV_HEADS * HEAD, HIDDEN)
        self.q_norm, self.k_norm = ones(HEAD), ones(HEAD)
        self.o_proj = draw(HIDDEN, HEADS * HEAD)
        self.post_ln = ones(HIDDEN)
        self.gate_proj, self.up_proj = draw(INNER, HIDDEN), draw(INNER, HIDDEN)
        self.down_proj = draw(HIDDEN, INNER)

    def widened(self) -> "Widened":
        """Return the weights in fp32, those that meet the same vector side by side."""
        qkv, inner = (self.q_proj, self.k_proj, self.v_proj), (self.gate_proj, self.up_proj)
        norms = (self.input_ln, self.q_norm, self.k_norm, self.post_ln)
        rest = (torch.cat(qkv), self.o_proj, torch.cat(inner), self.down_proj)
        return Widened(*(weight.float() for weight in (*norms, *rest)))


@dataclass(frozen=True)
class Widened:
    """A block in fp32, made once a call: to widen weights and caches for every token takes longer than the rest."""

    input_ln: Tensor
    q_norm: Tensor
    k_norm: Tensor
    post_ln: Tensor
    qkv: Tensor
    out: Tensor
    inner: Tensor
    down: Tensor

    def step(self, x: Tensor, keys: Tensor, values: Tensor, position: int, turn: Tensor) -> Tensor:
        """Return the block's output; write the new key and value into row ``position`` of the caches.

        keys, values  fp32 that holds what bf16 can
        turn          cosines and sines of the position's angles (2, 64)
        """
        rest = x.float()
        q, k, v = (self.qkv @ norm(rest, self.input_ln)).view(-1, HEAD).split((HEADS, KV_HEADS, KV_HEADS))
        keys[:, position] = rotate(norm(k, self.k_norm), turn).bfloat16()
        values[:, position] = v.bfloat16()
        q = rotate(norm(q, self.q_norm), turn).view(KV_HEADS, HEADS // KV_HEADS, HEAD)
        seen_k, seen_v = keys[:, : position + 1], values[:, : position + 1]
        shares = (q @ seen_k.mT * HEAD**-0.5).softmax(dim=-1)
        rest = rest + self.out @ (shares @ seen_v).flatten()
        gate, up = (self.inner @ norm(rest, self.post_ln)).chunk(2)
        return (rest + self.down @ (F.silu(gate) * up)).bfloat16()


class Model(nn.Module):
    """The blocks, and the loop over tokens."""

    def __init__(self, num_layers: int = 4, max_seq: int = 131072) -> None:
        super().__init__()
        self.num_layers, self.max_seq = num_layers, max_seq
        self.blocks = nn.ModuleList([Block() for _ in range(num_layers)])

    def forward(self, hidden: Tensor, tokens: Tensor, k_cache: Tensor, v_cache: Tensor) -> tuple[Tensor, ...]:
        start, steps = k_cache.shape[2], tokens.shape[0]
        keys, values = (F.pad(cache.float(), (0, 0, 0, steps)) for cache in (k_cache, v_cache))
        hidden = self.advance(hidden, tokens, keys, values, start)
        return hidden, keys[:, :, start:].bfloat16(), values[:, :, start:].bfloat16()

    def nearest(self, inputs: list[Tensor], expected: list[Tensor], actual: list[Tensor]) -> list[Tensor]:
        """Return the admissible answer nearest to an actual one: what follows steps that rounding decides may be any.

        The first steps count whatever the content is; with nominal caches all of them do.
        """
        hidden, tokens, *caches = inputs
        signs = torch.randint(2, tokens.shape, generator=torch.Generator().manual_seed(0), device="cpu") * 2 - 1
        other = self(hidden, (tokens.float() * (1 + TOKEN_ERROR * signs.to(tokens.device))).to(tokens.dtype), *caches)
        apart = torch.stack([_apart(*pair) for pair in zip(expected[1:], other[1:], strict=True)]).amax(0)
        counted = int((apart.cummax(0).values <= STABLE).sum())
        if counted == len(apart):
            return expected
        answer = [expected[0].clone(), *(part.clone() for part in expected[1:])]
        for part, found, late in zip(
            answer, actual, (..., *[(slice(None), slice(None), slice(counted, None))] * 2), strict=True
        ):
            part[late] = found[late].where(found[late].isfinite(), part[late])
        return answer

    def advance(self, hidden: Tensor, tokens: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        """Return the output after the tokens; write their keys and values into the caches from row ``start`` on."""
        blocks = [block.widened() for block in self.blocks]
        turns = turns_of(start, tokens.shape[0], tokens.device)
        for step in range(tokens.shape[0]):
            hidden = 0.5 * tokens[step] + 0.5 * hidden
            for layer, block in enumerate(blocks):
                hidden = block.step(hidden, keys[layer], values[layer], start + step, turns[step])
        return hidden


class SeededModel(Model):
    """The deck's run: a prefill and the steps after it, all of whose inputs follow from a seed.

    Nobody can place loud rows in a cache that the submission fills by itself, so the weights make attention loud; with
    the deck's it drowns in the MLP. Keys are projected like one of the two query heads that read them, which therefore
    looks at the token's own row; else that would be one among many. Norms stay 1, as in the deck: scores keep their
    bound.
    """

    def __init__(self, num_layers: int, max_seq: int, ctx_len: int, decode_steps: int) -> None:
        super().__init__(num_layers, max_seq)
        self.parts = (ctx_len, decode_steps)
        with torch.no_grad():
            for block in self.blocks:
                block.v_proj *= LOUDER
                block.k_proj.copy_(block.q_proj.view(KV_HEADS, -1, HIDDEN)[:, :HEAD].flatten(0, 1))

    def nearest(self, inputs: list[Tensor], expected: list[Tensor], actual: list[Tensor]) -> list[Tensor]:
        """Return the expected answer: what a seed draws is nominal."""
        return expected

    def forward(self, seed: Tensor) -> Tensor:
        number, device = int(seed), seed.device
        sizes = (self.num_layers, KV_HEADS, sum(self.parts), HEAD)
        keys, values = (torch.zeros(sizes, device=device) for _ in range(2))
        hidden, position = stream(number, 1).to(device)[0], 0
        for offset, count in enumerate(self.parts, start=1):
            hidden = self.advance(hidden, stream(number + offset, count).to(device), keys, values, position)
            position += count
        return hidden


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """Return by step how far two sets of rows (layers, heads, steps, 128) are apart, as a share of the first."""
    difference = (one.float() - other.float()).square().mean((0, 1, 3))
    return (difference / one.float().square().mean((0, 1, 3))).sqrt()


def stream(seed: int, count: int) -> Tensor:
    """Return vectors of one of the deck's streams (count, 1024) bf16: one generator each, on the processor."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, HIDDEN, dtype=torch.bfloat16, generator=generator, device="cpu")


def draw(*sizes: int) -> nn.Parameter:
    """Return a bf16 weight drawn from N(0, 0.02^2)."""
    return nn.Parameter(torch.empty(*sizes, dtype=torch.bfloat16).normal_(0.0, 0.02))


def ones(size: int) -> nn.Parameter:
    """Return a norm's weight."""
    return nn.Parameter(torch.ones(size, dtype=torch.bfloat16))


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return the root-mean-square norm over the last dimension, fp32."""
    return F.rms_norm(x, weight.shape, weight, EPS)


def turns_of(start: int, count: int, device: torch.device) -> Tensor:
    """Return cosines and sines of ``count`` positions' angles (count, 2, 64)."""
    positions = torch.arange(start, start + count, device=device)[:, None]
    angles = positions * THETA ** (-torch.arange(HEAD // 2, device=device) / (HEAD // 2))
    return torch.stack((angles.cos(), angles.sin()), dim=1)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Return x with element i and i + 64 turned by angle i, whose cosines and sines are given."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = turn
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments."""
    return [num_layers, ctx_len + decode_steps + 8]


def get_inputs() -> list[Tensor]:
    """Draw a hidden vector, the tokens and a cache like one that a prefill leaves: keys have norm 1 per element."""

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, dtype=torch.bfloat16)

    sizes = (num_layers, KV_HEADS, ctx_len, HEAD)
    return [normal(HIDDEN), normal(decode_steps, HIDDEN), normal(*sizes), normal(*sizes) * 0.64]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield caches whose attention is sharp and loud; over thousands of even shares it would drown in the MLP."""
    hidden, tokens, keys, values = inputs
    yield "sharp_keys", [hidden, tokens, keys * 2, values * 2.5]
    half = keys.clone()
    half[:, :, : ctx_len // 2] *= 2.2
    yield "sharp_first_half", [hidden, tokens, half, values * 2.5]
    yield "silent_tokens", [hidden, tokens * 0.01, keys, values * 4]


def camouflaged_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield nominal caches with a few loud rows at secret places."""
    hidden, tokens, keys, values = inputs
    rows = rng.sample(range(ctx_len), max(4, ctx_len // 128))
    keys, values = keys.clone(), values.clone()
    keys[:, :, rows] *= 2.5
    values[:, :, rows] *= 5
    yield "few_loud_rows", [hidden, tokens, keys, values]


ENTRY = {
    "Model": SeededModel,
    "get_init_inputs": lambda: [*get_init_inputs(), ctx_len, decode_steps],
    "get_inputs": lambda: [torch.randint((1 << 31) - 8, (1,))],
    "structural_cases": lambda inputs, rng: iter(()),
    "camouflaged_cases": lambda inputs, rng: iter(()),
}
