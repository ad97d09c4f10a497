"""Splits into words: statistics over every float32 fraction, underflow, what is refused, equilibration."""

import numpy as np
import pytest

from tcsim.fp.formats import Format
from tcsim.schemes.split import equilibrate, joined, range_limit, split


@pytest.fixture(scope="module")
def fractions():
    """Every float32 in [1, 2)."""
    return np.arange(0x3F800000, 0x40000000, dtype=np.uint32).view(np.float32)


def binary(precision):
    """A format of the given precision whose exponents never run out here."""
    return Format(8, precision - 1)


@pytest.mark.parametrize(
    ("precision", "largest"),
    [
        (11, [4.88e-4, 1.19e-7, 0.0]),
        (8, [3.89e-3, 7.6e-6, 0.0]),
        (4, [5.9e-2, 1.9e-3, 5.9e-5, 1.85e-6, 0.0]),
    ],
)
def test_words_needed_for_float32(fractions, precision, largest):
    """reference values 3.10: the largest relative residual of p words over every float32 fraction."""
    words = split(fractions, binary(precision), len(largest))
    for p, expected in enumerate(largest, start=1):
        residual = np.abs(fractions - joined(words[:p])) / fractions
        assert residual.max() == pytest.approx(expected, rel=0.02, abs=0)


def test_e5m2_needs_seven_words(fractions):
    words = split(fractions, binary(3), 7)
    assert (joined(words) == fractions).all()
    assert (joined(words[:6]) != fractions).any()


@pytest.mark.parametrize(
    ("first", "rest", "loss", "error"),
    [("rne", "rne", 0.25, 0.25), ("rz", "rne", 0.5, 0.625), ("rz", "rz", 0.5, 0.875)],
)
def test_mantissa_length_of_two_fp16_words(fractions, first, rest, loss, error):
    """reference values 3.1: E[length] = 23 - P(loss) is 22.75 to nearest and 22.5 truncating; mean |error| in ulps.

    The low words are scaled, so none underflows.
    """
    words = split(fractions, "float16", 2, scale=2.0**11, rounding=first, rest=rest)
    gap = np.abs(fractions - joined(words, scale=2.0**11)) * 2.0**23
    assert (gap > 0).mean() == loss
    assert gap.mean() == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("exponent", [0, -2, -5, -10])
@pytest.mark.parametrize("shift", [0, 11])
def test_underflow_of_the_low_word(fractions, exponent, shift):
    """reference values 3.2: P(subnormal or zero) = min(1, 2^-(e+3)) and P(zero) = 2^-(e+14), each 2^-11 of that when scaled.

    Residuals lie on a grid of 2^13 places, so P(zero) holds from two places on and is 0 below; a low word that is zero
    because the high word is exact counts in neither.
    """
    v = fractions.astype(np.float64) * 2.0**exponent
    low = split(v, "float16", 2, scale=2.0**shift)[1]
    inexact = v != split(v, "float16", 1)[0]
    zero = 2.0 ** -(exponent + 14 + shift)
    assert ((np.abs(low) < 2.0**-14) & inexact).mean() == pytest.approx(min(1.0, 2.0 ** -(exponent + 3 + shift)), abs=5e-4)
    assert ((low == 0) & inexact).mean() == (zero if zero >= 2.0**-12 else 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_three_bf16_words_hold_normal_float32(seed):
    rng = np.random.default_rng(seed)
    bits = rng.integers(0x0C800000, 0x7F000000, 50000, dtype=np.uint32) | rng.integers(0, 2, 50000, dtype=np.uint32) << 31
    x = bits.view(np.float32)
    assert (joined(split(x, "bfloat16", 3, scale=2.0**8), scale=2.0**8) == x).all()
    assert (joined(split(x, "bfloat16", 2, scale=2.0**8), scale=2.0**8) != x).any()


def test_a_value_beyond_the_format_is_named():
    with pytest.raises(ValueError, match=r"\(1, 0\).*float16.*65504"):
        split(np.array([[1.0], [70000.0]]), "float16", 2)
    with pytest.raises(ValueError, match="overflows"):
        split(np.array([500.0]), "float8_e4m3fn", 1)
    assert [w.tolist() for w in split(np.array([np.inf, -np.inf]), "float16", 2)] == [[np.inf, -np.inf], [0.0, 0.0]]


@pytest.mark.parametrize(("words", "scale"), [(0, 1.0), (2, 3.0), (2, -1.0)])
def test_impossible_splits_are_refused(words, scale):
    with pytest.raises(ValueError, match=r"at least 1|power of two"):
        split(np.ones(1), "float16", words, scale=scale)


def test_equilibrate_fills_the_range():
    x = np.array([[3.0, 1e-30], [0.0, 0.0], [2.0**-900, 0.0], [1e300, 1.0]])
    theta = range_limit("float16", 1024)
    e = equilibrate(x, theta, axis=1)
    top = np.abs(np.ldexp(x, e[:, None])).max(axis=1)
    assert theta == 65504.0
    assert ((top > theta / 2) & (top <= theta))[[0, 2, 3]].all()
    assert e[1] == 0
