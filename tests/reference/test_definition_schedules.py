"""The reference's walk along k, from its own blocks: segments, their sums outside the unit, c early, late or last."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import tcsim
from tcsim import reference
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Schedule, Sequential, SplitK

PRECISION = {"float16": (11, -14), "float32": (24, -126), "float64": (53, -1022)}
K = 22


def nearest(x: Fraction, name: str) -> Fraction:
    """x to the nearest value of a format, ties to even."""
    precision, emin = PRECISION[name]
    place = emin
    while abs(x) >= Fraction(2) ** (place + 1):
        place += 1
    step = Fraction(2) ** (place - precision + 1)
    return round(x / step) * step  # Python rounds halves to even


def value(code: int, unit: Unit) -> Fraction:
    return Fraction(float(np.array([code], unit.out_format.storage).view(str(unit.out))[0]))


def run(unit: Unit, schedule: Schedule, a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> Fraction:
    left, right = (x.astype(str(unit.a)).view(unit.a_format.storage) for x in (a, b))
    start = None if c is None else c.astype(str(unit.out)).view(unit.out_format.storage)[None, None, :]
    problem = Problem(
        unit,
        schedule.plan(a.size),
        Operand(left[None, None, :], unit.a_format),
        Operand(right[None, :, None], unit.b_format),
        start,
    )
    return value(int(reference.multiply_reference(problem)[0, 0, 0]), unit)


UNITS = [tcsim.unit("v100", "float16"), tcsim.unit("a100", "float16", out="float16"), tcsim.unit("h200", "float64")]


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.label)
@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
@pytest.mark.parametrize("with_c", [False, True])
def test_segments_are_added_in_ascending_order_in_the_format_named(unit: Unit, name: str, with_c: bool) -> None:
    rng = np.random.default_rng(5)
    for _ in range(12):
        a, b = (np.exp2(rng.integers(-4, 5, K)) * (1 + rng.integers(0, 8, K) / 8) * rng.choice([-1, 1], K) for _ in "ab")
        c = np.array([rng.integers(1, 9) / 8]) if with_c else None
        for schedule, step, c_first in ((Blocked(6, sum=name), 6, True), (SplitK(2, tile_k=5, reduce=name), 15, False)):
            parts = [run(unit, Sequential(), a[i : i + step], b[i : i + step], None) for i in range(0, K, step)]
            extra = [] if c is None else [Fraction(float(c[0]))]
            total = Fraction(0)
            for part in [*extra, *parts] if c_first else [*parts, *extra]:
                total = nearest(total + part, name)
            assert run(unit, schedule, a, b, c) == nearest(total, str(unit.out)), (schedule, a, b, c)


def test_blocks_follow_each_other() -> None:
    """A chain is its blocks one by one, each from the result before; k_order chooses the blocks of each period."""
    rng = np.random.default_rng(6)
    order = (3, 0, 2, 1, 7, 5, 6, 4, 8, 9, 10, 11)
    base = tcsim.unit("v100", "float16")
    for unit in (base, base.replace(k_order=order), base.replace(block_size=3), base.replace(block_size=6, k_order=order)):
        a, b = rng.integers(-8, 9, (2, 31)) * np.exp2(rng.integers(-9, 9, (2, 31)))
        period = len(unit.k_order or (0,) * unit.block_size)
        total, plain = Fraction(1, 4), unit.replace(k_order=None)
        for first in range(0, 31, period):
            ks = [first + i for i in unit.k_order or range(period)]
            for i in range(0, period, unit.block_size):
                block = [k for k in ks[i : i + unit.block_size] if k < 31]
                if block:
                    total = run(plain, Sequential(), a[block], b[block], np.array([float(total)]))
        assert run(unit, Sequential(), a, b, np.array([0.25])) == total


def test_c_enters_after_each_instruction() -> None:
    """Two blocks from zero, then c, one rounding to nearest-even in the output, for every instruction of 8."""
    rng = np.random.default_rng(7)
    unit = tcsim.unit("v100", "float16").replace(c_enters="after", chain=2)
    early = unit.replace(c_enters="aligned", chain=1)
    for _ in range(20):
        a, b = rng.integers(-99, 100, (2, 21)) * np.exp2(rng.integers(-5, 5, (2, 21)))
        total = Fraction(3, 8)
        for i in range(0, 21, 8):
            total = nearest(total + run(early, Sequential(), a[i : i + 8], b[i : i + 8], None), "float32")
        assert run(unit, Sequential(), a, b, np.array([0.375])) == total


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("zero_sign", "code"), [("positive", 0), ("ieee", 0x80000000)])
def test_a_sum_outside_that_vanishes_is_a_zero_of_the_unit(zero_sign: str, code: int, backend: str) -> None:
    """-2^-30 is below half of float16's least number, 2^-24."""
    unit, x = tcsim.unit("v100", "float16").replace(zero_sign=zero_sign), np.float16(2.0**-15)
    d = tcsim.matmul(np.array([[-x]]), np.array([[x]]), unit=unit, schedule=Blocked(1, sum="float16"), backend=backend)
    assert int(np.asarray(d).view(np.uint32)[0, 0]) == code


def test_workers_without_a_tile_take_no_part() -> None:
    plan = SplitK(9, tile_k=4, reduce="float32").plan(10)
    assert plan.bounds.tolist() == [0, 4, 8, 10]
    assert SplitK(2, tile_k=4).plan(17).bounds.tolist() == [0, 12, 17]
    assert Blocked(5).plan(10).bounds.tolist() == [0, 5, 10]
    assert (Blocked(5).plan(10).c_first, SplitK(2).plan(10).c_first) == (True, False)


def test_stochastic_words_count_blocks_and_elements() -> None:
    """Block s of output e rounds with word(seed, e, s): the same element alone, in a row and in a batch."""
    unit = tcsim.unit("v100", "float16").replace(rounding="sr")
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((2, 3, 40)).astype(np.float16), rng.standard_normal((2, 40, 2)).astype(np.float16)
    whole = np.asarray(tcsim.matmul(a, b, unit=unit, seed=3, backend="reference"))
    assert np.array_equal(whole, tcsim.matmul(a, b, unit=unit, seed=3))
    first = tcsim.matmul(a[0], b[0], unit=unit, seed=3, backend="reference")
    assert np.array_equal(whole[0], first)
    other = tcsim.matmul(a[1], b[1], unit=unit, seed=3, backend="reference")
    assert not np.array_equal(whole[1], other)
