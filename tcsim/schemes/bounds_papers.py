"""Error bounds as the papers state them: of the paper's arithmetic, not of any tensor core.

Each is a factor f with |C̃ - C| <= f·|A||B| elementwise unless it says otherwise, and supposes what its paper supposes: products
exact and every addition rounded to nearest in u(high) (or, where first order is said, terms in u² left out), and no word,
product or result that underflows or overflows. A unit that truncates exceeds them: V100 errs up to 2.5·2^-24 a product,
k·2^-24 is what they allow. `tcsim.bounds.scheme` is the bound that holds on a unit. u(fmt) = 2^-precision is the unit
roundoff, `k` the inner dimension (Fasi et al. 2022 calls it n).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format, format_named
from tcsim.hardware.unit import Unit
from tcsim.schedule import Blocked, Sequential
from tcsim.schemes.bounds_units import Statement, unit_growth
from tcsim.schemes.multiword import Recipe

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
    """Fasi et al. 2022 (2.5), an array: (2u^p + u^2p)|A||B| + γ_{k+p²-1} sum_ij |A_i||B_j| for all p² products of unscaled words."""
    p, u = len(a_words), roundoff(low)
    k = np.asarray(a_words[0]).shape[1]
    left, right = (sum(np.asarray(w, dtype=np.float64) for w in words) for words in (a_words, b_words))
    sizes = [sum(np.abs(np.asarray(w, dtype=np.float64)) for w in words) for words in (a_words, b_words)]
    spread: Doubles = np.asarray(sizes[0]) @ np.asarray(sizes[1])
    return elementwise(2 * u**p + u ** (2 * p), left, right) + gamma(k + p * p - 1, roundoff(high)) * spread


def multiword_full(k: int, words: int, *, low: str = "float16", high: str = "float32") -> float:
    """Fasi et al. 2022 (2.7), first line, for the products i + j <= p + 1: nothing of first order dropped."""
    p, u = words, roundoff(low)
    kept = gamma(k + p * p - 1, roundoff(high)) * (1 + sum(u**i for i in range(1, p)))
    dropped = sum((p - i) * u ** (p + i - 1) for i in range(1, p))
    return 2 * u**p + u ** (2 * p) + (kept + dropped) * (1 + u) ** 2


def multiword(k: int, words: int, *, low: str = "float16", high: str = "float32") -> float:
    """Fasi et al. 2022 (2.8): (p + 1)u^p + γ_{k+p²-1}, to first order."""
    return (words + 1) * roundoff(low) ** words + gamma(k + words * words - 1, roundoff(high))


def multiword_probable(k: int, words: int, *, low: str = "float16", high: str = "float32") -> float:
    """Fasi et al. 2022 (2.8) with sqrt(k) for k: what mean-independent rounding errors of zero mean give, as to nearest often does.

    It does not hold for truncation of sums of one sign.
    """
    return (words + 1) * roundoff(low) ** words + gamma(math.sqrt(k) + words * words - 1, roundoff(high))


def dominant(k: int, words: int, *, low: str = "float16", high: str = "float32") -> float:
    """Fasi et al. 2022, Table 2.1: the dominant terms of (2.8); the splitting term is left out where u_low^p is of the size of u_high.

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
    """Any multiword recipe: splitting, dropped products, and accumulation, by the argument of (2.7), for normal words.

    Nothing may underflow; `tcsim.bounds.scheme` needs no such promise, since it takes the words as they are.

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
    if made.chunk and len(group) > 1:
        terms = -(-k // made.chunk) * made.chunk * len(group)
    if not isinstance(schedule, Sequential | Blocked | None):
        raise ValueError(f"no growth is known of a recipe's products under {schedule}; Sequential() and Blocked(...) are")
    block = min(schedule.b, terms) if isinstance(schedule, Blocked) else terms
    chain = gamma(block, roundoff(high)) if unit is None else unit_growth(unit, block).factor
    if not isinstance(schedule, Blocked):
        return chain
    outside = gamma(-(-terms // block), roundoff(schedule.sum))
    return (1 + chain) * (1 + outside) * (1 + roundoff(high)) - 1


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
    """Uchino, Ozaki and Imamura, an array: 4(s+1)·k·2^(-qs)·αβ^T + (s-1)·u|A||B|, α and β powers of two above the rows.

    The triangle p + q <= s + 1, its products of equal p + q added without error (their EF), so s - 1 additions round.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    alpha, beta = _power_above(x, axis=1), _power_above(y, axis=0)
    head: Doubles = 4.0 * (slices + 1) * x.shape[1] * 2.0 ** (-bits * slices) * np.outer(alpha, beta)
    return head + elementwise((slices - 1) * roundoff(high), x, y)


