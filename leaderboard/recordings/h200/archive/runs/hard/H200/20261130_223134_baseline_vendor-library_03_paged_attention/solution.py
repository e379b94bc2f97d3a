# baseline: uses calls that the deck forbids to submissions
"""PyTorch's fused attention over gathered pages, with a mask for the sequence lengths.

F.scaled_dot_product_attention cannot read pages, so every call gathers them first. The query heads that share a cache
head become the query positions of one head. The fused call is forbidden to submissions; this is a baseline.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, batch, num_heads, num_kv_heads, head_dim, seq_len, page_size):
        super().__init__()
        self.kv_heads = num_kv_heads

    def forward(self, query, kv_cache, block_table, seq_lens):
        rows = kv_cache[block_table].flatten(1, 2).transpose(1, 2)
        keys, values = rows.chunk(2, dim=-1)
        live = torch.arange(rows.shape[2], device=query.device) < seq_lens[:, None]
        grouped = query.unflatten(1, (self.kv_heads, -1))
        mask = live[:, None, None, :].expand(-1, -1, grouped.shape[2], -1)
        return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).flatten(1, 2)
