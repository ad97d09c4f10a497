"""Units past the plain aligned sum on the fast path: block scales, exact groups, a late c, two stages, float32's own operations.

Every problem is computed by the fast path and by the general kernel, small ones by the reference; operands are realistic (so
that proofs succeed), adversarial, or drawn at the edge of what a proof asks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from support.random_problems import by_general, draw_problem
from support.random_units import near
from support.special_units import LATE, NVFP4, ONE_SUM, UNITS, at_the_edge, larger_problem, one_sums_edge

import tcsim
from tcsim import reference
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.choice import chosen
from tcsim.kernels.fast import ready
from tcsim.kernels.fast import run as simd
from tcsim.kernels.fast.job import FastJob
from tcsim.kernels.fast.plan import fast_plan
from tcsim.kernels.fast.record import FastPlan
from tcsim.kernels.fast.round import Par
from tcsim.kernels.fast.special import one_sum_plan
from tcsim.kernels.fast.tile import BY_PRODUCT, WIDE
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Sequential


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.drawn(10)
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


@pytest.mark.parametrize("name", ["fp8 mma", "fp8 mma to fp16", "mxfp8"])
def test_sums_of_64_bits(name: str, fresh_seed: int) -> None:
    """Their own walks of k with so many fraction bits that 32 do not hold a block's sum."""
    rounding = str(np.random.default_rng(fresh_seed).choice(["rz", "rne", "rna", "sr"]))
    units = (UNITS[name].replace(rounding=rounding, fraction_bits=f) for f in range(12, 30))
    unit = next(u for u in units if (how := fast_plan(u)) is not None and how.width == WIDE)
    for number in range(4):
        problem = larger_problem(np.random.default_rng([fresh_seed, number]), unit)
        got, expected = cpu.multiply_cpu(problem, 1), by_general(problem)
        assert np.array_equal(got, expected), f"{unit}: seed {fresh_seed}, problem {number}, shape {problem.shape}"


@pytest.mark.parametrize("late", [None, 1.0, np.inf])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_infinite_first_block(sign: float, late: float | None) -> None:
    """Of an instruction's two blocks the first is infinite in float16; the second would take it back among finite numbers."""
    unit = UNITS["fp8 mma to fp16"]
    assert unit.k_order is not None
    x, y = np.zeros((1, 20, 64)), np.ones((1, 64, 40))
    x[:, :, unit.k_order[0]] = sign * 49152.0
    x[:, :10, unit.k_order[1]] = sign * 49152.0  # rows of one such number stay finite
    x[:, :, unit.k_order[16:18]] = -sign * 49152.0
    a, b = (tcsim.encode(v, unit.a_format) for v in (x, y))
    c = None if late is None else tcsim.encode(np.full((1, 20, 40), late), "float16")
    problem = Problem(unit, Sequential().plan(64), Operand(a, unit.a_format), Operand(b, unit.b_format), c)
    got = cpu.multiply_cpu(problem, 1)
    assert cpu.path(problem) == "fast"
    assert np.array_equal(got, reference.multiply_reference(problem))
    assert (np.isinf(got.view(np.float16)) == (np.arange(20) < 10)[:, None]).all() or late == np.inf


@pytest.mark.parametrize("fraction", [8, 12, 22, 23, 25])
def test_short_instructions_in_an_order(fraction: int, fresh_seed: int) -> None:
    """A block that a short instruction lacks cuts nothing: what came before has more bits than the fraction, or as many."""
    for number, k in enumerate((2, 3, 30, 33, 66)):
        rng = np.random.default_rng([fresh_seed, number])
        a, b = (tcsim.encode(rng.standard_normal(shape), LATE.a_format, rounding="rne") for shape in ((1, 40, k), (1, k, 40)))
        unit = LATE.replace(fraction_bits=fraction)
        problem = Problem(unit, Sequential().plan(k), Operand(a, LATE.a_format), Operand(b, LATE.b_format), None)
        assert np.array_equal(cpu.multiply_cpu(problem, 1), by_general(problem)), f"k {k}: seed {fresh_seed}"


