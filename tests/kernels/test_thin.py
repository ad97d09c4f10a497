"""Flat problems, whose codes are read where they lie, equal the general kernel; what their driver leaves is computed all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.patterns import KINDS, codes, operands, schedules
from support.random_problems import draw_schedule, laid_out, operand_codes
from support.random_units import pick
from support.whatifs import label

import tcsim
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.fast import run, thin_drive
from tcsim.kernels.fast.thin import BRAIN, BYTES, FLOATS, HALVES
from tcsim.kernels.fast.thin_scaled import exact_in_float64
from tcsim.problem import Codes, Operand, Problem
from tcsim.reference.dot import multiply_reference
from tcsim.schedule import Schedule, Sequential

V100, H200 = tcsim.unit("v100", "float16"), tcsim.unit("h200", "float16")
BF16, E4M3 = tcsim.unit("h200", "bfloat16"), tcsim.unit("h200", "float8_e4m3fn")
UNITS = [V100, H200, BF16, E4M3]
# (batch, m, n, k): whole panels and a ragged one, either side flat, columns that fill squares, several rows, several tasks
SHAPES = [(1, 1, 1090, 67), (2, 600, 1, 70), (1, 3, 330, 210), (1, 4200, 2, 33)]
NARROW = [(70, 1, 48, 33), (40, 4, 16, 128), (2, 65, 2, 520), (9, 3, 129, 64)]  # their panels are hardly full


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each flat problem was written by the flat driver, as they come."""
    seen: list[bool] = []
    multiply: Callable[..., Any] = run.multiply_flat

    def spy(*args: Any) -> Any:
        found = multiply(*args)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(run, "multiply_flat", spy)
    return seen


def problem_of(
    unit: Unit, shape: tuple[int, int, int, int], kind: str, schedule: Schedule, seed: int = 0, with_c: bool = True
) -> Problem:
    batch, m, n, k = shape
    rng = np.random.default_rng([seed, m, n, k, KINDS.index(kind)])
    parts = [operands(rng, unit, m, n, k, kind) for _ in range(batch)]
    a, b, c = (np.stack([p[i] for p in parts]) for i in range(3))
    return Problem(unit, schedule.plan(k), Operand(a, unit.a_format), Operand(b, unit.b_format), c if with_c else None)


def agree(problem: Problem, threads: int = 1) -> bool:
    return np.array_equal(cpu.multiply_cpu(problem, threads), cpu.multiply_cpu(problem, 1, cpu.GENERAL))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", UNITS, ids=label)
@pytest.mark.drawn(12)
def test_equals_the_general_kernel(unit: Unit, kind: str, walked: list[bool]) -> None:
    for i, shape in enumerate(SHAPES):
        schedule = schedules(shape[3], unit)[(i + KINDS.index(kind)) % 5]
        assert agree(problem_of(unit, shape, kind, schedule, i, with_c=i != 1), threads=1 + i % 2), (shape, schedule)
    assert len(walked) == len(SHAPES)
    assert all(walked) or kind in ("uniform", "special", "corners", "tiny", "big") or (kind == "zeros" and unit == BF16)


@pytest.mark.parametrize("unit", UNITS, ids=label)
def test_narrow_products_are_packed(unit: Unit, walked: list[bool]) -> None:
    assert all(agree(problem_of(unit, shape, "mid", Sequential())) for shape in NARROW)
    assert not walked


@pytest.mark.parametrize("unit", [H200, BF16, E4M3], ids=label)
def test_a_single_special_value(unit: Unit, walked: list[bool]) -> None:
    """An infinity or a NaN anywhere in a, b or c, also across from a zero, in whole panels and in the last one."""
    fmt = unit.b_format
    codes = [code for code in (fmt.inf_code, fmt.nan_code) if code is not None]
    plain = problem_of(unit, (1, 2, 600, 120), "mid", Sequential())
    plain.b.codes[0, ::3, ::5] = 0
    assert agree(plain)
    assert walked == [True]
    for seed, code in enumerate(codes * 2):
        rng = np.random.default_rng(seed)
        a, b = plain.a.codes.copy(), plain.b.codes.copy()
        if seed < len(codes):
            b[0, rng.integers(120), [599, 3][seed % 2]] = code
            a[0, 0] = 0
        else:
            a[0, 1, rng.integers(120)] = code
        assert agree(replace(plain, a=Operand(a, plain.a.stored), b=Operand(b, plain.b.stored)))
    assert not any(walked[1:])


NEAR_LEAST = [H200, BF16, E4M3, V100, tcsim.unit("h200", "tfloat32"), tcsim.unit("h200", "float16").replace(rounding="rne")]


