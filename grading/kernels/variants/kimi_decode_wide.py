"""One decode step of four Kimi-Linear layers (mega/02_kimi_linear_decode), more of it under way at once. Not timed yet.

Formula, bytes, floors, limits and fallback: as `kimi_decode.py`.
Method.    As there, with wider turns: a product takes two groups of 128 inputs at a time and asks for five such turns ahead, in
           tiles of 64 and 128 columns, so that 40 to 80 KB are under way on a multiprocessor where 6 to 12 were. Before
           all meet, a program asks for its first tile of the next phase to be brought into the L2 cache. The
           slices of latent attention are merged sixteen at a time and their peaks all at once. Experts are ranked by counting,
           once a phase. Partial vectors are loaded together.

Notes: docs/kernels/kimi_decode.md.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

LAYERS, HEAD, GROUP = 4, 128, 128
SLOTS = 40
PHASES, INTERPRETED_PROGRAMS = 27, 3
BIAS = tl.constexpr(8388608.0)
OUT_PARTS = tl.constexpr(3)


@triton.jit
def rounded(x):
    """Return x rounded to bf16, as fp32; by hand, since Triton's interpreter cuts the lower bits off."""
    bits = x.to(tl.uint32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).to(tl.float32, bitcast=True)


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def bytes_at(table, slot):
    return tl.multiple_of(tl.load(table + slot).to(tl.pointer_type(tl.uint8)), 16)


@triton.jit
def halves_at(table, slot):
    return tl.multiple_of(tl.load(table + slot).to(tl.pointer_type(tl.bfloat16)), 16)


@triton.jit
def level(bits):
    """Return 2^23 plus a nibble as a float, without a conversion."""
    return (bits | 0x4B000000).to(tl.float32, bitcast=True)


@triton.jit
def multiply(table, slot, expert, x, first, N, groups, start, stop, COLUMNS: tl.constexpr):
    """Return COLUMNS sums of x (fp32 in memory) times a 4-bit weight (K, N), over the groups start .. stop.

    Two groups a turn and five turns ahead: what is under way is what decides the rate, and a turn costs as much as it takes.
    """
    before = (tl.full((), 0, dtype=tl.int64) + expert) * groups * N
    packed = bytes_at(table, slot) + before * 64
    scales = halves_at(table, slot + 1) + before
    zeros = halves_at(table, slot + 2) + before
    column = first + tl.arange(0, COLUMNS)
    total = tl.zeros((2, 64, COLUMNS), dtype=tl.float32)
    for turn_start in tl.range(start, stop, 2, num_stages=6):
        group = turn_start + tl.arange(0, 2)
        inside = group < stop
        row = group[:, None] * 64 + tl.arange(0, 64)[None, :]
        at = group[:, None] * N + column[None, :]
        bits = tl.load(packed + row[:, :, None] * N + column[None, None, :], mask=inside[:, None, None], other=0)
        scale = tl.load(scales + at, mask=inside[:, None], other=0.0).to(tl.float32)
        zero = tl.load(zeros + at, mask=inside[:, None], other=0.0).to(tl.float32) + BIAS
        even = tl.load(x + 2 * row, mask=inside[:, None], other=0.0)
        odd = tl.load(x + 2 * row + 1, mask=inside[:, None], other=0.0)
        bits = bits.to(tl.int32)
        low = level(bits & 15) - zero[:, None, :]
        high = level(bits >> 4) - zero[:, None, :]
        total += (even[:, :, None] * low + odd[:, :, None] * high) * scale[:, None, :]
    return tl.sum(tl.sum(total, axis=0), axis=0)


