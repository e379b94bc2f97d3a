"""Writes all of an empty tensor; the first call takes much longer than the rest.

Op: S.
"""

import time

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.is_warm = False

    def forward(self, x):
        if not self.is_warm:
            time.sleep(0.8)
            self.is_warm = True
        answer = torch.empty_like(x)
        torch.softmax(x, dim=-1, out=answer)
        return answer
