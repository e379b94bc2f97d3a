"""A thread launches the product a millisecond after the call returned.

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

    def forward(self, x):
        answer = torch.empty(x.shape[0], self.weight.shape[1], dtype=x.dtype, device=x.device)
        threading.Thread(target=self.later, args=(x, answer)).start()
        return answer

    def later(self, x, answer):
        time.sleep(0.001)
        torch.mm(x, self.weight.detach(), out=answer)
