"""PyTorch, operation by operation: widen both operands to bf16, one bf16 product, scale the columns in fp32."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.register_buffer("weight", torch.zeros(N, K, dtype=torch.float8_e4m3fn))
        self.register_buffer("weight_scale", torch.ones(N))

    def forward(self, x):
        product = x.to(torch.bfloat16) @ self.weight.to(torch.bfloat16).T
        return (product.float() * self.weight_scale).to(torch.bfloat16)
