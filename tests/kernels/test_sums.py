"""Sums outside the unit are rounded once, and no intermediate of the fast path overflows: cpu against the definition.

Each problem aims at an edge (`support.sums`): partial results that add up to a hair off a midpoint of the sum format or of
the output, and blocks whose sums reach the limits of `simd_plan`, both signs, on random units, formats and schedules.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from support.fresh import SEED
from support.sums import any_problem
from support.whatifs import distinct, label

import tcsim
from tcsim import reference
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.fast.plan import fast_plan
from tcsim.problem import Problem

FIXED, FRESH_SECONDS = 150, 4.0
FP64 = tcsim.unit("a100", "float64")


def differs(problem: Problem) -> str:
    """The first output of the cpu backend that is not the reference's, empty where all agree."""
    expected, got = reference.multiply_reference(problem), cpu.multiply_cpu(problem, 1)
    where = np.argwhere(got != expected)
    if not where.size:
        return ""
    at = tuple(where[0])
    c = None if problem.c is None else int(problem.c[at])
    return (
        f"{len(where)} of {got.size} differ, first {list(map(int, at))}: {int(got[at]):#x} for {int(expected[at]):#x} on "
        f"{problem.unit}, {problem.plan}, a {problem.a.codes[0, at[1]]}, b {problem.b.codes[0, :, at[2]]}, c {c}"
    )


@pytest.mark.parametrize("first", range(0, FIXED, 50))
@pytest.mark.drawn(1)
def test_adversarial_sums(first: int) -> None:
    for i in range(first, first + 50):
        assert differs(any_problem(np.random.default_rng([20261121, i]))) == "", i


def test_adversarial_sums_never_drawn_before() -> None:
    """As many as fit some seconds; a failure names its seed."""
    end, i = time.monotonic() + FRESH_SECONDS, 0
    while time.monotonic() < end:
        assert differs(any_problem(np.random.default_rng([SEED, i]))) == "", (
            f"any_problem(np.random.default_rng([{SEED}, {i}]))"
        )
        i += 1
    assert i > 0


