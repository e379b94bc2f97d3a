# baseline: uses calls that the deck forbids to submissions
"""Decode steps of a small Qwen-like model (cuda/03_megaqwen_decode), each phase asked for before its meeting. Not timed
yet.

Formula, bytes, floors, limits and fallback: as `qwen_decode.py`.
Method.    As there, but before all meet a program asks for its weights of the next phase, or its first tile of the cache,
           to be brought into the L2 cache: they depend on nothing that the phase before makes. So the memory goes on
           reading while programs wait for the last one, and norm and add.

Notes: docs/kernels/qwen_decode.md.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

INTERPRETED_PROGRAMS = 32
HIDDEN, INNER, HEADS, KV_HEADS, HEAD = 1024, 3072, 16, 8, 128
# The scratch memory in fp32 numbers: 32 vectors for the layers' outputs, q k v, the stream, inner values, then slices.
SLICES_AT = 40960


@triton.jit
def rounded(x):
    """Return x rounded to bf16, as fp32; by hand, since Triton's interpreter cuts the lower bits off."""
    bits = x.to(tl.uint32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).to(tl.float32, bitcast=True)


@triton.jit
def weight_at(table, slot):
    return tl.multiple_of(tl.load(table + slot).to(tl.pointer_type(tl.bfloat16)), 16)


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
def fetch(at, LINES: tl.constexpr):
    """Ask for lines of 128 bytes from an address on to be brought into the L2 cache."""
    line = at.to(tl.int64) + tl.arange(0, LINES) * 128
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1];\nmov.u32 $0, 0;", "=r,l", [line], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def norm(x, weight, SIZE: tl.constexpr):
    scale = tl.load(weight + tl.arange(0, SIZE)).to(tl.float32)
    return x * tl.rsqrt(tl.sum(x * x, axis=0) / SIZE + 1e-6) * scale