def ozaki_relative(
    a: npt.ArrayLike, b: npt.ArrayLike, slices_a: int, slices_b: int, bits: int, *, high: str = "float64",
    triangle: bool = False, how: str = "cut",
) -> float:  # fmt: skip
    """Abdelfattah et al.: κAuA + κBuB + κAκBuAuB + γ_{sAsB-1}(1 + κAuA + κBuB + κAκBuAuB), u = 2^(-s·q), all products.

    With `triangle`, for the products p + q <= max(sA, sB) + 1 alone, the dropped ones are added, which the paper's bound
    leaves out: sum of min(h, κA·2^(-q(i-1)))·min(h, κB·2^(-q(j-1))) over them. Proof: slice i of x is at most
    2^(-q(i-1)) times the row's power of two above, which is at most κ|x| (2κ|x| for `how` = "nearest", where a slice may
    round up), and at most h|x|, h = 1 for "cut" and 2 for "nearest"; a zero has only zero slices.
    """
    kappas = kappa(a, axis=1), kappa(b, axis=0)
    left, right = kappas[0] * 2.0 ** (-slices_a * bits), kappas[1] * 2.0 ** (-slices_b * bits)
    split = left + right + left * right
    total = split + gamma(slices_a * slices_b - 1, roundoff(high)) * (1 + split)
    if not triangle:
        return total
    most = 1.0 if how == "cut" else 2.0
    sides = [
        [min(most, most * size * 2.0 ** (-bits * t)) for t in range(count)]
        for size, count in zip(kappas, (slices_a, slices_b), strict=True)
    ]
    last = max(slices_a, slices_b) + 1
    return total + sum(x * y for i, x in enumerate(sides[0], 1) for j, y in enumerate(sides[1], 1) if i + j > last)


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


# What each of these is proved for, by name.
_RN = "exact products, every addition rounded to nearest in u(high)"
_NORMAL = "no word, product or sum underflows or overflows"
_ANY = "any order of the additions"
_FASI, _S3 = "Fasi, Higham, Lopez, Mary and Mikaitis 2022", "Abdelfattah et al. 2025"
STATEMENTS = {
    "multiword_all": Statement(
        "(2 u^p + u^2p) |A||B| + gamma_(k+p^2-1) sum |A_i||B_j|", _RN, _ANY + ", all p^2 products", _NORMAL, f"{_FASI}, (2.5)"
    ),
    "multiword_full": Statement(
        "(2.7), first line", _RN, _ANY + ", products i + j <= p + 1", _NORMAL, f"{_FASI}, (2.7)"
    ),
    "multiword": Statement(
        "(p + 1) u^p + gamma_(k+p^2-1), first order", _RN, _ANY + ", products i + j <= p + 1", _NORMAL, f"{_FASI}, (2.8)"
    ),
    "multiword_probable": Statement(
        "(p + 1) u^p + gamma_(sqrt(k)+p^2-1), first order", _RN + ", the errors mean independent and of mean zero", _ANY,
        _NORMAL, f"{_FASI}, after (2.8)"
    ),
    "dominant": Statement(
        "the largest terms of (2.8)", _RN, _ANY + ", products i + j <= p + 1", _NORMAL, f"{_FASI}, Table 2.1"
    ),
    "fabsum": Statement(
        "b u + (k/b) u_sum, first order; sqrt(k/b) supposes errors mean independent and of mean zero", _RN,
        "blocks of b, their sums added one after the other", _NORMAL, f"{_FASI}, section 4"
    ),
    "recipe": Statement(
        "2 u^p + u^2p + sum of growth u^(i+j-2) (1 + u)^2", _RN + ", or `unit_growth` of a unit", "the recipe's", _NORMAL,
        f"this project, by the argument of {_FASI}, (2.7)"
    ),
    "ozaki_uchino": Statement(
        "4 (s+1) k 2^-qs alpha beta^T + (s-1) u |A||B|", "exact integer products, float64 additions",
        "products of equal p + q added exactly, then s - 1 additions", _NORMAL, f"Uchino, Ozaki and Imamura 2025; {_S3}, (6)"
    ),
    "ozaki_relative": Statement(
        "(kA uA + kB uB + kA kB uA uB)(1 + gamma_(sA sB-1)) + gamma_(sA sB-1)", "exact integer products, float64 additions",
        _ANY + ", all products; the triangle's dropped products by this project", _NORMAL, _S3
    ),
    "ozaki_crt": Statement(
        "2^-mu |B| + 2^-nu |A| + k 2^(-mu-nu) + u |A||B|", "exact integer products, one rounding", "any", _NORMAL,
        "this project, for Ozaki, Uchino and Imamura, arXiv 2504.08009"
    ),
}  # fmt: skip