@pytest.mark.parametrize(("sums", "half"), [("float32", 2.0**-24), ("float16", 2.0**-11)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_hair_off_a_midpoint_of_the_sum_format(sums: str, half: float, sign: float) -> None:
    """c + 1·(1 + half a last place): above the midpoint, at it, below it; float64 in between would lose c."""
    for hair, expected in ((2.0**-100, 1.0 + 2 * half), (0.0, 1.0), (-(2.0**-100), 1.0)):
        d = tcsim.matmul([[1.0]], [[sign * (1.0 + half)]], [[sign * hair]], unit=FP64, schedule=tcsim.Blocked(1, sums))
        assert d == sign * expected, hair


def test_a_float32_c_a_hair_below_a_float16_midpoint() -> None:
    c = np.float32([[1 + 2.0**-11]])
    d = tcsim.matmul([[2.0**-60]], [[2.0**-40]], c, unit=tcsim.unit("a100", "bfloat16"), schedule=tcsim.Blocked(1, "float16"))
    assert d == 1 + 2.0**-10


def test_two_partial_results_that_only_together_pass_a_midpoint() -> None:
    """2^-100·1 + 1·(1 + 2^-24): 2^-100 is a float32."""
    d = tcsim.matmul([[2.0**-100, 1.0]], [[1.0], [1 + 2.0**-24]], unit=FP64, schedule=tcsim.Blocked(1, "float32"))
    assert d == 1 + 2.0**-23


def test_a_total_is_rounded_once_to_the_output() -> None:
    """float64 sums of float16 outputs: what float32 in between would make a tie is not one."""
    unit = tcsim.unit("h200", "float16", out="float16")
    terms, ones = np.float16([[1.0, 2.0**-11, 2.0**-24]]), np.ones((3, 1), np.float16)
    for sums, expected in (("float64", 1 + 2.0**-10), ("float32", 1.0)):
        assert tcsim.matmul(terms, ones, unit=unit, schedule=tcsim.Blocked(1, sums)) == np.float16(expected)


@pytest.mark.parametrize("exponent", [100, 112, 113, 114, 115, 116, 120, 124])
@pytest.mark.parametrize("rounding", ["rz", "rne", "rna", "sr"])
@pytest.mark.parametrize("fmt", ["bfloat16", "tfloat32"])
@pytest.mark.parametrize("floor", [None, -21])
def test_an_infinite_float16_has_the_sign_of_its_sum(floor: int | None, fmt: str, rounding: str, exponent: int) -> None:
    """All terms have one sign, so their sum has; an infinity that arose earlier, or that c is, stays."""
    unit = tcsim.unit("h200", fmt).replace(out="float16", rounding=rounding, min_exponent=floor)
    k = 2 * unit.block_size
    a = np.full((2, k), 2.0 ** (exponent // 2), np.float32)
    a[1] *= -1
    b = np.full((k, 3), 2.0 ** (exponent - exponent // 2), np.float32)
    assert np.array_equal(tcsim.matmul(a, b, unit=unit), np.float16([[np.inf] * 3, [-np.inf] * 3]))
    c = np.float16([[-np.inf] * 3, [np.inf] * 3])
    assert np.array_equal(tcsim.matmul(a, b, c, unit=unit), c)


@pytest.mark.parametrize("unit", [u for u in distinct() if fast_plan(u) is not None and fast_plan(u).width != 3], ids=label)
def test_blocks_of_the_largest_significands(unit: Unit) -> None:
    """240 = 1.875·2^7 has a larger significand than e4m3's largest number, 1.75·2^8."""
    for count in {unit.block_size, max(1, unit.block_size - 1), 2 * unit.block_size}:
        a = np.full((1, count), _full(unit.a_format))
        b = np.full((count, 1), _full(unit.b_format))
        ones = np.ones((1, -(-count // unit.scale_block))) if unit.scale is not None else None
        scales = {} if ones is None else {"scale_a": ones, "scale_b": ones.T}
        for sign in (1.0, -1.0):
            d = tcsim.matmul(sign * a, b, unit=unit, **scales)
            assert d == tcsim.matmul(sign * a, b, unit=unit, backend="reference", **scales)
            assert abs(d[0, 0] / (a @ b)[0, 0] - sign) < 2.0**-7


def _full(fmt: Format) -> float:
    """The largest number below 2."""
    return 2.0 - 2.0**-fmt.mantissa_bits


def test_c_that_rounds_to_infinity_meets_the_other_infinity() -> None:
    """14 bits kept, to nearest: the largest float32 becomes +inf in the first block, -inf follows in the second: NaN."""
    unit = tcsim.unit("a100", "float16").replace(out_precision=14, rounding="rne")
    k = 2 * unit.block_size
    a = np.zeros((1, k), np.float16)
    a[0, -1] = -np.inf
    c = np.float32([[np.finfo(np.float32).max]])
    assert np.isnan(tcsim.matmul(a, np.ones((k, 1), np.float16), c, unit=unit))
    assert tcsim.matmul(a, np.ones((k, 1), np.float16), c, unit=tcsim.unit("a100", "float16")) == -np.inf


def test_formats_of_any_bias() -> None:
    """What float32 cannot rescale in one multiplication is not packed: numbers from 2^20 up, or down to 2^-120."""
    for bias in (-20, -3, 0, 90, 120, 160):
        fmt = Format(4, 3, f"e4m3b{bias}", bias=bias)
        unit = tcsim.unit("h200", "float16").replace(a=fmt, rounding="rne", align_rounding="exact")
        for one in (unit, unit.replace(align_rounding="rz", fraction_bits=25)):
            a = tcsim.decode(np.arange(8, 48, 3, dtype=np.uint8), fmt)[None]
            b = np.full((a.size, 1), 1.5)
            assert tcsim.matmul(a, b, unit=one) == tcsim.matmul(a, b, unit=one, backend="reference"), bias


def test_ties_to_even_of_one_bit() -> None:
    """The one bit is odd: 1.5 is nearer to 2, the even one of 1 and 2, in every binade."""
    unit = tcsim.unit("a100", "float16").replace(align_rounding="exact", rounding="rne", out_precision=1)
    for place in range(-5, 6):
        assert tcsim.matmul([[1.5]], [[2.0**place]], unit=unit) == 2.0 ** (place + 1), place


def test_sums_of_numbers_beyond_float64_are_refused() -> None:
    """No unit has such an output: outside sums are taken in float64."""
    with pytest.raises(ValueError, match="beyond those of float64"):
        FP64.replace(out=Format(11, 20, "e11m20b1500", bias=1500), nan_from="code", nan_code=None)
