"""A thread watches the input arena and computes the answer before the clock starts.

Op: M. Expect: incorrect by P6.timed.
"""

import threading
import time

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))
        self.watched, self.answer = None, None
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        seen = None
        while True:
            if self.watched is not None and (seen is None or not torch.equal(self.watched, seen)):
                seen = self.watched.clone()
                self.answer = (seen.float() @ self.weight.float()).bfloat16().detach()
            time.sleep(0.0005)

    def forward(self, x):
        if self.watched is not x or self.answer is None:
            self.watched = x
            return (x.float() @ self.weight.float()).bfloat16()
        return self.answer
