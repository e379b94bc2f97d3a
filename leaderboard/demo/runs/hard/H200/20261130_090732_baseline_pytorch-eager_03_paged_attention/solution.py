"""PyTorch, operation by operation: gather all pages, widen to fp32, scores, mask, softmax, weighted sum."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, batch, num_heads, num_kv_heads, head_dim, seq_len, page_size):
        super().__init__()
        self.kv_heads = num_kv_heads

    def forward(self, query, kv_cache, block_table, seq_lens):
        keys, values = kv_cache[block_table.long()].flatten(1, 2).float().chunk(2, dim=-1)
        grouped = query.float().unflatten(1, (self.kv_heads, -1))
        scores = torch.einsum("bhgd,blhd->bhgl", grouped, keys) * query.shape[-1] ** -0.5
        live = torch.arange(keys.shape[1], device=query.device) < seq_lens[:, None]
        weights = scores.masked_fill(~live[:, None, None, :], float("-inf")).softmax(dim=-1)
        return torch.einsum("bhgl,blhd->bhgd", weights, values).flatten(1, 2).to(query.dtype)
