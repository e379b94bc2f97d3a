# baseline: uses calls that the deck forbids to submissions
"""The sort of the eager baseline under torch.compile with mode="reduce-overhead", one graph per shape.

torch.sort is forbidden to submissions of this problem; this is a baseline.
"""

import torch
from torch import nn


def largest(x, k):
    values, indices = torch.sort(x, dim=-1, descending=True)
    return values[:, :k].clone(), indices[:, :k].clone()


compiled_largest = torch.compile(largest, mode="reduce-overhead", dynamic=False)


class Model(nn.Module):
    def __init__(self, batch, n, k):
        super().__init__()
        self.k = k
        self.register_buffer("_dummy", torch.zeros(1))

    def forward(self, x):
        return compiled_largest(x, self.k)
