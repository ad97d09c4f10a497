"""Random words that just decide a rounding, in float64 lanes: among words drawn at random one of 2^21 is of these.

The sum is exact here, in integers, and rounded by the reference's definition.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import tcsim
from tcsim.codegen.jit import kernel
from tcsim.codegen.memory import at
from tcsim.codegen.scalar_ops import use_rounding
from tcsim.codegen.vector_ops import NEAREST, TO_ZERO
from tcsim.hardware.unit import Unit
from tcsim.kernels.native import double_single as single
from tcsim.kernels.native.double_plan import double_spec
from tcsim.reference.values import shift_right

FP32, FP64 = (
    tcsim.unit(*which).replace(rounding="sr", nan_from="code") for which in (("mi100", "float32"), ("h200", "float64"))
)
LANES = 64


@kernel
def add_narrow(how, x, b, words, c):
    use_rounding(np.int64(TO_ZERO))
    single.add_product_by_words(how, x, at(b, 0), b.size, at(words, 0), at(c, 0))
    use_rounding(np.int64(NEAREST))


@kernel
def add_wide(how, x, b, words, c):
    use_rounding(np.int64(TO_ZERO))
    single.add_wide_by_words(how, x, at(b, 0), b.size, at(words, 0), at(c, 0))
    use_rounding(np.int64(NEAREST))


def cut(x: Fraction, precision: int) -> tuple[int, int, int]:
    """|x| as an integer n and the count of its last bits that `precision` bits do not hold, and the exponent of its last bit."""
    n, last = abs(x.numerator), 1 - x.denominator.bit_length()  # denominators are powers of two
    more = max(0, precision + 40 - n.bit_length())
    n, last = n << more, last - more
    return n, n.bit_length() - precision, last


def numbers(rng: np.random.Generator, precision: int, count: int) -> np.ndarray:
    """Numbers of a format near and far from one, many just beside a power of two."""
    beside = 1 + 2.0 ** (1 - precision) * rng.choice([0, 0, 1, 2, 3], count) * rng.choice([1, 2.0 ** (precision // 2)], count)
    away = 2.0 ** (rng.integers(-2, 3, count) * rng.choice([0, 1, precision // 2, precision - 1, precision], count))
    whole = np.where(rng.random(count) < 0.5, beside, 1 + rng.random(count)) * away
    return rng.choice([-1, 1], count) * (whole.astype(np.float32).astype(float) if precision == 24 else whole)


@pytest.mark.parametrize(("unit", "add", "precision", "most"), [(FP32, add_narrow, 24, 0.9), (FP64, add_wide, 53, 0.6)])
def test_words_that_decide(unit: Unit, add: object, precision: int, most: float, fresh_seed: int) -> None:
    """Equal to the definition, or left to others, of which words drawn far from the deciding one are none but by a rare chance."""
    rng, how, left, left_far, rounds = np.random.default_rng(fresh_seed), double_spec(unit)[1]["how"], 0, 0, 20
    for number in range(rounds):
        x, b, c = float(numbers(rng, precision, 1)[0]), numbers(rng, precision, LANES), numbers(rng, precision, LANES)
        if number % 3 == 0:  # sums that cancel
            c = -x * b + numbers(rng, precision, LANES) * 2.0 ** -int(rng.integers(0, 60))
            c = c.astype(np.float32).astype(float) if precision == 24 else c
        sums = [Fraction(x) * Fraction(float(y)) + Fraction(float(z)) for y, z in zip(b, c, strict=True)]
        words, far = rng.integers(0, 1 << 32, LANES), rng.random(LANES) < 0.2
        for j, exact in enumerate(sums):
            if exact and not far[j]:
                n, bits, _ = cut(exact, precision)
                deciding = (1 << 32) - ((n & ((1 << bits) - 1)) << 32 >> bits)
                words[j] = min(max(deciding + int(rng.integers(-3, 4)), 0), (1 << 32) - 1)
        got = c.copy()
        add(how, x, b, words, got)  # type: ignore[operator]
        for j, exact in enumerate(sums):
            if not np.isfinite(got[j]):
                left, left_far = left + 1, left_far + int(far[j])
                continue
            n, bits, last = cut(exact, precision)
            size = Fraction(shift_right(n, bits, "sr", int(words[j]))) * Fraction(2) ** (last + bits) if exact else Fraction(0)
            assert Fraction(float(got[j])) == (size if exact > 0 else -size), (x, b[j], c[j], words[j])
    assert left < most * rounds * LANES
    assert left_far <= 1  # of some 256, each by a chance of 2^-21
