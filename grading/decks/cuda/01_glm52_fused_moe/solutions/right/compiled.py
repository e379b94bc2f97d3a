# baseline: uses calls that the deck forbids to submissions
"""The grouped form under torch.compile: sort, grouped products, SwiGLU and the weighted sum as one graph per shape."""

import torch
import torch.nn.functional as F
from torch import nn

# 13 GB of weights: a host would take seconds to make and to move them.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def swiglu(both):
    gate, up = both.float().chunk(2, dim=1)
    return (F.silu(gate) * up).to(both.dtype)


def layer(x, ids, weights, w1, w2, w1_shared, w2_shared):
    flat, k = ids.flatten(), ids.shape[1]
    sorted_ids, order = flat.sort(stable=True)
    ends = torch.searchsorted(sorted_ids, torch.arange(w1.shape[0], device=x.device), right=True).to(torch.int32)
    hidden = swiglu(torch._grouped_mm(x[order // k], w1.mT, offs=ends))
    rows = torch._grouped_mm(hidden, w2.mT, offs=ends)
    back = torch.empty_like(order).scatter(0, order, torch.arange(len(flat), device=x.device))
    out = (rows[back].view(-1, k, x.shape[1]).float() * weights.float()[:, :, None]).sum(1)
    for s in range(w1_shared.shape[0]):
        out = out + (swiglu(x @ w1_shared[s].T) @ w2_shared[s].T).float()
    return out.to(x.dtype)


compiled_layer = torch.compile(layer, dynamic=False)


class Model(nn.Module):
    def __init__(self, T, E, top_k, n_shared, H, I):  # noqa: E741
        super().__init__()
        for name, sizes in (
            ("w1_routed", (E, 2 * I, H)),
            ("w2_routed", (E, H, I)),
            ("w1_shared", (n_shared, 2 * I, H)),
            ("w2_shared", (n_shared, H, I)),
        ):
            self.register_parameter(name, nn.Parameter(torch.zeros(sizes, dtype=torch.bfloat16, device=DEVICE)))

    def forward(self, x, expert_ids, expert_weights):
        return compiled_layer(
            x, expert_ids, expert_weights, self.w1_routed, self.w2_routed, self.w1_shared, self.w2_shared
        )
