"""A thread keeps a counter of calls for a log; the answer is computed when it is asked for.

The closest honest twin of c33_early_start.

Op: M.
"""

import threading
import time

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))
        self.calls, self.logged = 0, 0
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            self.logged = self.calls
            time.sleep(0.005)

    def forward(self, x):
        self.calls += 1
        return (x.float() @ self.weight.float()).bfloat16()
