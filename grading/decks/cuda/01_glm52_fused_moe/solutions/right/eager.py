"""PyTorch, expert by expert: gather the expert's tokens, three bf16 products, weighted sum into an fp32 buffer."""

import torch
import torch.nn.functional as F
from torch import nn

# 13 GB of weights: a host would take seconds to make and to move them.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def bf16(*sizes):
    return nn.Parameter(torch.zeros(*sizes, dtype=torch.bfloat16, device=DEVICE))


class Model(nn.Module):
    def __init__(self, T, E, top_k, n_shared, H, I):  # noqa: E741
        super().__init__()
        self.w1_routed, self.w2_routed = bf16(E, 2 * I, H), bf16(E, H, I)
        self.w1_shared, self.w2_shared = bf16(n_shared, 2 * I, H), bf16(n_shared, H, I)

    def forward(self, x, expert_ids, expert_weights):
        out = x.new_zeros(x.shape, dtype=torch.float32)
        for w1, w2 in zip(self.w1_shared, self.w2_shared, strict=True):
            out += self.swiglu(x, w1, w2)
        order = expert_ids.flatten().argsort(stable=True)
        counts = torch.bincount(expert_ids.flatten(), minlength=self.w1_routed.shape[0]).tolist()
        scale = expert_weights.flatten()[order].float()[:, None]
        for e, rows in enumerate((order // expert_ids.shape[1]).split(counts)):
            if len(rows):
                part = scale[sum(counts[:e]) : sum(counts[:e]) + len(rows)]
                out.index_add_(0, rows, self.swiglu(x[rows], self.w1_routed[e], self.w2_routed[e]) * part)
        return out.to(x.dtype)

    def swiglu(self, x, w1, w2):
        gate, up = (x @ w1.T).float().chunk(2, dim=1)
        return ((F.silu(gate) * up).to(x.dtype) @ w2.T).float()
