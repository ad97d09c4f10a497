"""What a backend is asked has the shapes that compiled code reads: anything else is refused before it is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.problem import Operand, Problem
from tcsim.schedule import Plan, Sequential

BATCH, M, N, K = 2, 3, 5, 70


def problem_of(unit: tcsim.Unit) -> Problem:
    """Zeros of every shape that it must have."""
    a, b = np.zeros((BATCH, M, K), unit.a_format.storage), np.zeros((BATCH, K, N), unit.b_format.storage)
    c = np.zeros((BATCH, M, N), unit.out_format.storage)
    count = -(-K // max(unit.scale_block, 1))
    scales = () if unit.scale is None else (np.zeros((BATCH, M, count), np.uint8), np.zeros((BATCH, count, N), np.uint8))
    return Problem(unit, Sequential().plan(K), Operand(a, unit.a_format), Operand(b, unit.b_format), c, *scales)


PLAIN, SCALED = problem_of(tcsim.unit("a100", "float16")), problem_of(tcsim.unit("b200", "nvfp4"))


def cut(problem: Problem, name: str, axis: int) -> Problem:
    """One array of it shorter by one."""
    array = getattr(problem, name)
    codes = array.codes if isinstance(array, Operand) else array
    shorter = np.delete(codes, 0, axis)
    return replace(problem, **{name: Operand(shorter, array.stored) if isinstance(array, Operand) else shorter})


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("name", ["a", "b", "c", "scale_a", "scale_b"])
def test_a_shorter_array_is_refused(name: str, axis: int) -> None:
    with pytest.raises(ValueError, match=r"of shape \(.*it must be \(|a plan of segments"):
        cut(SCALED, name, axis)


@pytest.mark.parametrize("changes", [{"scale_a": None}, {"scale_b": None}])
def test_a_scaled_unit_without_scales_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"scale_. of shape None .* on b200 nvfp4"):
        replace(SCALED, **changes)


def test_scales_of_a_unit_without_are_refused() -> None:
    with pytest.raises(ValueError, match=r"scale_a of shape .* it must be None"):
        replace(PLAIN, scale_a=SCALED.scale_a)


@pytest.mark.parametrize("bounds", [[0, 69], [0, 71], [1, 70], [0, 40, 30, 70]])
def test_a_plan_of_another_k_is_refused(bounds: list[int]) -> None:
    with pytest.raises(ValueError, match="they must go from 0 to 70"):
        replace(PLAIN, plan=Plan(np.array(bounds), None, True))


def test_c_may_be_missing() -> None:
    assert replace(PLAIN, c=None).shape == (BATCH, M, N, K)
