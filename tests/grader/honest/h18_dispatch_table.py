"""Chooses between equivalent kernels by shape, with hard-coded sizes.

Op: M.
"""

import torch
from torch import nn


def whole(x, weight):
    return (x.float() @ weight.float()).bfloat16()


def halves(x, weight):
    middle = x.shape[1] // 2
    first, second = x[:, :middle].float() @ weight[:middle].float(), x[:, middle:].float() @ weight[middle:].float()
    return (first + second).bfloat16()


def by_einsum(x, weight):
    return torch.einsum("mk,kn->mn", x.float(), weight.float()).bfloat16()


TABLE = {(32, 64): halves, (16, 128): by_einsum}


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        return TABLE.get(tuple(x.shape), whole)(x, self.weight)
