"""Outputs worked out by hand, by the definition and by the compiled kernels: what a small change in either once got past every other test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.random_problems import by_general

import tcsim
from tcsim import encode
from tcsim.fp.philox import word
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Sequential

BACKENDS = pytest.mark.parametrize("backend", ["reference", "cpu"])


def bits(unit: Unit, a: Any, b: Any, c: Any = None, **options: Any) -> int:
    """The code of one output, 32 bits wide."""
    start = None if c is None else np.array([[c]], np.float32)
    d = tcsim.matmul(np.array([a], np.float32), np.array([b], np.float32).T, start, unit=unit, **options)
    return int(np.asarray(d).view(np.uint32)[0, 0])


@BACKENDS
def test_c_is_cut_by_a_word_of_its_own(backend: str) -> None:
    """1 - 1 + c with two bits kept below 1: c = 3/8 is 1/2 where word 1 is at least 2^31, else 1/4; word 0 is the result's."""
    unit = tcsim.unit("v100", "float16").replace(align_rounding="sr", fraction_bits=2)
    differ = 0
    for seed in range(12):
        up = word(seed, 0, 0, 1) >= 1 << 31
        differ += up != (word(seed, 0, 0, 0) >= 1 << 31)
        expected = np.float32(0.5 if up else 0.25).view(np.uint32)
        assert bits(unit, [1, -1], [1, 1], 0.375, seed=seed, backend=backend) == expected, seed
    assert differ


@BACKENDS
@pytest.mark.parametrize(("second", "code"), [(-0.0, 0x80000000), (0.0, 0)])
def test_a_group_of_zeros_is_minus_zero_if_all_its_products_are(second: float, code: int, backend: str) -> None:
    unit = tcsim.unit("b200", "nvfp4").replace(zero_sign="ieee")
    a, scale = [[-0.0, second] + [-0.0] * 62], np.ones((1, 4))
    d = tcsim.matmul(
        a, np.ones((64, 1)), np.array([[-0.0]], np.float32), unit=unit, scale_a=scale, scale_b=scale.T, backend=backend
    )
    assert int(np.asarray(d).view(np.uint32)[0, 0]) == code


@BACKENDS
@pytest.mark.parametrize("name", ["v100:float16", "mi100:float32"])
@pytest.mark.parametrize("late", [False, True])
def test_what_cancels_is_plus_zero(name: str, late: bool, backend: str) -> None:
    unit = tcsim.unit(*name.split(":")).replace(zero_sign="ieee")
    if late:
        unit = tcsim.unit("v100", "float16").replace(zero_sign="ieee", c_enters="after")
    assert bits(unit, [1], [1], -1.0, backend=backend) == 0
    assert bits(unit, [-1], [1], 1.0, backend=backend) == 0
    assert bits(unit, [-0.0], [1], -0.0, backend=backend) == 0x80000000


@BACKENDS
@pytest.mark.parametrize("fraction_bits", [24, 9])
def test_two_stages_floor_a_small_negative_sum_to_minus_one_unit(fraction_bits: int, backend: str) -> None:
    """-2^-150 beside c = 0, which aligns at 2^-126: floored to 2^-135 with 8 late bits, then to 9 bits of 2^-126: -2^-134."""
    unit = tcsim.unit("mi300x", "bfloat16").replace(late_fraction_bits=8, fraction_bits=fraction_bits)
    expected = np.float32(-(2.0**-134)).view(np.uint32)
    assert bits(unit, [2.0**-70], [-(2.0**-80)], 0.0, backend=backend) == expected


@BACKENDS
def test_a_kept_nan_becomes_quiet(backend: str) -> None:
    """IEEE 754: the leading fraction bit is set, the others and the sign stay."""
    unit = tcsim.unit("h200", "float64").replace(nan_from="operand")
    for code, quiet in ((0x7FF0000000000001, 0x7FF8000000000001), (0xFFF4000000000020, 0xFFFC000000000020)):
        a = np.array([[code]], np.uint64)
        d = tcsim.matmul(a, np.array([[0x3FF0000000000000]], np.uint64), unit=unit, backend=backend)
        assert int(np.asarray(d).view(np.uint64)[0, 0]) == quiet


