# expect: incorrect
"""Starts every chunk of 64 tokens from an empty state. The nominal tolerance lets it pass; long memory does not."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, B, T, H, K, V, chunk_size=64):
        super().__init__()
        self.chunk = chunk_size

    def forward(self, q, k, v, g, beta):
        shape = q.shape
        q, k, v, g, beta = (t.unflatten(1, (-1, self.chunk)).flatten(0, 1).float() for t in (q, k, v, g, beta))
        state = q.new_zeros(*q.shape[:1], q.shape[2], q.shape[3], v.shape[3])
        outs = []
        for t in range(self.chunk):
            state = state * g[:, t].exp().unsqueeze(-1)
            new = beta[:, t].unsqueeze(-1) * (v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], state))
            state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], new)
            outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state) * shape[-1] ** -0.5)
        return torch.stack(outs, dim=1).reshape(*shape[:3], -1).to(torch.bfloat16)
