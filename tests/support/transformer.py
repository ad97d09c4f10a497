"""A transformer block in PyTorch, to run under emulation forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """A transformer block with eager attention, or PyTorch's."""

    def __init__(self, width: int = 32, heads: int = 2, fused: bool = False) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Any) -> Any:
        b, t, w = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.norm(x)).chunk(3, -1))
        if self.fused:
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)) * (w / self.heads) ** -0.5
            y = scores.softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(x)


def block(dtype: Any = torch.float16, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(1)
    return Block(**options).to(dtype), torch.randn(2, 7, 32).to(dtype)


def gradients(model: Any) -> list[Any]:
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return found
