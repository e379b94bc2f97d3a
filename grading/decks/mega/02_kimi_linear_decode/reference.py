"""Reference of mega/02_kimi_linear_decode: one token through four layers with 4-bit weights.

Written from the specification. The grader assigns ``ctx`` before it calls the functions below (``steps`` is the length
of the deck's timed run, one step is graded); the model's sizes are module names too, so that small ones can be graded
on a processor. The state enters and leaves as plain tensors:

hidden        (hidden,) bf16
memory        (3, heads, 128, 128) fp32: S of the three linear-attention layers, [key, value]
windows       (3, 3, 3, heads * 128) bf16: per layer the last three raw projections of q, k, v, oldest first
latents       (ctx, kv_lora) bf16, rope_keys (ctx, qk_rope) bf16: the cache of the latent-attention layer
answer        output, new memory, new windows, the appended latent, the appended rope key

Through the deck's entry point (``ENTRY``) the answer holds the whole cache instead of the appended rows, as ``step``
hands it back.

Weights are drawn on the device from the current seed, since drawing them on the host takes minutes.
"""

import random
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ctx, steps = 2048, 32
hidden, heads, kv_lora, qk_nope, qk_rope, v_head = 2304, 32, 512, 128, 64, 128
n_experts, n_active, moe_inter = 64, 8, 1024
HEAD, GROUP, CONV, THETA, ROUTED_SCALING = 128, 128, 4, 10000.0, 2.446
LINEAR_LAYERS, LAYERS = 3, 4
UNSEEDED_WEIGHTS = True
LARGE_INPUTS = True
STRUCTURAL_SHAPE = 0
STRUCTURAL_TOLERANCE = (0.1, 0.1)
# Router logits are bf16 numbers of size 1 to 2: two that lie within a few of their steps may be ranked either way.
CLOSE = 0.06
_FAR_OFF = 0.012
# So near, no other choice has to be tried.
_FITS = 0.006
# No exchange of experts around the border changes a layer by that much.
_TOO_FAR = 0.7
_MOST_SWAPS = 3
Swap = tuple[int, int]


class Q4(nn.Module):
    """A 4-bit weight (inputs, outputs), or a stack of them."""

    def __init__(self, inputs: int, outputs: int, count: int = 0) -> None:
        super().__init__()
        made = [quantise(torch.randn(inputs, outputs) * 0.02) for _ in range(max(1, count))]
        for name, parts in zip(("w_q", "scales", "zeros"), zip(*made, strict=True), strict=True):
            self.register_buffer(name, torch.stack(parts) if count else parts[0])

    def weight(self, number: int | None = None) -> Tensor:
        """Return the dequantised bf16 weight as fp32."""
        packed, scales, zeros = self.w_q, self.scales, self.zeros
        if number is not None:
            packed, scales, zeros = packed[number], scales[number], zeros[number]
        levels = torch.stack((packed & 15, packed >> 4), dim=1).view(scales.shape[0], GROUP, -1)
        return ((levels.bfloat16() - zeros[:, None]) * scales[:, None]).flatten(0, 1).float()

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() @ self.weight()).bfloat16()


