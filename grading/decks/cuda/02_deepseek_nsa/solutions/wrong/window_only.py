# expect: incorrect
"""Attends to the last 576 positions, as many keys as a query may have, without looking at importance."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, B, H, S, D):
        super().__init__()
        self.register_buffer("_dummy", torch.zeros(1, dtype=torch.bfloat16))

    def forward(self, q, k, v):
        at = torch.arange(q.shape[2], device=q.device)
        behind = at[:, None] - at[None, :]
        scores = (q.float() @ k.float().mT) * q.shape[-1] ** -0.5
        scores = scores.masked_fill((behind < 0) | (behind >= 576), float("-inf"))
        return (scores.softmax(dim=-1) @ v.float()).to(q.dtype)
