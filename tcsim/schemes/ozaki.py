"""The Ozaki scheme on floating-point tensor cores: products of slices that no rounding can touch.

Mukunoki, Ozaki, Ogita and Imamura, DGEMM using Tensor Cores, and its accurate and reproducible versions, 2020 (seed
002), Algorithms 1 to 3. A row of A is a sum of slices 2^τ·(integer·2^-β) with |integer| <= 2^β, and so is a column of
B; with k·2^(2β) <= 2^budget the product of two slices is exact on every unit that keeps `budget` bits, whatever its
order, its alignment and its rounding. Only the sum of those products rounds, and here it does so in a fixed order
(DP and SP mode) or once (CR mode).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.analysis.exact import ExactSum
from tcsim.arguments import array
from tcsim.errors import unknown
from tcsim.hardware.unit import Unit
from tcsim.schemes.multiplier import Multiplier, SchemeProduct

__all__ = ["MODES", "Slices", "budget_of", "gemm", "slice_bits", "slices", "slices_needed"]


def __dir__() -> list[str]:
    return sorted(__all__)


Array: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[np.int64]
MODES = ("dp", "sp", "cr")
_WORK = {"dp": np.float64, "sp": np.float32, "cr": np.float64}
_PRECISION = {"dp": 53, "sp": 24, "cr": 53}


class Slices(NamedTuple):
    """x = sum_t 2^exponents[t] · parts[t] (+ rest): parts are multiples of 2^-bits in [-1, 1], one exponent a row."""

    parts: list[Array]
    exponents: list[Ints]
    bits: int
    rest: bool


def slice_bits(k: int, *, budget: int = 24, precision: int = 11) -> int:
    """β = floor((budget - log2 k)/2), at most `precision`, the bits of a slice whose products of k terms are exact.

    `budget` bits are kept by the unit's accumulation (24 for float32) and `precision` by its input format. ValueError
    where no bit is left: block k.
    """
    bits = min((budget - max(k - 1, 0).bit_length()) // 2, precision)
    if bits < 1:
        raise ValueError(
            f"no slice of at least 1 bit has exact products of k = {k} terms in {budget} bits; "
            f"pass k_block of at most {2 ** max(budget - 2, 0)}"
        )
    return bits


def budget_of(unit: Unit | None) -> tuple[int, int]:
    """(bits kept by the unit's accumulation, significand bits of its inputs); (24, 11) for a callable.

    The accumulation keeps min(precision of the output, fraction_bits + 1): 24 for fp16 -> fp32, 14 for Hopper's fp8.
    """
    if unit is None:
        return 24, 11
    fraction = unit.kept_bits if unit.fraction_bits is None else unit.fraction_bits + 1
    return min(unit.kept_bits, fraction), min(unit.a_format.precision, unit.b_format.precision)


def slices(x: Array, bits: int, *, axis: int, limit: int | None = None) -> Slices:
    """Algorithm 1 on each row of x (`axis` is the summation axis), in x's own arithmetic: float64, or float32 for SP mode.

    With μ = max |x|, τ = ceil(log2 μ), ρ = precision - bits and σ = 2^(ρ+τ): part = (x + σ) - σ, x <- x - part, until x
    is zero or there are `limit` slices. Rows are scaled by 2^-τ first, which changes nothing but lets μ come near the
    largest number. Rounding is to nearest, so a part may be negative where x is positive. `rest` says whether anything
    is left.
    """
    left = array(x).copy()
    sigma = left.dtype.type(2.0 ** (np.finfo(left.dtype).nmant + 1 - bits))
    parts: list[Array] = []
    exponents: list[Ints] = []
    tau = np.zeros_like(np.max(left, axis=axis, keepdims=True), dtype=np.int64)
    while left.any() and (limit is None or len(parts) < limit):
        tau = _ceil_log2(np.max(np.abs(left), axis=axis, keepdims=True), tau)
        scaled = np.ldexp(left, -tau)
        part = (scaled + sigma) - sigma
        left = left - np.ldexp(part, tau)
        parts.append(part)
        exponents.append(np.squeeze(tau, axis=axis))
    return Slices(parts, exponents, bits, bool(left.any()))


def _ceil_log2(mu: Array, before: Ints) -> Ints:
    fraction, exponent = np.frexp(mu)
    return np.where(mu > 0, exponent.astype(np.int64) - (fraction == 0.5), before)


def slices_needed(a: Slices, x: Array, y: Array, precision: int = 53) -> int:
    """Algorithm 3: the d >= 2 for which products p + q <= d + 1 reach the accuracy of a product in `precision` bits.

    With s = 2 sqrt(k) u |A|(|B|e), the smallest d with s_i > (d + 1)·(|2^c A_d|(|B|e))_i for every row i that is not
    zero, A_d being the d-th slice; a d beyond the last slice needs nothing. The estimate is probabilistic. `y` is B, or
    the vector |B|e itself.
    """
    k = x.shape[1]
    scale_x, scale_y = (int(np.frexp(np.max(np.abs(z)))[1]) if z.size else 0 for z in (x, y))
    size = np.abs(np.ldexp(y.astype(np.float64), -scale_y))
    weights = summed(size) if y.ndim == 2 else size
    s = 2.0 * np.sqrt(k) * 2.0**-precision * summed(np.abs(np.ldexp(x.astype(np.float64), -scale_x)) * weights)
    d = 2
    while d <= len(a.parts):
        part = np.ldexp(np.abs(a.parts[d - 1].astype(np.float64)), (a.exponents[d - 1] - scale_x)[:, None])
        t = (d + 1) * summed(part * weights)
        if ((s > t) | (s == 0)).all():
            break
        d += 1
    return d


def summed(x: Array) -> Array:
    """The sums of rows, each the sum of its halves': the same bits on any machine, where a BLAS has an order of its own."""
    while x.shape[1] > 1:
        half = -(-x.shape[1] // 2)
        first = x[:, :half].copy()
        first[:, : x.shape[1] - half] += x[:, half:]
        x = first
    sums: Array = x.sum(axis=1)
    return sums


def gemm(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    multiply: Multiplier,
    *,
    mode: str = "dp",
    d: int | None = None,
    fast: bool = True,
    k_block: int | None = None,
    block: int | None = None,
    bits: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: npt.ArrayLike | None = None,
) -> SchemeProduct:
    """alpha·A·B + beta·C by slices of finite A (m, k) and B (k, n).

    mode
        "dp": float64, accuracy of a float64 product: d slices by Algorithm 3 (or `d`), products p + q <= d + 1 unless
        `fast` is off or the slices hold the matrices entirely; their sum in float64, q outer and p inner.
        "sp": the same in float32. "cr": every slice and every product, the sum correctly rounded to float64; with
        alpha and beta other than 1 and 0, alpha·(A·B) + beta·C is then computed in float64.
    k_block
        Splits k, which lets slices carry more bits; the blocks' sums are added in ascending order.
    block
        Largest m and n handled at once, cut evenly: fewer slices in memory, and a d of its own for each block.
    bits
        Bits of a slice, in place of the largest that is exact.
    """
    if mode not in MODES:
        raise unknown("mode of the Ozaki scheme", mode, MODES)
    work = _WORK[mode]
    given_a, given_b = array(a, "a"), array(b, "b")
    x, y = given_a.astype(work), given_b.astype(work)
    if mode == "sp" and ((x != given_a).any() or (y != given_b).any()):
        raise ValueError("mode 'sp' multiplies float32 matrices; round them first or take mode 'dp'")
    (m, k), n = x.shape, y.shape[1]
    out = np.zeros((m, n), dtype=work, like=x)
    used: list[tuple[int, int]] = []
    width = bits
    for rows in _pieces(m, block):
        for columns in _pieces(n, block):
            value, counts, width = _block(x[rows], y[:, columns], multiply, mode, d, fast, k_block, bits)
            out[rows, columns] = value
            used += counts
    if (alpha, beta) != (1.0, 0.0):
        out = work(alpha) * out
        if beta != 0.0 and c is not None:
            out = out + work(beta) * array(c, "c").astype(work)
    words = (max((u[0] for u in used), default=0), max((u[1] for u in used), default=0))
    details = {"mode": mode, "bits": width, "slices": used}
    return SchemeProduct(
        out, multiply.record(f"ozaki-{mode}", m, n, k, words=words, scale=2.0 ** (width or 0), details=details)
    )


def _block(
    x: Array, y: Array, multiply: Multiplier, mode: str, d: int | None, fast: bool, k_block: int | None, bits: int | None
) -> tuple[Array, list[tuple[int, int]], int]:
    """One block of C: its value, (sA, sB) of every k-block, and the bits of a slice."""
    k = x.shape[1]
    pieces = _pieces(k, k_block)
    budget, precision = budget_of(multiply.unit)
    width = (
        slice_bits(max((p.stop - p.start for p in pieces), default=1), budget=budget, precision=precision)
        if bits is None
        else bits
    )
    cut: list[tuple[Slices, Slices, int, bool]] = []
    for piece in pieces:
        cut.append(_cut(x[:, piece], y[piece], width, mode, d, fast))
    counts = [(len(left.parts), len(right.parts)) for left, right, _, _ in cut]
    if mode == "cr":
        return _exact_sum(cut, multiply, np.zeros((x.shape[0], y.shape[1]), like=x), width), counts, width
    total = np.zeros((x.shape[0], y.shape[1]), dtype=x.dtype, like=x)
    for left, right, depth, triangle in cut:
        every = ((p, q) for q in range(len(right.parts)) for p in range(len(left.parts)))
        kept = [(p, q) for p, q in every if not (triangle and p + q + 2 > depth + 1)]
        made = multiply.each([(left.parts[p], right.parts[q]) for p, q in kept])
        for (p, q), part in zip(kept, made, strict=True):
            total = total + np.ldexp(part.astype(x.dtype), left.exponents[p][:, None] + right.exponents[q][None, :])
    return total, counts, width


def _cut(x: Array, y: Array, bits: int, mode: str, d: int | None, fast: bool) -> tuple[Slices, Slices, int, bool]:
    """Slices of both sides, the depth d, and whether products p + q > d + 1 are left out."""
    if mode == "cr":
        return slices(x, bits, axis=1), slices(y, bits, axis=0), 0, False
    left = slices(x, bits, axis=1, limit=d)
    depth = slices_needed(left, x, y, _PRECISION[mode]) if d is None else d
    if len(left.parts) > depth:
        left = Slices(left.parts[:depth], left.exponents[:depth], bits, True)
    right = slices(y, bits, axis=0, limit=depth)
    return left, right, depth, fast and (left.rest or right.rest)


def _exact_sum(cut: list[tuple[Slices, Slices, int, bool]], multiply: Multiplier, zero: Array, bits: int) -> Array:
    """Every product of every k-block, added without rounding and rounded once; `zero` where there is none."""
    of_rows = [e for left, *_ in cut for e in left.exponents]
    of_columns = [e for _, right, *_ in cut for e in right.exponents]
    if not of_rows or not of_columns:
        return zero
    rows, columns = np.stack(of_rows), np.stack(of_columns)
    base = np.min(rows, axis=0)[:, None] + np.min(columns, axis=0)[None, :] - 2 * bits
    span = int(np.max(np.max(rows, axis=0)[:, None] + np.max(columns, axis=0)[None, :] - base)) + 64
    total = ExactSum(base, span)
    for left, right, *_ in cut:
        pairs = list(np.ndindex(len(left.parts), len(right.parts)))
        made = multiply.each([(left.parts[p], right.parts[q]) for p, q in pairs])
        for (p, q), product in zip(pairs, made, strict=True):
            part = np.ldexp(product.astype(np.float64), 2 * bits)
            total.add(part, left.exponents[p][:, None] + right.exponents[q][None, :] - 2 * bits - base)
    return total.rounded("float64")


def _pieces(size: int, largest: int | None) -> list[slice]:
    """range(size) in equal pieces of at most `largest`: ceil(size / ceil(size / largest)) each."""
    if largest is None or size <= largest:
        return [slice(0, size)]
    step = -(-size // -(-size // largest))
    return [slice(i, min(i + step, size)) for i in range(0, size, step)]
