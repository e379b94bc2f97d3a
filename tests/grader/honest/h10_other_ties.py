"""Returns other positions than the reference where values are equal.

Op: K.
"""

from torch import nn


class Model(nn.Module):
    def __init__(self, rows, n, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        values, places = x.flip(-1).sort(dim=-1, descending=True, stable=True)
        places = x.shape[-1] - 1 - places
        return values[:, : self.k].contiguous(), places[:, : self.k].contiguous()
