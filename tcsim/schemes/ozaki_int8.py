"""The Ozaki scheme on INT8 tensor cores: float64 matrices as slices of small integers, whose products are exact.

Row i of A is 2^e_i sum_t 2^-bt A_t with integer A_t, and column j of B likewise, so A·B is a sum of integer products
times 2^(e_i + f_j - b(p+q)); only the float64 additions of those products round.

Two ways to slice: "cut" takes the bits of the magnitude, b at a time (Ootomo, Ozaki and Yokota, IJHPCA 2024, ozIMMU);
"nearest" rounds to the nearest slice, so that slices are signed and one bit shorter (Uchino, Ozaki and Imamura, IJHPCA
2025). Two ways to add: one float64 addition a product, or products of equal p + q first in INT32 (their "group-wise
error-free" sum), which saves float64 additions. Their four variants are OOY = cut, RN = nearest, EF = cut and grouped,
H = nearest and grouped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.arguments import array
from tcsim.errors import unknown
from tcsim.schemes.multiplier import Multiplier, SchemeProduct

Array: TypeAlias = npt.NDArray[Any]
Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
VARIANTS = {"ooy": ("cut", False), "rn": ("nearest", False), "ef": ("cut", True), "h": ("nearest", True)}


class IntSlices(NamedTuple):
    """x ~ 2^exponent sum_t 2^(-bits·t) parts[t-1], int8 parts, one exponent a row; `rest` is what is left of x."""

    parts: list[npt.NDArray[np.int8]]
    exponent: Ints
    bits: int
    rest: Doubles


def int8_slice_bits(k: int) -> int:
    """b = min(7, floor((31 - ceil(log2 k))/2)): k products of two b-bit slices add exactly in INT32."""
    return min(7, (31 - max(k - 1, 0).bit_length()) // 2)


def group_size(k: int, bits: int) -> int:
    """r = 2^(31 - 2b - ceil(log2 k)): how many products of equal p + q fit in INT32 together."""
    return int(2 ** max(31 - 2 * bits - max(k - 1, 0).bit_length(), 0))


def int_slices(x: npt.ArrayLike, count: int, bits: int, *, axis: int, how: str = "cut") -> IntSlices:
    """`count` slices of each row of x (`axis` is the summation axis).

    "cut": the row is scaled by the power of two above its largest magnitude and its magnitude's bits are taken `bits`
    at a time, |slice| <= 2^bits - 1. "nearest": slice t is (x + σ) - σ with σ = 1.5·2^(53-b)·npt(max), then σ·2^-b,
    npt the power of two not below the largest magnitude; |slice| <= 2^(bits-1), and the first slice holds bits - 1 bits.
    A row of zeros has exponent 0.
    """
    left = array(x).astype(np.float64)
    fraction, place = np.frexp(np.max(np.abs(left), axis=axis, keepdims=True))
    if how == "cut":
        exponent = place.astype(np.int64)
    elif how == "nearest":
        exponent = place.astype(np.int64) - (fraction == 0.5) + 1
    else:
        raise unknown("way to slice", how, ("cut", "nearest"))
    parts = []
    for t in range(1, count + 1):
        scaled = np.ldexp(left, bits * t - exponent)
        part = np.trunc(scaled) if how == "cut" else np.rint(scaled)
        left = left - np.ldexp(part, exponent - bits * t)
        parts.append(part.astype(np.int8))
    return IntSlices(parts, np.squeeze(exponent, axis=axis), bits, left)


def gemm(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    multiply: Multiplier,
    *,
    slices: int | tuple[int, int] | str = 8,
    variant: str = "ooy",
    triangle: bool = True,
    threshold: float = 0.0,
) -> SchemeProduct:
    """A·B in float64 for finite A (m, k), B (k, n).

    slices
        s, or (s_A, s_B), or "auto": the fewest whose mean mantissa loss is at most `threshold` bits (`auto_slices`).
    variant
        "ooy", "rn", "ef" or "h" (see the module). Products are taken for p + q = 2, 3, …, p ascending, and added to
        float64 in that order.
    triangle
        Leaves out products p + q > max(s_A, s_B) + 1.
    """
    if variant not in VARIANTS:
        raise unknown("variant of the INT8 Ozaki scheme", variant, VARIANTS)
    how, grouped = VARIANTS[variant]
    x, y = array(a, "a").astype(np.float64), array(b, "b").astype(np.float64)
    (m, k), n = x.shape, y.shape[1]
    bits = int8_slice_bits(k)
    if slices == "auto":
        counts = (auto_slices(x, bits, axis=1, threshold=threshold), auto_slices(y, bits, axis=0, threshold=threshold))
    else:
        counts = _counts(slices)
    left, right = int_slices(x, counts[0], bits, axis=1, how=how), int_slices(y, counts[1], bits, axis=0, how=how)
    most = group_size(k, bits) if grouped else 1
    levels = [
        [(p, level - p) for p in range(max(1, level - counts[1]), min(counts[0], level - 1) + 1)]
        for level in range(2, (max(counts) + 1 if triangle else sum(counts)) + 1)
    ]
    groups = [pairs[first : first + most] for pairs in levels for first in range(0, len(pairs), most)]
    sides = [[(left.parts[p - 1], right.parts[q - 1]) for p, q in group] for group in groups]
    total = np.zeros((m, n), like=x)
    for group, part in zip(groups, _sums(sides, multiply), strict=True):
        total += np.ldexp(part.astype(np.float64), -bits * sum(group[0]))
    with np.errstate(over="ignore", under="ignore"):
        c = np.ldexp(total, left.exponent[:, None] + right.exponent[None, :])
    details = {"variant": variant, "bits": bits, "float64_additions": len(groups), "group": most}
    products = tuple(pair for pairs in levels for pair in pairs)
    record = multiply.record("ozaki-int8", m, n, k, words=counts, scale=2.0**bits, products=products, details=details)
    return SchemeProduct(c, record)


def _sums(groups: list[list[tuple[Array, Array]]], multiply: Multiplier) -> Iterator[Array]:
    """The sum of each group's products, on the accumulators of the one before."""
    if all(len(group) == 1 for group in groups):
        yield from multiply.each([group[0] for group in groups])
        return
    for (a, b), *more in groups:
        part = multiply(a, b)
        for x, y in more:
            part = multiply(x, y, part)
        yield part


