"""Reference of hard/03_paged_attention: decode attention of one query per sequence over a paged cache.

Written from the specification. The grader assigns the six names below before it calls the functions.
"""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

BATCH, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, SEQ_LEN, PAGE_SIZE = 8, 32, 8, 128, 1024, 16
STRUCTURAL_SHAPE = 0
STRUCTURAL_TOLERANCE = (0.02, 0.02)
CANONICAL = {"divisor": 16, "tail": 1, "stride": 3}
PARAMETERS = {"divisor": range(4, 33), "tail": range(1, 16), "stride": range(1, 8)}


class Model(nn.Module):
    """Softmax attention in fp32, sequence by sequence, over the tokens that the page table names."""

    def __init__(
        self, batch: int, num_heads: int, num_kv_heads: int, head_dim: int, seq_len: int, page_size: int
    ) -> None:
        super().__init__()
        self.register_buffer("_dummy", torch.zeros(1, dtype=torch.bfloat16), persistent=False)

    def forward(self, query: Tensor, kv_cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
        page_size, kv_heads = kv_cache.shape[1], kv_cache.shape[2]
        out = torch.empty_like(query)
        for b, length in enumerate(seq_lens.tolist()):
            token = torch.arange(length, device=query.device)
            rows = kv_cache[block_table[b, token // page_size].long(), token % page_size].float()
            keys, values = rows.transpose(0, 1).chunk(2, dim=-1)
            grouped = query[b].float().reshape(kv_heads, -1, query.shape[2])
            scores = (grouped @ keys.transpose(1, 2)) * query.shape[2] ** -0.5
            out[b] = (scores.softmax(dim=-1) @ values).reshape(query.shape[1:])
        return out


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments."""
    return [BATCH, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, SEQ_LEN, PAGE_SIZE]


def get_inputs() -> list[Tensor]:
    """Draw query, cache and a page table that shares no page; all sequences have full length."""
    per_sequence = -(-SEQ_LEN // PAGE_SIZE)
    pages = max(BATCH * per_sequence + 8, 64)
    query = torch.randn(BATCH, NUM_HEADS, HEAD_DIM, dtype=torch.bfloat16) * 0.1
    kv_cache = torch.randn(pages, PAGE_SIZE, NUM_KV_HEADS, 2 * HEAD_DIM, dtype=torch.bfloat16) * 0.1
    block_table = torch.randperm(pages)[: BATCH * per_sequence].reshape(BATCH, per_sequence).int()
    return [query, kv_cache, block_table.contiguous(), torch.full((BATCH,), SEQ_LEN, dtype=torch.int32)]


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield the fixed case and two drawn ones in which any token read by mistake changes the answer from 1."""
    yield "canonical", ragged_inputs(inputs, **CANONICAL)
    for number in range(2):
        drawn = {name: rng.choice(values) for name, values in PARAMETERS.items()}
        yield f"drawn_{number}", ragged_inputs(inputs, **drawn)


def ragged_inputs(inputs: list[Tensor], *, divisor: int, tail: int, stride: int) -> list[Tensor]:
    """Return inputs with short uneven sequences, V = 1 in live slots and -1 in all others."""
    query, kv_cache, block_table, seq_lens = inputs
    full, page_size, half = int(seq_lens.max()), kv_cache.shape[1], query.shape[2]
    cache = torch.zeros_like(kv_cache)
    cache[..., half:] = -1
    lengths = []
    for b in range(query.shape[0]):
        length = full // (divisor + b * stride)
        length = length - length % 16 + ((tail - 1 + b * stride) % 15) + 1
        length = min(max(length, 1), full)
        token = torch.arange(length, device=query.device)
        cache[block_table[b, token // page_size].long(), token % page_size, :, half:] = 1
        lengths.append(length)
    live = torch.tensor(lengths, dtype=seq_lens.dtype, device=seq_lens.device)
    return [torch.zeros_like(query), cache, block_table.clone(), live]
