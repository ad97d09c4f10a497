"""Sums in float64 lanes against the general kernel: where results tie, cross powers of two and lose bits, and every change of one field.

The random units of `test_random_units` compare the same kernel with the reference.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.patterns import KINDS, operands
from support.random_problems import by_general
from support.whatifs import one_change

import tcsim
from tcsim.fp.modes import UNIT_MODES
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.left import Boxes, boxes_of
from tcsim.kernels.native import double
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Sequential

FP64, FP32 = tcsim.unit("h200", "float64").replace(nan_from="code"), tcsim.unit("mi100", "float32")


def near_ties(rng: np.random.Generator, precision: int, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers a few exponents apart or just about a significand, powers of two and their neighbours, whose sums tie and cancel."""
    far = rng.choice([1, precision // 2, precision - 1, precision, precision + 1], shape)
    last = 2.0 ** (1 - precision) * rng.choice([0, 0, 0, 1, 2, 3], shape) * rng.choice([1, 2.0 ** (precision // 2)], shape)
    return np.asarray(rng.choice([-1, 1], shape) * (1 + last) * 2.0 ** (rng.integers(-2, 3, shape) * far))


def by_double(problem: Problem) -> tuple[Codes, int]:
    """The kernel's answer, and how many outputs it left to the general one."""
    left: list[int] = []

    def counted(marked: np.ndarray) -> Boxes:
        left.append(int(marked.sum()))
        return boxes_of(marked)

    out = np.empty(problem.shape[:3], problem.unit.out_format.storage)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(double, "boxes_of", counted)
        double.multiply_double(problem, out, 1)
    return out, sum(left)


@pytest.mark.parametrize("rounding", UNIT_MODES)
@pytest.mark.parametrize("block", [1, 2, 3, 4])
@pytest.mark.parametrize("unit", [FP64, FP32], ids=["float64", "float32"])
@pytest.mark.drawn(20)
def test_exact_sums(unit: Unit, block: int, rounding: str, fresh_seed: int) -> None:
    """Chains of single products, and blocks of several."""
    rng, kind = np.random.default_rng(fresh_seed), unit.a_format
    precision, dtype, left = kind.precision, kind.array_dtype, 0
    changed = unit.replace(rounding=rounding, block_size=block)
    for number in range(30 // block):
        k = int(rng.integers(1, 6))
        a, b, c = (
            near_ties(rng, precision, shape).astype(dtype).view(kind.storage) for shape in ((1, 20, k), (1, k, 24), (1, 20, 24))
        )
        problem = Problem(changed, Sequential().plan(k), Operand(a, kind), Operand(b, kind), c, seed=fresh_seed + number)
        got, some = by_double(problem)
        left += some
        np.testing.assert_array_equal(got, by_general(problem))
    assert left < 30 // block * 20 * 24 // 4


@pytest.mark.parametrize(
    "base",
    [("a100", "float16"), ("h200", "bfloat16"), ("ada", "float8_e4m3fn"), ("b200", "mxfp8_e4m3"),
     ("mi300x", "tfloat32"), ("mi300x", "float8_e4m3fnuz"), ("mi210", "bfloat16"), ("mi100", "bfloat16"), ("mi100", "float32"), ("b200", "nvfp4")],
)  # fmt: skip
def test_changes_of_one_field(base: tuple[str, str], fresh_seed: int) -> None:
    """Ordinary operands, of which none is left to others, and operands of every sort."""
    rng, taken = np.random.default_rng(fresh_seed), 0
    for unit in one_change(tcsim.unit(*base)):
        a, b, c = operands(rng, unit, 9, 33, 96, str(rng.choice(KINDS)))
        scales = []
        if unit.scale_format is not None:
            blocks, middle = -(-96 // unit.scale_block), unit.scale_format.bias << unit.scale_format.mantissa_bits
            scales = [
                rng.integers(middle - 15, middle + 15, shape, dtype=np.uint8) for shape in ((1, 9, blocks), (1, blocks, 33))
            ]
        problem = Problem(unit, Sequential().plan(96), Operand(a[None], unit.a_format), Operand(b[None], unit.b_format), c[None],
                          *scales, seed=fresh_seed)  # fmt: skip
        if cpu.path(problem) == "double":
            taken += 1
            np.testing.assert_array_equal(cpu.multiply_cpu(problem, 2), by_general(problem), err_msg=unit.source)
    assert taken >= 9


@pytest.mark.parametrize("rounding", ["rz", "rne", "sr"])
def test_a_sum_of_negative_zeros_under_a_floor(rounding: str) -> None:
    """A floor of the exponent is no term: -0 and products of -0 are -0, and a +0 among them makes it +0."""
    unit = tcsim.unit("h200", "float16").replace(
        align_rounding="rne", block_size=2, fraction_bits=9, min_exponent=-20, rounding=rounding, zero_sign="ieee"
    )
    minus, one, plus = 0x8000, 0x3C00, 0x0000
    a = np.array([[[minus, minus], [minus, plus], [one, one]]], np.uint16)
    b = np.array([[[one], [one]]], np.uint16)
    c = np.array([[[0x80000000]] * 3], np.uint32)
    problem = Problem(unit, Sequential().plan(2), Operand(a, unit.a_format), Operand(b, unit.b_format), c, seed=3)
    assert cpu.path(problem) == "double"
    np.testing.assert_array_equal(by_double(problem)[0].ravel(), [0x80000000, 0, 0x40000000])


ROUNDED = tcsim.unit("mi210", "bfloat16")


def same_as_general(unit: Unit, rng: np.random.Generator) -> None:
    """Small sums of small integers and their halves, which tie often."""
    a, b, c = (
        tcsim.encode(rng.integers(-6, 7, shape) * rng.choice([0.5, 1, 4], shape), kind)
        for shape, kind in (((1, 9, 10), unit.a_format), ((1, 10, 12), unit.b_format), ((1, 9, 12), unit.out_format))
    )
    problem = Problem(
        unit, Sequential().plan(10), Operand(a, unit.a_format), Operand(b, unit.b_format), c, seed=int(rng.integers(99))
    )
    got, left = by_double(problem)
    assert np.array_equal(got, by_general(problem)), unit
    assert left < got.size, unit


@pytest.mark.parametrize("rounding", UNIT_MODES)
def test_products_round_by_a_mode_of_their_own(rounding: str, fresh_seed: int) -> None:
    """Of products that draw words and sums that do not, each has its own, and the other way round."""
    rng = np.random.default_rng(fresh_seed)
    for product in UNIT_MODES:
        for block in (1, 3):
            same_as_general(
                ROUNDED.replace(
                    rounding=rounding, product_rounding=product, block_size=block, out="float8_e5m2", nan_code=None
                ),
                rng,
            )


@pytest.mark.parametrize("rounding", UNIT_MODES)
def test_results_of_one_bit_or_two(rounding: str, fresh_seed: int) -> None:
    """A single bit is odd in every binade."""
    rng = np.random.default_rng(fresh_seed)
    exact = tcsim.unit("a100", "float16").replace(align_rounding="exact")
    for unit in (exact, ROUNDED, tcsim.unit("mi300x", "float16"), exact.replace(block_size=1)):
        for kept in (1, 2):
            same_as_general(unit.replace(rounding=rounding, out_precision=kept), rng)


@pytest.mark.parametrize(
    "base", [("mi210", "float16"), ("mi210", "bfloat16"), ("mi100", "bfloat16"), ("mi100", "float32"), ("a100", "float64")]
)
def test_ordinary_numbers_are_summed_here(base: tuple[str, str], fresh_seed: int) -> None:
    """Normal numbers and small integers, which tie often, in every mode, block and width: equal, and hardly an output left to others."""
    rng, left, outputs = np.random.default_rng(fresh_seed), 0, 0
    for rounding in UNIT_MODES:
        for block in (2, 3, 4):
            unit = tcsim.unit(*base).replace(rounding=rounding, block_size=block, nan_from="code")
            for changed in (unit, unit.replace(out_precision=14)):
                for whole in (False, True):
                    a, b, c = (
                        tcsim.encode(
                            tcsim.round_to(
                                rng.integers(-6, 7, shape) if whole else rng.standard_normal(shape), kind, rounding="rne"
                            ),
                            kind,
                        )
                        for shape, kind in (
                            ((1, 3, 21), unit.a_format),
                            ((1, 21, 40), unit.b_format),
                            ((1, 3, 40), unit.out_format),
                        )
                    )
                    problem = Problem(changed, Sequential().plan(21), Operand(a, unit.a_format), Operand(b, unit.b_format), c,
                                      seed=int(rng.integers(99)))  # fmt: skip
                    got, some = by_double(problem)
                    left, outputs = left + some, outputs + got.size
                    np.testing.assert_array_equal(got, by_general(problem), err_msg=f"{changed}, {whole}")
    assert left < outputs // 50


@pytest.mark.parametrize("rounding", UNIT_MODES)
@pytest.mark.parametrize(
    "base", [("v100", "float16"), ("mi300x", "tfloat32"), ("a100", "bfloat16"), ("mi210", "float16"), ("mi100", "float32")]
)
def test_results_around_the_least_normal_number(base: tuple[str, str], rounding: str, fresh_seed: int) -> None:
    """Of float16, in all its bits and fewer, kept and flushed: sums in lanes of every kind tie, cancel and lose bits there."""
    rng, unit = np.random.default_rng(fresh_seed), tcsim.unit(*base).replace(out="float16", rounding=rounding, nan_code=None)
    unit = unit.replace(block_size=3) if unit.block_size == 1 else unit
    changes: list[dict[str, object]] = [{}, {"out_precision": 5}, {"zero_sign": "ieee"}, {"block_size": 4}]
    changes += [{"subnormals": "flush"}] if unit.arithmetic != "two-stage" else []
    changes += [{"align_rounding": "exact"}, {"c_enters": "after"}] if unit.arithmetic == "aligned" else []
    changes += [{"block_size": 1}, {"block_size": 1, "out_precision": 5}] if unit.align_rounding == "exact" else []
    fmt = unit.a_format
    for number, change in enumerate(changes):
        changed, k = unit.replace(**change), int(rng.integers(1, 20))
        a, b, c = (near_ties(rng, 5, shape) * 2.0**-7 for shape in ((1, 20, k), (1, k, 24), (1, 20, 24)))
        if fmt.emin < -100:  # sums far below any result, and such beside others
            b[:, :, ::2] *= rng.choice([1, 2.0**-30, 2.0**-60], b[:, :, ::2].shape)
            b[:, :, 1::4] *= 2.0**-60
            c[:, :, 1::4] = 0
        a, b = (Operand(tcsim.encode(tcsim.round_to(x, fmt), fmt), fmt) for x in (a, b))
        start = tcsim.encode(tcsim.round_to(c * 2.0**-7, "float16", rounding="rz"), "float16")
        problem = Problem(changed, Sequential().plan(k), a, b, start, seed=fresh_seed + number)
        got, left = by_double(problem)
        np.testing.assert_array_equal(got, by_general(problem), err_msg=str(changed))
        assert left < got.size // 2 or changed.align_rounding == "exact"  # whose far terms are for others


def same_with(unit: Unit, a: np.ndarray, b: np.ndarray, c: np.ndarray, seed: int) -> None:
    """Equal to the general kernel with values rounded to the unit's formats."""
    left, right = (
        Operand(tcsim.encode(tcsim.round_to(x, fmt, rounding="rz"), fmt), fmt)
        for x, fmt in ((a, unit.a_format), (b, unit.b_format))
    )
    start = tcsim.encode(tcsim.round_to(c, unit.out_format, rounding="rz"), unit.out_format)
    problem = Problem(unit, Sequential().plan(a.shape[-1]), left, right, start, seed=seed)
    np.testing.assert_array_equal(by_double(problem)[0], by_general(problem), err_msg=str(unit))


@pytest.mark.parametrize("rounding", UNIT_MODES)
def test_a_c_of_more_bits_than_results_keep(rounding: str, fresh_seed: int) -> None:
    """It ties where results never do, and products far below it decide, with every operation rounded."""
    rng = np.random.default_rng(fresh_seed)
    for name in ("float16", "bfloat16"):
        for kept in (8, 14):
            for k in (1, 4, 9):
                unit = tcsim.unit("mi210", name).replace(out_precision=kept, rounding=rounding)
                c = near_ties(rng, kept + 1, (1, 12, 24)) * 2.0**40
                a, b = (rng.choice([-1.0, 0.0, 1.0], shape) * 2.0**-12 for shape in ((1, 12, k), (1, k, 24)))
                same_with(unit, a, b, c, fresh_seed)


@pytest.mark.parametrize("rounding", UNIT_MODES)
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn"])
def test_products_that_tie_and_a_c_far_below(name: str, rounding: str, fresh_seed: int) -> None:
    """Products of more bits than results: what float64 no longer holds beside one decides."""
    rng, base = (
        np.random.default_rng(fresh_seed),
        tcsim.unit("a100", "float16").replace(align_rounding="exact", fraction_bits=None),
    )
    for out in ("bfloat16", "tfloat32", "float32", "float16", "float8_e5m2"):
        for block in (1, 2, 4):
            unit = base.replace(a=name, b=name, out=out, block_size=block, rounding=rounding, nan_code=None)
            ties = near_ties(rng, unit.kept_bits + 1, (1, 20, 1)) * 2.0 ** min(7, unit.a_format.emax - 1)
            one = np.ones((1, 1, 24)) * 2.0 ** min(7, unit.b_format.emax - 1)
            c = rng.choice([-1.0, 0.0, 1.0, 1.5], (1, 20, 24)) * 2.0 ** rng.integers(
                max(unit.out_format.emin, -120), 3, (1, 20, 24)
            )
            same_with(unit, ties, one, c, fresh_seed)
            a, b = (rng.integers(-9, 10, shape) * 2.0 ** (unit.a_format.emax // 3) for shape in ((1, 20, 9), (1, 9, 24)))
            same_with(unit, a, b, c, fresh_seed)


@pytest.mark.parametrize(
    "base", [("v100", "float16"), ("mi300x", "tfloat32"), ("t4", "float16"), ("a100", "bfloat16"), ("mi300x", "float16")]
)
def test_a_c_far_beyond_the_products(base: tuple[str, str], fresh_seed: int) -> None:
    """Of all numbers of float64, with products of short formats."""
    rng, far = (
        np.random.default_rng(fresh_seed),
        [2.0**1010, 2.0**950, 2.0**-950, 2.0**901, 2.0**899, 2.0**-899, 2.0**-901, 5e-324, np.inf, np.nan, 0.0, 1.0],
    )
    for rounding in UNIT_MODES:
        unit = tcsim.unit(*base).replace(out="float64", rounding=rounding, nan_code=None)
        a, b = (rng.standard_normal(shape) for shape in ((1, 8, 12), (1, 12, 24)))
        a[:, ::2] = 0  # then c is the sum
        same_with(unit, a, b, rng.choice(far, (1, 8, 24)) * rng.choice([1, -1, 1.25], (1, 8, 24)), fresh_seed)


@pytest.mark.parametrize("rounding", UNIT_MODES)
def test_lines_of_infinities_and_of_sums_below_the_normal_numbers(rounding: str, fresh_seed: int) -> None:
    """A line that holds both is walked again, with what became of an infinite c."""
    rng = np.random.default_rng(fresh_seed)
    for base in (
        ("v100", "float16"),
        ("mi300x", "tfloat32"),
        ("mi300x", "float8_e4m3fnuz"),
        ("a100", "bfloat16"),
        ("mi100", "bfloat16"),
        ("mi100", "float32"),
    ):
        first = tcsim.unit(*base)
        for out in ("float8_e5m2", "float16"):
            for block in (2, 4, 8) if first.parity_split else (1, 2, 4, 8):
                unit = first.replace(out=out, block_size=block, rounding=rounding, nan_code=None)
                a, b = (rng.choice([-1, 1], shape) * rng.integers(1, 8, shape) / 4 for shape in ((1, 6, 13), (1, 13, 24)))
                b[:, :, ::3] *= 2.0 ** (unit.out_format.emin + 1)
                b[:, :, 1::3] *= 2.0**7 if first.b_format.emax < 16 else 2.0**14
                c = np.where(np.arange(24) % 3 == 1, 2.0 ** (unit.out_format.emax + 1), 0) * rng.choice([-1, 1], (1, 6, 24))
                for kept in (None, 2):  # of which one bit more than those that are cut reaches the sign
                    same_with(unit.replace(out_precision=kept), a, b, c, fresh_seed)


@pytest.mark.parametrize("rounding", UNIT_MODES)
@pytest.mark.parametrize(
    "base", [("mi100", "float32"), ("h200", "float16", "mma.m8n8k4"), ("v100", "float16"), ("a100", "tfloat32")]
)
def test_a_late_c_that_cancels(base: tuple[str, ...], rounding: str, fresh_seed: int) -> None:
    """The sign of a zero, and c far from the products' sum, whatever the processor's rounding is meanwhile."""
    rng, first = (
        np.random.default_rng(fresh_seed),
        tcsim.unit(*base[:2], instruction=base[2]) if base[2:] else tcsim.unit(*base),
    )
    for zero_sign in ("positive", "ieee"):
        for align in (first.align_rounding, "rd", "ru"):
            for out in ("float32", "float16", "bfloat16"):
                bits = first.fraction_bits if align == first.align_rounding else first.fraction_bits or 20
                unit = first.replace(
                    c_enters="after", zero_sign=zero_sign, align_rounding=align, fraction_bits=bits,
                    rounding=rounding, out=out, nan_code=None,
                )  # fmt: skip
                a, b = (rng.integers(-2, 3, shape) * 2.0 ** rng.integers(-6, 2, shape) for shape in ((1, 8, 8), (1, 8, 24)))
                total = a[:, :, :4] @ b[:, :4]
                c = np.where(
                    rng.integers(0, 3, total.shape) > 0, -total, rng.choice([-0.0, 0.0, 2.0**12, -(2.0**-13)], total.shape)
                )
                same_with(unit, a, b, c, fresh_seed)
