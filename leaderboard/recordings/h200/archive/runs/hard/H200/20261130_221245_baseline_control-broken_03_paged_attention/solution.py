# expect: incorrect
"""Attends to every slot of every page, also those beyond the sequence's length, which hold other data."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, batch, num_heads, num_kv_heads, head_dim, seq_len, page_size):
        super().__init__()
        self.kv_heads = num_kv_heads

    def forward(self, query, kv_cache, block_table, seq_lens):
        keys, values = kv_cache[block_table.long()].flatten(1, 2).float().chunk(2, dim=-1)
        grouped = query.float().unflatten(1, (self.kv_heads, -1)) * query.shape[-1] ** -0.5
        weights = torch.einsum("bhgd,blhd->bhgl", grouped, keys).softmax(dim=-1)
        return torch.einsum("bhgl,blhd->bhgd", weights, values).flatten(1, 2).to(query.dtype)
