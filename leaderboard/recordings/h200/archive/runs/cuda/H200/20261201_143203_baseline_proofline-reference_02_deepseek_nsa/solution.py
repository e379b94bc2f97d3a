# baseline: uses calls that the deck forbids to submissions
"""Block-sparse causal attention (cuda/02_deepseek_nsa): each query sees its 8 best blocks of 64 keys and its last 64.

Formula.   m_c = mean of block c's keys up to the query; take the 8 largest q . m_c (ties: later block); o = softmax of
           D^-1/2 q k over the causal keys of those blocks and the last 64 positions, times v.
Bytes.     8*B*H*S*D for q, k, v, o; 4*B*H*(S/64)*D written and read back for the means; a bf16 part of each chosen block
           written and read once, 32*B*H*S*D.
Floors.    H200, operations / bytes: 4.0/3.5, 9.0/7.0, 9.6/7.0, 19.2/14.0, 3.3/3.5, 6.3/5.1 us.
Method.    Block by block: queries are listed under the key blocks they chose, each block serves its list, parts merge. A
           query's own block and the one before, where its window lies, are served last, with the merge; so every listed
           block lies whole in the past. Ranks are products with the means, each mean split into three bf16 parts whose
           sum is its fp32 value. Work grows with the chosen keys only; each part has its fp32 log sum.
Limits.    D 16, 32, 64 or 128. Contiguous tensors. Five launches: short shapes wait for the host.

Notes, and the version that masks instead (solutions/right/masked.py): docs/kernels/block_sparse_attention.md.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK, TAKEN, STRIDE = 64, 8, 8


@triton.jit
def block_means(k_ptr, mean_ptr, S, blocks, D: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    row = block * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, D)
    keys = tl.load(k_ptr + head * S * D + row[:, None] * D + column[None, :], mask=row[:, None] < S, other=0.0)
    tl.store(mean_ptr + (head * blocks + block) * D + column, tl.sum(keys.to(tl.float32), axis=0) / BLOCK)


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
def choose(
    q_ptr,
    k_ptr,
    mean_ptr,
    count_ptr,
    list_ptr,
    part_ptr,
    near_ptr,
    S,
    blocks,
    D: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
    TAKEN: tl.constexpr,
    TYPE: tl.constexpr,
):
    own = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    row = own * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, D)
    at = head * S * D + row[:, None] * D + column[None, :]
    q = tl.load(q_ptr + at, mask=row[:, None] < S, other=0.0).to(TYPE)
    keys = tl.load(k_ptr + at, mask=row[:, None] < S, other=0.0).to(TYPE)
    block = tl.arange(0, BLOCKS)
    mean_at = head * blocks * D + block[:, None] * D + column[None, :]
    means = tl.load(mean_ptr + mean_at, mask=block[:, None] < blocks, other=0.0)
    ranks = split_product(q, means, TYPE)
    # The query's own block counts only its keys up to the query.
    local = tl.dot(q, tl.trans(keys), input_precision="ieee")
    place = tl.arange(0, BLOCK)
    prefix = tl.sum(tl.where(place[None, :] <= place[:, None], local, 0.0), axis=1) / (place + 1).to(tl.float32)
    ranks = tl.where(block[None, :] == own, prefix[:, None], ranks)
    ranks = tl.where(block[None, :] <= own, ranks, -1e30)
    near = tl.zeros((BLOCK,), dtype=tl.int32)
    for turn in range(TAKEN):
        best = tl.max(ranks, axis=1)
        winner = tl.max(tl.where(ranks == best[:, None], block[None, :], -1), axis=1)
        ranks = tl.where(block[None, :] == winner[:, None], float("-inf"), ranks)
        near |= tl.where(winner == own, 1, 0) | tl.where(winner == own - 1, 2, 0)
        is_far = (winner < own - 1) & (row < S)
        listed = head * blocks + winner
        position = tl.atomic_add(count_ptr + listed, 1, mask=is_far)
        tl.store(list_ptr + listed * S + position, row * TAKEN + turn, mask=is_far)
        tl.store(part_ptr + (head * S + row) * TAKEN + turn, tl.where(is_far, 1, 0), mask=row < S)
    tl.store(near_ptr + head * S + row, near, mask=row < S)


@triton.jit
def serve(
    q_ptr,
    k_ptr,
    v_ptr,
    count_ptr,
    list_ptr,
    out_ptr,
    sum_ptr,
    S,
    blocks,
    factor,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    TAKEN: tl.constexpr,
    STRIDE: tl.constexpr,
    TYPE: tl.constexpr,
):
    block = tl.program_id(1)
    head = tl.program_id(2).to(tl.int64)
    listed = head * blocks + block
    count = tl.load(count_ptr + listed)
    column = tl.arange(0, D)
    key = block * BLOCK + tl.arange(0, BLOCK)
    key_at = head * S * D + key[:, None] * D + column[None, :]
    keys = tl.load(k_ptr + key_at, mask=key[:, None] < S, other=0.0).to(TYPE)
    values = tl.load(v_ptr + key_at, mask=key[:, None] < S, other=0.0).to(TYPE)
    for first in range(tl.program_id(0) * ROWS, count, STRIDE * ROWS):
        place = first + tl.arange(0, ROWS)
        entry = tl.load(list_ptr + listed * S + place, mask=place < count, other=0)
        row = entry // TAKEN
        q = tl.load(q_ptr + head * S * D + row[:, None] * D + column[None, :]).to(TYPE)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * factor
        peak = tl.max(scores, axis=1)
        weight = tl.exp2(scores - peak[:, None])
        total = tl.sum(weight, axis=1)
        out = tl.dot(weight.to(TYPE), values, input_precision="ieee") / total[:, None]
        part = head * S * TAKEN + entry
        tl.store(sum_ptr + part, peak + tl.log2(total), mask=place < count)
        out_at = part[:, None] * D + column[None, :]
        tl.store(out_ptr + out_at, out.to(out_ptr.dtype.element_ty), mask=(place < count)[:, None])


@triton.jit
def merge(
    q_ptr,
    k_ptr,
    v_ptr,
    near_ptr,
    part_ptr,
    part_out_ptr,
    part_sum_ptr,
    out_ptr,
    S,
    factor,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    TAKEN: tl.constexpr,
    TYPE: tl.constexpr,
):
    own = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    row = own * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, D)
    at = head * S * D + row[:, None] * D + column[None, :]
    q = tl.load(q_ptr + at, mask=row[:, None] < S, other=0.0).to(TYPE)
    near = tl.load(near_ptr + head * S + row, mask=row < S, other=0)
    peak = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    out = tl.zeros((BLOCK, D), dtype=tl.float32)
    # The own block comes first: every query sees itself, so the peak is finite from there on.
    for back in tl.static_range(2):
        key = (own - back) * BLOCK + tl.arange(0, BLOCK)
        is_there = (key >= 0) & (key < S)
        key_at = head * S * D + key[:, None] * D + column[None, :]
        keys = tl.load(k_ptr + key_at, mask=is_there[:, None], other=0.0).to(TYPE)
        values = tl.load(v_ptr + key_at, mask=is_there[:, None], other=0.0).to(TYPE)
        behind = row[:, None] - key[None, :]
        is_chosen = ((near >> back) & 1) != 0
        seen = (behind >= 0) & is_there[None, :] & (is_chosen[:, None] | (behind < 64))
        scores = tl.where(seen, tl.dot(q, tl.trans(keys), input_precision="ieee") * factor, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weight = tl.exp2(scores - base[:, None])
        keep = tl.exp2(peak - base)
        total = total * keep + tl.sum(weight, axis=1)
        out = tl.dot(weight.to(TYPE), values, out * keep[:, None], input_precision="ieee")
        peak = new_peak
    for turn in range(TAKEN):
        part = (head * S + row) * TAKEN + turn
        is_part = (tl.load(part_ptr + part, mask=row < S, other=0) != 0) & (row < S)
        level = tl.load(part_sum_ptr + part, mask=is_part, other=float("-inf"))
        other = tl.load(part_out_ptr + part[:, None] * D + column[None, :], mask=is_part[:, None], other=0.0)
        new_peak = tl.maximum(peak, level)
        keep, gain = tl.exp2(peak - new_peak), tl.exp2(level - new_peak)
        total = total * keep + gain
        out = out * keep[:, None] + gain[:, None] * other.to(tl.float32)
        peak = new_peak
    tl.store(out_ptr + at, (out / total[:, None]).to(out_ptr.dtype.element_ty), mask=row[:, None] < S)


class Model(nn.Module):
    def __init__(self, B, H, S, D):
        super().__init__()
        self.register_buffer("_dummy", torch.zeros(1, dtype=torch.bfloat16))

    def forward(self, q, k, v):
        if q.device.type == "cpu":
            # Triton's interpreter multiplies bf16 as if it were an integer type.
            return launch(*(tensor.float().contiguous() for tensor in (q, k, v)), tl.float32).to(q.dtype)
        return launch(q.contiguous(), k.contiguous(), v.contiguous(), tl.bfloat16)


def launch(q, k, v, kind):
    heads, S, D = q.shape[0] * q.shape[1], q.shape[2], q.shape[3]
    blocks, factor = triton.cdiv(S, BLOCK), D**-0.5 * 1.4426950408889634
    means = torch.empty(heads, blocks, D, dtype=torch.float32, device=q.device)
    counts = torch.zeros(heads, blocks, dtype=torch.int32, device=q.device)
    lists = torch.empty(heads, blocks, S, dtype=torch.int32, device=q.device)
    parts = torch.empty(heads, S, TAKEN, dtype=torch.int8, device=q.device)
    near = torch.empty(heads, S, dtype=torch.int32, device=q.device)
    part_out = torch.empty(heads, S, TAKEN, D, dtype=q.dtype, device=q.device)
    part_sum = torch.empty(heads, S, TAKEN, dtype=torch.float32, device=q.device)
    out = torch.empty_like(q)
    own = {"D": D, "BLOCK": BLOCK, "TAKEN": TAKEN, "TYPE": kind}
    padded = max(16, triton.next_power_of_2(blocks))
    block_means[(blocks, heads)](k, means, S, blocks, D, BLOCK)
    choose[(blocks, heads)](q, k, means, counts, lists, parts, near, S, blocks, BLOCKS=padded, num_warps=4, **own)
    if blocks > 2:
        grid = (STRIDE, blocks - 2, heads)
        fixed = {"ROWS": 64, "STRIDE": STRIDE, "num_warps": 4}
        serve[grid](q, k, v, counts, lists, part_out, part_sum, S, blocks, factor, **own, **fixed)
    merge[(blocks, heads)](q, k, v, near, parts, part_out, part_sum, out, S, factor, num_warps=4, **own)
    return out
