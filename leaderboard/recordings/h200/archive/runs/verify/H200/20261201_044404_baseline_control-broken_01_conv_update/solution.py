# expect: incorrect
"""Takes the history from the last columns whatever was accepted; right only when everything was."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, H, S):
        super().__init__()
        self.C, self.S = 384 * H, S

    def forward(self, rows, weight, pages, slots, accepted):
        C, S = self.C, self.S
        cache = pages[:, : 2 * (S + 2) * C].view(torch.bfloat16).view(-1, S + 2, C)
        x = rows[:, :C].reshape(-1, S, C)
        page = slots[:, 0].long()
        at = torch.full_like(page, S - 1)[:, None] + torch.arange(3, device=rows.device)
        stream = torch.cat((cache[page[:, None], at], x), dim=1)
        y = sum(stream[:, j : j + S].float() * weight[:, j] for j in range(4))
        new = stream[:, 1:]
        # Null requests share page 0, which must keep its bytes.
        cache[page] = torch.where((page == 0)[:, None, None], cache[page], new)
        return F.silu(y).to(rows.dtype).view(-1, C)
