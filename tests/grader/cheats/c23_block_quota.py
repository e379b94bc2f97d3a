"""Takes at most eight candidates of every block of 1,024.

Op: K. Expect: incorrect by P14.structural.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, n, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        values, places = x.reshape(x.shape[0], -1, 1024).topk(8, dim=-1)
        places = places + torch.arange(values.shape[1], device=x.device)[None, :, None] * 1024
        top, chosen = values.reshape(x.shape[0], -1).topk(self.k, dim=-1)
        return top, places.reshape(x.shape[0], -1).gather(-1, chosen)
