"""Reaches for the clock of whoever called, through aliases and assembled names.

Op: S. Expect: integrity by T1.outside. On a GPU: verified.
The events' own clock is bound before the import and out of reach there, so the honest time comes out.
"""

import gc
import time

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
        time.sleep(0.025)
        return x.softmax(dim=-1)
