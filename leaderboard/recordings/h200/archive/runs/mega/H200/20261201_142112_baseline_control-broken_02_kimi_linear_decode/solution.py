# expect: incorrect
"""Keeps all states right but never adds what attention read; the deck's cosine of the output is 0.9998."""

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEAD, GROUP, SCALING = 4, 128, 128, 2.446


class Q4(nn.Module):
    def __init__(self, inputs, outputs, count=0):
        super().__init__()
        lead = (count,) if count else ()
        self.register_buffer("w_q", torch.zeros(*lead, inputs // 2, outputs, dtype=torch.uint8))
        self.register_buffer("scales", torch.ones(*lead, inputs // GROUP, outputs, dtype=torch.bfloat16))
        self.register_buffer("zeros", torch.zeros(*lead, inputs // GROUP, outputs, dtype=torch.bfloat16))

    def forward(self, x):
        return x @ unpack(self.w_q, self.scales, self.zeros)

    def pick(self, chosen):
        return unpack(self.w_q[chosen], self.scales[chosen], self.zeros[chosen])


def unpack(packed, scales, zeros):
    levels = torch.stack((packed & 0xF, packed >> 4), dim=-2).flatten(-3, -2).to(torch.bfloat16)
    return (levels - zeros.repeat_interleave(GROUP, dim=-2)) * scales.repeat_interleave(GROUP, dim=-2)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16)


def norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean() + 1e-6) * weight.float()).to(x.dtype)


def rotate(x, position):
    half = torch.arange(0, x.shape[-1], 2, device=x.device, dtype=torch.float32)
    angle = position * 10000.0 ** (-half / x.shape[-1])
    e, o = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return (
        torch.stack((e * angle.cos() - o * angle.sin(), o * angle.cos() + e * angle.sin()), -1).flatten(-2).to(x.dtype)
    )


class Linear(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, channels = heads, heads * HEAD
        self.conv_w = nn.Parameter(torch.zeros(3, channels, 4, dtype=torch.bfloat16))
        self.q_proj, self.k_proj = Q4(hidden, channels), Q4(hidden, channels)
        self.v_proj, self.g_proj = Q4(hidden, channels), Q4(hidden, channels)
        self.beta_proj, self.o_proj = linear(hidden, heads), Q4(channels, hidden)

    def forward(self, x, memory, windows):
        q, window_q = self.mix(self.q_proj(x), windows[0], 0)
        k, window_k = self.mix(self.k_proj(x), windows[1], 1)
        v, window_v = self.mix(self.v_proj(x), windows[2], 2)
        decay = torch.exp(-F.softplus(self.g_proj(x).float())).view(self.heads, HEAD, 1)
        beta = torch.sigmoid(self.beta_proj(x).float())[:, None]
        memory = memory * decay
        new = beta * (v - torch.einsum("hkv,hk->hv", memory, k))
        memory = memory + torch.einsum("hk,hv->hkv", k, new)
        out = torch.einsum("hkv,hk->hv", memory, q * HEAD**-0.5)
        return self.o_proj(out.flatten().to(x.dtype)), memory, torch.stack((window_q, window_k, window_v))

    def mix(self, z, window, i):
        full = torch.cat((window, z[None]))
        out = F.silu((full.float() * self.conv_w[i].float().T).sum(0)).to(z.dtype)
        return out.float().view(self.heads, HEAD), full[1:]


class Latent(nn.Module):
    def __init__(self, hidden, heads, rank, nope, rope, width):
        super().__init__()
        self.heads, self.parts, self.width = heads, (nope, rope), width
        self.q_proj, self.kv_a = Q4(hidden, heads * (nope + rope)), Q4(hidden, rank + rope)
        self.kv_b, self.o_proj = Q4(rank, heads * (nope + width)), Q4(heads * width, hidden)

    def forward(self, x, latents, keys):
        nope, rope = self.parts
        position = latents.shape[0]
        q_nope, q_rope = self.q_proj(x).view(self.heads, -1).split((nope, rope), dim=1)
        latent, key = self.kv_a(x).split((latents.shape[1], rope))
        q_rope, key = rotate(q_rope, position), rotate(key, position)
        latents, keys = torch.cat((latents, latent[None])), torch.cat((keys, key[None]))
        k_nope, v = self.kv_b(latents).view(position + 1, self.heads, -1).split((nope, self.width), dim=2)
        scores = torch.einsum("hd,lhd->hl", q_nope, k_nope).float() + (q_rope @ keys.T).float()
        shares = (scores * (nope + rope) ** -0.5).softmax(dim=1).to(x.dtype)
        out = torch.einsum("hl,lhd->hd", shares, v)
        return self.o_proj(out.flatten()), latent, key


class Experts(nn.Module):
    def __init__(self, hidden, experts, active, inner):
        super().__init__()
        self.active, self.router = active, linear(hidden, experts)
        self.gate, self.up = Q4(hidden, inner, experts), Q4(hidden, inner, experts)
        self.down = Q4(inner, hidden, experts)
        self.s_gate, self.s_up, self.s_down = Q4(hidden, inner, 1), Q4(hidden, inner, 1), Q4(inner, hidden, 1)

    def forward(self, x):
        shares, chosen = torch.softmax(self.router(x).float(), dim=0).topk(self.active)
        shares = (shares / (shares.sum() + 1e-9) * SCALING).to(x.dtype)
        routed = self.ffn(x, self.gate.pick(chosen), self.up.pick(chosen), self.down.pick(chosen))
        shared = self.ffn(x, self.s_gate.pick([0]), self.s_up.pick([0]), self.s_down.pick([0]))
        return (shares[:, None] * routed).sum(0) + shared[0]

    def ffn(self, x, gate, up, down):
        inner = F.silu(torch.einsum("h,ehi->ei", x, gate)) * torch.einsum("h,ehi->ei", x, up)
        return torch.einsum("ei,eih->eh", inner, down)


class Block(nn.Module):
    def __init__(self, attention, hidden, experts, active, inner):
        super().__init__()
        self.attn_norm = nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))
        self.moe_norm = nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))
        self.attn, self.moe = attention, Experts(hidden, experts, active, inner)


class Model(nn.Module):
    def __init__(self, hidden, heads, rank, nope, rope, width, experts, active, inner):
        super().__init__()
        attention = [Linear(hidden, heads) for _ in range(LAYERS - 1)] + [
            Latent(hidden, heads, rank, nope, rope, width)
        ]
        self.blocks = nn.ModuleList([Block(part, hidden, experts, active, inner) for part in attention])

    def forward(self, token, memory, windows, latents, rope_keys):
        return self.step(token, memory, windows, latents, rope_keys)

    def step(self, x, memory, windows, latents, rope_keys):
        memories, kept = [], []
        for i, block in enumerate(self.blocks):
            inner = norm(x, block.attn_norm)
            if i < LAYERS - 1:
                _, state, window = block.attn(inner, memory[i], windows[i])
                memories.append(state)
                kept.append(window)
            else:
                _, latent, key = block.attn(inner, latents, rope_keys)
            x = x + block.moe(norm(x, block.moe_norm))
        return x, torch.stack(memories), torch.stack(kept), latent, key