@triton.jit
def rows_times(weight, row, x, WIDE: tl.constexpr, ROWS: tl.constexpr):
    """Return ROWS sums of a weight's rows times a vector held in registers."""
    at = (row + tl.arange(0, ROWS))[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    return tl.sum(tl.load(weight + at).to(tl.float32) * x[None, :], axis=1)


@triton.jit
def qkv_at(table, layer, row):
    """Return where a row of the weights of q, k and v is, which follow each other."""
    inside = row
    matrix = 1
    if row >= 3072:
        matrix = 3
        inside = row - 3072
    elif row >= 2048:
        matrix = 2
        inside = row - 2048
    return weight_at(table, layer * 11 + matrix) + inside * 1024


@triton.jit
def fetch_phase(table, layer, part, k_cache, v_cache, context, ROWS: tl.constexpr, SPLITS: tl.constexpr):
    """Ask for a program's share of a phase: weights, or the first tile of its slice of the cache."""
    programs = tl.num_programs(0)
    mine = tl.minimum(tl.program_id(0), 127)
    if part == 0:
        for item in range(tl.program_id(0), 512, programs):
            fetch(qkv_at(table, layer, item * 8), 128)
    elif part == 1:
        length = (context + SPLITS - 1) // SPLITS
        length = (length + ROWS - 1) // ROWS * ROWS
        head = tl.minimum(tl.program_id(0) // SPLITS, 7)
        row = tl.minimum(tl.program_id(0) % SPLITS * length, tl.maximum(context - ROWS, 0))
        at = (tl.full((), 0, dtype=tl.int64) + layer * 8 + head) * context * 128 + row * 128
        if context >= ROWS:
            fetch(k_cache + at, 2 * ROWS)
            fetch(v_cache + at, 2 * ROWS)
    elif part == 2:
        fetch(weight_at(table, layer * 11 + 6) + mine * 16384, 256)
    elif part == 3:
        for item in range(tl.program_id(0), 384, programs):
            fetch(weight_at(table, layer * 11 + 8) + item * 8192, 128)
            fetch(weight_at(table, layer * 11 + 9) + item * 8192, 128)
    else:
        at = weight_at(table, layer * 11 + 10) + mine * 24576
        fetch(at, 256)
        fetch(at + 16384, 128)


@triton.jit
def project(table, layer, step, hidden, tokens, s, outputs, raw):
    """Phase 0: the layer's input and its norm, then q, k and v."""
    at = tl.arange(0, 1024)
    if layer == 0:
        before = tl.load(hidden + at).to(tl.float32)
        if step > 0:
            before = tl.load(outputs + at)
        x = rounded(0.5 * tl.load(tokens + step * 1024 + at).to(tl.float32) + 0.5 * before)
        if tl.program_id(0) == 0:
            tl.store(s + at, x)
    else:
        x = tl.load(s + layer * 1024 + at)
    h = norm(x, weight_at(table, layer * 11), 1024)
    for item in tl.range(tl.program_id(0), 512, tl.num_programs(0), num_stages=4):
        y = rows_times(qkv_at(table, layer, item * 8), 0, h, 1024, 8)
        tl.store(raw + item * 8 + tl.arange(0, 8), y)


@triton.jit
def turn_pair(source, weight, position):
    """Return both halves of a head, normed and turned to its position."""
    pair = tl.arange(0, 64)
    first = tl.load(source + pair)
    second = tl.load(source + 64 + pair)
    share = tl.rsqrt((tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / 128 + 1e-6)
    first = first * share * tl.load(weight + pair).to(tl.float32)
    second = second * share * tl.load(weight + 64 + pair).to(tl.float32)
    angle = position * tl.exp2(-pair.to(tl.float32) / 64 * 13.287712379549449)
    return first * tl.cos(angle) - second * tl.sin(angle), first * tl.sin(angle) + second * tl.cos(angle)


@triton.jit
def halves(x, TYPE: tl.constexpr):
    """Return two tensors of bf16 numbers whose sum is an fp32 one to 16 bits: products with both lose next to nothing."""
    upper = rounded(x)
    return upper.to(TYPE), rounded(x - upper).to(TYPE)


@triton.jit
def two_rows(first, second):
    """Return 16 rows, the least that tensor cores take, of which the first two are given."""
    row = tl.arange(0, 16)[:, None]
    return tl.where(row == 0, first[None, :], tl.where(row == 1, second[None, :], 0.0))


@triton.jit
def absorb_rows(q, keys, values, row, last, peak, total, mixed, LOW: tl.constexpr, TYPE: tl.constexpr):
    """Take a tile of cached rows into the running softmax of two query heads, the first of 16 rows.

    q  both halves of the queries' channels, each as two bf16 tensors, already scaled for powers of two
    """
    left_high, left_low, right_high, right_low = q
    inside = row < last
    pair = tl.arange(0, 64)
    k_at = keys + row[:, None].to(tl.int64) * 128 + pair[None, :]
    k0 = tl.trans(tl.load(k_at, mask=inside[:, None], other=0.0).to(TYPE))
    k1 = tl.trans(tl.load(k_at + 64, mask=inside[:, None], other=0.0).to(TYPE))
    v_at = values + row[:, None].to(tl.int64) * 128 + tl.arange(0, 128)[None, :]
    v = tl.load(v_at, mask=inside[:, None], other=0.0).to(TYPE)
    score = tl.dot(left_low, k0, input_precision="ieee")
    score = tl.dot(right_low, k1, score, input_precision="ieee")
    score = tl.dot(left_high, k0, score, input_precision="ieee")
    score = tl.dot(right_high, k1, score, input_precision="ieee")
    score = tl.where(inside[None, :], score, LOW)
    higher = tl.maximum(peak, tl.max(score, axis=1))
    share = tl.where(inside[None, :], tl.exp2(score - higher[:, None]), 0.0)
    keep = tl.exp2(peak - higher)
    share_high, share_low = halves(share, TYPE)
    mixed = tl.dot(share_low, v, mixed * keep[:, None], input_precision="ieee")
    mixed = tl.dot(share_high, v, mixed, input_precision="ieee")
    return higher, total * keep + tl.sum(share, axis=1), mixed


@triton.jit
def attend(
    table,
    layer,
    step,
    steps,
    context,
    k_cache,
    v_cache,
    new_keys,
    new_values,
    raw,
    slices,
    ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    TYPE: tl.constexpr,
):
    """Phase 1: one key head and one slice of the cache per item; the first slice also takes the appended rows."""
    at = tl.arange(0, 128)
    pair = tl.arange(0, 64)
    head_row = tl.arange(0, 16)
    position = context + step
    low: tl.constexpr = -1e30
    scale: tl.constexpr = 0.08838834764831845 * 1.4426950408889634
    length = (context + SPLITS - 1) // SPLITS
    length = (length + ROWS - 1) // ROWS * ROWS
    for item in range(tl.program_id(0), SPLITS * 8, tl.num_programs(0)):
        head = item // SPLITS
        part = item % SPLITS
        q00, q01 = turn_pair(raw + head * 256, weight_at(table, layer * 11 + 4), position)
        q10, q11 = turn_pair(raw + head * 256 + 128, weight_at(table, layer * 11 + 4), position)
        left_high, left_low = halves(two_rows(q00 * scale, q10 * scale), TYPE)
        right_high, right_low = halves(two_rows(q01 * scale, q11 * scale), TYPE)
        q = (left_high, left_low, right_high, right_low)
        where = tl.full((), 0, dtype=tl.int64) + layer * 8 + head
        keys = k_cache + where * context * 128
        values = v_cache + where * context * 128
        peak = tl.full((16,), low, dtype=tl.float32)
        total = tl.zeros((16,), dtype=tl.float32)
        mixed = tl.zeros((16, 128), dtype=tl.float32)
        stop = tl.minimum((part + 1) * length, context)
        for first in tl.range(part * length, stop, ROWS, num_stages=3):
            row = first + tl.arange(0, ROWS)
            peak, total, mixed = absorb_rows(q, keys, values, row, stop, peak, total, mixed, low, TYPE)
        if part == 0:
            k0, k1 = turn_pair(raw + 2048 + head * 128, weight_at(table, layer * 11 + 5), position)
            own_keys = new_keys + where * steps * 128
            own_values = new_values + where * steps * 128
            tl.store(own_keys + step * 128 + pair, rounded(k0).to(tl.bfloat16))
            tl.store(own_keys + step * 128 + 64 + pair, rounded(k1).to(tl.bfloat16))
            v = rounded(tl.load(raw + 3072 + head * 128 + at))
            tl.store(own_values + step * 128 + at, v.to(tl.bfloat16))
            tl.debug_barrier()
            for first in range(0, step + 1, 64):
                row = first + tl.arange(0, 64)
                peak, total, mixed = absorb_rows(q, own_keys, own_values, row, step + 1, peak, total, mixed, low, TYPE)
        # Slices lie head by head: the mixed values of all slices, then peaks, then totals.
        slice = (2 * head + head_row) * SPLITS + part
        is_query = head_row < 2
        tl.store(slices + slice[:, None] * 128 + at[None, :], mixed, mask=is_query[:, None])
        peaks = slices + 16 * SPLITS * 128
        tl.store(peaks + slice, peak, mask=is_query)
        tl.store(peaks + 16 * SPLITS + slice, total, mask=is_query)


@triton.jit
def merge_out(table, layer, s, slices, rest, SPLITS: tl.constexpr):
    """Phase 2: merge the slices of all heads, then the product with Wo, added to the stream."""
    head = tl.arange(0, 16)[:, None]
    at = tl.arange(0, 128)
    peaks = slices + 16 * SPLITS * 128
    slice = head * SPLITS + tl.arange(0, SPLITS)[None, :]
    peak = tl.load(peaks + slice)
    top = tl.max(peak, axis=1)
    total = tl.sum(tl.exp2(peak - top[:, None]) * tl.load(peaks + 16 * SPLITS + slice), axis=1)
    mixed = tl.zeros((16, 128), dtype=tl.float32)
    # No load waits for another: in a loop over slices each would take its turn.
    some: tl.constexpr = 2 if SPLITS > 2 else SPLITS
    for first in tl.static_range(0, SPLITS, some):
        slice = head * SPLITS + first + tl.arange(0, some)[None, :]
        share = tl.exp2(tl.load(peaks + slice) - top[:, None])
        values = tl.load(slices + slice[:, :, None] * 128 + at[None, None, :])
        mixed += tl.sum(share[:, :, None] * values, axis=1)
    mixed = tl.reshape(mixed / total[:, None], (2048,))
    for item in range(tl.program_id(0), 128, tl.num_programs(0)):
        row = item * 8 + tl.arange(0, 8)
        y = rows_times(weight_at(table, layer * 11 + 6), item * 8, mixed, 2048, 8)
        tl.store(rest + row, tl.load(s + layer * 1024 + row) + y)


@triton.jit
def expand(table, layer, rest, inner):
    """Phase 3: gate and up of the normed stream."""
    x = tl.load(rest + tl.arange(0, 1024))
    h = norm(x, weight_at(table, layer * 11 + 7), 1024)
    for item in tl.range(tl.program_id(0), 384, tl.num_programs(0), num_stages=3):
        gate = rows_times(weight_at(table, layer * 11 + 8), item * 8, h, 1024, 8)
        up = rows_times(weight_at(table, layer * 11 + 9), item * 8, h, 1024, 8)
        tl.store(inner + item * 8 + tl.arange(0, 8), gate / (1.0 + tl.exp(-gate)) * up)


@triton.jit
def contract(table, layer, s, rest, inner):
    """Phase 4: down, added to the stream and rounded: the layer's output."""
    weight = weight_at(table, layer * 11 + 10)
    k = tl.arange(0, 1024)
    for item in range(tl.program_id(0), 128, tl.num_programs(0)):
        row = item * 8 + tl.arange(0, 8)
        total = tl.zeros((8, 1024), dtype=tl.float32)
        for first in tl.static_range(0, 3072, 1024):
            w = tl.load(weight + row[:, None] * 3072 + first + k[None, :]).to(tl.float32)
            total += w * tl.load(inner + first + k)[None, :]
        tl.store(s + (layer + 1) * 1024 + row, rounded(tl.load(rest + row) + tl.sum(total, axis=1)))


@triton.jit
def decode_kernel(
    table,
    hidden,
    tokens,
    k_cache,
    v_cache,
    new_keys,
    new_values,
    out,
    s,
    counter,
    context,
    steps,
    layers,
    phase,
    FUSED: tl.constexpr,
    ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    TYPE: tl.constexpr,
):
    """All phases of all layers and steps in turn, or with FUSED off the one that is asked for."""
    raw = s + 32768
    rest = s + 36864
    inner = s + 37888
    slices = s + 40960
    outputs = s + layers * 1024
    rounds = steps * layers * 5
    first = 0 if FUSED else phase
    last = rounds + 1 if FUSED else phase + 1
    for now in range(first, last):
        step = now // (layers * 5)
        layer = now // 5 % layers
        part = now % 5
        if now == rounds:
            if tl.program_id(0) == 0:
                at = tl.arange(0, 1024)
                tl.store(out + at, tl.load(outputs + at).to(tl.bfloat16))
        elif part == 0:
            project(table, layer, step, hidden, tokens, s, outputs, raw)
        elif part == 1:
            attend(
                table,
                layer,
                step,
                steps,
                context,
                k_cache,
                v_cache,
                new_keys,
                new_values,
                raw,
                slices,
                ROWS,
                SPLITS,
                TYPE,
            )
        elif part == 2:
            merge_out(table, layer, s, slices, rest, SPLITS)
        elif part == 3:
            expand(table, layer, rest, inner)
        else:
            contract(table, layer, s, rest, inner)
        if FUSED:
            if now < rounds:
                if now + 1 < rounds:
                    after = now + 1
                    fetch_phase(table, after // 5 % layers, after % 5, k_cache, v_cache, context, ROWS, SPLITS)
                meet(counter, now + 1)
    if FUSED:
        # The last program to leave makes the counters ready for the next call.
        if tl.atomic_add(counter + 1, 1, sem="acq_rel", scope="gpu") == tl.num_programs(0) - 1:
            tl.store(counter, 0)
            tl.store(counter + 1, 0)


def weight(*sizes: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*sizes, dtype=torch.bfloat16))


class Block(nn.Module):
    """Weights of a layer, registered in the order of the table's slots."""

    def __init__(self) -> None:
        super().__init__()
        self.input_ln = weight(HIDDEN)
        self.q_proj = weight(HEADS * HEAD, HIDDEN)
        self.k_proj, self.v_proj = weight(KV_HEADS * HEAD, HIDDEN), weight(KV_HEADS * HEAD, HIDDEN)
        self.q_norm, self.k_norm = weight(HEAD), weight(HEAD)
        self.o_proj = weight(HIDDEN, HEADS * HEAD)
        self.post_ln = weight(HIDDEN)
        self.gate_proj, self.up_proj = weight(INNER, HIDDEN), weight(INNER, HIDDEN)
        self.down_proj = weight(HIDDEN, INNER)


class Model(nn.Module):
    """Holds the weights, the table of their addresses and the scratch memory."""

    def __init__(self, num_layers: int = 4, max_seq: int = 131072) -> None:
        super().__init__()
        if num_layers > 31:
            raise ValueError(f"num_layers is {num_layers}; need at most 31")
        self.num_layers, self.max_seq = num_layers, max_seq
        self.blocks = nn.ModuleList([Block() for _ in range(num_layers)])
        self.table, self.scratch, self.counter, self.programs = None, None, None, 0

    def _apply(self, *args, **options):
        """Forget the addresses when the weights move."""
        self.table = None
        return super()._apply(*args, **options)

    def prepare(self) -> None:
        """Write the table of addresses; make the scratch memory."""
        device = self.blocks[0].input_ln.device
        rows = [[parameter.data_ptr() for parameter in block.parameters()] for block in self.blocks]
        self.table = torch.tensor(rows, dtype=torch.int64).to(device)
        self.programs = INTERPRETED_PROGRAMS
        if device.type == "cuda":
            self.programs = torch.cuda.get_device_properties(device).multi_processor_count
        size = SLICES_AT + 16 * (self.programs // 8) * (HEAD + 2)
        self.scratch = torch.zeros(size, dtype=torch.float32, device=device)
        self.counter = torch.zeros(2, dtype=torch.int32, device=device)

    def forward(self, hidden: Tensor, tokens: Tensor, k_cache: Tensor, v_cache: Tensor) -> tuple[Tensor, ...]:
        if self.table is None:
            self.prepare()
        steps, context = tokens.shape[0], k_cache.shape[2]
        keys = k_cache.new_empty(*k_cache.shape[:2], steps, HEAD)
        values, out = torch.empty_like(keys), torch.empty_like(hidden)
        state = [tensor.contiguous() for tensor in (hidden, tokens, k_cache, v_cache)]
        arguments = (self.table, *state, keys, values, out, self.scratch, self.counter, context, steps, self.num_layers)
        sizes = {"ROWS": 128, "SPLITS": 1 << (self.programs // 8).bit_length() - 1, "num_warps": 8}
        if hidden.device.type == "cuda":
            decode_kernel[(self.programs,)](
                *arguments, 0, FUSED=True, TYPE=tl.bfloat16, launch_cooperative_grid=True, **sizes
            )
        else:
            for phase in range(steps * self.num_layers * 5 + 1):
                # Triton's interpreter multiplies bf16 as if it were an integer type.
                decode_kernel[(self.programs,)](*arguments, phase, FUSED=False, TYPE=tl.float32, **sizes)
        return out, keys, values
