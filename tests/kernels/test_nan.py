"""NaN operands that FP64 tensor cores keep: whose NaN the result is, and where every NaN is one pattern."""

from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim import reference
from tcsim.fp.formats import FORMATS
from tcsim.kernels import dispatch as cpu
from tcsim.kernels import payload
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Schedule, Sequential

DMMA = tcsim.unit("h200", "float64")
GENERATED = 0xFFF8000000000000
INF, ONE, MINUS_INF = 0x7FF0000000000000, 0x3FF0000000000000, 0xFFF0000000000000
A1, A2, B1, B2, C1 = 0x7FF0000000000A11, 0xFFF8000000000A22, 0xFFF00000000B0001, 0x7FFC0000000B0002, 0x7FF00000C0000001
QUIET = 1 << 51


def problem(
    a: Any, b: Any, c: Any, unit: tcsim.Unit = DMMA, schedule: Schedule | None = None, stored: str = "float64"
) -> Problem:
    fmt = FORMATS[stored]
    x, y = (np.asarray(v, fmt.storage) for v in (a, b))
    plan = (schedule or Sequential()).plan(x.shape[-1])
    return Problem(unit, plan, Operand(x, fmt), Operand(y, fmt), None if c is None else np.asarray(c, np.uint64))


def everywhere(p: Problem) -> np.ndarray:
    """The result of the reference, which the fast and the general kernel share."""
    expected = reference.multiply_reference(p)
    np.testing.assert_array_equal(cpu.multiply_cpu(p), expected)
    np.testing.assert_array_equal(cpu.multiply_cpu(p, 1, cpu.GENERAL), expected)
    return expected


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        ([A1], [B1], C1, B1 | QUIET),
        ([A1], [ONE], C1, C1 | QUIET),
        ([A1], [ONE], ONE, A1 | QUIET),
        ([A1, A2], [ONE, ONE], ONE, A1 | QUIET),  # the sum so far is a's first NaN
        ([A1, ONE, ONE], [ONE, B1, B2], ONE, B2 | QUIET),
        ([ONE, ONE, A2], [B1, ONE, ONE], ONE, B1 | QUIET),
        ([INF], [0], ONE, GENERATED),
        ([INF], [ONE], MINUS_INF, GENERATED),
        ([INF, A1], [0, ONE], ONE, GENERATED),  # a NaN that arose before a's
        ([A1, INF], [ONE, 0], ONE, A1 | QUIET),
        ([INF, ONE], [0, B1], ONE, B1 | QUIET),
        ([0x7FE0000000000000] * 2 + [INF, A1], [0x7FE0000000000000] * 2 + [0xBFF0000000000000, ONE], ONE, GENERATED),
        ([ONE], [ONE], ONE, 0x4000000000000000),
    ],
)
def test_whose_nan_it_is(a: list[int], b: list[int], c: int, expected: int) -> None:
    got = everywhere(problem([[a]], [[[x] for x in b]], [[[c]]]))
    assert hex(int(got[0, 0, 0])) == hex(expected)


def drawn(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape).view(np.uint64)
    nan = rng.integers(0, 2, shape).astype(np.uint64) << 63 | np.uint64(INF) | rng.integers(1, 1 << 52, shape).astype(np.uint64)
    infinite = np.where(rng.random(shape) < 0.5, np.uint64(INF), np.uint64(MINUS_INF))
    values = np.where(rng.random(shape) < 0.1, np.uint64(0), values)
    values = np.where(rng.random(shape) < 0.1, infinite, values)
    return np.where(rng.random(shape) < 0.06, nan, values)


