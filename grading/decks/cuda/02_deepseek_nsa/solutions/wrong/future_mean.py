# expect: incorrect
"""Ranks the current block by all of its keys, also those after the query: the future leaks into the choice."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, B, H, S, D):
        super().__init__()
        self.register_buffer("_dummy", torch.zeros(1, dtype=torch.bfloat16))

    def forward(self, q, k, v):
        heads = [self.head(*(t.flatten(0, 1)[i].float() for t in (q, k, v))) for i in range(q.shape[0] * q.shape[1])]
        return torch.stack(heads).view(q.shape).to(q.dtype)

    def head(self, q, k, v):
        S, D = q.shape
        blocks = (S + 63) // 64
        at = torch.arange(S, device=q.device)
        scores = (q @ k.T) * D**-0.5
        causal = at[None, :] <= at[:, None]
        sums = torch.zeros(S, blocks, device=q.device).index_add_(1, at // 64, scores)
        starts = torch.arange(blocks, device=q.device) * 64
        counts = (S - starts).clamp(1, 64)
        ranks = (sums / counts).masked_fill(starts > at[:, None], -1e9)
        # A stable sort of the reversed blocks puts the later one first among equals.
        best = blocks - 1 - ranks.flip(1).argsort(dim=1, descending=True, stable=True)[:, :8]
        chosen = torch.zeros(S, blocks, dtype=torch.bool, device=q.device).scatter_(1, best, True)
        seen = causal & (chosen[:, at // 64] | (at[:, None] - at[None, :] < 64))
        return scores.masked_fill(~seen, float("-inf")).softmax(dim=1) @ v
