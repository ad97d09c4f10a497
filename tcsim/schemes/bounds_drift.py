"""The drift: the mean error of a long chain on data of one sign, for every rounding of aligned terms and of the result.

A chain of k products of numbers uniform on (0, 1] grows as k/4. While c lies in [2^m, 2^(m+1)) its last place is
2^(m-p+1), terms are cut at q = 2^(m-F) and a block of L products changes c by L·E[round_q(x)] - 2^(m-p+1)·ρ, where x = ab
has P(x > t) = 1 - t + t·ln t, and ρ is the mean loss of the final rounding in last places. With n = F - p + 1 extra
alignment bits the sum's bits below the last place are j/2^n, every j as likely as any other, so that

    terms, q « 1   rz rd: q/2 lost      ru: q/2 gained      rne rna ro sr exact: 0
    result         rz rd: ρ = (1 - 2^-n)/2      ru: -(1 - 2^-n)/2      rna: -2^-n/2 for n > 0 (ties go up)      rne ro sr: 0

and j is even (or odd) for terms rounded to odd and an even (or odd) L. n is infinite for exact alignment, and ρ = 0 for
n <= 0: nothing is left to round. c itself is not cut. Terms not small against q lose all of themselves to rz, or gain in
the others; the sums over P(x > jq) account for that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.modes import mode
from tcsim.hardware.unit import Unit
from tcsim.schemes.bounds_gates import DRIFTS, mean_loss

_MOST_STEPS = 1 << 14  # beyond so many quanta in (0, 1] the loss of a term is q/2 to four digits


def drift_constant(unit: Unit) -> float | None:
    """κ, the mean loss of a product in last places of the accumulator while products are large against what is cut.

    κ = t·2^-n + ρ/L, t = 1/2 for terms cut toward zero or down, -1/2 for up, and 0 otherwise (see the module).
    Positive where the result is too small. None where no closed form is known: scaled, integer and paired units. ValueError for a unit
    with something in it that the closed form has not heard of (`bounds_gates`).
    """
    DRIFTS.check(unit)
    if unit.scale is not None or unit.arithmetic in ("integer", "paired"):
        return None
    if unit.c_enters == "after":
        return 0.0
    n = _extra_bits(unit)
    if unit.arithmetic == "two-stage":
        return float(0.5 * 2.0**-n + _final(unit, n)) / unit.block_size
    if math.isinf(n):
        return _final(unit, n) / unit.block_size
    return float(mean_loss(unit.align_rounding) * 2.0**-n) + _final(unit, n) / unit.block_size


def drift(unit: Unit, k: int) -> float | None:
    """Expected componentwise error of a chain of k products uniform on (0, 1]², from zero: the size of `signed_drift`.

    (2^(1-p)/3)·|κ|·k where k/4 is a power of two and the error is small; between powers of two the mean last place over
    the way is up to an eighth larger. Nearly 0 where nothing drifts: errors then grow as sqrt(k), which is not counted.
    None where no closed form is known: scaled, integer and paired units, results that overflow, and a last place that is no
    longer small against what a block adds, when rounding to nearest stops the sum.
    """
    signed = signed_drift(unit, k)
    return None if signed is None else abs(signed)


def signed_drift(unit: Unit, k: int) -> float | None:
    """`drift` with its sign, positive where the result is too small: c followed through its binades, block by block on average."""
    constant = drift_constant(unit)
    end = k / 4
    if constant is None or end > unit.out_format.max_finite:
        return None
    top = math.floor(math.log2(max(end, 1.0)))
    last_place = 2.0 ** (top - unit.kept_bits + 1)
    if 4 * last_place > unit.block_size / 4 and _extra_bits(unit) > 0:
        return None
    if unit.c_enters == "after" or k <= 4:
        return 0.0
    c, left = 1.0, max(k - 4.0, 0.0) / unit.block_size
    for m in range(top + 2):
        step = _gain(unit, m)
        if step <= 0.0:
            break
        blocks = min(left, (2.0 ** (m + 1) - c) / step)
        c, left = c + blocks * step, left - blocks
        if left <= 0.0:
            break
    return (end - c) / end


def _extra_bits(unit: Unit) -> float:
    """n: bits of the aligned sum below the last place of the result."""
    if unit.arithmetic == "two-stage":
        assert unit.late_fraction_bits is not None
        return unit.late_fraction_bits - unit.kept_bits + 1
    if unit.align_rounding == "exact" or unit.fraction_bits is None:
        return math.inf
    return unit.fraction_bits - unit.kept_bits + 1


def _final(unit: Unit, n: float) -> float:
    """ρ, the mean loss of the final rounding in last places."""
    if n <= 0:
        return 0.0
    grid = 2.0**-n
    odd_terms = unit.align_rounding == "ro" and unit.arithmetic == "aligned"
    mean, tie = 0.5 * (1.0 - grid), grid
    if odd_terms and unit.block_size % 2:
        mean, tie = 0.5, float(n == 1)
    elif odd_terms:
        mean, tie = 0.5 - grid, 2 * grid * (n >= 2)
    ties = -0.5 * tie if mode(unit.rounding).rule == "away" else 0.0  # which all go up
    return float(2.0 * mean_loss(unit.rounding) * mean + ties)


def _gain(unit: Unit, m: int) -> float:
    """What a block adds to an accumulator in [2^m, 2^(m+1)), on average."""
    n, size = _extra_bits(unit), unit.block_size
    last_place = 2.0 ** (m - unit.kept_bits + 1)
    if unit.arithmetic == "two-stage":
        return float(size / 4 - last_place * (0.5 * 2.0**-n + _final(unit, n)))
    term = 0.25 if math.isinf(n) else _mean_rounded(unit.align_rounding, last_place * 2.0**-n)
    return float(size * term - last_place * _final(unit, n))


def _mean_rounded(rounding: str, q: float) -> float:
    """E[round_q(x)] of x = ab with a, b uniform on (0, 1]; 1/4 is the mean of x itself."""
    if rounding == "exact" or mode(rounding).toward == "random":
        return 0.25
    loss, toward = mean_loss(rounding), mode(rounding).toward
    if q * _MOST_STEPS < 1.0:
        return 0.25 - loss * q
    j = np.arange(1, math.ceil(1.0 / q) + 1)
    if toward == "nearest":
        return float(q * _beyond((j - 0.5) * q).sum())
    if toward == "odd":
        return float(q * (1.0 + 2.0 * _beyond(2 * j * q).sum()))
    return float(q * ((toward == "+infinity") + _beyond(j * q).sum()))


def _beyond(t: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """P(x > t)."""
    inside = np.clip(t, 1e-300, 1.0)
    return np.where(t < 1.0, 1.0 - inside + inside * np.log(inside), 0.0)
