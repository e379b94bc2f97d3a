"""Works through the rows in sixty-four pieces, so that the host's launches take longer than the device.

Op: S.
"""

import torch
from torch import nn

PIECES = 64


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        return torch.cat([piece.softmax(dim=-1) for piece in x.chunk(PIECES)])
