"""Two small networks for audits: a feed-forward block on fp8 products, and a residual network of convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def to_fp8(x: Any, dtype: Any) -> tuple[Any, Any]:
    """(values in fp8, the scale that takes them back): x spread over the format's range by its largest magnitude."""
    scale = x.float().abs().max().clamp(min=1e-12) / torch.finfo(dtype).max
    return (x.float() / scale).to(dtype), scale


def fp8_product(a: Any, b: Any, kinds: tuple[Any, Any], fast: bool, dtype: Any) -> Any:
    """a (m, k) times b (k, n) through fp8, as torch._scaled_mm wants them: b in columns."""
    (x, sx), (y, sy) = to_fp8(a, kinds[0]), to_fp8(b.t().contiguous(), kinds[1])
    return torch._scaled_mm(x.contiguous(), y.t(), sx, sy, out_dtype=dtype, use_fast_accum=fast)


class _Fp8(torch.autograd.Function):  # type: ignore[misc]
    """x·wᵀ with fast accumulation; gradients in e5m2 without."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return fp8_product(x, w.t(), (E4M3, E4M3), True, x.dtype)

    @staticmethod
    def backward(ctx: Any, up: Any) -> tuple[Any, Any]:
        x, w = ctx.saved_tensors
        return fp8_product(up, w, (E5M2, E4M3), False, x.dtype), fp8_product(up.t(), x, (E5M2, E4M3), False, x.dtype)


class Fp8Block(nn.Module):  # type: ignore[misc]
    """A gated feed-forward block whose three linear layers multiply in fp8."""

    def __init__(self, width: int, ffn: int, dtype: Any) -> None:
        super().__init__()
        torch.manual_seed(2)
        sizes = ((ffn, width), (ffn, width), (width, ffn))
        self.gate, self.up, self.down = (nn.Parameter((torch.randn(*s) * s[1] ** -0.5).to(dtype)) for s in sizes)

    def forward(self, x: Any) -> Any:
        h = functional.silu(_Fp8.apply(x, self.gate)) * _Fp8.apply(x, self.up)
        return x + _Fp8.apply(h, self.down)


class ResNet(nn.Module):  # type: ignore[misc]
    """A stem, four residual blocks (two of them halving the image) and a classifier."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1), (2 * width, 4 * width, 2)]
        self.blocks = nn.ModuleList(_Residual(*s) for s in sizes)
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class _Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm = nn.GroupNorm(8, out)
        self.skip = nn.Conv2d(channels, out, 1, stride, bias=False) if stride > 1 or channels != out else nn.Identity()

    def forward(self, x: Any) -> Any:
        return functional.relu(self.b(functional.relu(self.norm(self.a(x)))) + self.skip(x))
