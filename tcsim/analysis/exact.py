"""Exact matrix products: sums of integers at any scale, rounded once.

A and B are cut, row by row and column by column, into slices of w-bit integers with 2w + log2 k <= 53, so that a
float64 BLAS product of two slices has no rounding at all, whatever its order. The products are added in fixed point
without rounding (`ExactSum`) and the sum is rounded once to nearest-even.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.arguments import array
from tcsim.errors import unknown

__all__ = [
    "ExactSlices",
    "ExactSum",
    "exact_slice_bits",
    "exact_sum",
    "integer_slices",
    "magnitude",
    "product",
    "rounded_product",
]


def __dir__() -> list[str]:
    return sorted(__all__)


Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

_RADIX = 32
_CHUNK = 2**16  # terms of k that are in slices at a time: it bounds the memory
_PRECISION = {"float64": (53, -1022), "float32": (24, -126), "float16": (11, -14)}


class ExactSlices(NamedTuple):
    """x = sum_t parts[t] · 2^(exponent - bits·levels[t]), exactly: integer parts below 2^bits, one exponent a row."""

    parts: list[Doubles]
    levels: list[int]
    exponent: Ints
    bits: int


def integer_slices(x: npt.ArrayLike, bits: int, *, axis: int, exponent: Ints | None = None) -> ExactSlices:
    """Cut x into integer slices along its rows, without any error.

    `axis` is the summation axis: the entries along it share the exponent 2^exponent > max |x|, the least such one unless
    given (with that axis kept). Slices that are zero everywhere are left out. ValueError for Inf or NaN.
    """
    rest = np.array(x, dtype=np.float64)
    if not np.isfinite(rest).all():
        raise ValueError("an exact product needs finite values")
    if exponent is None:
        exponent = np.frexp(np.max(np.abs(rest), axis=axis, initial=0.0, keepdims=True))[1].astype(np.int64)
    parts: list[Doubles] = []
    levels: list[int] = []
    level = 0
    while rest.any():
        level += 1
        part = np.trunc(np.ldexp(rest, bits * level - exponent))
        if part.any():
            parts.append(part)
            levels.append(level)
            rest -= np.ldexp(part, exponent - bits * level)
    return ExactSlices(parts, levels, np.squeeze(exponent, axis=axis), bits)


class ExactSum:
    """Elementwise sums of integers times powers of two, held exactly: value = sum_l limbs[l] · 2^(32 l + base).

    `base` is an array of exponents, one an element, and `span` the bits above it that may ever be used. Room is left
    for 2^24 additions.
    """

    def __init__(self, base: Ints, span: int) -> None:
        self.base = array(base).astype(np.int64)
        self.limbs = np.zeros((span // _RADIX + 4, *self.base.shape), dtype=np.int64, like=self.base)

    def add(self, integers: npt.NDArray[Any], shift: int | Ints) -> None:
        """Add integers · 2^(shift + base), for |integers| < 2^62 and shift >= 0 within the span."""
        values = array(integers).astype(np.int64)
        low, high = values & 0x7FFFFFFF, values >> 31
        self._put(low, shift)
        self._put(high & 0x7FFFFFFF, shift + 31)
        self._put(high >> 31, shift + 62)

    def _put(self, part: Ints, place: int | Ints) -> None:
        limb, bit = place // _RADIX, place % _RADIX
        moved = part << bit
        if isinstance(limb, int):
            self.limbs[limb] += moved & 0xFFFFFFFF
            self.limbs[limb + 1] += moved >> _RADIX
            return
        places = (np.arange(s, like=self.base) for s in self.base.shape)
        index = (limb[None, ...], *np.ix_(*places))
        self.limbs[index] += (moved & 0xFFFFFFFF)[None, ...]
        self.limbs[(index[0] + 1, *index[1:])] += (moved >> _RADIX)[None, ...]

    def add_float(self, values: npt.ArrayLike) -> None:
        """Add float64 values, which must be multiples of 2^base and lie within the span."""
        fraction, exponent = np.frexp(np.asarray(values, dtype=np.float64))
        integers = np.ldexp(fraction, 53).astype(np.int64)
        places = exponent.astype(np.int64) - 53 - self.base
        below = np.clip(-places, 0, 62)
        self.add(np.where(integers == 0, 0, integers >> below), np.where(integers == 0, 0, np.maximum(places, 0)))

    def rounded(self, fmt: str = "float64") -> Doubles:
        """The sums rounded to nearest-even in float64, float32 or float16, subnormals and overflow included, as float64."""
        return self._round(fmt)[0]

    def pair(self) -> tuple[Doubles, Doubles]:
        """The sums as hi + lo: hi rounded to nearest, lo what is left, to about 40 bits."""
        return self._round("float64")

    def _round(self, fmt: str) -> tuple[Doubles, Doubles]:
        if fmt not in _PRECISION:
            raise unknown("format to round an exact sum to", fmt, _PRECISION)
        precision, emin = _PRECISION[fmt]
        digits, negative = self._digits()
        top, tail, sticky, place = _leading(digits)
        place = place + self.base
        drop = np.maximum(64 - precision, emin - precision + 1 - place)
        hi, lo = _nearest(top, tail, sticky, place, drop)
        if fmt != "float64":
            limit = np.ldexp(2.0 - 2.0 ** (1 - precision), {"float32": 127, "float16": 15}[fmt])
            hi = np.where(hi > limit, np.inf, hi)
        sign = np.where(negative, -1.0, 1.0)
        return hi * sign, lo * sign

    def _digits(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """Magnitudes in radix 2^32, least significant first, and signs."""
        limbs = self.limbs.copy()
        for i in range(len(limbs) - 1):
            limbs[i + 1] += limbs[i] >> _RADIX
            limbs[i] &= 0xFFFFFFFF
        negative = limbs[-1] < 0
        carry = negative.astype(np.int64)
        for i in range(len(limbs)):
            flipped = np.where(negative, ~limbs[i] & 0xFFFFFFFF, limbs[i]) + carry
            limbs[i], carry = flipped & 0xFFFFFFFF, flipped >> _RADIX
        return limbs.astype(np.uint64), negative


def _leading(digits: npt.NDArray[np.uint64]) -> tuple[Any, Any, Any, Ints]:
    """The top 64 bits of each magnitude, normalised, the next 32 bits, whether anything follows, the place of bit 0."""
    count = len(digits)
    top = count - 1 - np.argmax((digits != 0)[::-1], axis=0)

    def digit(offset: int) -> npt.NDArray[np.uint64]:
        found = np.take_along_axis(digits, np.maximum(top - offset, 0)[None, ...], axis=0)[0]
        return np.where(top >= offset, found, np.uint64(0)).astype(np.uint64)

    d0, d1, d2, d3 = (digit(i) for i in range(4))
    seen = np.cumsum(digits != 0, axis=0)
    below = np.take_along_axis(seen, np.maximum(top - 4, 0)[None, ...], axis=0)[0]
    sticky = np.where(top >= 4, below > 0, False)
    up = (_RADIX - np.frexp(d0.astype(np.float64))[1]).clip(0, _RADIX - 1).astype(np.uint64)
    w = np.uint64(_RADIX)
    high = ((d0 << w | d1) << up) | (d2 >> (w - up))
    tail = ((d2 << w | d3) << up) >> w & np.uint64(0xFFFFFFFF)
    sticky |= ((d3 << up) & np.uint64(0xFFFFFFFF)) != 0
    return high, tail, sticky, (top.astype(np.int64) - 1) * _RADIX - up.astype(np.int64)


def _nearest(top: Any, tail: Any, sticky: Any, place: Ints, drop: Ints) -> tuple[Doubles, Doubles]:
    """top·2^place (and what follows it) with its `drop` low bits rounded off to nearest-even, and the remainder."""
    one = np.uint64(1)
    gone = drop >= 64
    shift = np.minimum(drop, 63).astype(np.uint64)
    keep = np.where(gone, np.uint64(0), top >> shift)
    rest = np.where(gone, top, top & ((one << shift) - one))
    half = np.where(gone, one << np.uint64(63), one << (shift - one))
    more = (tail != 0) | sticky
    up = (rest > half) | (rest == half) & (more | (keep & one == one))
    up &= drop <= 64
    keep = keep + up.astype(np.uint64)
    with np.errstate(over="ignore", under="ignore"):
        hi = np.ldexp(keep.astype(np.float64), place + np.where(keep == 0, 0, drop))
        left = np.where(up, -((~rest + one) & ((one << shift) - one)).astype(np.float64), rest.astype(np.float64))
        lo = np.ldexp(left + tail.astype(np.float64) * 2.0**-32, place)
    return hi, np.where(np.isfinite(hi), lo, 0.0)


def exact_slice_bits(k: int, budget: int = 53) -> int:
    """Bits w of a slice for which k products of two slices add exactly in `budget` bits: floor((budget - log2 k)/2)."""
    return (budget - max(int(k) - 1, 0).bit_length()) // 2


def exact_sum(a: npt.ArrayLike, b: npt.ArrayLike) -> ExactSum:
    """A·B held exactly, for A (m, k) and B (k, n) of finite float64 values of any exponents."""
    a2, b2 = np.asarray(array(a, "a"), dtype=np.float64), np.asarray(array(b, "b"), dtype=np.float64)
    k = a2.shape[1]
    w = exact_slice_bits(max(min(k, _CHUNK), 1))
    (rows, deep), (columns, down) = _extent(a2, 1), _extent(b2, 0)
    last = w * (-(-deep // w) + -(-down // w))
    total = ExactSum(rows + columns - last, last + 64)
    for start in range(0, k, _CHUNK):
        left = integer_slices(a2[:, start : start + _CHUNK], w, axis=1, exponent=rows)
        right = integer_slices(b2[start : start + _CHUNK], w, axis=0, exponent=columns)
        for p, x in zip(left.levels, left.parts, strict=True):
            for q, y in zip(right.levels, right.parts, strict=True):
                total.add(x @ y, last - w * (p + q))
    return total


def _extent(x: Doubles, axis: int) -> tuple[Ints, int]:
    """The exponent above each row's largest entry, and the most bits that any row has from there down to its last place."""
    if not np.isfinite(x).all():
        raise ValueError("an exact product needs finite values")
    size = np.abs(x)
    top = np.frexp(np.max(size, axis=axis, initial=0.0, keepdims=True))[1].astype(np.int64)
    least = np.min(size, axis=axis, initial=np.inf, where=size > 0, keepdims=True)
    low = np.where(np.isfinite(least), np.frexp(np.where(np.isfinite(least), least, 1.0))[1] - 53, top)
    return top, int(np.max(top - low, initial=0))


def product(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Doubles, Doubles]:
    """A·B as an unevaluated sum hi + lo: hi is A·B correctly rounded to float64, lo the rest to about 40 bits.

    a (m, k) and b (k, n) of finite values, of any exponents and any k below 2^40.
    """
    return exact_sum(a, b).pair()


def rounded_product(a: npt.ArrayLike, b: npt.ArrayLike, fmt: str = "float64") -> Doubles:
    """A·B correctly rounded to nearest-even in float64, float32 or float16 (returned as float64)."""
    return exact_sum(a, b).rounded(fmt)


def magnitude(a: npt.ArrayLike, b: npt.ArrayLike) -> Doubles:
    """|A||B| in float64, the denominator of the componentwise error; accurate to k·2^-53."""
    result: Doubles = np.abs(np.asarray(array(a, "a"), dtype=np.float64)) @ np.abs(np.asarray(array(b, "b"), dtype=np.float64))
    return result
