# expect: incorrect
"""Gives every expert the same number of rows and never reads the offsets. Right on the nominal inputs only."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, T_total, H, inner, E, K):
        super().__init__()
        self.W_gate = nn.Parameter(torch.empty(E, H, inner, dtype=torch.bfloat16))
        self.W_up = nn.Parameter(torch.empty(E, H, inner, dtype=torch.bfloat16))

    def forward(self, hidden_states, expert_offsets):
        x = hidden_states.unflatten(0, (self.W_gate.shape[0], -1))
        return (F.silu(x @ self.W_gate) * (x @ self.W_up)).flatten(0, 1)
