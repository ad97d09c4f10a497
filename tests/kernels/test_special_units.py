"""Units past the plain aligned sum on the fast path: block scales, exact groups, a late c, two stages, float32's own operations.

Every problem is computed by the fast path and by the general kernel, small ones by the reference; operands are realistic (so
that proofs succeed), adversarial, or drawn at the edge of what a proof asks.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.random_problems import by_general, draw_problem
from support.special_units import LATE, NVFP4, UNITS, at_the_edge, larger_problem

from tcsim import reference
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.fast import run as simd
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Sequential


@pytest.mark.parametrize("name", UNITS)
def test_larger_problems(name: str, fresh_seed: int) -> None:
    fast = 0
    for number in range(20):
        problem = larger_problem(np.random.default_rng([fresh_seed, number]), UNITS[name])
        fast += cpu.path(problem) == "fast"
        got, expected = cpu.multiply_cpu(problem, 1), by_general(problem)
        assert np.array_equal(got, expected), f"{name}: seed {fresh_seed}, problem {number}, shape {problem.shape}"
    assert fast


@pytest.mark.parametrize("name", UNITS)
def test_small_problems(name: str, fresh_seed: int) -> None:
    for number in range(20):
        problem = draw_problem(np.random.default_rng([fresh_seed, number]), UNITS[name])
        got, expected = cpu.multiply_cpu(problem, 1), reference.multiply_reference(problem)
        assert np.array_equal(got, expected), f"{name}: seed {fresh_seed}, problem {number}, shape {problem.shape}"


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4", "nvfp4 rne", "nvfp4 L=16"])
def test_at_the_edge_of_the_proof(name: str, fresh_seed: int) -> None:
    for number in range(100):
        problem = at_the_edge(np.random.default_rng([fresh_seed, number]), UNITS[name])
        assert np.array_equal(cpu.multiply_cpu(problem, 1), by_general(problem)), f"{name}: seed {fresh_seed}, problem {number}"


def test_wrong_proofs_are_found() -> None:
    """The edge is reached: with a norm that may be a little larger, the block as one sum is wrong somewhere."""
    from tcsim.kernels.fast.plan import fast_plan
    from tcsim.kernels.fast.round import Par

    how = fast_plan(NVFP4)
    assert how is not None
    right = how.par[Par.MOST]
    try:
        how.par[Par.MOST] += 3 << 23
        problems = [at_the_edge(np.random.default_rng([5, number]), NVFP4) for number in range(400)]
        assert any(not np.array_equal(cpu.multiply_cpu(p, 1), by_general(p)) for p in problems)
    finally:
        how.par[Par.MOST] = right


def test_what_it_leaves() -> None:
    """Segments that start inside a block of a scaled unit, and short instructions of a random unit in an order of its own."""
    problem = larger_problem(np.random.default_rng(0), NVFP4)
    cut = Blocked(16, sum="float32").plan(problem.shape[3])
    assert not simd.fast_supports(Problem(NVFP4, cut, problem.a, problem.b, None, problem.scale_a, problem.scale_b))
    random = LATE.replace(rounding="sr")
    short = larger_problem(np.random.default_rng(0), random)
    whole = Problem(random, Sequential().plan(32), *(Operand(np.zeros((1, 32, 32), np.uint8), LATE.a_format),) * 2, None)
    assert simd.fast_supports(whole)
    assert simd.fast_supports(short) == (short.shape[3] % 32 == 0)


def test_narrow_instructions(fresh_seed: int) -> None:
    """Instructions that add in float32 and give float16, past the one that the fast path has."""
    unit = UNITS["m8n8k4 to fp16"].replace(chain=3, chains=1)
    for number in range(20):
        problem = draw_problem(np.random.default_rng([fresh_seed, number]), unit)
        assert cpu.path(problem) == "narrow"
        assert np.array_equal(cpu.multiply_cpu(problem, 1), reference.multiply_reference(problem)), (
            f"seed {fresh_seed}, problem {number}"
        )