def near_least(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...], scarce: float) -> Codes:
    """Zeros, subnormals and the least normals; of some other magnitude with probability `scarce`; of either sign."""
    least = 1 << fmt.mantissa_bits
    few = rng.integers(0, 3 * least, shape) * rng.integers(0, 2, shape)
    magnitude = np.where(rng.random(shape) < scarce, rng.integers(0, (fmt.max_code >> fmt.padding) // 2, shape), few)
    return (magnitude << fmt.padding | rng.integers(0, 2, shape) << (fmt.width - 1)).astype(fmt.storage)


@pytest.mark.parametrize("unit", NEAR_LEAST, ids=label)
def test_blocks_whose_largest_product_is_hardly_normal(unit: Unit, walked: list[bool], fresh_seed: int) -> None:
    """Zeros and subnormals of b across from the largest of a, in columns that have nothing else and in those that have."""
    for number in range(24):
        rng = np.random.default_rng([fresh_seed, number])
        m, n, k = int(rng.integers(1, 4)), int(pick(rng, (1024, 1090, 2048))), 33 + int(rng.integers(0, 60))
        a, b = (
            near_least(rng, f, s, pick(rng, (0.0, 0.02, 0.3))) for f, s in ((unit.a_format, (m, k)), (unit.b_format, (k, n)))
        )
        b[:, rng.random(n) < 0.1] = 0
        c = np.float32(2.0) ** rng.integers(-140, 3, (1, m, n))
        c = np.where(rng.random(c.shape) < 0.5, 0, c).astype(np.float32).view(np.uint32)
        plan = draw_schedule(rng, unit, ("float32",)).plan(k)
        problem = Problem(unit, plan, Operand(a[None], unit.a_format), Operand(b[None], unit.b_format), c)
        assert agree(problem), (number, problem.shape)
    assert any(walked)


@pytest.mark.parametrize("kind", ["mid", "zeros", "tiny"])
@pytest.mark.parametrize("stored", ["float32", "float64"])
def test_values_and_strides(stored: str, kind: str) -> None:
    """Values as floats, every second column, a matrix that is turned, one row for all batches."""
    unit = H200
    problem = problem_of(unit, (2, 1, 1100, 70), kind, Sequential())
    fmt = FORMATS[stored]

    def as_floats(x: Operand) -> Operand:
        return Operand(tcsim.decode(x.codes, unit.a_format).astype(stored).view(fmt.storage), fmt)

    whole = replace(problem, a=as_floats(problem.a), b=as_floats(problem.b))
    assert agree(whole)
    turned = np.ascontiguousarray(whole.b.codes.swapaxes(1, 2)).swapaxes(1, 2)
    assert agree(replace(whole, b=Operand(turned, fmt), a=Operand(np.broadcast_to(whole.a.codes[:1], (2, 1, 70)), fmt)))
    assert agree(replace(whole, b=Operand(whole.b.codes[:, ::-1, ::2], fmt), c=None if whole.c is None else whole.c[:, :, ::2]))


def test_equals_the_reference() -> None:
    """A few columns of a flat product by the definition, with alpha and beta's c."""
    problem = problem_of(H200, (1, 1, 1024, 64), "uniform", Sequential())
    found = cpu.multiply_cpu(problem, 1)[:, :, ::97]
    few = replace(problem, b=Operand(problem.b.codes[:, :, ::97], problem.b.stored), c=problem.c[:, :, ::97])
    assert np.array_equal(found, multiply_reference(few))


def test_which_codes_are_read_where_they_lie() -> None:
    """Formats whose exponents, and those of the row beside them, have room in a code; NaN as -0 would be taken for a zero."""
    half, brain, single = FORMATS["float16"], FORMATS["bfloat16"], FORMATS["float32"]

    def form(a: Any, b: Any, stored: Any) -> int | None:
        found = thin_drive.thin_form(a, b, stored)
        return None if found is None else found[0]

    assert form(half, half, half) == HALVES
    assert form(brain, brain, brain) == BRAIN
    assert form(half, half, single) == form(FORMATS["tfloat32"], FORMATS["tfloat32"], FORMATS["tfloat32"]) == FLOATS
    for name in ("float8_e4m3fn", "float8_e5m2", "float6_e3m2fn", "float4_e2m1fn"):
        assert form(FORMATS["float8_e5m2"], FORMATS[name], FORMATS[name]) == BYTES
    for name in ("float8_e4m3fnuz", "float8_e5m2fnuz"):
        assert form(FORMATS[name], FORMATS[name], FORMATS[name]) is None
    assert form(brain, half, half) is None  # sums of exponents beyond six bits


SCALED = [
    tcsim.unit("b200", "nvfp4"),
    tcsim.unit("b200", "mxfp4"),
    tcsim.unit("b200", "mxfp4_block16").replace(rounding="rne"),
    tcsim.unit("b200", "nvfp4").replace(rounding="rne", fraction_bits=12),
    tcsim.unit("b200", "mxfp8_e4m3"),
    tcsim.unit("b200", "mxfp8_e5m2", b="mxfp4_e2m1_k32"),
    tcsim.unit("b200", "mxfp6_e3m2").replace(rounding="ru"),
]


def scaled_problem(rng: np.random.Generator, unit: Unit) -> Problem:
    """A flat problem with block scales: near one another, far apart, the least there are, zeros among them; c near the sums or far."""
    flat, n = int(rng.integers(1, 5)), int(rng.integers(64, 900))
    k = -(-thin_drive.LEAST // n) + int(rng.integers(0, 150))
    m, n = (flat, n) if rng.random() < 0.5 else (n, flat)
    assert unit.scale_format is not None
    top = unit.scale_format.max_code
    low, high = pick(rng, ((-3, 4), (-25, 25), (-39, -30), (30, 39), (-(top // 2), top // 6 - top // 2)))
    low, high = low + top // 2, high + top // 2
    count = -(-k // unit.scale_block)
    scales = [
        np.where(rng.random(shape) < 0.1, 0 if unit.scale_format.zero else low, rng.integers(low, high, shape)).astype(np.uint8)
        for shape in ((1, m, count), (1, count, n))
    ]
    a, b = operand_codes(rng, unit.a_format, (1, m, k)), operand_codes(rng, unit.b_format, (1, k, n))
    if rng.random() < 0.4:  # blocks without a product
        b[:, rng.random(count).repeat(unit.scale_block)[:k] < 0.5] = 0
    if rng.random() < 0.4:  # outputs that are c alone
        a[:, rng.random(m) < 0.5] = 0
        b[:, :, rng.random(n) < 0.5] = 0
    low, high = pick(rng, ((-40, 40), (-110, -75), (60, 100)))
    c = (rng.standard_normal((1, m, n)) * 2.0 ** rng.integers(low, high, (1, m, n))).astype(np.float32).view(np.uint32)
    plan = draw_schedule(rng, unit, ("float32", "float64")).plan(k)
    sides = (Operand(laid_out(rng, a), unit.a_format), Operand(laid_out(rng, b), unit.b_format))
    return Problem(unit, plan, *sides, c if rng.random() < 0.7 else None, *(laid_out(rng, x) for x in scales))


@pytest.mark.parametrize("unit", SCALED, ids=label)
@pytest.mark.drawn(2)
def test_block_scales(unit: Unit, walked: list[bool], fresh_seed: int) -> None:
    for seed in (5, fresh_seed):
        for number in range(60):
            problem = scaled_problem(np.random.default_rng([seed, number]), unit)
            assert agree(problem), f"draw {number} of seed {seed}: {problem.shape}"
    assert any(walked)  # specials, and scales beyond what is multiplied, leave the rest to others


def test_what_float64_does_not_hold_is_left_to_others() -> None:
    wide = tcsim.unit("b200", "nvfp4").replace(fraction_bits=40)
    assert exact_in_float64(SCALED[0])
    assert not exact_in_float64(wide)
    assert agree(scaled_problem(np.random.default_rng(1), wide))


@pytest.mark.parametrize("unit", SCALED, ids=label)
def test_a_block_without_a_product_leaves_c_whatever_its_scales(unit: Unit, walked: list[bool]) -> None:
    rng, n, k = np.random.default_rng(0), 320, 256
    assert unit.scale_format is not None
    assert unit.fraction_bits is not None
    c = (rng.standard_normal((1, 1, n)) * 2.0**-80).astype(np.float32).view(np.uint32)
    scales = [
        np.full(shape, unit.scale_format.max_code // 2 + 35, np.uint8)
        for shape in ((1, 1, k // unit.scale_block), (1, k // unit.scale_block, n))
    ]
    a, b = np.zeros((1, 1, k), np.uint8), codes(rng, unit.b_format, (1, k, n), "mid")
    problem = Problem(unit, Sequential().plan(k), Operand(a, unit.a_format), Operand(b, unit.b_format), c, *scales)
    assert np.array_equal(cpu.multiply_cpu(problem), c) or unit.fraction_bits < 23
    assert agree(problem)
    assert all(walked)


@pytest.mark.parametrize("unit", SCALED, ids=label)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_specials_beside_scales_in_any_storage(unit: Unit, value: float) -> None:
    """Infinities and NaN of values stored in another format, which the elements' own need not have."""
    rng = np.random.default_rng(3)
    problem = scaled_problem(rng, unit)
    sides = []
    for x, axis in ((problem.a, 2), (problem.b, 1)):
        values = np.array(decode(x.codes, x.stored), np.float32)
        np.moveaxis(values, axis, 0)[-1, 0, rng.integers(3) :: 3] = (
            value  # the last product: no block follows that would see it in c
        )
        sides.append(Operand(values.view(np.uint32), FORMATS["float32"]))
    assert agree(replace(problem, b=sides[1]))
    assert agree(replace(problem, a=sides[0]))
    assert agree(replace(problem, a=sides[0], b=sides[1]))
