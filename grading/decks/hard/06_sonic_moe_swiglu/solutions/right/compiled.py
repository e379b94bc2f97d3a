"""Grouped products, silu and product under torch.compile with mode="reduce-overhead", one graph per shape.

The eager baseline's loop over experts depends on the offsets, which would mean one graph per offset pattern; so the
compiled baseline uses the grouped product.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, T_total, H, inner, E, K):
        super().__init__()
        for name in ("W_gate", "W_up"):
            self.register_parameter(name, nn.Parameter(torch.empty(E, H, inner, dtype=torch.bfloat16)))
        self.compiled = torch.compile(self.gated, mode="reduce-overhead", dynamic=False)

    def gated(self, hidden, offsets):
        gate = torch._grouped_mm(hidden, self.W_gate, offs=offsets[1:])
        return F.silu(gate) * torch._grouped_mm(hidden, self.W_up, offs=offsets[1:])

    def forward(self, hidden_states, expert_offsets):
        return self.compiled(hidden_states, expert_offsets)
