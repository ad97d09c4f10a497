"""Error bounds of the schemes, as the papers state them.

Unless a docstring says otherwise a bound is a factor f with |C̃ - C| <= f·|A||B| elementwise, free of underflow and
overflow; `elementwise` makes it an array for given A and B. u(fmt) = 2^-precision is the unit roundoff. `k` is the
inner dimension (Fasi et al. 2022 calls it n).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.bounds_units import Bound, Growth, unit_growth, unit_product
from tcsim.formats import Format, format_named
from tcsim.multiword import Recipe
from tcsim.schedule import Blocked
from tcsim.units import Unit

Array: TypeAlias = npt.NDArray[Any]
Doubles: TypeAlias = npt.NDArray[np.float64]


def roundoff(fmt: str | Format) -> float:
    """u = 2^-precision: 2^-11 for float16, 2^-8 for bfloat16, 2^-24 for float32."""
    return float(2.0 ** -format_named(fmt).precision)


def gamma(n: float, u: float) -> float:
    """γ_n = n·u / (1 - n·u); infinity where n·u >= 1 and the theory says nothing."""
    return n * u / (1.0 - n * u) if n * u < 1.0 else math.inf


def elementwise(factor: float, a: npt.ArrayLike, b: npt.ArrayLike) -> Doubles:
    """factor·|A||B| as an array."""
    magnitude: Doubles = np.abs(np.asarray(a, dtype=np.float64)) @ np.abs(np.asarray(b, dtype=np.float64))
    return factor * magnitude


# Multiword products, Fasi et al. 2022 section 2


def multiword_all(
    a_words: Sequence[Array], b_words: Sequence[Array], *, low: str = "float16", high: str = "float32"
) -> Doubles:
    """(2.5), an array: (2u^p + u^2p)|A||B| + γ_{k+p²-1} sum_ij |A_i||B_j| for all p² products of unscaled words."""
    p, u = len(a_words), roundoff(low)
    k = np.asarray(a_words[0]).shape[1]
    left, right = (sum(np.asarray(w, dtype=np.float64) for w in words) for words in (a_words, b_words))
    sizes = [sum(np.abs(np.asarray(w, dtype=np.float64)) for w in words) for words in (a_words, b_words)]
    spread: Doubles = np.asarray(sizes[0]) @ np.asarray(sizes[1])
    return elementwise(2 * u**p + u ** (2 * p), left, right) + gamma(k + p * p - 1, roundoff(high)) * spread


def multiword_full(k: int, words: int, *, low: str = "float16", high: str = "float32") -> float:
    """(2.7), first line, for the products i + j <= p + 1: nothing of first order dropped."""
    p, u = words, roundoff(low)
    kept = gamma(k + p * p - 1, roundoff(high)) * (1 + sum(u**i for i in range(1, p)))
    dropped = sum((p - i) * u ** (p + i - 1) for i in range(1, p))
    return 2 * u**p + u ** (2 * p) + (kept + dropped) * (1 + u) ** 2


def multiword(k: int, words: int, *, low: str = "float16", high: str = "float32") -> float:
    """(2.8): (p + 1)u^p + γ_{k+p²-1}, to first order."""
    return (words + 1) * roundoff(low) ** words + gamma(k + words * words - 1, roundoff(high))


def multiword_probable(k: int, words: int, *, low: str = "float16", high: str = "float32") -> float:
    """(2.8) with sqrt(k) for k: what mean-independent rounding errors of zero mean give, as to nearest often does.

    It does not hold for truncation of sums of one sign.
    """
    return (words + 1) * roundoff(low) ** words + gamma(math.sqrt(k) + words * words - 1, roundoff(high))


def dominant(k: int, words: int, *, low: str = "float16", high: str = "float32") -> float:
    """Table 2.1: the dominant terms of (2.8); the splitting term is left out where u_low^p is of the size of u_high.

    2·2^-11 + k·2^-24 for fp16, k·2^-24 for double-fp16, 2·2^-8 + k·2^-24, 3·2^-16 + k·2^-24 and k·2^-24 for one, two
    and three words of bf16.
    """
    split = (words + 1) * roundoff(low) ** words
    return (split if roundoff(low) ** words > 4 * roundoff(high) else 0.0) + k * roundoff(high)


def fabsum(k: int, block: int, *, high: str = "float32", sum: str = "float32", probable: bool = False) -> float:
    """FABsum, first order: b·u + (k/b)·u_sum (v1 for sum float32, v2 for float64); sqrt(k/b) when `probable`."""
    outer = k / block
    return block * roundoff(high) + (math.sqrt(outer) if probable else outer) * roundoff(sum)


def recipe(made: Recipe, k: int, *, high: str = "float32", unit: Unit | None = None) -> float:
    """Any multiword recipe: splitting, dropped products, and accumulation, by the argument of (2.7).

    Kept products cost growth·u^(i+j-2)(1+u)², dropped ones u^(i+j-2)(1+u)², the split 2u^p + u^2p. The growth of a
    product is γ of the additions it passes, its own and those of later products on the same accumulator, in u(high), or
    `unit_growth` where a unit is given. Stages of k only make the error smaller.
    """
    u, p = roundoff(made.fmt), made.words
    total = 2 * u**p + u ** (2 * p)
    growths = [_group_growth(made, group, k, high, unit) for group in made.groups]
    outside = gamma(len(made.products), roundoff(high))
    where = {pair: g for g, group in enumerate(made.groups) for pair in group}
    for i in range(1, p + 1):
        for j in range(1, p + 1):
            size = u ** (i + j - 2) * (1 + u) ** 2
            if (i, j) in where:
                later = growths[where[i, j] :] if made.merge == "chain" else [growths[where[i, j]]]
                size *= math.prod(1 + g for g in later) * (1 + outside) - 1
            total += size
    return total


def _group_growth(made: Recipe, group: tuple[tuple[int, int], ...], k: int, high: str, unit: Unit | None) -> float:
    """Growth of the products that share one accumulator, under the recipe's own schedule for them."""
    schedule = made.first if group == ((1, 1),) else made.others
    terms = k * len(group)
    block = min(schedule.b, terms) if isinstance(schedule, Blocked) else terms
    chain = gamma(block, roundoff(high)) if unit is None else unit_growth(unit, block).factor
    if not isinstance(schedule, Blocked):
        return chain
    return chain + gamma(-(-terms // block), roundoff(schedule.sum)) + roundoff(high)


# The drift of truncation on data of one sign


def drift_constant(unit: Unit) -> float:
    """κ = ½·2^-neab + (1 - 2^-neab)/(2L)·[final rounding toward zero], neab = F - 23 extra alignment bits.

    With exact alignment neab is infinite; the first term is the truncation of the accumulator where it is aligned.
    """
    extra = 0.0
    if unit.align_rounding in ("rz", "rd") and unit.fraction_bits is not None:
        extra = 2.0 ** (23 - unit.fraction_bits)
    return 0.5 * extra + (1.0 - extra) / (2 * unit.block_size) * (unit.rounding == "rz")


def drift(unit: Unit, k: int) -> float:
    """Expected componentwise error of a chain of k products uniform on (0, 1]²: (2^-23/3)·κ·k.

    The accumulator grows as k/4, so each block loses κ·L ulps of it on average; matches simulation within 2 % at
    k = 2^20 where k/4 is a power of two.
    """
    return 2.0**-23 / 3.0 * drift_constant(unit) * k


# The Ozaki scheme in integers, Abdelfattah et al. 2025


def kappa(x: npt.ArrayLike, *, axis: int) -> float:
    """κ = 2 max over rows of (largest magnitude / smallest nonzero magnitude); `axis` is the summation axis; 2 for zeros."""
    size = np.abs(np.asarray(x, dtype=np.float64))
    largest = np.max(size, axis=axis, initial=0.0)
    smallest = np.min(np.where(size > 0, size, np.inf), axis=axis, initial=np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        ratio = np.where(largest > 0, largest / np.where(np.isinf(smallest), 1.0, smallest), 1.0)
    return float(2.0 * np.max(ratio, initial=1.0))


def ozaki_uchino(a: npt.ArrayLike, b: npt.ArrayLike, slices: int, bits: int, *, high: str = "float64") -> Doubles:
    """Uchino, Ozaki and Imamura, an array: 4(s+1)·k·2^(-qs)·αβ^T + (s-1)·u|A||B|, α and β powers of two above the rows."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    alpha, beta = _power_above(x, axis=1), _power_above(y, axis=0)
    head: Doubles = 4.0 * (slices + 1) * x.shape[1] * 2.0 ** (-bits * slices) * np.outer(alpha, beta)
    return head + elementwise((slices - 1) * roundoff(high), x, y)


def ozaki_relative(
    a: npt.ArrayLike, b: npt.ArrayLike, slices_a: int, slices_b: int, bits: int, *, high: str = "float64"
) -> float:
    """Abdelfattah et al.: κAuA + κBuB + κAκBuAuB + γ_{sAsB-1}(1 + κAuA + κBuB + κAκBuAuB), u = 2^(-s·q), all products."""
    left = kappa(a, axis=1) * 2.0 ** (-slices_a * bits)
    right = kappa(b, axis=0) * 2.0 ** (-slices_b * bits)
    split = left + right + left * right
    return split + gamma(slices_a * slices_b - 1, roundoff(high)) * (1 + split)


def ozaki_crt(a: npt.ArrayLike, b: npt.ArrayLike, rows: Array, columns: Array, *, high: str = "float64") -> Doubles:
    """Scheme II with row exponents μ and column exponents ν, an array: truncation and one rounding.

    2^-μ_i sum_h |b_hj| + 2^-ν_j sum_h |a_ih| + k·2^(-μ_i-ν_j) + u|A||B|.
    """
    x, y = np.abs(np.asarray(a, dtype=np.float64)), np.abs(np.asarray(b, dtype=np.float64))
    unit_a, unit_b = np.ldexp(1.0, -np.asarray(rows))[:, None], np.ldexp(1.0, -np.asarray(columns))[None, :]
    lost: Doubles = unit_a * y.sum(axis=0)[None, :] + unit_b * x.sum(axis=1)[:, None] + x.shape[1] * unit_a * unit_b
    return lost + elementwise(roundoff(high), x, y)


def _power_above(x: Doubles, *, axis: int) -> Doubles:
    """The smallest power of two larger than every magnitude of a row; 0 for a row of zeros."""
    top = np.max(np.abs(x), axis=axis)
    power: Doubles = np.where(top > 0, np.ldexp(1.0, np.frexp(top)[1]), 0.0)
    return power