def test_scales_of_zero(fresh_seed: int) -> None:
    """Of a format without significand bits whose first code is zero."""
    unit = UNITS["mxfp8"].replace(scale=Format(3, 0, name="e3m0", bias=3, signed=False, infinities=False, nan="none"))
    rng, k = np.random.default_rng(fresh_seed), 64
    a, b = (tcsim.encode(rng.standard_normal(shape), unit.a_format, rounding="rne") for shape in ((1, 40, k), (1, k, 40)))
    scales = (rng.integers(0, 4, shape).astype(np.uint8) for shape in ((1, 40, k // 32), (1, k // 32, 40)))
    problem = Problem(unit, Sequential().plan(k), Operand(a, unit.a_format), Operand(b, unit.b_format), None, *scales)
    assert np.array_equal(cpu.multiply_cpu(problem, 1), by_general(problem))


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4", "nvfp4 rne", "nvfp4 L=16"])
def test_at_the_edge_of_the_proof(name: str, fresh_seed: int) -> None:
    for number in range(100):
        problem = at_the_edge(np.random.default_rng([fresh_seed, number]), UNITS[name])
        assert np.array_equal(cpu.multiply_cpu(problem, 1), by_general(problem)), f"{name}: seed {fresh_seed}, problem {number}"


@pytest.fixture
def scales_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are one sum where numbers prove it however far scales lie apart, where another way is faster."""
    monkeypatch.setattr(simd, "scales_apart", lambda unit: 1000)


@pytest.mark.parametrize("name", ONE_SUM)
@pytest.mark.usefixtures("scales_far_apart")
def test_at_the_edge_of_one_sum(name: str, fresh_seed: int) -> None:
    for number in range(60):
        problem = one_sums_edge(np.random.default_rng([fresh_seed, number]), UNITS[name])
        got, expected = cpu.multiply_cpu(problem, 1), by_general(problem)
        assert np.array_equal(got, expected), f"{name}: seed {fresh_seed}, problem {number}"


@pytest.mark.parametrize("name", ONE_SUM)
@pytest.mark.usefixtures("scales_far_apart")
def test_large_problems_of_one_sums(name: str, fresh_seed: int) -> None:
    """With infinities, NaN and zeros among operands and scales, and c anywhere."""
    taken = 0
    for number in range(12):
        problem = larger_problem(np.random.default_rng([fresh_seed, number]), UNITS[name])
        taken += simd._unit_plan(simd._with_scales(problem)).width == BY_PRODUCT
        got, expected = cpu.multiply_cpu(problem, 2), by_general(problem)
        assert np.array_equal(got, expected), f"{name}: seed {fresh_seed}, problem {number}, shape {problem.shape}"
    assert taken


def test_units_near_those_of_one_sums(fresh_seed: int) -> None:
    """Whatever else their records say: with scales of 1 they are units too, and compute what they do without."""
    taken = 0
    for number in range(60):
        rng = np.random.default_rng([fresh_seed, number])
        unit = near(rng, UNITS[rng.choice(ONE_SUM)])
        if unit.scale is not None and rng.random() < 0.5:
            unit = unit.replace(scale=None, scale_block=0) if unit.group_size == 1 else unit
        alike = simd._scaled_alike(unit)
        taken += alike is not None
        problem = larger_problem(rng, unit)
        got, expected = cpu.multiply_cpu(problem, 1), by_general(problem)
        assert np.array_equal(got, expected), f"{unit}: seed {fresh_seed}, problem {number}, shape {problem.shape}"
    assert taken


def only_here(monkeypatch: pytest.MonkeyPatch, how: FastPlan) -> None:
    """For one test the fast path has this plan alone; what it keeps of layouts is neither used nor added to."""
    monkeypatch.setattr(simd, "ready", ready.ready.__wrapped__)
    monkeypatch.setattr(ready, "one_sum_plan" if how.width == BY_PRODUCT else "fast_plan", lambda *_: how)


def with_norm(how: FastPlan, more: int) -> FastPlan:
    """The plan, whose proof lets a norm be 2^(more / 2) larger."""
    par = how.par.copy()
    par[Par.MOST] += more << 23
    return how._replace(par=par)


def some_differ(problems: Iterable[Problem]) -> bool:
    return any(not np.array_equal(cpu.multiply_cpu(p, 1), by_general(p)) for p in problems)


@pytest.mark.parametrize(("name", "norm", "top"), [("mxfp8 x fp4", 8, 0), ("mxfp6 rne", 0, 1), ("mxfp4 k32", 0, 1)])
@pytest.mark.usefixtures("scales_far_apart")
def test_wrong_proofs_of_one_sums_are_found(name: str, norm: int, top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The edge is reached: with a norm that may be larger, or elements that seem smaller, a block as one sum is wrong somewhere."""
    unit, job_of = UNITS[name], ready._job
    how = one_sum_plan(unit)
    assert how is not None

    def wrong(layout: ready.LaidOut, how: FastPlan) -> FastJob:
        job = job_of(layout, how)
        return job._replace(top_a=job.top_a - top)

    monkeypatch.setattr(ready, "_job", wrong)
    only_here(monkeypatch, with_norm(how, norm))
    assert some_differ(one_sums_edge(np.random.default_rng([5, number]), unit) for number in range(200))


def test_scales_far_apart_are_shifted() -> None:
    unit = UNITS["mxfp4 k32"]
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (1, 16, 64)).astype(np.uint8)
    near, far = (np.full((1, 16, 2), 127, np.uint8) for _ in range(2))
    far[0, 3, 1] = 90
    for scale, together in ((near, True), (far, False)):
        operands = Operand(codes, unit.a_format), Operand(codes.swapaxes(1, 2), unit.b_format)
        problem = Problem(unit, Sequential().plan(64), *operands, None, scale, near.swapaxes(1, 2))
        assert (simd._unit_plan(problem).width == BY_PRODUCT) == together
        assert np.array_equal(cpu.multiply_cpu(problem, 1), by_general(problem))


def test_wrong_proofs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The edge is reached: with a norm that may be a little larger, the block as one sum is wrong somewhere."""
    how = fast_plan(NVFP4)
    assert how is not None
    only_here(monkeypatch, with_norm(how, 10))
    assert some_differ(at_the_edge(np.random.default_rng([5, number]), NVFP4) for number in range(400))


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
    """Instructions that add in float32 and give float16, past the one that the fast path has: in lanes, and one after another."""
    unit = UNITS["m8n8k4 to fp16"].replace(chain=3, chains=1)
    for number in range(20):
        problem = draw_problem(np.random.default_rng([fresh_seed, number]), unit)
        assert cpu.path(problem) in ("double", "narrow")  # as the order of k allows
        assert chosen(problem, cpu.GENERAL).name == "narrow"
        expected = reference.multiply_reference(problem)
        for kernels in (cpu.KERNELS, cpu.GENERAL):
            assert np.array_equal(cpu.multiply_cpu(problem, 1, kernels), expected), f"seed {fresh_seed}, problem {number}"


def small_products(rng: np.random.Generator, unit: Unit, deepest: int) -> Problem:
    """Operands of 2^deepest and more, c at the smallest normal numbers, sums that cancel: results may be subnormal."""
    k, n = int(rng.integers(1, 5)) * unit.block_size, 16
    sizes = [(1, 1, k), (1, k, n)]
    x, y = (
        np.ldexp(rng.integers(128, 256, s) / 128.0, deepest + rng.integers(0, 4, s)) * rng.choice([1, -1, 0], s) for s in sizes
    )
    if rng.random() < 0.5:  # pairs that cancel but for their last places
        y[:, 1::2] = -y[:, ::2][:, : y[:, 1::2].shape[1]] * rng.choice([1, 1 + 2.0**-7], (1, k // 2, n))
        x[:, :, 1::2] = x[:, :, ::2][:, :, : k // 2]
    codes = [tcsim.encode(tcsim.round_to(v, unit.a_format, rounding="rne"), unit.a_format) for v in (x, y)]
    c = np.ldexp(
        rng.choice([1.0, -1.0, 0], (1, 1, n)) * (1 + rng.integers(0, 8, (1, 1, n)) / 2**23), -126 + rng.integers(0, 30)
    )
    return Problem(
        unit, Sequential().plan(k), *(Operand(v, unit.a_format) for v in codes), c.astype(np.float32).view(np.uint32)
    )


def test_nothing_subnormal(fresh_seed: int) -> None:
    """Where operands are as small as `calm` allows, flushing may be left out; where they are smaller it may not."""
    unit = UNITS["mi250 bf16"]
    how = fast_plan(unit)
    assert how is not None
    deepest = int(np.log2(how.calm))
    assert deepest == -43
    for number in range(200):
        rng = np.random.default_rng([fresh_seed, number])
        problem = small_products(rng, unit, deepest if rng.random() < 0.7 else deepest - int(rng.integers(1, 30)))
        assert np.array_equal(cpu.multiply_cpu(problem, 1), by_general(problem)), f"seed {fresh_seed}, problem {number}"


def test_something_subnormal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The problems of the test above do reach subnormal results: taken for calm, some are wrong."""
    unit = UNITS["mi250 bf16"]
    how = fast_plan(unit)
    assert how is not None
    only_here(monkeypatch, how._replace(calm=2.0**-126))
    assert some_differ(small_products(np.random.default_rng([5, number]), unit, -63) for number in range(100))
