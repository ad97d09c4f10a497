"""Random words that just decide a rounding, in float64 lanes: among words drawn at random one of 2^21 is of these.

The sum is exact here, in integers, and rounded by the reference's definition.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from support.random_problems import by_general

import tcsim
from tcsim.codegen.jit import kernel
from tcsim.codegen.memory import at
from tcsim.codegen.scalar_ops import use_rounding
from tcsim.codegen.vector_ops import NEAREST, TO_ZERO
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.native import double_single as single
from tcsim.kernels.native.double_drawn import add_drawn
from tcsim.kernels.native.double_plan import double_spec
from tcsim.problem import Operand, Problem
from tcsim.reference.values import shift_right
from tcsim.schedule import Blocked, Sequential

FP32, FP64 = (
    tcsim.unit(*which).replace(rounding="sr", nan_from="code") for which in (("mi100", "float32"), ("h200", "float64"))
)
LANES = 80


@kernel
def add_narrow(how, x, b, words, c):
    use_rounding(np.int64(TO_ZERO))
    single.add_product_by_words(how, x, at(b, 0), b.size, at(words, 0), at(c, 0))
    use_rounding(np.int64(NEAREST))


@kernel
def add_wide(how, x, b, words, c):
    x, bad, words = np.full(1, x), np.zeros(b.size, np.int64), words + single.UNSHIFTED
    use_rounding(np.int64(TO_ZERO))
    add_drawn(at(x, 0), at(b, 0), at(words, 0), at(c, 0), at(bad, 0), (1, b.size, b.size, b.size))
    use_rounding(np.int64(NEAREST))
    for j in range(c.size):
        c[j] = np.inf if bad[j] else c[j]


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
    assert 0 < left < most * rounds * LANES
    assert left_far <= 1  # of some 256, each by a chance of 2^-21


def of_any_size(rng: np.random.Generator) -> Problem:
    """A chain of float64 numbers from the smallest to the largest, at the bounds of what `double_drawn` takes, of sums that cancel, c far from them or none."""
    m, n, k = int(rng.integers(1, 6)), int(rng.choice([1, 16, 17, 40, 130])), int(rng.integers(1, 150))
    far = int(rng.choice([0, 0, 390, 400, 401, 500, 535]))
    x, y = (
        np.ldexp(1 + rng.random(shape), rng.integers(-2, 3, shape) + int(rng.choice([-1, 1])) * far)
        * rng.choice([-1, 1, 1, 0], shape)
        for shape in ((1, m, k), (1, k, n))
    )
    if rng.random() < 0.4 and k > 1:
        x[:, :, 1::2], y[:, 1::2] = -x[:, :, : k // 2 * 2 : 2], y[:, : k // 2 * 2 : 2] * (1 + 2.0**-52 * rng.integers(0, 3))
    c = np.ldexp(1 + rng.random((1, m, n)), int(rng.choice([-1000, -901, -900, -899, -50, 0, 899, 900, 901, 1023])))
    kind = FP64.a_format
    plan = (Sequential() if rng.random() < 0.7 else Blocked(int(rng.integers(1, 30)), sum="float64")).plan(k)
    operands = Operand(x.view(kind.storage), kind), Operand(y.view(kind.storage), kind)
    return Problem(FP64, plan, *operands, c.view(kind.storage) if rng.random() < 0.7 else None, seed=int(rng.integers(1 << 60)))


def test_chains_of_any_size(fresh_seed: int) -> None:
    for number in range(60):
        problem = of_any_size(np.random.default_rng([fresh_seed, number]))
        assert np.array_equal(cpu.multiply_cpu(problem, 1), by_general(problem)), f"seed {fresh_seed}, problem {number}"
