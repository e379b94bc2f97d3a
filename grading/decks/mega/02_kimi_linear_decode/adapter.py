"""Calls a submission to mega/02_kimi_linear_decode through ``Model(cfg)`` and ``step``, each time on a fresh state."""

from dataclasses import dataclass

import solution
import torch
from torch import Tensor

from grading.worker.adapted import Adapted

_WINDOWS = ("cq", "ck", "cv")


@dataclass(frozen=True)
class Config:
    """The deck's sizes, under the deck's names."""

    hidden: int
    kda_heads: int
    mla_heads: int
    kv_lora: int
    qk_nope: int
    qk_rope: int
    v_head: int
    n_experts: int
    n_active: int
    moe_inter: int
    kda_head_dim: int = 128
    short_conv: int = 4
    rope_theta: float = 10000.0
    n_shared: int = 1
    routed_scaling: float = 2.446
    group: int = 128
    pattern: tuple[str, ...] = ("K", "K", "K", "M")
    dtype: torch.dtype = torch.bfloat16


class Model(Adapted):
    """One step; the state's tensors are copies, since a submission may change them in place."""

    def __init__(self, hidden: int, heads: int, *sizes: int) -> None:
        config = Config(hidden, heads, heads, *sizes)
        super().__init__(lambda: solution.Model(config))

    def forward(
        self, token: Tensor, memory: Tensor, windows: Tensor, latents: Tensor, rope_keys: Tensor
    ) -> tuple[Tensor, ...]:
        state = [
            {"S": kept.clone()} | dict(zip(_WINDOWS, window.clone(), strict=True))
            for kept, window in zip(memory, windows, strict=True)
        ]
        state.append({"c_kv": latents.clone(), "k_rope": rope_keys.clone()})
        out, state = self.inner.step(token.clone(), state)
        *linear, last = state
        kept = torch.stack([layer["S"] for layer in linear])
        shifted = torch.stack([torch.stack([layer[name] for name in _WINDOWS]) for layer in linear])
        return out, kept, shifted, last["c_kv"], last["k_rope"]
