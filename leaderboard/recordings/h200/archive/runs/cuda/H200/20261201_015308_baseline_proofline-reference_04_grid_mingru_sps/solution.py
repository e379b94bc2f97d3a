# baseline: uses calls that the deck forbids to submissions
"""A MinGRU policy and its grid world, all steps of all games in one launch (cuda/04_grid_mingru_sps).

Formula.   h = obs We^T + be; per layer (zh, zg, zp) = h Wl^T, out = st + s(zg)(tanh(zh) - st), h = s(zp) out + (1 - s(zp)) h with
           s the sigmoid; logits = h Wa^T + ba; the first largest logit moves the agent; food that is met is drawn anew.
Bytes.     36 per game are returned; the states, 3 KB a game, are read and written in every step (200 MB for 65536 games).
Floors.    H200, 1,183,744 operations a game and step: in three bf16 passes, fp32-like, 0.47, 1.88, 3.76, 1.88 ms at
           (4096, 32), (16384, 32), (65536, 16), (8192, 64); bytes of the states 0.17, 0.67, 1.34, 0.67 ms.
Method.    Weights are split into high and low bf16 parts by a small kernel in every call; a product is high x high + high x low +
           low x high in fp32. One persistent program per multiprocessor takes a tile of games through a step: three layers,
           heads, move. A layer's input lies in memory (L2 cache) as its two parts. All programs meet once a step, since one
           hit anywhere advances every generator.
Limits.    Width 256, three layers, four actions. All programs must fit on the device at once (cooperative launch).
Fallback.  The interpreter runs programs one after the other, so there each step is a launch of its own.

Notes: docs/kernels/mingru_rollout.md.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

WIDTH = 256
INTERPRETED_PROGRAMS = 2
# Of a tile. With 64 or 128, where products go through wgmma, an H200 gave answers that differed from call to call.
ROWS = 32


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    """By exp, whose error of 3e-7 is too much where the result is small; there by its series, to 5e-8 of the result."""
    square = x * x
    series = x * (1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835)))))
    return tl.where(square < 0.09, series, 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0))


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
def split_kernel(weight, high, low, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(weight + at, mask=at < size, other=0.0)
    first = x.to(high.dtype.element_ty)
    tl.store(high + at, first, mask=at < size)
    tl.store(low + at, (x - first.to(tl.float32)).to(low.dtype.element_ty), mask=at < size)


@triton.jit
def put_parts(high, low, at, x, inside):
    first = x.to(high.dtype.element_ty)
    tl.store(high + at, first, mask=inside)
    tl.store(low + at, (x - first.to(tl.float32)).to(low.dtype.element_ty), mask=inside)


@triton.jit
def encode(o0, o1, o2, o3, w_enc, b_enc, column):
    """Return columns of the encoded observation, which is given as four columns."""
    h = o0[:, None] * tl.load(w_enc + column * 4)[None, :] + o1[:, None] * tl.load(w_enc + column * 4 + 1)[None, :]
    h += o2[:, None] * tl.load(w_enc + column * 4 + 2)[None, :] + o3[:, None] * tl.load(w_enc + column * 4 + 3)[None, :]
    return h + tl.load(b_enc + column)[None, :]


@triton.jit
def triple_product(h_high, h_low, w_high, w_low, total, FULL: tl.constexpr):
    """Add h @ w.T in three passes; with FULL, where numbers are fp32 anyway, one is enough."""
    total = tl.dot(h_high, tl.trans(w_high), total, input_precision="ieee")
    if not FULL:
        total = tl.dot(h_high, tl.trans(w_low), total)
        total = tl.dot(h_low, tl.trans(w_high), total)
    return total


@triton.jit
def layer_columns(
    in_high, in_low, w_high, w_low, row_at, first, K: tl.constexpr, COLUMNS: tl.constexpr, FULL: tl.constexpr
):
    """Return zh, zg and zp of some columns for the rows at row_at."""
    zh = tl.zeros((row_at.shape[0], COLUMNS), dtype=tl.float32)
    zg = tl.zeros((row_at.shape[0], COLUMNS), dtype=tl.float32)
    zp = tl.zeros((row_at.shape[0], COLUMNS), dtype=tl.float32)
    for start in range(0, 256, K):
        k = start + tl.arange(0, K)
        h_high = tl.load(in_high + row_at[:, None] + k[None, :])
        h_low = tl.load(in_low + row_at[:, None] + k[None, :])
        w_at = (first + tl.arange(0, COLUMNS))[:, None] * 256 + k[None, :]
        zh = triple_product(h_high, h_low, tl.load(w_high + w_at), tl.load(w_low + w_at), zh, FULL)
        w_at += 65536
        zg = triple_product(h_high, h_low, tl.load(w_high + w_at), tl.load(w_low + w_at), zg, FULL)
        w_at += 65536
        zp = triple_product(h_high, h_low, tl.load(w_high + w_at), tl.load(w_low + w_at), zp, FULL)
    return zh, zg, zp


@triton.jit
def think(
    o0, o1, o2, o3, row, rows, old, new, h, w_enc, b_enc, w_high, w_low, w_a, b_a, w_v, b_v,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr, FULL: tl.constexpr, FRESH: tl.constexpr,
):  # fmt: skip
    """Take a tile of observations through the policy; return four logits and the value per row.

    old, new  states (rows, 3, 256) fp32; with FRESH the old ones are zero and not read
    h         four buffers (rows, 256): high and low parts, of even and of odd layers
    """
    inside = (row < rows)[:, None]
    high0, low0, high1, low1 = h
    row_at = tl.where(row < rows, row, 0).to(tl.int64) * 256
    for first in range(0, 256, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        x = encode(o0, o1, o2, o3, w_enc, b_enc, column)
        put_parts(high0, low0, row_at[:, None] + column[None, :], x, inside)
    tl.debug_barrier()
    l0 = tl.zeros((ROWS,), dtype=tl.float32) + tl.load(b_a)
    l1 = tl.zeros((ROWS,), dtype=tl.float32) + tl.load(b_a + 1)
    l2 = tl.zeros((ROWS,), dtype=tl.float32) + tl.load(b_a + 2)
    l3 = tl.zeros((ROWS,), dtype=tl.float32) + tl.load(b_a + 3)
    value = tl.zeros((ROWS,), dtype=tl.float32) + tl.load(b_v)
    for layer in range(3):
        in_high, in_low, out_high, out_low = high0, low0, high1, low1
        if layer == 1:
            in_high, in_low, out_high, out_low = high1, low1, high0, low0
        for first in range(0, 256, COLUMNS):
            column = first + tl.arange(0, COLUMNS)
            zh, zg, zp = layer_columns(
                in_high, in_low, w_high + layer * 196608, w_low + layer * 196608, row_at, first, K, COLUMNS, FULL
            )
            at = row_at[:, None] + column[None, :]
            state_at = at + (row_at * 2 + layer * 256)[:, None]
            before = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
            if not FRESH:
                before = tl.load(old + state_at, mask=inside, other=0.0)
            out = before + sigmoid(zg) * (tanh(zh) - before)
            tl.store(new + state_at, out, mask=inside)
            x = tl.load(in_high + at).to(tl.float32) + tl.load(in_low + at).to(tl.float32)
            share = sigmoid(zp)
            x = share * out + (1.0 - share) * x
            if layer < 2:
                put_parts(out_high, out_low, at, x, inside)
            else:
                l0 += tl.sum(x * tl.load(w_a + column)[None, :], axis=1)
                l1 += tl.sum(x * tl.load(w_a + 256 + column)[None, :], axis=1)
                l2 += tl.sum(x * tl.load(w_a + 512 + column)[None, :], axis=1)
                l3 += tl.sum(x * tl.load(w_a + 768 + column)[None, :], axis=1)
                value += tl.sum(x * tl.load(w_v + column)[None, :], axis=1)
        tl.debug_barrier()
    return l0, l1, l2, l3, value


@triton.jit
def policy_kernel(
    obs, state, logits, new_state, values, high0, low0, high1, low1, w_enc, b_enc, w_high, w_low, w_a, b_a, w_v, b_v, rows,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    o0 = tl.load(obs + row * 4, mask=inside, other=0.0)
    o1 = tl.load(obs + row * 4 + 1, mask=inside, other=0.0)
    o2 = tl.load(obs + row * 4 + 2, mask=inside, other=0.0)
    o3 = tl.load(obs + row * 4 + 3, mask=inside, other=0.0)
    l0, l1, l2, l3, value = think(
        o0, o1, o2, o3, row, rows, state, new_state, (high0, low0, high1, low1),
        w_enc, b_enc, w_high, w_low, w_a, b_a, w_v, b_v, ROWS, COLUMNS, K, FULL, False,
    )  # fmt: skip
    tl.store(logits + row * 4, l0, mask=inside)
    tl.store(logits + row * 4 + 1, l1, mask=inside)
    tl.store(logits + row * 4 + 2, l2, mask=inside)
    tl.store(logits + row * 4 + 3, l3, mask=inside)
    tl.store(values + row, value, mask=inside)


@triton.jit
def advance(rng):
    return (rng * 6364136223846793005 + 1) & 0x7FFFFFFFFFFFFFFF


@triton.jit
def play_tile(
    step, tile, agent, food, rng, place, memory, rewards, positions, logits, met, flags, h,
    w_enc, b_enc, w_high, w_low, w_a, b_a, w_v, b_v, games, steps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """One step of a tile of games.

    place  (games, 6) fp32: agent, food, reward so far, whether the last step met food
    met    (games,) int64, the games' generators as they go on
    """
    row = tile * ROWS + tl.arange(0, ROWS)
    inside = row < games
    at = place + row * 6
    if step == 0:
        ax = tl.load(agent + row * 2, mask=inside, other=0.0)
        ay = tl.load(agent + row * 2 + 1, mask=inside, other=0.0)
        fx = tl.load(food + row * 2, mask=inside, other=0.0)
        fy = tl.load(food + row * 2 + 1, mask=inside, other=0.0)
        gain = tl.zeros((ROWS,), dtype=tl.float32)
        tl.store(met + row, tl.load(rng + row, mask=inside, other=0), mask=inside)
    else:
        ax = tl.load(at, mask=inside, other=0.0)
        ay = tl.load(at + 1, mask=inside, other=0.0)
        fx = tl.load(at + 2, mask=inside, other=0.0)
        fy = tl.load(at + 3, mask=inside, other=0.0)
        gain = tl.load(at + 4, mask=inside, other=0.0)
        if tl.load(flags + step - 1) != 0:
            first = advance(tl.load(met + row, mask=inside, other=0))
            second = advance(first)
            tl.store(met + row, second, mask=inside)
            is_met = tl.load(at + 5, mask=inside, other=0.0) != 0.0
            fx = tl.where(is_met, (first % 11).to(tl.float32), fx)
            fy = tl.where(is_met, (second % 11).to(tl.float32), fy)
    o0 = (fx - ax) / 11.0
    o1 = (fy - ay) / 11.0
    if step == 0:
        l0, l1, l2, l3, _ = think(
            o0, o1, ax / 10.0, ay / 10.0, row, games, memory, memory, h,
            w_enc, b_enc, w_high, w_low, w_a, b_a, w_v, b_v, ROWS, COLUMNS, K, FULL, True,
        )  # fmt: skip
    else:
        l0, l1, l2, l3, _ = think(
            o0, o1, ax / 10.0, ay / 10.0, row, games, memory, memory, h,
            w_enc, b_enc, w_high, w_low, w_a, b_a, w_v, b_v, ROWS, COLUMNS, K, FULL, False,
        )  # fmt: skip
    # The first of equal logits moves.
    is_0 = (l0 >= l1) & (l0 >= l2) & (l0 >= l3)
    is_1 = (l1 > l0) & (l1 >= l2) & (l1 >= l3)
    is_2 = (l2 > l0) & (l2 > l1) & (l2 >= l3)
    is_3 = (l3 > l0) & (l3 > l1) & (l3 > l2)
    ax = ax - is_2.to(tl.float32) + is_3.to(tl.float32)
    ay = ay - is_0.to(tl.float32) + is_1.to(tl.float32)
    ax = tl.minimum(tl.maximum(ax, 0.0), 10.0)
    ay = tl.minimum(tl.maximum(ay, 0.0), 10.0)
    hit = (ax == fx) & (ay == fy) & inside
    gain += hit.to(tl.float32)
    if tl.max(hit.to(tl.int32), axis=0) != 0:
        tl.atomic_max(flags + step, 1)
    tl.store(at, ax, mask=inside)
    tl.store(at + 1, ay, mask=inside)
    tl.store(at + 2, fx, mask=inside)
    tl.store(at + 3, fy, mask=inside)
    tl.store(at + 4, gain, mask=inside)
    tl.store(at + 5, hit.to(tl.float32), mask=inside)
    if step == steps - 1:
        tl.store(rewards + row, gain, mask=inside)
        tl.store(positions + row * 2, ax.to(tl.int64), mask=inside)
        tl.store(positions + row * 2 + 1, ay.to(tl.int64), mask=inside)
        tl.store(logits + row * 4, l0, mask=inside)
        tl.store(logits + row * 4 + 1, l1, mask=inside)
        tl.store(logits + row * 4 + 2, l2, mask=inside)
        tl.store(logits + row * 4 + 3, l3, mask=inside)


@triton.jit
def rollout_kernel(
    agent, food, rng, place, memory, rewards, positions, logits, met, flags, counter, high0, low0, high1, low1,
    w_enc, b_enc, w_high, w_low, w_a, b_a, w_v, b_v, games, steps, step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr, FULL: tl.constexpr, FUSED: tl.constexpr,
):  # fmt: skip
    """All steps in turn, or with FUSED off the one that is asked for. ``flags`` start at zero."""
    first = 0 if FUSED else step
    last = steps if FUSED else step + 1
    for now in range(first, last):
        for tile in range(tl.program_id(0), (games + ROWS - 1) // ROWS, tl.num_programs(0)):
            play_tile(
                now, tile, agent, food, rng, place, memory, rewards, positions, logits, met, flags,
                (high0, low0, high1, low1), w_enc, b_enc, w_high, w_low, w_a, b_a, w_v, b_v, games, steps,
                ROWS, COLUMNS, K, FULL,
            )  # fmt: skip
        if FUSED:
            meet(counter, now + 1)


class Model(nn.Module):
    """Split the weights, ask the policy, play."""

    def __init__(self, horizon: int) -> None:
        super().__init__()
        self.horizon = horizon
        for name, sizes in (
            ("w_enc", (WIDTH, 4)),
            ("b_enc", (WIDTH,)),
            ("w_gru", (3, 3 * WIDTH, WIDTH)),
            ("w_a", (4, WIDTH)),
            ("b_a", (4,)),
            ("w_v", (1, WIDTH)),
            ("b_v", (1,)),
        ):
            self.register_parameter(name, nn.Parameter(torch.zeros(sizes)))

    def forward(self, obs: Tensor, state: Tensor, agent: Tensor, food: Tensor, rng: Tensor) -> tuple[Tensor, ...]:
        inputs = [tensor.contiguous() for tensor in (obs, state, agent, food, rng)]
        is_host = obs.device.type == "cpu"
        kind = torch.float32 if is_host else torch.bfloat16
        parts = torch.empty(2, *self.w_gru.shape, dtype=kind, device=obs.device)
        size = self.w_gru.numel()
        split_kernel[(triton.cdiv(size, 1024),)](self.w_gru.data, parts[0], parts[1], size, 1024)
        weights = [self.w_enc.data, self.b_enc.data, *parts, self.w_a.data, self.b_a.data, self.w_v.data, self.b_v.data]
        return (*ask(inputs[0], inputs[1], weights, kind), *play(inputs[2:], self.horizon, weights, kind))


def ask(obs: Tensor, state: Tensor, weights: list[Tensor], kind: torch.dtype) -> tuple[Tensor, ...]:
    """Return logits, new state and value of the policy alone."""
    rows = obs.shape[0]
    logits, values, new = obs.new_empty(rows, 4), obs.new_empty(rows), torch.empty_like(state)
    buffers = torch.empty(4, rows, WIDTH, dtype=kind, device=obs.device)
    policy_kernel[(triton.cdiv(rows, 16),)](
        obs, state, logits, new, values, *buffers, *weights, rows, 16, 64, 64, kind == torch.float32, num_warps=4
    )
    return logits, new, values


def play(starts: list[Tensor], horizon: int, weights: list[Tensor], kind: torch.dtype) -> tuple[Tensor, ...]:
    """Return rewards, positions and last logits of all games."""
    agent, _, rng = starts
    games, device = agent.shape[0], agent.device
    place, met = agent.new_empty(games, 6), torch.empty_like(rng)
    memory = agent.new_empty(games, 3, WIDTH)
    rewards, logits = agent.new_empty(games), agent.new_empty(games, 4)
    positions = torch.empty(games, 2, dtype=torch.int64, device=device)
    flags = torch.zeros(horizon + 1, dtype=torch.int32, device=device)
    buffers = torch.empty(4, games, WIDTH, dtype=kind, device=device)
    arguments = (*starts, place, memory, rewards, positions, logits, met, flags, flags[horizon:], *buffers, *weights)
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        rollout_kernel[(min(processors, triton.cdiv(games, ROWS)),)](
            *arguments, games, horizon, 0, ROWS, 64, 64, False, True, num_warps=4, num_stages=2,
            launch_cooperative_grid=True,
        )  # fmt: skip
    else:
        for step in range(horizon):
            rollout_kernel[(INTERPRETED_PROGRAMS,)](*arguments, games, horizon, step, 64, 64, 64, True, False)
    return rewards, positions, logits
