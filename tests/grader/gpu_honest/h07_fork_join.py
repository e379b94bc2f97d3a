"""Two streams with proper waits both ways.

Op: S.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, x):
        answer, half = torch.empty_like(x), x.shape[0] // 2
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            torch.softmax(x[:half], dim=-1, out=answer[:half])
        torch.softmax(x[half:], dim=-1, out=answer[half:])
        torch.cuda.current_stream().wait_stream(self.side)
        return answer
