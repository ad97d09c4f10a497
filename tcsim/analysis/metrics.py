"""How far a computed C is from a reference: the three error measures of the papers, and two counts of places.

A reference is a float64 array, or a pair (hi, lo) of them whose unevaluated sum it is, as `tcsim.exact.product` gives.
Differences are taken against the pair, so an error far below 2^-53 of the reference is still measured.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.arguments import array
from tcsim.fp.formats import format_named

__all__ = [
    "capped_relative",
    "componentwise",
    "correct_digits",
    "difference",
    "frobenius",
    "max_componentwise",
    "max_relative",
    "mean_relative",
    "normwise",
    "relative",
    "ulp_distance",
    "ulp_histogram",
]


def __dir__() -> list[str]:
    return sorted(__all__)


Doubles: TypeAlias = npt.NDArray[np.float64]
Reference: TypeAlias = npt.NDArray[Any] | tuple[npt.NDArray[Any], npt.NDArray[Any]]


def difference(computed: npt.ArrayLike, reference: Reference) -> Doubles:
    """computed - reference, elementwise; 0 where both are the same infinity or both NaN."""
    c = np.asarray(array(computed, "computed"), dtype=np.float64)
    hi, lo = _parts(reference)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = (c - hi) - lo
    same: Doubles = np.where((c == hi) & np.isinf(c) | np.isnan(c) & np.isnan(hi), 0.0, gap)
    return same


def componentwise(computed: npt.ArrayLike, reference: Reference, magnitude: npt.ArrayLike) -> Doubles:
    """|C - Ĉ|_ij / (|A||B|)_ij for magnitude = |A||B|; 0 where both numerator and denominator are 0 (Fasi et al. 2022, 3.1)."""
    return _ratio(np.abs(difference(computed, reference)), np.asarray(array(magnitude, "magnitude"), dtype=np.float64))


def max_componentwise(computed: npt.ArrayLike, reference: Reference, magnitude: npt.ArrayLike) -> float:
    """max_ij |C - Ĉ|_ij / (|A||B|)_ij, the metric (3.1) of Fasi et al. 2022."""
    return float(np.max(componentwise(computed, reference, magnitude)))


def frobenius(computed: npt.ArrayLike, reference: Reference) -> float:
    """||C - Ĉ||_F / ||C||_F, the relative residual of Ootomo and Yokota 2022; 0 for 0/0."""
    gap, whole = difference(computed, reference), _parts(reference)[0]
    scale = max(float(np.max(np.abs(gap))), float(np.max(np.abs(whole))))
    if not np.isfinite(scale) or scale == 0.0:
        return 0.0 if scale == 0.0 else float("nan")
    return float(_ratio(np.linalg.norm(gap / scale), np.linalg.norm(whole / scale)))


def normwise(computed: npt.ArrayLike, reference: Reference, a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """||C - Ĉ|| / (||A||·||B||) in the matrix infinity norm, the largest sum of magnitudes along a row (Khattak and Mikaitis); 0 for 0/0."""
    gap, left, right = (
        np.abs(np.asarray(x, dtype=np.float64)).sum(axis=1).max() for x in (difference(computed, reference), a, b)
    )
    return float(_ratio(gap, left * right))


def relative(computed: npt.ArrayLike, reference: Reference) -> Doubles:
    """|C - Ĉ|_ij / |C|_ij; 0 for 0/0, infinity for a nonzero error of a zero."""
    return _ratio(np.abs(difference(computed, reference)), np.abs(_parts(reference)[0]))


def mean_relative(computed: npt.ArrayLike, reference: Reference) -> float:
    """Mean of |C - Ĉ|/|C| over the elements."""
    return float(np.mean(relative(computed, reference)))


def max_relative(computed: npt.ArrayLike, reference: Reference) -> float:
    """Largest |C - Ĉ|/|C| of the elements, Mukunoki et al. 2020's measure."""
    return float(np.max(relative(computed, reference)))


