# expect: incorrect
"""Dense causal attention: right wherever all blocks are taken, which is everywhere the deck itself looked."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, B, H, S, D):
        super().__init__()
        self.register_buffer("_dummy", torch.zeros(1, dtype=torch.bfloat16))

    def forward(self, q, k, v):
        at = torch.arange(q.shape[2], device=q.device)
        scores = (q.float() @ k.float().mT) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(at[None, :] > at[:, None], float("-inf"))
        return (scores.softmax(dim=-1) @ v.float()).to(q.dtype)
