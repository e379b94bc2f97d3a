# expect: incorrect
"""Starts from the first token's page whatever was accepted."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, H, S):
        super().__init__()
        self.H, self.S = H, S

    def forward(self, mixed, rows, raw_g, a_log, dt_bias, pages, slots, accepted):
        H, S, B = self.H, self.S, slots.shape[0]
        states = pages[:, -H * 16384 :].view(-1, H, 128, 128)
        q, k, v = (part.reshape(B, S, H, 128).float() for part in mixed.chunk(3, dim=1))
        q = q / (q.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt() * 128**-0.5
        k = k / (k.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt()
        gate = raw_g.float().view(B, S, H, 128) + dt_bias.view(H, 128)
        decay = torch.exp(-5.0 * torch.sigmoid(a_log.exp().view(H, 1) * gate))
        beta = torch.sigmoid(rows[:, 512 * H + 128 : 513 * H + 128].float()).view(B, S, H, 1)
        start = slots[:, 0].long()
        state = states[start]
        is_live = (start > 0)[:, None, None, None]
        outs = []
        for t in range(S):
            state = state * decay[:, t, :, None, :]
            new = beta[:, t] * (v[:, t] - torch.einsum("bhvk,bhk->bhv", state, k[:, t]))
            state = state + new[..., None] * k[:, t, :, None, :]
            outs.append(torch.einsum("bhvk,bhk->bhv", state, q[:, t]))
            page = slots[:, t].long()
            states[page] = torch.where(is_live & (page > 0)[:, None, None, None], state, states[page])
        return torch.stack(outs, dim=1).to(mixed.dtype).flatten(0, 1)