@BACKENDS
@pytest.mark.parametrize(("sign", "code"), [(1, 0x7FFFFFFF), (-1, 0x80000000)])
def test_saturated_sums_stay_at_the_ends(sign: int, code: int, backend: str) -> None:
    """127·127 beside c at an end of int32, and one step within it."""
    unit = tcsim.unit("a100", "int8").replace(overflow="saturate")
    end = 2**31 - 1 if sign > 0 else -(2**31)
    a, b = np.array([[127]], np.int8), np.array([[sign * 127]], np.int8)
    for c, expected in ((end, code), (end - sign * 127 * 127, code), (end - sign * (127 * 127 + 1), code - sign)):
        d = tcsim.matmul(a, b, np.array([[c]], np.int32), unit=unit, backend=backend)
        assert int(np.asarray(d).view(np.uint32)[0, 0]) == expected


def test_random_words_of_every_row_at_every_chunk() -> None:
    """Blocks of five: a chunk of k starts at a block whose word is not the first of four, in rows after the first too."""
    rng = np.random.default_rng(3)
    unit = tcsim.unit("v100", "float16").replace(rounding="sr", block_size=5)
    a, b = rng.standard_normal((3, 290)).astype(np.float16), rng.standard_normal((290, 2)).astype(np.float16)
    seen, expected = (tcsim.matmul(a, b, unit=unit, seed=5, backend=backend) for backend in ("cpu", "reference"))
    np.testing.assert_array_equal(np.asarray(seen).view(np.uint32), np.asarray(expected).view(np.uint32))


@BACKENDS
def test_segments_that_cancel_outside(backend: str) -> None:
    unit = tcsim.unit("v100", "float16").replace(zero_sign="ieee")
    assert bits(unit, [1, -1], [1, 1], schedule=Blocked(1), backend=backend) == 0


@BACKENDS
def test_a_flushed_operand_is_plus_zero(backend: str) -> None:
    """2^-126 - 1.5·2^-126 is flushed to -0; the next block's products are +0·1, although their operands were negative."""
    unit = tcsim.unit("mi210", "bfloat16")
    block = unit.block_size
    a = [-1.5 * 2.0**-126] + [0.0] * (block - 1)
    assert bits(unit, a, [1.0] * block, 2.0**-126, backend=backend) == 0x80000000
    assert bits(unit, a + [-(2.0**-130)] * block, [1.0] * 2 * block, 2.0**-126, backend=backend) == 0


def test_words_of_wide_groups() -> None:
    """Group i is cut by word 2 + i also where a group needs more than 64 bits."""
    rng = np.random.default_rng(4)
    unit = tcsim.unit("b200", "nvfp4").replace(a="bfloat16", align_rounding="sr", fraction_bits=6)
    a, b, scale = rng.standard_normal((2, 64)), rng.choice([-1.5, 0.5, 2.0, 6.0], (64, 3)), np.ones((1, 4))
    seen, expected = (
        tcsim.matmul(
            a, b, unit=unit, scale_a=scale.repeat(2, 0), scale_b=scale.T.repeat(3, 1), seed=2, round="rne", backend=backend
        )
        for backend in ("cpu", "reference")
    )
    np.testing.assert_array_equal(np.asarray(seen).view(np.uint32), np.asarray(expected).view(np.uint32))


@pytest.mark.parametrize("late", [False, True])
def test_zeros_of_the_general_kernel(late: bool) -> None:
    """As above, where a quicker kernel would have been asked: 1 - 1 is +0, -0·1 - 0 is -0, beside a column of NaN."""
    unit = tcsim.unit("mi100", "float32").replace(zero_sign="ieee")
    if late:
        unit = tcsim.unit("v100", "float16").replace(zero_sign="ieee", c_enters="after")
    stored, one, minus = unit.a_format, encode([1.0], unit.a)[0], encode([-0.0], unit.a)[0]
    nan = stored.nan_code
    rows = np.array([[[one], [minus]]], stored.storage)
    columns = np.array([[[one, nan]]], stored.storage)
    for row, c, code in ((0, 0xBF800000, 0), (1, 0x80000000, 0x80000000), (1, 0, 0)):
        start = np.zeros((1, 2, 2), np.uint32)
        start[0, row] = c
        problem = Problem(unit, Sequential().plan(1), Operand(rows, stored), Operand(columns, stored), start)
        seen = by_general(problem)
        assert seen is not None
        assert int(seen[0, row, 0]) == code
