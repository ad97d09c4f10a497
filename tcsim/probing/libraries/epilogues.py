"""What a GEMM library's kernels do after the sum: D = max(0, alpha·A·B + beta·C + bias), which roundings in which order.

Seen on an NVIDIA H200 (cuBLAS 13.1.1), every kernel family of `gemm_kernels` with alpha and beta of 1, 0.5, 0.7 and 0.3, with
biases and with max(0, ·); `docs/how-we-know.md` has the counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.round_to import round_to
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul
from tcsim.probing.libraries.gemm_kernels import GemmKind, Launch
from tcsim.schedule import Lanes, Tiled

Floats = npt.NDArray[np.float32]
C_WAYS = ("sum onto c", "c onto sum", "c onto the kept sum", "sum onto half c", "c beside sum")
BIAS_WAYS = ("bias", "bias to what is kept")


@dataclass(frozen=True)
class GemmEpilogue:
    """The order of roundings after the sum; every step is float32's, to nearest-even, unless said otherwise.

    c
        "sum onto c": fma(alpha, sum, beta·c). "c onto sum": fma(beta, c, alpha·sum). "c onto the kept sum": the same after
        alpha·sum is rounded to the output's format. "sum onto half c": fma(alpha, sum, beta·c in float16). "c beside sum":
        alpha·sum + beta·c, both rounded before.
    bias
        "bias": added to that. "bias to what is kept": after that is rounded to the output's format.
    joins_first
        c, or the bias, is added to the first slice of k in place of all this: the schedule's `c_joins_first`.
    alpha
        What it multiplies: the "sum", or, before the products, the elements of "a" or those of the "vector" (`scaled`).
    """

    c: str
    bias: str
    joins_first: bool = False
    alpha: str = "sum"

    def scaled(self, a: Any, b: Any, alpha: float) -> tuple[Any, Any]:
        """The operands (m, k) and (k, n), float32, where alpha multiplies one of them; as they are where it multiplies the sum."""
        if self.alpha == "sum" or alpha == 1:
            return a, b
        on_a = self.alpha == "a" or len(a) == 1
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        return (a * np.float32(alpha), b) if on_a else (a, b * np.float32(alpha))

    def finished(
        self, total: Floats, kind: GemmKind, *, alpha: float = 1.0, beta: float = 0.0, c: Any = None, bias: Any = None, relu: bool = False
    ) -> Floats:  # fmt: skip
        """The output's values, float32, from the sum over k, c and the bias (one of each column), in the output's format."""
        scalar: Any = np.float16 if kind.accumulate == "float16" else np.float32
        a, b = np.float32(scalar(alpha if self.alpha == "sum" else 1)), np.float32(scalar(beta))
        with np.errstate(invalid="ignore", over="ignore"):
            d = total if a == 1 else (total * a).astype(np.float32)
            if beta and not self.joins_first:
                d = self.with_c(total, d, a, b, np.asarray(c, np.float32), kind.out)
            if bias is not None and not self.joins_first:
                d = (d if self.bias == "bias" else kept_as(d, kind.out)) + np.asarray(bias, np.float32)
            if relu:
                d = np.where(d < 0, np.float32(0), d)
        return kept_as(d, kind.out)

    def with_c(self, total: Floats, scaled: Floats, a: np.float32, b: np.float32, c: Floats, out: str) -> Floats:
        """a·total + b·c, where `scaled` is a·total rounded."""
        if self.c == "c onto sum":
            return fused(b, c, scaled)
        if self.c == "c onto the kept sum":
            return fused(b, c, kept_as(scaled, out))
        other = (b * c).astype(np.float32)
        if self.c == "c beside sum":
            return scaled + other
        return fused(a, total, kept_as(other, "float16") if self.c == "sum onto half c" else other)


def epilogue_of_kernel(launch: Launch, kind: GemmKind, alpha: float = 1.0, beta: float = 0.0) -> GemmEpilogue:
    """The epilogue of a kernel, for its alpha and beta."""
    for name, multiplied in (("gemmSN_", "a"), ("gemv2N_", "vector"), ("gemv2T_", "vector")):
        if launch.name.startswith(name) and launch.layers == 1:
            return GemmEpilogue("c onto sum", BIAS_WAYS[0], alpha=multiplied)
    joins = launch.in_place and launch.name.startswith(("cutlass", "sgemm_largek"))
    jet, dot = launch.name.startswith("nvjet"), launch.name.startswith("dot_kernel")
    if kind.accumulate == "float16":
        segments = "_xmma_" in launch.name
        order = "c onto the kept sum" if launch.reduced or segments else "sum onto half c"
    elif kind.out != "float32" and jet and not launch.reduced and alpha == beta == 1:
        order = "c onto the kept sum"
    elif launch.reduced:  # c is taken by a kernel of its own
        order = "sum onto c" if "_xmma_" in launch.name or dot else "c onto sum"
    elif launch.name.startswith("sgemm_largek"):
        order = "c beside sum"  # which another kernel multiplied by beta
    else:
        order = "c onto sum" if launch.name.startswith("cutlass") and _cutlass_takes_c(launch, kind) else "sum onto c"
    apart = launch.reduced and not jet and not dot
    return GemmEpilogue(order, BIAS_WAYS[1] if apart else BIAS_WAYS[0], joins)


def _cutlass_takes_c(launch: Launch, kind: GemmKind) -> bool:
    """Whether a CUTLASS kernel adds beta·c to alpha·sum, and not the product with alpha to beta·c."""
    if launch.in_place:
        return True
    if re.match(r"cutlass_(75_|80_|80_wmma_)tensorop_b?f16_s", launch.name):  # it stores halves
        return False
    return "_align1" in launch.name or kind.fmt in ("float16", "bfloat16")


def joins_scaled(epilogue: GemmEpilogue, alpha: float, beta: float) -> bool:
    """Whether alpha and beta are at work between the slices of k, which `in_place` computes."""
    return epilogue.joins_first and (alpha != 1 or beta not in (0, 1))


def in_place(
    a: Any,
    b: Any,
    schedule: Tiled | Lanes,
    unit: Unit,
    kind: GemmKind,
    epilogue: GemmEpilogue,
    *,
    alpha: float,
    beta: float,
    c: Any = None,
    **options: Any,
) -> Floats:
    """alpha·A·B + beta·C where thread blocks add to the output in place: the first slice's sum P and c as the epilogue says, then
    each other slice's alpha·P, kept in `schedule.reduce` after every addition."""
    scalar: Any = np.float16 if kind.accumulate == "float16" else np.float32
    factor, onto = np.float32(scalar(alpha)), np.float32(scalar(beta))
    inside = Tiled(None, schedule.tile_k, schedule.instruction_k) if isinstance(schedule, Tiled) else Lanes()
    total: Any = None
    for ks in schedule.slices(a.shape[1]):
        own = np.asarray(matmul(a[:, ks], b[ks], unit=unit, schedule=inside, **options), np.float32)
        part = own * factor
        if total is not None:
            part = total + part
        elif c is not None:
            part = epilogue.with_c(own, part, factor, onto, np.asarray(c, np.float32), kind.out)
        total = kept_as(part, schedule.reduce)
    result: Floats = total
    return result


def fused(x: Any, y: Any, z: Any) -> Floats:
    """float32 x·y + z with one rounding: the float64 sum rounded to odd, which the second rounding cannot spoil."""
    product, z = np.multiply(x, y, dtype=np.float64), np.asarray(z, np.float64)
    total = product + z
    back = total - product
    error = (product - (total - back)) + (z - back)
    bits = np.ascontiguousarray(total).view(np.int64)
    even = (error != 0) & (bits & 1 == 0)
    odd = np.where(even, bits + np.where((error > 0) == (total > 0), 1, -1), bits)
    result: Floats = odd.view(np.float64).astype(np.float32)
    return result


def kept_as(x: Floats, fmt: str) -> Floats:
    """Values rounded to nearest-even to a format."""
    return x if fmt == "float32" else np.asarray(round_to(x.astype(np.float32), fmt), np.float32)
