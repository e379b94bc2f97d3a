"""PyTorch in the chunked form: per chunk the decays, a triangular solve and products, chunk after chunk.

Everything is fp32. The token-by-token form would need thousands of dependent launches, so it is no useful baseline.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, B, T, H, K, V, chunk_size=64):
        super().__init__()
        self.chunk = chunk_size

    def forward(self, q, k, v, g, beta):
        C = self.chunk
        q, k, v, g, beta = (self.split(t.float()) for t in (q, k, v, g, beta.unsqueeze(-1)))
        q = q * q.shape[-1] ** -0.5
        G = g.cumsum(dim=-2)
        state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
        lower = torch.ones(C, C, dtype=torch.bool, device=q.device).tril()
        eye = torch.eye(C, device=q.device)
        out = torch.empty_like(v)
        for n in range(q.shape[2]):
            qn, kn, Gn, bn = q[:, :, n], k[:, :, n], G[:, :, n], beta[:, :, n]
            decay = (Gn.unsqueeze(-2) - Gn.unsqueeze(-3)).exp() * kn.unsqueeze(-3)
            A = (bn * torch.einsum("bhid,bhijd->bhij", kn, decay)).tril(-1)
            solve = torch.linalg.solve_triangular(eye + A, eye * bn, upper=False, unitriangular=True)
            new = solve @ v[:, :, n] - solve @ (Gn.exp() * kn) @ state
            inside = torch.einsum("bhid,bhijd->bhij", qn, decay).where(lower, 0.0)
            out[:, :, n] = (qn * Gn.exp()) @ state + inside @ new
            last = Gn[:, :, -1:]
            state = last.exp().mT * state + ((last - Gn).exp() * kn).mT @ new
        return out.flatten(2, 3).transpose(1, 2).contiguous().to(torch.bfloat16)

    def split(self, t):
        return t.transpose(1, 2).unflatten(2, (-1, self.chunk))
