"""One graph with static input and output; the input is copied in on every call.

Op: M.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.held = x.clone()
            self.held @ self.weight
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.answer = self.held @ self.weight
        self.held.copy_(x)
        self.graph.replay()
        return self.answer