class Plain(nn.Module):
    """A bf16 product with a small (outputs, inputs) weight."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=torch.bfloat16).normal_(0.0, 0.02))

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() @ self.weight.float().T).bfloat16()


class Linear(nn.Module):
    """Kimi delta attention, one token."""

    def __init__(self) -> None:
        super().__init__()
        channels = heads * HEAD
        self.conv_w = nn.Parameter(torch.empty(3, channels, CONV, dtype=torch.bfloat16).normal_(0.0, 0.1))
        for name in ("q_proj", "k_proj", "v_proj", "g_proj"):
            setattr(self, name, Q4(hidden, channels))
        self.beta_proj = Plain(hidden, heads)
        self.o_proj = Q4(channels, hidden)

    def forward(self, x: Tensor, memory: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raw = self.project(x)
        window = torch.cat((windows, raw[:, None]), dim=1)
        mixed = F.silu((window.float() * self.conv_w.float().mT).sum(1)).bfloat16().float().view(3, heads, HEAD)
        q, k, v = mixed[0] * HEAD**-0.5, mixed[1], mixed[2]
        decay = torch.sigmoid(-self.g_proj(x).float()).view(heads, HEAD, 1)
        rate = torch.sigmoid(self.beta_proj(x).float())[:, None]
        kept = decay * memory
        delta = rate * (v - torch.einsum("hkv,hk->hv", kept, k))
        memory = kept + k[:, :, None] * delta[:, None, :]
        read = torch.einsum("hkv,hk->hv", memory, q)
        return self.o_proj(read.flatten().bfloat16()), memory, window[:, 1:]

    def project(self, x: Tensor) -> Tensor:
        """Return the raw projections of q, k and v (3, heads * 128)."""
        return torch.stack([self.q_proj(x), self.k_proj(x), self.v_proj(x)])


class Latent(nn.Module):
    """Multi-head attention over a shared latent cache, one token."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = Q4(hidden, heads * (qk_nope + qk_rope))
        self.kv_a = Q4(hidden, kv_lora + qk_rope)
        self.kv_b = Q4(kv_lora, heads * (qk_nope + v_head))
        self.o_proj = Q4(heads * v_head, hidden)

    def forward(self, x: Tensor, latents: Tensor, rope_keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        position = latents.shape[0]
        q_nope, q_rope = self.q_proj(x).view(heads, -1).split((qk_nope, qk_rope), dim=1)
        latent, key = self.kv_a(x).split((kv_lora, qk_rope))
        q_rope, key = rotate(q_rope, position), rotate(key, position)
        latents, rope_keys = torch.cat((latents, latent[None])), torch.cat((rope_keys, key[None]))
        expanded = self.kv_b(latents).view(position + 1, heads, -1).float()
        k_nope, v = expanded.split((qk_nope, v_head), dim=2)
        scores = torch.einsum("hd,lhd->hl", q_nope.float(), k_nope) + q_rope.float() @ rope_keys.float().T
        shares = (scores * (qk_nope + qk_rope) ** -0.5).softmax(dim=1)
        read = torch.einsum("hl,lhd->hd", shares, v)
        return self.o_proj(read.flatten().bfloat16()), latent, key


class Experts(nn.Module):
    """Eight of the routed experts and the shared one."""

    def __init__(self) -> None:
        super().__init__()
        self.router = Plain(hidden, n_experts)
        self.gate, self.up = Q4(hidden, moe_inter, n_experts), Q4(hidden, moe_inter, n_experts)
        self.down = Q4(moe_inter, hidden, n_experts)
        self.s_gate, self.s_up, self.s_down = (
            Q4(hidden, moe_inter, 1),
            Q4(hidden, moe_inter, 1),
            Q4(moe_inter, hidden, 1),
        )

    def forward(self, x: Tensor, swaps: Sequence[Swap] = ()) -> Tensor:
        logits = self.router(x).float()
        order = logits.sort(descending=True, stable=True).indices.tolist()
        for inside, outside in swaps:
            order[inside], order[outside] = order[outside], order[inside]
        chosen = order[:n_active]
        shares = logits.softmax(dim=0)[chosen]
        shares = shares / (shares.sum() + 1e-9) * ROUTED_SCALING
        total = swiglu(x, self.s_gate.weight(0), self.s_up.weight(0), self.s_down.weight(0))
        for share, number in zip(shares, chosen, strict=True):
            total = total + share * swiglu(
                x, self.gate.weight(number), self.up.weight(number), self.down.weight(number)
            )
        return total.bfloat16()

    def possible_swaps(self, x: Tensor) -> list[Swap]:
        """Return the exchanges of ranks around the border whose logits are close."""
        logits = self.router(x).float().sort(descending=True).values.tolist()
        inside = range(n_active - 1, max(-1, n_active - 1 - _MOST_SWAPS), -1)
        outside = range(n_active, min(n_experts, n_active + _MOST_SWAPS))
        return [(i, o) for i in inside for o in outside if logits[i] - logits[o] <= CLOSE]


class Block(nn.Module):
    """Attention and experts, each after a norm and added to the stream."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attn_norm = nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))
        self.moe_norm = nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))
        self.attn = attention
        self.moe = Experts()


class Model(nn.Module):
    """Three linear-attention blocks and one latent-attention block."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(Linear()) for _ in range(LINEAR_LAYERS)] + [Block(Latent())])

    def forward(
        self, token: Tensor, memory: Tensor, windows: Tensor, latents: Tensor, rope_keys: Tensor
    ) -> tuple[Tensor, ...]:
        Last.model = self
        return self.step(
            (token, memory, windows, latents, rope_keys), lambda layer, x, normed: x + self.blend(layer, normed)
        )

    def step(self, inputs: Sequence[Tensor], choose: Callable[[int, Tensor, Tensor], Tensor]) -> tuple[Tensor, ...]:
        """Return the answer; ``choose`` adds a layer's experts to its stream, given the stream and the normed one."""
        x, memory, windows, latents, rope_keys = inputs
        memories, new_windows = [], []
        for number, block in enumerate(self.blocks):
            normed = norm(x, block.attn_norm)
            if number < LINEAR_LAYERS:
                read, kept, window = block.attn(normed, memory[number], windows[number])
                memories.append(kept)
                new_windows.append(window)
            else:
                read, latent, key = block.attn(normed, latents, rope_keys)
            x = x + read
            x = choose(number, x, norm(x, block.moe_norm))
        return x, torch.stack(memories), torch.stack(new_windows), latent, key

    def blend(self, layer: int, normed: Tensor, swaps: Sequence[Swap] = ()) -> Tensor:
        """Return what a layer's experts add to the stream, after exchanges of ranks."""
        added: Tensor = self.blocks[layer].moe(normed, swaps)
        return added

    def shown(self, layer: int, x: Tensor) -> Tensor:
        """Return the first part of the answer that shows a layer's stream: what the next layer projects, or itself."""
        if layer + 1 == LAYERS:
            return x
        block = self.blocks[layer + 1]
        normed = norm(x, block.attn_norm)
        if layer + 1 == LINEAR_LAYERS:
            return block.attn.kv_a(normed)[:kv_lora]
        return block.attn.project(normed)


class WholeModel(Model):
    """The same step, with the whole cache in its answer."""

    def forward(
        self, token: Tensor, memory: Tensor, windows: Tensor, latents: Tensor, rope_keys: Tensor
    ) -> tuple[Tensor, ...]:
        *rest, latent, key = super().forward(token, memory, windows, latents, rope_keys)
        return (*rest, torch.cat((latents, latent[None])), torch.cat((rope_keys, key[None])))


class Last:
    """The model of the last call, for answers with other experts."""

    model: Model


def quantise(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return packed nibbles, scales and zero points of an (inputs, outputs) weight; even rows take the low nibble."""
    grouped = weight.view(-1, GROUP, weight.shape[1])
    low, high = grouped.amin(dim=1, keepdim=True), grouped.amax(dim=1, keepdim=True)
    scale = (high - low).clamp_min(1e-8) / 15
    zero = (-low / scale).round().clamp(0, 15)
    levels = (grouped / scale + zero).round().clamp(0, 15).to(torch.uint8).view(weight.shape)
    packed = levels[0::2] | (levels[1::2] << 4)
    return packed, scale.squeeze(1).bfloat16(), zero.squeeze(1).bfloat16()


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return the root-mean-square norm, rounded once."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean() + 1e-6) * weight.float()).bfloat16()


def rotate(x: Tensor, position: int) -> Tensor:
    """Return x with neighbouring pairs of its last dimension turned by the position's angles."""
    angle = position * THETA ** (-torch.arange(0, x.shape[-1], 2, device=x.device) / x.shape[-1])
    even, odd = x.float()[..., 0::2], x.float()[..., 1::2]
    turned = (even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin())
    return torch.stack(turned, dim=-1).flatten(-2).bfloat16()


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Return one expert's output in fp32."""
    wide = x.float()
    return (F.silu(wide @ gate) * (wide @ up)) @ down


def get_init_inputs() -> list[int]:
    """Return the model's sizes."""
    return [hidden, heads, kv_lora, qk_nope, qk_rope, v_head, n_experts, n_active, moe_inter]


def get_inputs() -> list[Tensor]:
    """Draw a token and a state."""
    channels = heads * HEAD

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, dtype=torch.bfloat16) * 0.1

    memory = torch.randn(LINEAR_LAYERS, heads, HEAD, HEAD) * 0.05
    windows = draw(LINEAR_LAYERS, 3, CONV - 1, channels)
    return [draw(hidden) * 2.5, memory, windows, draw(ctx, kv_lora), draw(ctx, qk_rope)]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield states that make one part of the attention as loud as the experts, which drown it otherwise."""
    token, memory, windows, latents, keys = inputs
    louder, sharper = latent_factors()
    yield "loud_memory", [token, memory * 100, windows, latents, keys]
    yield "loud_windows", [token, memory, windows * 40, latents, keys]
    yield "sharp_latents", [token, memory, windows, latents * louder, keys * sharper]


def camouflaged_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield nominal states in which one secret head, or one secret cached row, is loud."""
    token, memory, windows, latents, keys = inputs
    louder = memory.clone()
    for layer in range(LINEAR_LAYERS):
        louder[layer, rng.randrange(heads)] *= 400
    yield "one_loud_head", [token, louder, windows, latents, keys]
    rows = rng.sample(range(ctx), max(2, ctx // 64))
    latents, keys = latents.clone(), keys.clone()
    louder, sharper = latent_factors()
    latents[rows] *= louder
    keys[rows] *= sharper / 2
    yield "few_loud_rows", [token, memory, windows, latents, keys]


def latent_factors() -> tuple[float, float]:
    """Return what makes attention over the latents as loud as the stream, and its softmax sharp, at any sizes."""
    return 20 * (512 * 4096 / (kv_lora * heads * v_head)) ** 0.5, 60 * (2304 / hidden) ** 0.5


def compared_parts(
    inputs: list[Tensor], expected: tuple[Tensor, ...], actual: tuple[Tensor, ...]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield all parts, held against the choice of experts, among those that rounding allows, that fits best."""
    best, errors = expected, [distance(*(seen_of(answer, n) for answer in (expected, actual))) for n in range(LAYERS)]
    if _FAR_OFF < max(errors) < _TOO_FAR and all(part.isfinite().all() for part in actual):
        best = fit_choices(inputs, actual)
    pairs = [*zip(best, actual, strict=True)]
    pairs[1] = evened(*pairs[1])
    yield from (
        (name, *pair) for name, pair in zip(("out", "memory", "windows", "latent", "rope_key"), pairs, strict=True)
    )


def evened(memory: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
    """Return both memories with columns that are louder than their head's made as loud as it.

    An update is a key times a correction. Where one correction is large, the key's rounding is large in a whole column,
    also in rows that the key's other values leave small.
    """
    columns = memory.square().mean(dim=-2, keepdim=True)
    heads = columns.mean(dim=-1, keepdim=True).clamp_min(torch.finfo(memory.dtype).tiny)
    louder = (columns / heads).sqrt().clamp_min(1.0)
    return memory / louder, actual / louder


def fit_choices(inputs: list[Tensor], actual: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the answer whose layers, first to last, use the possible experts that lie nearest to an actual one."""
    model = Last.model

    def choose(layer: int, x: Tensor, normed: Tensor) -> Tensor:
        """Exchange ranks one pair after the other, for as long as that comes nearer."""
        wanted, swaps = seen_of(actual, layer), []
        possible = model.blocks[layer].moe.possible_swaps(normed)
        best = x + model.blend(layer, normed)
        error = distance(model.shown(layer, best), wanted)
        while possible and error > _FITS:
            tried = [(x + model.blend(layer, normed, [*swaps, swap]), swap) for swap in possible]
            errors = [distance(model.shown(layer, stream), wanted) for stream, _ in tried]
            least = min(errors)
            if least >= error:
                break
            (best, swap), error = tried[errors.index(least)], least
            swaps.append(swap)
            possible = [other for other in possible if not set(other) & set(swap)]
        return best

    return model.step(inputs, choose)


def seen_of(answer: tuple[Tensor, ...], layer: int) -> Tensor:
    """Return the part of an answer that `Model.shown` tells of a layer."""
    out, _, windows, latent, _ = answer
    return (windows[1][:, -1], windows[2][:, -1], latent, out)[layer]


def distance(one: Tensor, other: Tensor) -> float:
    """Return how far two tensors lie apart, as a share of the second one's size; without end where that is 0."""
    size = float(other.float().norm())
    return float((one.float() - other.float()).norm()) / size if size else float("inf")


def whole_parts(
    inputs: list[Tensor], expected: tuple[Tensor, ...], actual: tuple[Tensor, ...]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the parts of the plain answer, and the rows that the cache held before."""
    plain = [(*answer[:3], answer[3][-1], answer[4][-1]) for answer in (expected, actual)]
    yield from compared_parts(inputs, *plain)
    for name, place in (("latents", 3), ("rope_keys", 4)):
        yield name, inputs[place], actual[place][:-1]


ENTRY = {"Model": WholeModel, "compared_parts": whole_parts}
