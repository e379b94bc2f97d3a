"""Repacks the weight when its pointer or version changes.

Op: F.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.register_buffer("weight", torch.empty(N, K, dtype=torch.float8_e4m3fn))
        self.register_buffer("scale", torch.empty(N))
        self.packed, self.key = None, None
        self.register_load_state_dict_post_hook(lambda module, keys: setattr(module, "key", None))

    def forward(self, x):
        key = (self.weight.data_ptr(), self.weight._version, self.scale._version)
        if key != self.key:
            self.packed, self.key = (self.weight.float() * self.scale[:, None]).T.contiguous(), key
        return (x.float() @ self.packed).bfloat16()
