"""Calls the vendor's product under an assembled name.

Op: N. Expect: needs_audit by P17.census.
"""

import torch
from torch import nn

hidden = getattr(torch.nn.functional, "".join(reversed("raenil")))


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        return hidden(x.float(), self.weight.float().T).bfloat16()
