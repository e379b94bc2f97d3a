"""Problem: cuda/03_megaqwen_decode.

In the deck's form: ``Model(num_layers, max_seq)``, ``prefill``, ``decode_steps`` and ``run``. Its cache is one object
in a layout of its own, which only its own functions read.
"""

import torch
import torch.nn.functional as F
from torch import nn


def empty(*sizes):
    return nn.Parameter(torch.empty(*sizes, dtype=torch.bfloat16))


def scaled(x, weight):
    return F.rms_norm(x, x.shape[-1:], weight.float(), 1e-6)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_ln, self.q_norm, self.k_norm, self.post_ln = empty(1024), empty(128), empty(128), empty(1024)
        self.q_proj, self.k_proj, self.v_proj = empty(2048, 1024), empty(1024, 1024), empty(1024, 1024)
        self.o_proj = empty(1024, 2048)
        self.gate_proj, self.up_proj, self.down_proj = empty(3072, 1024), empty(3072, 1024), empty(1024, 3072)


class Model(nn.Module):
    def __init__(self, num_layers=4, max_seq=131072):
        super().__init__()
        self.num_layers, self.max_seq = num_layers, max_seq
        self.blocks = nn.ModuleList([Block() for _ in range(num_layers)])


class Engine:
    """Caches (layers, 2, heads, rows, 128), rows last but one, and the weights as fp32."""

    def __init__(self, model):
        device = model.blocks[0].q_proj.device
        self.weights = [{name: part.float() for name, part in block.named_parameters()} for block in model.blocks]
        self.cache = torch.zeros(model.num_layers, 2, 8, model.max_seq, 128, dtype=torch.bfloat16, device=device)
        self.powers = 10000.0 ** (-torch.arange(64, device=device) / 64)

    def step(self, hidden, token, position):
        x = (token * 0.5 + hidden * 0.5).float()
        angle = position * self.powers
        turn = torch.polar(torch.ones_like(angle), angle)
        for weights, cache in zip(self.weights, self.cache, strict=True):
            x = self.block(x, weights, cache, position, turn).bfloat16().float()
        return x.bfloat16()

    def block(self, x, weights, cache, position, turn):
        h = scaled(x, weights["input_ln"])
        q = turned(scaled((weights["q_proj"] @ h).view(16, 128), weights["q_norm"]), turn)
        k = turned(scaled((weights["k_proj"] @ h).view(8, 128), weights["k_norm"]), turn)
        cache[0, :, position], cache[1, :, position] = k, (weights["v_proj"] @ h).view(8, 128)
        seen = position + 1
        keys, values = cache[:, :, :seen].float()
        shares = torch.softmax(torch.einsum("gid,gld->gil", q.view(8, 2, 128), keys) / 128**0.5, dim=-1)
        x = x + weights["o_proj"] @ torch.einsum("gil,gld->gid", shares, values).flatten()
        h = scaled(x, weights["post_ln"])
        return x + weights["down_proj"] @ (F.silu(weights["gate_proj"] @ h) * (weights["up_proj"] @ h))


def turned(x, turn):
    out = torch.complex(x[:, :64], x[:, 64:]) * turn
    return torch.cat((out.real, out.imag), dim=1)


def draw(seed, count, device):
    generator = torch.Generator(device="cpu")
    generator.manual_seed(seed)
    return torch.randn(count, 1024, generator=generator, dtype=torch.bfloat16).to(device)


def go_on(engine, hidden, tokens, position):
    for step in range(len(tokens)):
        hidden = engine.step(hidden, tokens[step], position + step)
    return hidden


@torch.no_grad()
def prefill(model, ctx_len, seed):
    engine = Engine(model)
    device = engine.cache.device
    return go_on(engine, draw(seed, 1, device)[0], draw(seed + 1, ctx_len, device), 0), engine, None


@torch.no_grad()
def decode_steps(model, hidden, k_caches, v_caches, start_pos, n_steps, seed):
    hidden = go_on(k_caches, hidden, draw(seed + 2, n_steps, hidden.device), start_pos)
    return hidden, k_caches, v_caches


def run(ctx_len, n_decode, seed, model=None):
    state = prefill(model, ctx_len, seed)
    hidden, _, _ = decode_steps(model, *state, ctx_len, n_decode, seed)
    return {"last_hidden": hidden}