@pytest.mark.parametrize("rounding", ["rne", "rz", "sr"])
@pytest.mark.parametrize("k", [1, 5, 16])
def test_random_nans(k: int, rounding: str) -> None:
    unit = DMMA if rounding == "rne" else DMMA.replace(rounding=rounding)
    a, b, c = drawn(k, (2, 9, k)), drawn(k + 50, (2, k, 11)), drawn(k + 99, (2, 9, 11))
    got = everywhere(problem(a, b, c, unit))
    assert len(np.unique(got[payload.nan_places(got, FORMATS["float64"])])) > 5
    everywhere(problem(a, b, None, unit))
    everywhere(problem(np.broadcast_to(a[:, :1], (2, 9, k)), b, c, unit))


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("rounding", ["rne", "sr"])
def test_a_nan_that_arises_by_chance(rounding: str, batch: int) -> None:
    """The greatest number and half of its last place, then -infinity, then a's NaN: whether the sum overflows before, and a NaN arises,
    is a matter of the random word of each output's place."""
    greatest, half = 0x7FEFFFFFFFFFFFFF, 0x7C90000000000000
    a = np.broadcast_to(np.array([ONE, MINUS_INF, A1], np.uint64), (batch, 5, 3))
    b = np.broadcast_to(np.array([half, ONE, ONE], np.uint64)[:, None], (batch, 3, 6))
    got = everywhere(problem(a, b, np.full((batch, 5, 6), greatest, np.uint64), DMMA.replace(rounding=rounding)))
    assert set(np.unique(got).tolist()) == ({GENERATED} if rounding == "rne" else {GENERATED, A1 | QUIET})


def test_nans_of_many_small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of many elements are looked at together, some at a time."""
    monkeypatch.setattr(payload, "_COPIED", 64)
    for k in (2, 6):
        everywhere(problem(drawn(k, (40, 3, k)), drawn(k + 50, (40, k, 4)), drawn(k + 99, (40, 3, 4))))


def test_the_last_nan_of_b_is_the_last_that_the_unit_takes() -> None:
    """An order of k that is not ascending, written by hand and drawn, with a short last instruction."""
    unit = DMMA.replace(k_order=(1, 0))
    assert everywhere(problem([[[ONE, ONE]]], [[[B1], [B2]]], None, unit))[0, 0, 0] == B1 | QUIET
    assert everywhere(problem([[[A1, A2]]], [[[ONE], [ONE]]], None, unit))[0, 0, 0] == A2 | QUIET
    for k in (4, 7, 17):
        unit = DMMA.replace(k_order=(2, 0, 3, 1))
        everywhere(problem(drawn(k, (1, 6, k)), drawn(k + 9, (1, k, 5)), drawn(k + 7, (1, 6, 5)), unit))


def test_a_converted_nan_is_the_formats_one() -> None:
    one, nan = 0x3F800000, 0xFFC00123
    assert everywhere(problem([[[nan]]], [[[one]]], None, stored="float32"))[0, 0, 0] == 0x7FFFFFFFFFFFFFFF


@pytest.mark.parametrize(
    "unit", [DMMA.replace(nan_from="code"), DMMA.replace(block_size=2), DMMA.replace(out="float32", nan_code=None)]
)
def test_other_units_have_one_nan(unit: tcsim.Unit) -> None:
    assert not unit.keeps_nan
    c = np.zeros((1, 1, 1), unit.out_format.storage)
    p = problem([[[A1, ONE]]], [[[B1], [ONE]]], None, unit)
    p = Problem(unit, p.plan, p.a, p.b, c)
    assert reference.multiply_reference(p)[0, 0, 0] == cpu.multiply_cpu(p)[0, 0, 0] == unit.nan


def test_a_sum_outside_the_unit_has_one_nan() -> None:
    got = everywhere(problem([[[A1, ONE]]], [[[B1], [ONE]]], None, schedule=Blocked(1, "float64")))
    assert got[0, 0, 0] == GENERATED


def test_no_products_no_payload() -> None:
    assert everywhere(problem(np.zeros((1, 1, 0)), np.zeros((1, 0, 1)), [[[C1]]]))[0, 0, 0] == GENERATED


def test_the_record_says_so() -> None:
    assert "b's before the sum so far, that before a's" in DMMA.explain()
    with pytest.raises(ValueError, match="nan_from"):
        DMMA.replace(nan_from="somewhere")


def test_trace_shows_the_kept_nan() -> None:
    shown = tcsim.trace(np.array([A1], np.uint64), np.array([ONE], np.uint64), unit=DMMA)
    assert shown.code == A1 | QUIET