def capped_relative(computed: npt.ArrayLike, reference: Reference) -> float:
    """Mean of min(1, |C - Ĉ| / max(|C|, 2^-200)), a NaN counting 1: what Precision Boosting's program plots."""
    gap = np.abs(difference(computed, reference))
    c = np.asarray(array(computed, "computed"), dtype=np.float64)
    errors = _ratio(gap, np.maximum(np.abs(_parts(reference)[0]), 2.0**-200))
    return float(np.mean(np.where(np.isnan(c) | np.isnan(errors), 1.0, np.minimum(errors, 1.0))))


def correct_digits(computed: npt.ArrayLike, reference: Reference, *, base: float = 10.0) -> Doubles:
    """-log_base of the relative error, 0 at least, infinity where exact; bits with base=2."""
    with np.errstate(divide="ignore"):
        digits: Doubles = -np.log(relative(computed, reference)) / np.log(base)
    return np.maximum(digits, 0.0)


def ulp_distance(computed: npt.ArrayLike, reference: npt.ArrayLike, fmt: str = "float32") -> npt.NDArray[np.int64]:
    """Representable numbers of `fmt` stepped over from reference to computed, signed; -0 and +0 are one number.

    Both must hold values of fmt (float16, bfloat16, float32 or float64). NaN against NaN is 0; NaN against a number is
    the largest int64.
    """
    c, r = _ordered(computed, fmt), _ordered(reference, fmt)
    c_nan, r_nan = (
        np.isnan(np.asarray(array(computed, "computed"), dtype=np.float64)),
        np.isnan(np.asarray(array(reference, "reference"), dtype=np.float64)),
    )
    steps = np.where(c_nan & r_nan, 0, np.where(c_nan | r_nan, np.iinfo(np.int64).max, c - r))
    return steps.astype(np.int64)


def ulp_histogram(computed: npt.ArrayLike, reference: npt.ArrayLike, fmt: str = "float32", *, limit: int = 8) -> dict[int, int]:
    """How many elements lie each signed number of ulps away, -limit..limit; the ends count everything beyond them."""
    steps = np.clip(ulp_distance(computed, reference, fmt), -limit, limit)
    return {place: int(np.count_nonzero(steps == place)) for place in range(-limit, limit + 1)}


def _parts(reference: Reference) -> tuple[Doubles, Doubles]:
    if isinstance(reference, tuple):
        hi, lo = reference
        return np.asarray(array(hi, "hi"), dtype=np.float64), np.asarray(array(lo, "lo"), dtype=np.float64)
    hi = np.asarray(array(reference, "reference"), dtype=np.float64)
    return hi, np.zeros_like(hi)


def _ratio(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> Doubles:
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient: Doubles = np.where((top == 0.0) & (bottom == 0.0), 0.0, top / bottom)
    return quotient


def _ordered(values: npt.ArrayLike, fmt: str) -> npt.NDArray[np.int64]:
    """Integers in the order of the values, consecutive for neighbours in the format."""
    known = format_named(fmt)
    drop = 0
    if known.name == "float64":
        bits = np.asarray(values, dtype=np.float64).view(np.int64)
        mask = (1 << 63) - 1
    elif known.name == "float16":
        bits = np.asarray(values, dtype=np.float16).view(np.int16).astype(np.int64)
        mask = 0x7FFF
    else:
        drop = 23 - known.mantissa_bits
        if known.exponent_bits != 8 or drop < 0:
            raise ValueError(f"ulps are counted in float16, bfloat16, tfloat32, float32 or float64; got {known.name}")
        bits = np.asarray(values, dtype=np.float32).view(np.int32).astype(np.int64)
        mask = 0x7FFFFFFF
    magnitude = (bits & np.int64(mask)) >> drop
    ordered: npt.NDArray[np.int64] = np.where(bits < 0, -magnitude, magnitude)
    return ordered
