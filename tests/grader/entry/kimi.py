"""Problem: mega/02_kimi_linear_decode.

In the deck's form: ``Model(cfg)`` and ``step(hidden, state)``. Weights are unpacked once, as a deck's model is loaded
once. The latent cache is kept in a buffer of the model's own that grows; a state is taken over unless its cache is the
very view that the step before handed out.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Q4(nn.Module):
    def __init__(self, cfg, inputs, outputs, *lead):
        super().__init__()
        groups = inputs // cfg.group
        self.register_buffer("w_q", torch.zeros(*lead, inputs // 2, outputs, dtype=torch.uint8))
        self.register_buffer("scales", torch.ones(*lead, groups, outputs, dtype=cfg.dtype))
        self.register_buffer("zeros", torch.zeros(*lead, groups, outputs, dtype=cfg.dtype))
        self.unpacked = {}

    def unpack(self, *place):
        packed, scales, zeros = (part[place] for part in (self.w_q, self.scales, self.zeros))
        levels = torch.stack((packed & 15, packed >> 4), 1).view(scales.shape[0], -1, scales.shape[1]).to(scales.dtype)
        return ((levels - zeros.unsqueeze(1)) * scales.unsqueeze(1)).flatten(0, 1).float()

    def forward(self, x, *place):
        if place not in self.unpacked:
            self.unpacked[place] = self.unpack(*place)
        return x.float() @ self.unpacked[place]


class Rows(nn.Module):
    def __init__(self, cfg, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, cfg.hidden, dtype=cfg.dtype))

    def forward(self, x):
        return (self.weight.float() @ x.float()).to(x.dtype).float()


class Delta(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads, width = cfg.kda_heads, cfg.kda_heads * cfg.kda_head_dim
        self.conv_w = nn.Parameter(torch.zeros(3, width, cfg.short_conv, dtype=cfg.dtype))
        for name in ("q_proj", "k_proj", "v_proj", "g_proj"):
            setattr(self, name, Q4(cfg, cfg.hidden, width))
        self.beta_proj, self.o_proj = Rows(cfg, cfg.kda_heads), Q4(cfg, width, cfg.hidden)

    def forward(self, x, state):
        mixed = []
        for i, (name, proj) in enumerate((("cq", self.q_proj), ("ck", self.k_proj), ("cv", self.v_proj))):
            window = torch.cat((state[name], proj(x).to(x.dtype)[None]))
            out = F.silu((window.float().T * self.conv_w[i].float()).sum(1)).to(x.dtype)
            mixed.append(out.float().view(self.heads, -1))
            state[name] = window[1:]
        q, k, v = mixed
        decay = torch.exp(-F.softplus(self.g_proj(x).to(x.dtype).float())).view_as(k)
        beta = torch.sigmoid(self.beta_proj(x))
        kept = state["S"].mul_(decay[:, :, None])
        kept += k[:, :, None] * (beta[:, None] * (v - torch.einsum("hkv,hk->hv", kept, k)))[:, None]
        out = torch.einsum("hkv,hk->hv", kept, q) * q.shape[1] ** -0.5
        return self.o_proj(out.flatten().to(x.dtype)).to(x.dtype)


class Latent(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg, heads = cfg, cfg.mla_heads
        self.q_proj = Q4(cfg, cfg.hidden, heads * (cfg.qk_nope + cfg.qk_rope))
        self.kv_a = Q4(cfg, cfg.hidden, cfg.kv_lora + cfg.qk_rope)
        self.kv_b = Q4(cfg, cfg.kv_lora, heads * (cfg.qk_nope + cfg.v_head))
        self.o_proj = Q4(cfg, heads * cfg.v_head, cfg.hidden)
        self.room, self.handed = None, None

    def adopt(self, state):
        """Return how many rows the private buffer holds of this state, copied into it unless they are there."""
        given, length = (state["c_kv"], state["k_rope"]), state["c_kv"].shape[0]
        is_own = self.handed is not None and all(a is b for a, b in zip(given, self.handed, strict=True))
        if self.room is None or self.room[0].shape[0] <= length:
            self.room = [part.new_empty(2 * length + 64, part.shape[1]) for part in given]
            is_own = False
        if not is_own:
            for room, part in zip(self.room, given, strict=True):
                room[:length] = part
        return length

    def forward(self, x, state):
        cfg, position = self.cfg, self.adopt(state)
        q = self.q_proj(x).to(x.dtype).view(cfg.mla_heads, -1)
        row = self.kv_a(x).to(x.dtype)
        self.room[0][position] = row[: cfg.kv_lora]
        self.room[1][position] = turned(row[cfg.kv_lora :], position, cfg)
        self.handed = [room[: position + 1] for room in self.room]
        state["c_kv"], state["k_rope"] = self.handed
        both = self.kv_b(self.handed[0]).to(x.dtype).float().view(position + 1, cfg.mla_heads, -1)
        q_rope = turned(q[:, cfg.qk_nope :], position, cfg).float()
        scores = torch.einsum("hd,lhd->hl", q[:, : cfg.qk_nope].float(), both[..., : cfg.qk_nope])
        scores = (scores + q_rope @ self.handed[1].float().T) * (cfg.qk_nope + cfg.qk_rope) ** -0.5
        out = torch.einsum("hl,lhd->hd", scores.softmax(1), both[..., cfg.qk_nope :])
        return self.o_proj(out.flatten().to(x.dtype)).to(x.dtype)


class Experts(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg, self.router = cfg, Rows(cfg, cfg.n_experts)
        sizes = {"gate": (cfg.hidden, cfg.moe_inter), "up": (cfg.hidden, cfg.moe_inter)}
        for name, size in (sizes | {"down": (cfg.moe_inter, cfg.hidden)}).items():
            setattr(self, name, Q4(cfg, *size, cfg.n_experts))
            setattr(self, f"s_{name}", Q4(cfg, *size, cfg.n_shared))

    def forward(self, x):
        shares, chosen = self.router(x).softmax(0).topk(self.cfg.n_active)
        shares = shares / (shares.sum() + 1e-9) * self.cfg.routed_scaling
        total = self.s_down(F.silu(self.s_gate(x, 0)) * self.s_up(x, 0), 0)
        for share, expert in zip(shares, chosen.tolist(), strict=True):
            total = total + share * self.down(F.silu(self.gate(x, expert)) * self.up(x, expert), expert)
        return total.to(x.dtype)


class Block(nn.Module):
    def __init__(self, cfg, kind):
        super().__init__()
        self.attn_norm = nn.Parameter(torch.ones(cfg.hidden, dtype=cfg.dtype))
        self.moe_norm = nn.Parameter(torch.ones(cfg.hidden, dtype=cfg.dtype))
        self.attn, self.moe = Delta(cfg) if kind == "K" else Latent(cfg), Experts(cfg)


def turned(x, position, cfg):
    angle = position * cfg.rope_theta ** (-torch.arange(0, x.shape[-1], 2, device=x.device) / x.shape[-1])
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    out = (even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin())
    return torch.stack(out, -1).flatten(-2).to(x.dtype)


def scaled(x, weight):
    return F.rms_norm(x.float(), x.shape, weight.float(), 1e-6).to(x.dtype)


class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.blocks = nn.ModuleList([Block(cfg, kind) for kind in cfg.pattern])

    @torch.no_grad()
    def step(self, hidden, state):
        for block, part in zip(self.blocks, state, strict=True):
            hidden = hidden + block.attn(scaled(hidden, block.attn_norm), part)
            hidden = hidden + block.moe(scaled(hidden, block.moe_norm))
        return hidden, state
