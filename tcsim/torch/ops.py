"""aten's products, each as the GEMM that a GPU library makes of it. Arguments are those of the operator's schema."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from tcsim.torch.policy import Way
from tcsim.torch.product import finish_product


class Emulation(Protocol):
    """What an operator needs to know."""

    def way(self, a: Any, b: Any, *, convolution: bool = False) -> Way: ...

    def accumulate(
        self, op: str, a: Any, b: Any, way: Way, dtype: Any = None, *, schedule: Any = None, conv: Any = None
    ) -> Any:
        """The accumulators of ([batch,] m, k) times ([batch,] k, n), rounded to `dtype` where one is given.

        They are walked on `schedule` unless the user named one; `conv`: a ConvCall.
        """


def check_pair(a: Any, b: Any, name: str, axes: int, *, same: bool = True) -> None:
    """RuntimeError, as PyTorch raises, for operands whose shapes or dtypes do not go together."""
    if same and a.dtype != b.dtype:
        raise RuntimeError(f"{name}: operands should have one dtype; got {a.dtype} and {b.dtype}")
    batches = axes == 2 or (a.dim() == b.dim() == 3 and a.shape[0] == b.shape[0])
    if a.dim() != axes or b.dim() != axes or a.shape[-1] != b.shape[-2] or not batches:
        raise RuntimeError(f"{name}: operands of shapes {tuple(a.shape)} and {tuple(b.shape)} cannot be multiplied")


def _added(c: Any, acc: Any, dtype: Any, name: str) -> Any:
    if c.dtype != dtype:
        raise RuntimeError(f"{name}: the matrix that is added should be of {dtype}; got {c.dtype}")
    c.expand(acc.shape)  # RuntimeError where it does not fit
    return c


def mm(e: Emulation, self: Any, mat2: Any, out_dtype: Any = None) -> Any:
    check_pair(self, mat2, "mm", 2)
    return e.accumulate("mm", self, mat2, e.way(self.dtype, mat2.dtype), out_dtype or self.dtype)


def bmm(e: Emulation, self: Any, mat2: Any, out_dtype: Any = None) -> Any:
    check_pair(self, mat2, "bmm", 3)
    return e.accumulate("bmm", self, mat2, e.way(self.dtype, mat2.dtype), out_dtype or self.dtype)


def addmm(e: Emulation, self: Any, mat1: Any, mat2: Any, out_dtype: Any = None, *, beta: Any = 1, alpha: Any = 1) -> Any:
    check_pair(mat1, mat2, "addmm", 2)
    acc, dtype = e.accumulate("addmm", mat1, mat2, e.way(mat1.dtype, mat2.dtype)), out_dtype or mat1.dtype
    return finish_product(acc, dtype, _added(self, acc, dtype, "addmm"), alpha, beta)


def baddbmm(e: Emulation, self: Any, batch1: Any, batch2: Any, out_dtype: Any = None, *, beta: Any = 1, alpha: Any = 1) -> Any:
    check_pair(batch1, batch2, "baddbmm", 3)
    acc, dtype = e.accumulate("baddbmm", batch1, batch2, e.way(batch1.dtype, batch2.dtype)), out_dtype or batch1.dtype
    return finish_product(acc, dtype, _added(self, acc, dtype, "baddbmm"), alpha, beta)


def addbmm(e: Emulation, self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """One addmm after the other along the batch, each stored in the tensor's dtype, as PyTorch's CUDA code does."""
    check_pair(batch1, batch2, "addbmm", 3)
    total = self.expand(batch1.shape[1], batch2.shape[2])
    if batch1.shape[0] == 0:
        return total * beta if beta else torch.zeros_like(total)
    for a, b in zip(batch1, batch2, strict=True):
        total, beta = addmm(e, total, a, b, beta=beta, alpha=alpha), 1
    return total


def mv(e: Emulation, self: Any, vec: Any) -> Any:
    return mm(e, self, vec[:, None])[:, 0]


def addmv(e: Emulation, self: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    column = self.expand(mat.shape[0])[:, None]
    return addmm(e, column, mat, vec[:, None], beta=beta, alpha=alpha)[:, 0]


def dot(e: Emulation, self: Any, tensor: Any) -> Any:
    return mm(e, self[None, :], tensor[:, None])[0, 0]


def addmm_activation(
    e: Emulation, self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Any:
    x = addmm(e, self, mat1, mat2, beta=beta, alpha=alpha)
    return torch.nn.functional.gelu(x, approximate="tanh") if use_gelu else torch.relu(x)
