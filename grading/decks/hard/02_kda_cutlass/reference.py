"""Reference of hard/02_kda_cutlass: Kimi Delta Attention forward, evaluated token by token.

Written from the specification. ``g`` holds raw per-token log decays. The grader assigns ``B``, ``T``, ``H``, ``K``,
``V`` and ``CHUNK_SIZE`` before it calls the functions below. The generator seeds itself, so all seeds see the same
tensors.
"""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

B, T, H, K, V, CHUNK_SIZE = 2, 1024, 8, 128, 128, 64
STRUCTURAL_SHAPE = 0
STRUCTURAL_TOLERANCE = (0.05, 0.05)
CANONICAL = {"split": 8, "key": 40, "query": 800, "value": 800, "decay": 3000, "beta": 80}
PARAMETERS = {
    "split": range(6, 9),
    "key": range(35, 51),
    "query": range(800, 1001),
    "value": range(800, 1001),
    "decay": range(2000, 4001),
    "beta": range(75, 86),
}


class Model(nn.Module):
    """The gated delta rule: decay the state per key channel, correct it towards v, read it with q."""

    def __init__(self, B: int, T: int, H: int, K: int, V: int, chunk_size: int = 64) -> None:
        super().__init__()
        self.register_buffer("_dummy", torch.zeros(1), persistent=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        query, key, value, rate = _by_token(q) * q.shape[-1] ** -0.5, _by_token(k), _by_token(v), _by_token(beta)
        decay, out = _by_token(g).exp(), torch.empty_like(value)
        state = torch.zeros(key.shape[1], q.shape[3], v.shape[3], device=q.device)
        columns = (decay[..., None], key[..., None], rate[:, :, None, None])
        rows = (key[:, :, None], value[:, :, None], query[:, :, None], out[:, :, None])
        for fade, written, share, asked, wanted, read, answer in zip(*map(Tensor.unbind, columns + rows), strict=True):
            state.mul_(fade)
            state.baddbmm_(written, share * (wanted - asked @ state))
            torch.bmm(read, state, out=answer)
        return out.unflatten(1, (q.shape[0], -1)).transpose(0, 1).to(v.dtype, memory_format=torch.contiguous_format)


def _by_token(tensor: Tensor) -> Tensor:
    """Return a tensor (B, T, H, ...) as fp32 (T, B*H, ...): a step then takes few launches, and no copy."""
    return tensor.float().transpose(0, 1).flatten(1, 2)


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments."""
    return [B, T, H, K, V, CHUNK_SIZE]


def get_inputs() -> list[Tensor]:
    """Draw q, k, v, g, beta from a seed of their own."""
    torch.manual_seed(0)
    q = torch.randn(B, T, H, K, dtype=torch.bfloat16) * 0.1
    k = torch.randn(B, T, H, K, dtype=torch.bfloat16) * 0.1
    v = torch.randn(B, T, H, V, dtype=torch.bfloat16) * 0.1
    g = torch.randn(B, T, H, K) * 0.1 - 0.05
    beta = torch.sigmoid(torch.randn(B, T, H, dtype=torch.bfloat16))
    return [q, k, v, g, beta]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield the fixed case and two drawn ones in which late outputs depend only on the early state."""
    yield "canonical", remembering_inputs(inputs, **CANONICAL)
    for number in range(2):
        drawn = {name: rng.choice(values) for name, values in PARAMETERS.items()}
        yield f"drawn_{number}", remembering_inputs(inputs, **drawn)


def remembering_inputs(
    inputs: list[Tensor], *, split: int, key: int, query: int, value: int, decay: int, beta: int
) -> list[Tensor]:
    """Return inputs that write to the state before the split and only read it after.

    split         chunks before the split, at most all but one
    key           magnitude of every key, in thousandths
    query, value  factors of q and v, in percent
    decay         decay per token, in millionths
    beta          delta rate, in percent
    """
    q, k, v, g, rate = inputs
    border = CHUNK_SIZE * min(split, q.shape[1] // CHUNK_SIZE - 1)
    token = torch.arange(q.shape[1], device=q.device)[:, None]
    channel = torch.arange(q.shape[3], device=q.device)[None, :]
    sign = 1 - 2 * ((token // CHUNK_SIZE + channel) % 2)
    keys = (sign * (key / 1000)).to(k.dtype)[None, :, None, :].expand_as(k).clone()
    keys[:, 0] *= 0.05
    queries, values = q * (query / 100), v * (value / 100)
    queries[:, :border] = 0
    values[:, border:] = 0
    return [queries, keys, values, torch.full_like(g, -decay / 1e6), torch.full_like(rate, beta / 100)]