def auto_slices(x: npt.ArrayLike, bits: int, *, axis: int, threshold: float = 0.0, precision: int = 53, most: int = 18) -> int:
    """The fewest slices whose mean loss of mantissa bits over the nonzero elements is at most `threshold`.

    s slices keep b·s bits below the row's exponent; an element d binary orders below it keeps b·s - d of its
    `precision` bits, or fewer where its own low bits are zero. ozIMMU's automatic mode, at least 3 and at most `most`.
    """
    values = array(x).astype(np.float64)
    places = np.frexp(np.abs(values))[1].astype(np.int64)
    nonzero = values != 0
    if not nonzero.any():
        return 3
    top = np.max(np.where(nonzero, places, np.iinfo(np.int64).min), axis=axis, keepdims=True)
    low = places - precision + _trailing_zeros(values, precision)
    span = np.where(nonzero, np.broadcast_to(top, places.shape) - low, 0)
    for s in range(3, most + 1):
        if np.maximum(span - bits * s, 0).sum() <= threshold * np.count_nonzero(nonzero):
            return s
    return most


def _trailing_zeros(values: Doubles, precision: int) -> Ints:
    """Zero bits at the low end of each significand of `precision` bits."""
    integers = np.ldexp(np.abs(np.frexp(values)[0]), precision).astype(np.int64)
    lowest = integers & -integers
    return np.where(integers == 0, 0, np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1)


def _counts(slices: int | tuple[int, int] | str) -> tuple[int, int]:
    if isinstance(slices, str):
        raise unknown("number of slices", slices, ("auto", "an integer", "a pair (s_A, s_B)"))
    s_a, s_b = slices if isinstance(slices, tuple) else (slices, slices)
    if min(s_a, s_b) < 1:
        raise ValueError(f"a matrix needs at least 1 slice; got slices={slices!r}")
    return s_a, s_b
