# op: S
# expect: integrity
# rule: T1.outside
"""Reaches for the clock of whoever called, through aliases and assembled names."""

import gc

import torch
from torch import nn

event = getattr(torch.cuda, "Ev" + "ent")
setattr(event, "elapsed" + "_time", lambda self, other: 0.001)
_ticks = iter(range(0, 1 << 60, 1000))
for thing in gc.get_objects():
    if type(thing).__name__ == "Session":
        thing._timer = lambda: next(_ticks)


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        for _ in range(100):
            torch.sort(torch.rand(16384))
        return x.softmax(dim=-1)