@triton.jit
def fetch(line):
    """Ask for lines of 128 bytes, by their addresses, to be brought into the L2 cache."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1];\nmov.u32 $0, 0;", "=r,l", [line], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def fetch_tile(table, slot, expert, first, N, groups, start, stop):
    """Ask for what `multiply` will read: up to 128 columns, the groups start .. stop of at most 32."""
    before = (tl.full((), 0, dtype=tl.int64) + expert) * groups * N
    at = bytes_at(table, slot).to(tl.int64) + before * 64 + first
    for row in range(start * 64, stop * 64, 256):
        fetch(at + tl.minimum(row + tl.arange(0, 256), stop * 64 - 1).to(tl.int64) * N)
    group = tl.minimum(start + tl.arange(0, 32), stop - 1)
    fetch(halves_at(table, slot + 1).to(tl.int64) + 2 * (before + first + group * N))
    fetch(halves_at(table, slot + 2).to(tl.int64) + 2 * (before + first + group * N))


@triton.jit
def fetch_phase(
    table,
    now,
    memory,
    C: tl.constexpr,
    D: tl.constexpr,
    HEADS: tl.constexpr,
    N_Q: tl.constexpr,
    N_KV: tl.constexpr,
    N_O: tl.constexpr,
    INNER: tl.constexpr,
):
    """Ask for a program's first tile of a phase, where that depends on no phase before: neither do routed experts."""
    layer = tl.minimum(now // 6, 3)
    part = now - layer * 6
    is_latent = layer == 3
    common = tl.where(is_latent & (part > 2), part - 2, part)
    item = tl.program_id(0)
    groups: tl.constexpr = D // 128
    if part == 0:
        if is_latent:
            if item < N_Q // 64:
                fetch_tile(table, layer * 40 + 23, 0, item * 64, N_Q, groups, 0, groups)
            elif item < (N_Q + N_KV) // 64:
                fetch_tile(table, layer * 40 + 26, 0, item * 64 - N_Q, N_KV, groups, 0, groups)
        elif item < 4 * C // 128:
            tiles: tl.constexpr = C // 128
            slot = layer * 40 + 23 + 3 * (item // tiles)
            fetch_tile(table, slot, 0, item % tiles * 128, C, groups, 0, groups)
    elif (part == 1) & (layer < 3):
        if item < HEADS * 4:
            state = memory + (layer * HEADS + item // 4) * 16384 + item % 4 * 32
            fetch(state.to(tl.int64) + tl.arange(0, 128) * 512)
    elif common == 2:
        if item < D // 64 * OUT_PARTS:
            all_groups = tl.where(is_latent, N_O, C) // 128
            share = (all_groups + OUT_PARTS - 1) // OUT_PARTS
            start = item // (D // 64) * share
            stop = tl.minimum(start + share, all_groups)
            fetch_tile(table, layer * 40 + 35, 0, item % (D // 64) * 64, D, all_groups, start, stop)
    elif common == 3:
        if item < INNER // 32:
            fetch_tile(table, layer * 40 + 12, 0, item * 32, INNER, groups, 0, groups)
            fetch_tile(table, layer * 40 + 15, 0, item * 32, INNER, groups, 0, groups)


@triton.jit
def meet(counter, round_number):
    """Wait until every program has come here as often."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    target = round_number * tl.num_programs(0)
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < target:
        pass
    tl.debug_barrier()


@triton.jit
def normalise(x, weight, to, at, D: tl.constexpr):
    """Write the norm of a vector (zeros beyond D) to this program's own row."""
    share = tl.rsqrt(tl.sum(x * x, axis=0) / D + 1e-6)
    scale = tl.load(weight + at, mask=at < D, other=0.0).to(tl.float32)
    tl.store(to + at, rounded(x * share * scale), mask=at < D)
    tl.debug_barrier()


@triton.jit
def stream(x, parts, at, COUNT: tl.constexpr, D: tl.constexpr):
    """Return the residual stream plus the rounded sum of partial vectors."""
    total = tl.zeros_like(at).to(tl.float32)
    for part in tl.static_range(COUNT):
        total += tl.load(parts + part * D + at, mask=at < D, other=0.0)
    return rounded(tl.load(x + at, mask=at < D, other=0.0) + rounded(total))


@triton.jit
def enter_layer(
    table, layer, token, s, x_at, x2_at, parts_at, own, D: tl.constexpr, WIDE: tl.constexpr, PARTS: tl.constexpr
):
    """Make the layer's input from the token or from the experts of the layer before, and its norm."""
    at = tl.arange(0, WIDE)
    if layer == 0:
        x = tl.load(token + at, mask=at < D, other=0.0).to(tl.float32)
    else:
        x = stream(s + x2_at, s + parts_at, at, PARTS, D)
    if tl.program_id(0) == 0:
        tl.store(s + x_at + at, x, mask=at < D)
    normalise(x, halves_at(table, layer * 40), own, at, D)


@triton.jit
def project(table, slot, own, to, item, tiles, N, groups, COLUMNS: tl.constexpr):
    """One tile of a product of the normed input, rounded."""
    first = (item % tiles) * COLUMNS
    y = multiply(table, slot, 0, own, first, N, groups, 0, groups, COLUMNS)
    tl.store(to + first + tl.arange(0, COLUMNS), rounded(y))


@triton.jit
def project_linear(table, layer, own, s, raw_at, beta_at, C, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr):
    tiles = C // 128
    at = tl.arange(0, WIDE)
    for item in range(tl.program_id(0), 4 * tiles + HEADS, tl.num_programs(0)):
        if item < 4 * tiles:
            matrix = item // tiles
            project(table, layer * 40 + 23 + 3 * matrix, own, s + raw_at + matrix * C, item, tiles, C, D // 128, 128)
        else:
            head = item - 4 * tiles
            weight = tl.load(halves_at(table, layer * 40 + 22) + head * D + at, mask=at < D, other=0.0).to(tl.float32)
            x = tl.load(own + at, mask=at < D, other=0.0)
            tl.store(s + beta_at + head, sigmoid(rounded(tl.sum(weight * x, axis=0))))


@triton.jit
def convolve(table, layer, windows, new_windows, raw, which, channel, C):
    """Return silu of a channel's convolution over three old and the new projection, and move the window on."""
    base = (layer * 3 + which) * 3 * C + channel
    weight = halves_at(table, layer * 40 + 21) + which * C * 4 + channel * 4
    second = tl.load(windows + base + C)
    third = tl.load(windows + base + 2 * C)
    newest = tl.load(raw + which * C + channel)
    y = tl.load(windows + base).to(tl.float32) * tl.load(weight).to(tl.float32)
    y += second.to(tl.float32) * tl.load(weight + 1).to(tl.float32)
    y += third.to(tl.float32) * tl.load(weight + 2).to(tl.float32) + newest * tl.load(weight + 3).to(tl.float32)
    tl.store(new_windows + base, second)
    tl.store(new_windows + base + C, third)
    tl.store(new_windows + base + 2 * C, newest.to(tl.bfloat16))
    return rounded(y * sigmoid(y))


@triton.jit
def update_memory(
    table, layer, memory, windows, new_memory, new_windows, s, raw_at, beta_at, o_at, C, HEADS: tl.constexpr
):
    for item in range(tl.program_id(0), HEADS * 4, tl.num_programs(0)):
        head = item // 4
        key = tl.arange(0, 128)
        value = item % 4 * 32 + tl.arange(0, 32)
        # Four programs share a head's q and k; all write the same window.
        q = convolve(table, layer, windows, new_windows, s + raw_at, 0, head * 128 + key, C) * 0.08838834764831845
        k = convolve(table, layer, windows, new_windows, s + raw_at, 1, head * 128 + key, C)
        v = convolve(table, layer, windows, new_windows, s + raw_at, 2, head * 128 + value, C)
        decay = sigmoid(-tl.load(s + raw_at + 3 * C + head * 128 + key))
        at = (layer * HEADS + head) * 16384 + key[:, None] * 128 + value[None, :]
        state = tl.load(memory + at) * decay[:, None]
        delta = tl.load(s + beta_at + head) * (v - tl.sum(state * k[:, None], axis=0))
        state += k[:, None] * delta[None, :]
        tl.store(new_memory + at, state)
        tl.store(s + o_at + head * 128 + value, rounded(tl.sum(state * q[:, None], axis=0)))


@triton.jit
def project_out(table, layer, s, o_at, apart_at, groups, D: tl.constexpr):
    """The product with o_proj, split along its inputs into OUT_PARTS partial vectors."""
    tiles = D // 64
    for item in range(tl.program_id(0), tiles * OUT_PARTS, tl.num_programs(0)):
        part = item // tiles
        first = item % tiles * 64
        share = (groups + OUT_PARTS - 1) // OUT_PARTS
        stop = tl.minimum((part + 1) * share, groups)
        y = multiply(table, layer * 40 + 35, 0, s + o_at, first, D, groups, part * share, stop, 64)
        tl.store(s + apart_at + part * D + first + tl.arange(0, 64), y)


@triton.jit
def up_tile(table, slot, expert, own, first, groups, INNER: tl.constexpr, COLUMNS: tl.constexpr):
    gate = multiply(table, slot, expert, own, first, INNER, groups, 0, groups, COLUMNS)
    up = multiply(table, slot + 3, expert, own, first, INNER, groups, 0, groups, COLUMNS)
    return gate * sigmoid(gate) * up


@triton.jit
def route(
    table,
    layer,
    own,
    s,
    x_at,
    x2_at,
    apart_at,
    logit_at,
    act_at,
    D: tl.constexpr,
    WIDE: tl.constexpr,
    EXPERTS: tl.constexpr,
    INNER: tl.constexpr,
):
    """Add attention to the stream; router logits, and the shared expert's hidden values behind the routed ones."""
    at = tl.arange(0, WIDE)
    x = stream(s + x_at, s + apart_at, at, OUT_PARTS, D)
    if tl.program_id(0) == 0:
        tl.store(s + x2_at + at, x, mask=at < D)
    normalise(x, halves_at(table, layer * 40 + 1), own, at, D)
    tiles = INNER // 32
    for item in range(tl.program_id(0), tiles + EXPERTS, tl.num_programs(0)):
        if item < tiles:
            y = up_tile(table, layer * 40 + 12, 0, own, item * 32, D // 128, INNER, 32)
            tl.store(s + act_at + item * 32 + tl.arange(0, 32), y)
        else:
            expert = item - tiles
            weight = tl.load(halves_at(table, layer * 40 + 2) + expert * D + at, mask=at < D, other=0.0).to(tl.float32)
            normed = tl.load(own + at, mask=at < D, other=0.0)
            tl.store(s + logit_at + expert, rounded(tl.sum(weight * normed, axis=0)))


@triton.jit
def rank_experts(logits, EXPERTS: tl.constexpr, ACTIVE: tl.constexpr):
    """Return each expert's rank, 0 for the largest logit, of equal ones the lower number first, and its share."""
    number = tl.arange(0, EXPERTS)
    left = tl.load(logits + number)
    other = tl.load(logits + number)
    is_before = (other[None, :] > left[:, None]) | (
        (other[None, :] == left[:, None]) & (number[None, :] < number[:, None])
    )
    rank = tl.sum(is_before.to(tl.int32), axis=1)
    power = tl.exp(left - tl.max(left, axis=0))
    power = power / tl.sum(power, axis=0)
    return rank, power / (tl.sum(tl.where(rank < ACTIVE, power, 0.0), axis=0) + 1e-9) * 2.446


@triton.jit
def at_rank(rank, place, EXPERTS: tl.constexpr):
    return tl.sum(tl.where(rank == place, tl.arange(0, EXPERTS), 0), axis=0)


@triton.jit
def expand(
    table,
    layer,
    own,
    s,
    logit_at,
    act_at,
    D: tl.constexpr,
    EXPERTS: tl.constexpr,
    ACTIVE: tl.constexpr,
    INNER: tl.constexpr,
    FUSED: tl.constexpr,
):
    tiles = INNER // 64
    rank, _ = rank_experts(s + logit_at, EXPERTS, ACTIVE)
    for item in range(tl.program_id(0), tiles * ACTIVE, tl.num_programs(0)):
        place = item // tiles
        expert = at_rank(rank, place, EXPERTS)
        first = item % tiles * 64
        y = up_tile(table, layer * 40 + 3, expert, own, first, D // 128, INNER, 64)
        tl.store(s + act_at + (place + 1) * INNER + first + tl.arange(0, 64), y)
    if FUSED:
        # What `contract` will read.
        item = tl.program_id(0)
        expert = at_rank(rank, item // (D // 64) - 1, EXPERTS)
        slot = layer * 40 + tl.where(item // (D // 64) == 0, 18, 9)
        fetch_tile(table, slot, expert, item % (D // 64) * 64, D, INNER // 128, 0, INNER // 128)


@triton.jit
def contract(
    table,
    layer,
    s,
    logit_at,
    act_at,
    parts_at,
    D: tl.constexpr,
    EXPERTS: tl.constexpr,
    ACTIVE: tl.constexpr,
    INNER: tl.constexpr,
):
    """The products with the experts' last weights, one partial vector each, times the expert's share."""
    tiles = D // 64
    rank, shares = rank_experts(s + logit_at, EXPERTS, ACTIVE)
    for item in range(tl.program_id(0), tiles * (ACTIVE + 1), tl.num_programs(0)):
        place = item // tiles
        first = item % tiles * 64
        # The shared expert has the first place, and no rank.
        expert = at_rank(rank, place - 1, EXPERTS)
        share = tl.where(place == 0, 1.0, tl.sum(tl.where(rank == place - 1, shares, 0.0), axis=0))
        slot = layer * 40 + tl.where(place == 0, 18, 9)
        y = multiply(table, slot, expert, s + act_at + place * INNER, first, D, INNER // 128, 0, INNER // 128, 64)
        tl.store(s + parts_at + place * D + first + tl.arange(0, 64), y * share)


@triton.jit
def project_latent(table, own, s, raw_at, N_Q: tl.constexpr, N_KV: tl.constexpr, D: tl.constexpr, LAYER: tl.constexpr):
    COLUMNS: tl.constexpr = 64 if N_Q % 64 == 0 and N_KV % 64 == 0 else 16
    q_tiles = N_Q // COLUMNS
    kv_tiles = N_KV // COLUMNS
    for item in range(tl.program_id(0), q_tiles + kv_tiles, tl.num_programs(0)):
        if item < q_tiles:
            project(table, LAYER * 40 + 23, own, s + raw_at, item, q_tiles, N_Q, D // 128, COLUMNS)
        else:
            place = item - q_tiles
            project(table, LAYER * 40 + 26, own, s + raw_at + N_Q, place, kv_tiles, N_KV, D // 128, COLUMNS)


@triton.jit
def turn(x, position, HALF: tl.constexpr):
    """Return even and odd elements of a rope vector turned by the position's angles, rounded."""
    pair = tl.arange(0, HALF)
    angle = position * tl.exp2(-pair.to(tl.float32) / HALF * 13.287712379549449)
    even = tl.load(x + 2 * pair)
    odd = tl.load(x + 2 * pair + 1)
    return rounded(even * tl.cos(angle) - odd * tl.sin(angle)), rounded(odd * tl.cos(angle) + even * tl.sin(angle))


@triton.jit
def absorb(
    table,
    s,
    raw_at,
    qabs_at,
    qrope_at,
    row_at,
    latent_out,
    key_out,
    position,
    HEADS: tl.constexpr,
    RANK: tl.constexpr,
    NOPE: tl.constexpr,
    ROPE: tl.constexpr,
    VALUE: tl.constexpr,
    LAYER: tl.constexpr,
):
    """Multiply the queries by the expansion of the keys, head by head; turn rope parts; emit the appended row."""
    N: tl.constexpr = HEADS * (NOPE + VALUE)
    pair = tl.arange(0, ROPE // 2)
    for item in range(tl.program_id(0), HEADS * (RANK // 128) + HEADS + 1, tl.num_programs(0)):
        if item < HEADS * (RANK // 128):
            head = item // (RANK // 128)
            group = item % (RANK // 128)
            column = head * (NOPE + VALUE) + tl.arange(0, NOPE)
            row = tl.arange(0, 64)
            q = tl.load(s + raw_at + head * (NOPE + ROPE) + tl.arange(0, NOPE))
            packed = bytes_at(table, LAYER * 40 + 29)
            bits = tl.load(packed + (group * 64 + row)[:, None] * N + column[None, :]).to(tl.int32)
            scale = tl.load(halves_at(table, LAYER * 40 + 30) + group * N + column).to(tl.float32)
            zero = tl.load(halves_at(table, LAYER * 40 + 31) + group * N + column).to(tl.float32) + BIAS
            q_even = tl.sum((level(bits & 15) - zero[None, :]) * (q * scale)[None, :], axis=1)
            q_odd = tl.sum((level(bits >> 4) - zero[None, :]) * (q * scale)[None, :], axis=1)
            place = s + qabs_at + head * RANK + group * 128 + 2 * row
            tl.store(place, q_even)
            tl.store(place + 1, q_odd)
        elif item < HEADS * (RANK // 128) + HEADS:
            head = item - HEADS * (RANK // 128)
            even, odd = turn(s + raw_at + head * (NOPE + ROPE) + NOPE, position, ROPE // 2)
            tl.store(s + qrope_at + head * ROPE + 2 * pair, even)
            tl.store(s + qrope_at + head * ROPE + 2 * pair + 1, odd)
        else:
            new = s + raw_at + HEADS * (NOPE + ROPE)
            latent = tl.load(new + tl.arange(0, RANK))
            tl.store(s + row_at + tl.arange(0, RANK), latent)
            tl.store(latent_out + tl.arange(0, RANK), latent.to(tl.bfloat16))
            k_even, k_odd = turn(new + RANK, position, ROPE // 2)
            tl.store(s + row_at + RANK + 2 * pair, k_even)
            tl.store(s + row_at + RANK + 2 * pair + 1, k_odd)
            tl.store(key_out + 2 * pair, k_even.to(tl.bfloat16))
            tl.store(key_out + 2 * pair + 1, k_odd.to(tl.bfloat16))


@triton.jit
def scan(
    s,
    latents,
    rope_keys,
    qabs_at,
    qrope_at,
    row_at,
    peak_at,
    sum_at,
    acc_at,
    position,
    HEADS: tl.constexpr,
    RANK: tl.constexpr,
    ROPE: tl.constexpr,
    SCALE: tl.constexpr,
    PADDED: tl.constexpr,
    TYPE: tl.constexpr,
):
    """Attention of all heads over this program's slice of the cache, the appended row being the last."""
    slice_rows = (position + tl.num_programs(0)) // tl.num_programs(0)
    slice_rows = (slice_rows + 31) // 32 * 32
    start = tl.program_id(0) * slice_rows
    stop = tl.minimum(start + slice_rows, position + 1)
    head = tl.arange(0, PADDED)
    rank = tl.arange(0, RANK)
    rope = tl.arange(0, ROPE)
    is_head = head[:, None] < HEADS
    q = tl.load(s + qabs_at + head[:, None] * RANK + rank[None, :], mask=is_head, other=0.0)
    q_high = q.to(TYPE)
    q_low = (q - q_high.to(tl.float32)).to(TYPE)
    q_rope = tl.load(s + qrope_at + head[:, None] * ROPE + rope[None, :], mask=is_head, other=0.0).to(TYPE)
    peak = tl.full((PADDED,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((PADDED,), dtype=tl.float32)
    out = tl.zeros((PADDED, RANK), dtype=tl.float32)
    for first in range(start, stop, 32):
        row = first + tl.arange(0, 32)
        cached = row < tl.minimum(stop, position)
        # The appended row is not in the caller's cache.
        is_new = (row == position)[:, None]
        c = tl.load(latents + row[:, None] * RANK + rank[None, :], mask=cached[:, None], other=0.0).to(tl.float32)
        c = tl.where(is_new, tl.load(s + row_at + rank)[None, :], c).to(TYPE)
        k = tl.load(rope_keys + row[:, None] * ROPE + rope[None, :], mask=cached[:, None], other=0.0).to(tl.float32)
        k = tl.where(is_new, tl.load(s + row_at + RANK + rope)[None, :], k).to(TYPE)
        scores = tl.dot(q_low, tl.trans(c), input_precision="ieee")
        scores = tl.dot(q_high, tl.trans(c), scores, input_precision="ieee")
        scores = tl.dot(q_rope, tl.trans(k), scores, input_precision="ieee") * (SCALE * 1.4426950408889634)
        scores = tl.where(row[None, :] < stop, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weight = tl.exp2(scores - higher[:, None])
        keep = tl.exp2(peak - higher)
        total = total * keep + tl.sum(weight, axis=1)
        out = tl.dot(weight.to(TYPE), c, out * keep[:, None], input_precision="ieee")
        peak = higher
    here = tl.program_id(0) * HEADS + head
    tl.store(s + peak_at + here, peak, mask=head < HEADS)
    tl.store(s + sum_at + here, total, mask=head < HEADS)
    tl.store(s + acc_at + here[:, None] * RANK + rank[None, :], out, mask=is_head)


@triton.jit
def merge(
    table,
    s,
    peak_at,
    sum_at,
    acc_at,
    mixed,
    o_at,
    HEADS: tl.constexpr,
    RANK: tl.constexpr,
    NOPE: tl.constexpr,
    VALUE: tl.constexpr,
    LAYER: tl.constexpr,
):
    """Add up the slices of a head, and expand the mixed latent to 32 of its values."""
    SOME: tl.constexpr = 16
    rank = tl.arange(0, RANK)
    slice = tl.arange(0, 256)
    programs = tl.num_programs(0)
    for item in range(tl.program_id(0), HEADS * (VALUE // 32), tl.num_programs(0)):
        head = item // (VALUE // 32)
        peaks = tl.load(s + peak_at + slice * HEADS + head, mask=slice < programs, other=-1e30)
        peak = tl.max(peaks, axis=0)
        sums = tl.load(s + sum_at + slice * HEADS + head, mask=slice < programs, other=0.0)
        total = tl.sum(tl.exp2(peaks - peak) * sums, axis=0)
        latent = tl.zeros((RANK,), dtype=tl.float32)
        for first_part in range(0, programs, SOME):
            part = first_part + tl.arange(0, SOME)
            weight = tl.load(s + peak_at + part * HEADS + head, mask=part < programs, other=-1e30)
            at = (part * HEADS + head)[:, None] * RANK + rank[None, :]
            tile = tl.load(s + acc_at + at, mask=(part < programs)[:, None], other=0.0)
            latent += tl.sum(tl.exp2(weight - peak)[:, None] * tile, axis=0)
        tl.debug_barrier()
        tl.store(mixed + rank, latent / total)
        tl.debug_barrier()
        first = head * (NOPE + VALUE) + NOPE + item % (VALUE // 32) * 32
        y = multiply(table, LAYER * 40 + 29, 0, mixed, first, HEADS * (NOPE + VALUE), RANK // 128, 0, RANK // 128, 32)
        tl.store(s + o_at + head * VALUE + item % (VALUE // 32) * 32 + tl.arange(0, 32), rounded(y))


@triton.jit
def step_kernel(
    table,
    token,
    memory,
    windows,
    latents,
    rope_keys,
    out,
    new_memory,
    new_windows,
    latent_out,
    key_out,
    s,
    counter,
    position,
    phase,
    D: tl.constexpr,
    WIDE: tl.constexpr,
    HEADS: tl.constexpr,
    PADDED: tl.constexpr,
    RANK: tl.constexpr,
    NOPE: tl.constexpr,
    ROPE: tl.constexpr,
    VALUE: tl.constexpr,
    EXPERTS: tl.constexpr,
    ACTIVE: tl.constexpr,
    INNER: tl.constexpr,
    FUSED: tl.constexpr,
    TYPE: tl.constexpr,
):
    """All phases in turn, or with FUSED off the one that is asked for."""
    C: tl.constexpr = HEADS * 128
    MOST: tl.constexpr = HEADS * (256 + NOPE + ROPE + VALUE) + RANK + ROPE + 4 * C
    x_at: tl.constexpr = 0
    x2_at: tl.constexpr = WIDE
    logit_at: tl.constexpr = 2 * WIDE
    beta_at: tl.constexpr = logit_at + EXPERTS
    act_at: tl.constexpr = beta_at + 64
    parts_at: tl.constexpr = act_at + (ACTIVE + 1) * INNER
    apart_at: tl.constexpr = parts_at + (ACTIVE + 1) * D
    raw_at: tl.constexpr = apart_at + OUT_PARTS * D
    o_at: tl.constexpr = raw_at + MOST
    qabs_at: tl.constexpr = o_at + MOST
    qrope_at: tl.constexpr = qabs_at + HEADS * RANK
    row_at: tl.constexpr = qrope_at + HEADS * ROPE
    rows_at: tl.constexpr = row_at + RANK + ROPE
    programs = tl.num_programs(0)
    own = s + rows_at + tl.program_id(0) * WIDE
    mixed_at = rows_at + programs * WIDE
    peak_at = mixed_at + programs * RANK
    sum_at = peak_at + programs * HEADS
    acc_at = sum_at + programs * HEADS
    mixed = s + mixed_at + tl.program_id(0) * RANK
    first = 0 if FUSED else phase
    last = 27 if FUSED else phase + 1
    SCALE: tl.constexpr = (NOPE + ROPE) ** -0.5
    for now in range(first, last):
        layer = tl.minimum(now // 6, 3)
        part = now - layer * 6
        is_latent = layer == 3
        # After the latent layer's three additional phases the parts have the numbers of a linear layer.
        common = tl.where(is_latent & (part > 2), part - 2, part)
        if part == 0:
            enter_layer(table, layer, token, s, x_at, x2_at, parts_at, own, D, WIDE, ACTIVE + 1)
            if is_latent:
                project_latent(table, own, s, raw_at, HEADS * (NOPE + ROPE), RANK + ROPE, D, 3)
            else:
                project_linear(table, layer, own, s, raw_at, beta_at, C, HEADS, D, WIDE)
        elif is_latent & (part == 1):
            absorb(
                table, s, raw_at, qabs_at, qrope_at, row_at, latent_out, key_out, position,
                HEADS, RANK, NOPE, ROPE, VALUE, 3,
            )  # fmt: skip
        elif is_latent & (part == 2):
            scan(
                s, latents, rope_keys, qabs_at, qrope_at, row_at, peak_at, sum_at, acc_at, position,
                HEADS, RANK, ROPE, SCALE, PADDED, TYPE,
            )  # fmt: skip
        elif is_latent & (part == 3):
            merge(table, s, peak_at, sum_at, acc_at, mixed, o_at, HEADS, RANK, NOPE, VALUE, 3)
        elif common == 1:
            update_memory(table, layer, memory, windows, new_memory, new_windows, s, raw_at, beta_at, o_at, C, HEADS)
        elif common == 2:
            groups = C // 128
            if is_latent:
                groups = HEADS * VALUE // 128
            project_out(table, layer, s, o_at, apart_at, groups, D)
        elif common == 3:
            route(table, layer, own, s, x_at, x2_at, apart_at, logit_at, act_at, D, WIDE, EXPERTS, INNER)
        elif common == 4:
            expand(table, layer, own, s, logit_at, act_at, D, EXPERTS, ACTIVE, INNER, FUSED)
        elif common == 5:
            contract(table, layer, s, logit_at, act_at, parts_at, D, EXPERTS, ACTIVE, INNER)
        else:
            if tl.program_id(0) == 0:
                at = tl.arange(0, WIDE)
                x = stream(s + x2_at, s + parts_at, at, ACTIVE + 1, D)
                tl.store(out + at, x.to(tl.bfloat16), mask=at < D)
        if FUSED:
            if now < 26:
                n_q: tl.constexpr = HEADS * (NOPE + ROPE)
                fetch_phase(table, now + 1, memory, C, D, HEADS, n_q, RANK + ROPE, HEADS * VALUE, INNER)
                meet(counter, now + 1)
    if FUSED:
        # The last program to leave makes the counters ready for the next call.
        if tl.atomic_add(counter + 1, 1, sem="acq_rel", scope="gpu") == programs - 1:
            tl.store(counter, 0)
            tl.store(counter + 1, 0)


class Q4(nn.Module):
    """The buffers of a 4-bit weight (inputs, outputs), or of a stack of them."""

    def __init__(self, inputs: int, outputs: int, count: int = 0) -> None:
        super().__init__()
        lead = (count,) if count else ()
        self.register_buffer("w_q", torch.zeros(*lead, inputs // 2, outputs, dtype=torch.uint8))
        self.register_buffer("scales", torch.ones(*lead, inputs // GROUP, outputs, dtype=torch.bfloat16))
        self.register_buffer("zeros", torch.zeros(*lead, inputs // GROUP, outputs, dtype=torch.bfloat16))

    def tensors(self) -> list[Tensor]:
        return [self.w_q, self.scales, self.zeros]


class Plain(nn.Module):
    """A small bf16 weight."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(*sizes, dtype=torch.bfloat16))


class Linear(nn.Module):
    """Weights of a linear-attention layer."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        channels = heads * HEAD
        self.conv_w = nn.Parameter(torch.zeros(3, channels, 4, dtype=torch.bfloat16))
        self.q_proj, self.k_proj = Q4(hidden, channels), Q4(hidden, channels)
        self.v_proj, self.g_proj = Q4(hidden, channels), Q4(hidden, channels)
        self.beta_proj, self.o_proj = Plain(heads, hidden), Q4(channels, hidden)

    def tensors(self) -> list[Tensor]:
        parts = (self.q_proj, self.k_proj, self.v_proj, self.g_proj, self.o_proj)
        return [self.conv_w, self.beta_proj.weight, *(tensor for part in parts for tensor in part.tensors())]


class Latent(nn.Module):
    """Weights of the latent-attention layer."""

    def __init__(self, hidden: int, heads: int, rank: int, nope: int, rope: int, width: int) -> None:
        super().__init__()
        self.q_proj, self.kv_a = Q4(hidden, heads * (nope + rope)), Q4(hidden, rank + rope)
        self.kv_b, self.o_proj = Q4(rank, heads * (nope + width)), Q4(heads * width, hidden)

    def tensors(self) -> list[Tensor]:
        unused = self.q_proj.w_q
        first = [tensor for part in (self.q_proj, self.kv_a, self.kv_b) for tensor in part.tensors()]
        return [unused, unused, *first, unused, unused, unused, *self.o_proj.tensors()]


class Experts(nn.Module):
    """Weights of a layer's experts."""

    def __init__(self, hidden: int, experts: int, inner: int) -> None:
        super().__init__()
        self.router = Plain(experts, hidden)
        self.gate, self.up = Q4(hidden, inner, experts), Q4(hidden, inner, experts)
        self.down = Q4(inner, hidden, experts)
        self.s_gate, self.s_up, self.s_down = Q4(hidden, inner, 1), Q4(hidden, inner, 1), Q4(inner, hidden, 1)

    def tensors(self) -> list[Tensor]:
        parts = (self.gate, self.up, self.down, self.s_gate, self.s_up, self.s_down)
        return [self.router.weight, *(tensor for part in parts for tensor in part.tensors())]


class Block(nn.Module):
    """Weights of a layer; `tensors` has the order of the table's slots."""

    def __init__(self, attention: nn.Module, hidden: int, experts: int, inner: int) -> None:
        super().__init__()
        self.attn_norm = nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))
        self.moe_norm = nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))
        self.attn, self.moe = attention, Experts(hidden, experts, inner)

    def tensors(self) -> list[Tensor]:
        return [self.attn_norm, self.moe_norm, *self.moe.tensors(), *self.attn.tensors()]


class Model(nn.Module):
    """Holds the weights, the table of their addresses and the scratch memory."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        rank: int,
        nope: int,
        rope: int,
        width: int,
        experts: int,
        active: int,
        inner: int,
    ) -> None:
        super().__init__()
        attention = [Linear(hidden, heads) for _ in range(LAYERS - 1)] + [
            Latent(hidden, heads, rank, nope, rope, width)
        ]
        self.blocks = nn.ModuleList([Block(part, hidden, experts, inner) for part in attention])
        self.sizes = {
            "D": hidden,
            "WIDE": triton.next_power_of_2(hidden),
            "HEADS": heads,
            "PADDED": max(16, triton.next_power_of_2(heads)),
            "RANK": rank,
            "NOPE": nope,
            "ROPE": rope,
            "VALUE": width,
            "EXPERTS": experts,
            "ACTIVE": active,
            "INNER": inner,
        }
        self.table, self.scratch, self.counter, self.programs = None, None, None, 0

    def _apply(self, *args, **options):
        """Forget the addresses when the weights move."""
        self.table = None
        return super()._apply(*args, **options)

    def prepare(self) -> None:
        """Write the table of addresses; make the scratch memory."""
        device = self.blocks[0].attn_norm.device
        rows = [[tensor.data_ptr() for tensor in block.tensors()] for block in self.blocks]
        self.table = torch.tensor([row + [0] * (SLOTS - len(row)) for row in rows], dtype=torch.int64).to(device)
        self.programs = INTERPRETED_PROGRAMS
        if device.type == "cuda":
            self.programs = min(torch.cuda.get_device_properties(device).multi_processor_count, 256)
        n = self.sizes
        most = n["HEADS"] * (896 + n["NOPE"] + n["ROPE"] + n["VALUE"]) + n["RANK"] + n["ROPE"]
        fixed = (
            2 * n["WIDE"]
            + n["EXPERTS"]
            + 64
            + (n["ACTIVE"] + 1) * (n["INNER"] + n["D"])
            + OUT_PARTS.value * n["D"]
            + 2 * most
        )
        fixed += (n["HEADS"] + 1) * (n["RANK"] + n["ROPE"])
        each = n["WIDE"] + n["RANK"] + n["HEADS"] * (2 + n["RANK"])
        self.scratch = torch.zeros(fixed + self.programs * each + 64, dtype=torch.float32, device=device)
        self.counter = torch.zeros(2, dtype=torch.int32, device=device)

    def forward(self, token: Tensor, memory: Tensor, windows: Tensor, latents: Tensor, rope_keys: Tensor):
        if self.table is None:
            self.prepare()
        state = [tensor.contiguous() for tensor in (token, memory, windows, latents, rope_keys)]
        new = [torch.empty_like(token), torch.empty_like(memory), torch.empty_like(windows)]
        new += [torch.empty_like(latents[:1]).view(-1), torch.empty_like(rope_keys[:1]).view(-1)]
        arguments = (self.table, *state, *new, self.scratch, self.counter, latents.shape[0])
        if token.device.type == "cuda":
            step_kernel[(self.programs,)](
                *arguments, 0, **self.sizes, FUSED=True, TYPE=tl.bfloat16, num_warps=8, launch_cooperative_grid=True
            )
        else:
            kind = tl.float32 if token.device.type == "cpu" else tl.bfloat16
            for phase in range(PHASES):
                step_kernel[(self.programs,)](*arguments, phase, **self.sizes, FUSED=False, TYPE=kind, num_warps=8)
        return tuple(new)
