"""A CUDA graph per input pointer, replayed on live memory.

Op: M.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))
        self.graphs = {}

    def forward(self, x):
        key = (x.data_ptr(), self.weight.data_ptr())
        if key not in self.graphs:
            for _ in range(2):
                x @ self.weight
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                answer = x @ self.weight
            self.graphs[key] = (graph, answer, x)
        graph, answer, _ = self.graphs[key]
        graph.replay()
        return answer
