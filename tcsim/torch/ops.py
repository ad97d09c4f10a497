"""aten's products, each as the GEMM that a GPU library makes of it. Arguments are those of the operator's schema."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from tcsim.torch.policy import Way
from tcsim.torch.product import finish


class Emulation(Protocol):
    """What an operator needs to know."""

    def way(self, a: Any, b: Any, *, convolution: bool = False) -> Way: ...

    def accumulate(self, name: str, a: Any, b: Any, way: Way, **about: Any) -> Any:
        """The accumulators of (batch, m, k) times (batch, k, n)."""


def _two(a: Any, b: Any, name: str) -> None:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(f"{name}: matrices {tuple(a.shape)} and {tuple(b.shape)} do not go together")


def _three(a: Any, b: Any, name: str) -> None:
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(f"{name}: batches {tuple(a.shape)} and {tuple(b.shape)} do not go together")


def _c(c: Any, shape: Any) -> Any:
    return c.expand(shape)


def mm(e: Emulation, self: Any, mat2: Any, out_dtype: Any = None) -> Any:
    _two(self, mat2, "mm")
    acc = e.accumulate("mm", self[None], mat2[None], e.way(self.dtype, mat2.dtype))
    return finish(acc, out_dtype or self.dtype)[0]


def bmm(e: Emulation, self: Any, mat2: Any, out_dtype: Any = None) -> Any:
    _three(self, mat2, "bmm")
    return finish(e.accumulate("bmm", self, mat2, e.way(self.dtype, mat2.dtype)), out_dtype or self.dtype)


def addmm(e: Emulation, self: Any, mat1: Any, mat2: Any, out_dtype: Any = None, *, beta: Any = 1, alpha: Any = 1) -> Any:
    _two(mat1, mat2, "addmm")
    acc = e.accumulate("addmm", mat1[None], mat2[None], e.way(mat1.dtype, mat2.dtype), alpha=alpha, beta=beta)
    return finish(acc, out_dtype or mat1.dtype, _c(self, acc.shape[1:]), alpha, beta)[0]


def baddbmm(e: Emulation, self: Any, batch1: Any, batch2: Any, out_dtype: Any = None, *, beta: Any = 1, alpha: Any = 1) -> Any:
    _three(batch1, batch2, "baddbmm")
    acc = e.accumulate("baddbmm", batch1, batch2, e.way(batch1.dtype, batch2.dtype), alpha=alpha, beta=beta)
    return finish(acc, out_dtype or batch1.dtype, _c(self, acc.shape), alpha, beta)


def addbmm(e: Emulation, self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """One addmm after the other along the batch, each stored in the tensor's dtype, as PyTorch's CUDA code does."""
    _three(batch1, batch2, "addbmm")
    total = _c(self, (batch1.shape[1], batch2.shape[2]))
    if batch1.shape[0] == 0:
        return total * beta
    for a, b in zip(batch1, batch2, strict=True):
        total, beta = addmm(e, total, a, b, beta=beta, alpha=alpha), 1
    return total


def mv(e: Emulation, self: Any, vec: Any) -> Any:
    return mm(e, self, vec[:, None])[:, 0]


def addmv(e: Emulation, self: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return addmm(e, _c(self, (mat.shape[0],))[:, None], mat, vec[:, None], beta=beta, alpha=alpha)[:, 0]


def dot(e: Emulation, self: Any, tensor: Any) -> Any:
    return mm(e, self[None, :], tensor[:, None])[0, 0]


def addmm_activation(
    e: Emulation, self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Any:
    x = addmm(e, self, mat1, mat2, beta=beta, alpha=alpha)
    return torch.nn.functional.gelu(x, approximate="tanh") if use_gelu else torch.relu(x)


OPERATORS = {
    "mm": mm,
    "bmm": bmm,
    "addmm": addmm,
    "baddbmm": baddbmm,
    "addbmm": addbmm,
    "mv": mv,
    "addmv": addmv,
    "dot": dot,
    "vdot": dot,
    "_addmm_activation": addmm_activation,
}
