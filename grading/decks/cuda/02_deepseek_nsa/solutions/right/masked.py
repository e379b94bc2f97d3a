# baseline: uses calls that the deck forbids to submissions
"""Triton, two kernels: means of blocks; then ranks, choice and online softmax over all causal key tiles with a mask.

For random content nearly every key tile is chosen by some query of a tile: leaving tiles out would save nothing, and a
branch would keep loads from running ahead. Nothing of S x S size is stored; products grow as S^2/2.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

BLOCK, TAKEN = 64, 8


@triton.jit
def block_means(k_ptr, mean_ptr, S, blocks, D: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    row = block * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, D)
    keys = tl.load(k_ptr + head * S * D + row[:, None] * D + column[None, :], mask=row[:, None] < S, other=0.0)
    mean = tl.sum(keys.to(tl.float32), axis=0) / BLOCK
    tl.store(mean_ptr + (head * blocks + block) * D + column, mean)


@triton.jit
def split_product(q, means, TYPE: tl.constexpr):
    """Return q @ means.T as exactly as fp32: q is bf16, means fp32 in three bf16 parts."""
    if TYPE == tl.float32:
        return tl.dot(q, tl.trans(means), input_precision="ieee")
    first = means.to(TYPE)
    rest = means - first.to(tl.float32)
    second = rest.to(TYPE)
    third = (rest - second.to(tl.float32)).to(TYPE)
    product = tl.dot(q, tl.trans(third))
    product = tl.dot(q, tl.trans(second), product)
    return tl.dot(q, tl.trans(first), product)


@triton.jit
def choose_blocks(ranks, block, words_at, WORDS: tl.constexpr, TAKEN: tl.constexpr):
    """Return (rows, WORDS) bit sets of the TAKEN largest ranks of each row; of equal ranks the later block."""
    rows: tl.constexpr = ranks.shape[0]
    chosen = tl.zeros((rows, WORDS), dtype=tl.int32)
    for _ in range(TAKEN):
        best = tl.max(ranks, axis=1)
        winner = tl.max(tl.where(ranks == best[:, None], block[None, :], -1), axis=1)
        bit = (1 << (winner % 32))[:, None]
        chosen |= tl.where(words_at[None, :] == (winner // 32)[:, None], bit, 0)
        ranks = tl.where(block[None, :] == winner[:, None], float("-inf"), ranks)
    return chosen


@triton.jit
def attend(
    q_ptr,
    k_ptr,
    v_ptr,
    mean_ptr,
    out_ptr,
    S,
    blocks,
    scale,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    TAKEN: tl.constexpr,
    TYPE: tl.constexpr,
):
    # The longest rows come first, so that no processor starts one of them last.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1).to(tl.int64) * S * D
    row = tile * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, D)
    at = row[:, None] * D + column[None, :]
    q = tl.load(q_ptr + head + at, mask=row[:, None] < S, other=0.0).to(TYPE)
    block = tl.arange(0, BLOCKS)
    words_at = tl.arange(0, WORDS)
    own = row // BLOCK
    chosen = tl.full((ROWS, WORDS), -1, dtype=tl.int32)
    if (tile + 1) * ROWS > TAKEN * BLOCK:
        mean_at = tl.program_id(1).to(tl.int64) * blocks * D + block[:, None] * D + column[None, :]
        means = tl.load(mean_ptr + mean_at, mask=block[:, None] < blocks, other=0.0)
        ranks = split_product(q, means, TYPE)
        # The query's own block counts only its keys up to the query.
        for part in tl.static_range(ROWS // BLOCK):
            start = tile * ROWS + part * BLOCK
            key = start + tl.arange(0, BLOCK)
            key_at = key[:, None] * D + column[None, :]
            keys = tl.load(k_ptr + head + key_at, mask=key[:, None] < S, other=0.0).to(TYPE)
            local = tl.dot(q, tl.trans(keys), input_precision="ieee")
            total = tl.sum(tl.where(key[None, :] <= row[:, None], local, 0.0), axis=1)
            prefix = total / (row - start + 1).to(tl.float32)
            here = (own == start // BLOCK)[:, None] & (block == start // BLOCK)[None, :]
            ranks = tl.where(here, prefix[:, None], ranks)
        ranks = tl.where(block[None, :] <= own[:, None], ranks, -1e30)
        chosen = choose_blocks(ranks, block, words_at, WORDS, TAKEN)

    peak = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    out = tl.zeros((ROWS, D), dtype=tl.float32)
    factor = scale * 1.4426950408889634
    last = tl.minimum((tile + 1) * ROWS, S)
    for start in range(0, last, BLOCK):
        number = start // BLOCK
        word = tl.sum(tl.where(words_at[None, :] == number // 32, chosen, 0), axis=1)
        is_chosen = ((word >> (number % 32)) & 1) != 0
        key = start + tl.arange(0, BLOCK)
        key_at = key[:, None] * D + column[None, :]
        keys = tl.load(k_ptr + head + key_at, mask=key[:, None] < S, other=0.0).to(TYPE)
        values = tl.load(v_ptr + head + key_at, mask=key[:, None] < S, other=0.0).to(TYPE)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * factor
        behind = row[:, None] - key[None, :]
        seen = (behind >= 0) & (is_chosen[:, None] | (behind < 64))
        scores = tl.where(seen, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        # A row that has seen nothing yet would subtract infinity from infinity.
        base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weight = tl.exp2(scores - base[:, None])
        keep = tl.exp2(peak - base)
        total = total * keep + tl.sum(weight, axis=1)
        out = tl.dot(weight.to(TYPE), values, out * keep[:, None], input_precision="ieee")
        peak = new_peak
    out = out / total[:, None]
    tl.store(out_ptr + head + at, out.to(out_ptr.dtype.element_ty), mask=row[:, None] < S)


class Model(nn.Module):
    """Select, then attend; two launches."""

    def __init__(self, B: int, H: int, S: int, D: int) -> None:
        super().__init__()
        if D not in (16, 32, 64, 128):
            raise ValueError(f"D is {D}; need 16, 32, 64 or 128")
        self.register_buffer("_dummy", torch.zeros(1, dtype=torch.bfloat16))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if q.device.type == "cpu":
            # Triton's interpreter multiplies bf16 as if it were an integer type.
            return launch(*(tensor.float().contiguous() for tensor in (q, k, v)), tl.float32).to(q.dtype)
        return launch(q.contiguous(), k.contiguous(), v.contiguous(), tl.bfloat16)


def launch(q: Tensor, k: Tensor, v: Tensor, kind: tl.dtype) -> Tensor:
    """Launch both kernels on contiguous tensors."""
    heads, S, D = q.shape[0] * q.shape[1], q.shape[2], q.shape[3]
    blocks = triton.cdiv(S, BLOCK)
    padded = max(16, triton.next_power_of_2(blocks))
    means = torch.empty(heads, blocks, D, dtype=torch.float32, device=q.device)
    out = torch.empty_like(q)
    rows = 64 if heads * triton.cdiv(S, 128) < 256 or padded > 128 else 128
    block_means[(blocks, heads)](k, means, S, blocks, D, BLOCK)
    attend[(triton.cdiv(S, rows), heads)](
        q,
        k,
        v,
        means,
        out,
        S,
        blocks,
        D**-0.5,
        D=D,
        ROWS=rows,
        BLOCKS=padded,
        WORDS=max(1, padded // 32),
        BLOCK=BLOCK,
        TAKEN=TAKEN,
        TYPE=kind,
        num_warps=4 if rows == 64 else 8,
        num_stages=3 if D <= 64 else 2,
    )
    return out


def get_init_inputs():
    return [1, 16, 2048, 64]


def get_inputs():
    return [torch.randn(1, 16, 2048, 64, dtype=torch.bfloat16) for _ in range(3)]
