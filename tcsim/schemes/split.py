"""Splitting a matrix into words of a narrow format.

Word i is A_i = fl_low(R_i) with R_1 = A and R_{i+1} = (R_i - A_i)·s, so A ~ sum_i A_i s^-(i-1). With s = 1 this is
equation (2.2) of Fasi et al. 2022; with s = 2^11 the low word of fp16 keeps clear of underflow. The subtraction is
exact in float64.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.arguments import array
from tcsim.fp.formats import Format, format_named

Array: TypeAlias = npt.NDArray[Any]
Doubles: TypeAlias = npt.NDArray[np.float64]


def split(
    x: npt.ArrayLike, fmt: str | Format, words: int, *, scale: float = 1.0, rounding: str = "rne", rest: str = "rne"
) -> list[Doubles]:
    """The words of x in `fmt`, the last one scaled by scale^(words-1); float64 arrays of values fmt holds.

    `rounding` makes the first word, `rest` the others. `scale` is a power of two. ValueError where a finite value
    overflows the format, naming the element; an Inf or NaN has words (itself, 0, 0, …).
    """
    from tcsim.fp.round_to import round_to

    known = format_named(fmt)
    if not words >= 1:
        raise ValueError(f"a split needs at least 1 word; got words={words}")
    if scale <= 0 or np.frexp(scale)[0] != 0.5:
        raise ValueError(f"the scale between words must be a power of two, which costs no rounding; got scale={scale!r}")
    left = array(x).astype(np.float64)
    finite = np.isfinite(left)
    limit = known.max_finite + 2.0 ** (known.emax - known.mantissa_bits - 1)
    result: list[Doubles] = []
    for i in range(words):
        mode = rounding if i == 0 else rest
        word = round_to(left, known, mode)
        lost = finite & (~np.isfinite(word) | (mode == "rne") & (np.abs(left) >= limit))
        if lost.any():
            where = tuple(int(v) for v in np.argwhere(lost)[0])
            raise ValueError(
                f"element {where} = {float(array(x)[where]):g} overflows {known.name} (largest {known.max_finite:g}) in word "
                f"{i + 1}; scale the matrices (narrow-range) or take a format with more exponent bits"
            )
        result.append(word)
        if i + 1 < words:
            left = np.where(finite, left - np.where(finite, word, 0.0), 0.0) * scale
    return result


def joined(words: list[Doubles], *, scale: float = 1.0) -> Doubles:
    """sum_i A_i scale^-(i-1), added from the last word up in float64."""
    total = np.zeros_like(words[0])
    for word in reversed(words):
        total = total / scale + word
    return total


def equilibrate(x: npt.ArrayLike, theta: float, *, axis: int) -> npt.NDArray[np.int64]:
    """Exponents e, one a row, with max |x·2^e| <= theta and as large as that allows; 0 for a row of zeros.

    The two-sided diagonal scaling of Mary and Mikaitis for formats of narrow range: `axis` is the summation axis.
    """
    top = np.max(np.abs(array(x).astype(np.float64)), axis=axis)
    fraction, exponent = np.frexp(np.where(top > 0, top, 1.0))
    limit, place = np.frexp(theta)
    fits = place - exponent - (fraction > limit)
    return np.where(top > 0, fits, 0).astype(np.int64)


def range_limit(fmt: str | Format, k: int, out: str | Format = "float32") -> float:
    """theta = min(f_max, sqrt(F_max / k)): no scaled word overflows fmt, no sum of k products overflows `out`."""
    low, high = format_named(fmt), format_named(out)
    return float(min(low.max_finite, np.sqrt(high.max_finite / max(k, 1))))
