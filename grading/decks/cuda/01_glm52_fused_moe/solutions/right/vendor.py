# baseline: uses calls that the deck forbids to submissions
"""The vendor library's grouped products over tokens sorted by expert; the shared expert as plain products."""

import torch
import torch.nn.functional as F
from torch import nn

# 13 GB of weights: a host would take seconds to make and to move them.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def bf16(*sizes):
    return nn.Parameter(torch.zeros(*sizes, dtype=torch.bfloat16, device=DEVICE))


def swiglu(both):
    gate, up = both.float().chunk(2, dim=1)
    return (F.silu(gate) * up).to(both.dtype)


class Model(nn.Module):
    def __init__(self, T, E, top_k, n_shared, H, I):  # noqa: E741
        super().__init__()
        self.w1_routed, self.w2_routed = bf16(E, 2 * I, H), bf16(E, H, I)
        self.w1_shared, self.w2_shared = bf16(n_shared, 2 * I, H), bf16(n_shared, H, I)

    def forward(self, x, expert_ids, expert_weights):
        flat, k = expert_ids.flatten(), expert_ids.shape[1]
        order = flat.argsort(stable=True)
        numbers = torch.arange(self.w1_routed.shape[0], device=x.device)
        ends = torch.searchsorted(flat[order], numbers, right=True).to(torch.int32)
        hidden = swiglu(torch._grouped_mm(x[order // k], self.w1_routed.mT, offs=ends))
        rows = torch.empty(len(flat), x.shape[1], dtype=x.dtype, device=x.device)
        rows[order] = torch._grouped_mm(hidden, self.w2_routed.mT, offs=ends)
        out = (rows.view(-1, k, x.shape[1]).float() * expert_weights.float()[:, :, None]).sum(1)
        for w1, w2 in zip(self.w1_shared, self.w2_shared, strict=True):
            out += (swiglu(x @ w1.T) @ w2.T).float()
        return out.to(x.dtype)
