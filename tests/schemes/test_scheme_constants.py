"""Constants and comparisons of the schemes at the inputs where they decide: one off is another number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tcsim.quantize import _divided, quantize, scaled_formats
from tcsim.schemes import bounds, ozaki, ozaki_crt
from tcsim.schemes.multiplier import Multiplier

U16, U32 = Fraction(1, 2**11), Fraction(1, 2**24)


def gamma(n: int) -> Fraction:
    return n * U32 / (1 - n * U32)


@pytest.mark.parametrize("words", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_the_index_of_gamma(k: int, words: int) -> None:
    """(2.5), (2.7) and (2.8) in rationals at small k, where an index one off is a large part of the bound."""
    p, n = words, k + words * words - 1
    assert bounds.multiword(k, p) == pytest.approx(float((p + 1) * U16**p + gamma(n)), rel=1e-12)
    kept = gamma(n) * (1 + sum(U16**i for i in range(1, p)))
    dropped = sum((p - i) * U16 ** (p + i - 1) for i in range(1, p))
    assert bounds.multiword_full(k, p) == pytest.approx(
        float(2 * U16**p + U16 ** (2 * p) + (kept + dropped) * (1 + U16) ** 2), rel=1e-12
    )
    ones = [np.ones((1, k)), *([np.zeros((1, k))] * (p - 1))]
    columns = [x.T for x in ones]
    expected = (2 * U16**p + U16 ** (2 * p)) * k + gamma(n) * k
    assert bounds.multiword_all(ones, columns)[0, 0] == pytest.approx(float(expected), rel=1e-12)


def test_how_many_slices_are_needed() -> None:
    """Algorithm 3: the smallest d whose (d + 1)·|A_d|(|B|e) is below 2 sqrt(k) u |A|(|B|e); d = 2, 3 at their thresholds."""
    x, y = np.array([[1.0]]), np.array([[1.0]])  # s = 2 sqrt(1) 2^-precision, scaled by 2^-1 twice
    for d in (2, 3, 4, 5):
        for ratio in (Fraction(d + 1) - Fraction(1, 8), Fraction(d + 1) + Fraction(1, 8)):
            size = float(2 * Fraction(1, 2**10) / ratio)  # |A_d| with (d + 1)·|A_d| just above or below s
            parts = [np.array([[1.0]])] * (d - 1) + [np.array([[size]])]
            sliced = ozaki.Slices(parts, [np.zeros(1, np.int64)] * d, 8, False)
            enough = Fraction(size) * (d + 1) < 2 * Fraction(1, 2**10)
            assert ozaki.slices_needed(sliced, x, y, precision=10) == (d if enough else d + 1), (d, ratio)


class Counting:
    """An INT32 product that wraps, and remembers the length of each k."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def __call__(self, a: Any, b: Any) -> Any:
        self.lengths.append(a.shape[1])
        return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_int32_products_are_as_long_as_int32_allows(extra: int) -> None:
    """2^17 products of residues up to 127 in magnitude stay below 2^31; one more k starts another product."""
    k = 2**17 + extra
    counting = Counting()
    for p in (255, 251):
        a, b = np.full((1, k), p // 2, np.int8), np.full((k, 1), p // 2, np.int8)
        got = ozaki_crt._modular_product(a, b, p, Multiplier(counting))
        assert int(got[0, 0]) == k * (p // 2) ** 2 % p
    assert counting.lengths == ([2**17, 1] if extra > 0 else [k]) * 2
    assert 127**2 * 2**17 < 2**31


def test_the_least_scale_that_saturates_nothing() -> None:
    """rceil: the format's largest value itself still fits the scale 1; the next number above it does not."""
    for name, kind in scaled_formats().items():
        if kind.scale.mantissa_bits:
            continue
        for power in (-3, 0, 5):
            largest = kind.element.max_finite * 2.0**power
            for amax, expected in (
                (largest, power),
                (np.nextafter(largest, np.inf), power + 1),
                (np.nextafter(largest, 0), power),
                (kind.element.max_finite * 2.0 ** (power - 1), power - 1),
            ):
                _, scales = quantize([amax, 0.0], name, scale_rounding="rceil")
                assert int(scales[0]) - 127 == expected, (name, amax)


def odd(x: Fraction) -> Fraction:
    """x to 53 bits: exact where it fits, otherwise the neighbour whose last bit is one."""
    size, place = abs(x), 0
    while size >= Fraction(2) ** (place + 1):
        place += 1
    while size < Fraction(2) ** place:
        place -= 1
    step = Fraction(2) ** (place - 52)
    down, rest = divmod(size, step)
    if rest and down % 2 == 0:
        down += 1
    return down * step * (1 if x > 0 else -1)


def test_quotients_are_rounded_to_odd() -> None:
    """So that the rounding that follows is the only one: random quotients, and those beside the ties of fp4.

    To nearest, no tie of e2m1 or ue4m3 can be missed without it (tie times divisor is a float64); stochastic rounding, whose
    thresholds have 32 bits more, can tell.
    """
    rng = np.random.default_rng(4)
    tops = rng.standard_normal(2000) * np.exp2(rng.integers(-30, 30, 2000))
    bottoms = np.abs(rng.standard_normal(2000)) * np.exp2(rng.integers(-30, 30, 2000))
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    factors = np.float32(rng.random(300) + 0.5).astype(np.float64)
    near = (ties[:, None] * factors).reshape(-1)
    near = np.concatenate([near, np.nextafter(near, 9), np.nextafter(near, 0), -np.nextafter(near, 9)])
    tops, bottoms = np.concatenate([tops, near]), np.concatenate([bottoms, np.tile(factors, 28)])
    for top, bottom, got in zip(tops.tolist(), bottoms.tolist(), _divided(tops, bottoms).tolist(), strict=True):
        assert Fraction(got) == odd(Fraction(top) / Fraction(bottom)), (top, bottom)


def test_quotients_below_float64_keep_their_sign_and_are_not_zero() -> None:
    got = _divided(np.array([1e-300, -1e-300, 0.0, -0.0, 3.0, 1.0]), np.array([1e300, 1e300, 2.0, 2.0, np.inf, 1.0]))
    assert got.tolist() == [5e-324, -5e-324, 0.0, -0.0, 0.0, 1.0]
    assert np.signbit(got).tolist() == [False, True, False, True, False, False]
