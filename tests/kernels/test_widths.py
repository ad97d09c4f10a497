"""Products, groups and sums wider than 64 bits: numbers worked out by hand, and which kernel says it holds a unit."""

from fractions import Fraction

import numpy as np
import pytest

import tcsim
from tcsim.fp.formats import FORMATS, Format
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.run import multiply_general
from tcsim.kernels.general.spec import Kind, _kind, widths
from tcsim.problem import Operand, Problem
from tcsim.reference import multiply_reference
from tcsim.schedule import Sequential

FP64, NVFP4, CDNA3 = tcsim.unit("a100", "float64"), tcsim.unit("b200", "nvfp4"), tcsim.unit("mi300x", "float16")


@pytest.mark.parametrize("fmt", ["float64", "float32", "tfloat32", "float16"])
@pytest.mark.parametrize("fraction", [1, 25, 58, 59, 200])
def test_one_times_one(fmt: str, fraction: int) -> None:
    unit = FP64.replace(b=fmt, align_rounding="rz", fraction_bits=fraction, block_size=4)
    assert tcsim.matmul([1.0], [1.0], unit=unit) == 1.0
    assert tcsim.matmul(np.ones(4), np.ones(4), unit=unit) == 4.0


def test_products_of_106_bits_are_cut_where_the_unit_cuts() -> None:
    x = 1 + 2.0**-52  # x·x = 1 + 2^-51 + 2^-104
    unit = FP64.replace(align_rounding="rz", fraction_bits=104, block_size=2)
    assert tcsim.matmul([x, -1.0], [x, x], unit=unit) == Fraction(1, 1 << 52) * Fraction(x)
    assert tcsim.matmul([x, -1.0], [x, x], unit=unit.replace(fraction_bits=103)) == 2.0**-52
    assert tcsim.matmul([x, -1.0], [x, x], unit=unit.replace(fraction_bits=51)) == 2.0**-51


def test_operands_converted_to_float64() -> None:
    unit = tcsim.unit("h200", "float16").replace(operand_format="float64")
    assert tcsim.matmul([1.5, 2.0], [1.0, 0.25], 3.0, unit=unit) == 5.0


def test_groups_of_wide_products() -> None:
    """2^100 + 2^-100 - 2^100 within a group is exact; scales multiply it."""
    unit = NVFP4.replace(a="bfloat16")
    a = np.zeros(64, np.float32)
    a[:3] = 2.0**100, 2.0**-100, -(2.0**100)
    scale = np.array([1.5, 1, 1, 1], np.float32)
    got = tcsim.matmul(
        a, np.ones(64, np.float32), unit=unit.replace(align_rounding="exact"), scale_a=scale, scale_b=2 * scale[:, None]
    )
    assert got == 4.5 * 2.0**-100
    ones = np.ones(64, np.float32)
    assert tcsim.matmul(ones, ones, unit=unit, scale_a=ones[:4], scale_b=ones[:4, None]) == 64.0


def test_two_stages_wider_than_64_bits() -> None:
    unit = CDNA3.replace(fraction_bits=100, late_fraction_bits=120, out="float64", rounding="rne")
    tiny = 2.0**-24
    assert tcsim.matmul([1.0, tiny, -1.0], [1.0, tiny, 1.0], unit=unit) == 2.0**-48
    assert tcsim.matmul([tiny], [tiny], 2.0**50, unit=unit.replace(fraction_bits=90)) == 2.0**50
    assert (
        tcsim.matmul([tiny, -tiny], [tiny, tiny / 2], 2.0**-60, unit=unit.replace(a="float64", b="float64"))
        == 2.0**-49 + 2.0**-60
    )


@pytest.mark.parametrize(
    ("unit", "kind"),
    [
        (tcsim.unit("h200", "float16").replace(align_rounding="rd"), Kind.PLAIN),
        (tcsim.unit("mi100", "float32"), Kind.SINGLE),
        (FP64, Kind.PLAIN),
        (NVFP4, Kind.GROUPED),
        (NVFP4.replace(a="bfloat16"), Kind.ANY_WIDTH_GROUPED),
        (tcsim.unit("b200", "mxfp8_e5m2").replace(group_size=8), Kind.ANY_WIDTH_GROUPED),
        (CDNA3, Kind.TWO_STAGES),
        (CDNA3.replace(fraction_bits=56, late_fraction_bits=55), Kind.TWO_STAGES),
        (CDNA3.replace(fraction_bits=57), Kind.ANY_WIDTH_STAGES),
        (CDNA3.replace(late_fraction_bits=56), Kind.ANY_WIDTH_STAGES),
        (CDNA3.replace(a="float64"), Kind.ANY_WIDTH_STAGES),
    ],
    ids=lambda x: x.label if isinstance(x, Unit) else x.name,
)
def test_each_kernel_states_what_it_holds(unit: Unit, kind: Kind) -> None:
    assert _kind(unit, widths(unit)) is kind


@pytest.mark.parametrize("bits", [20, 30, 31, 40])
def test_many_dot_products_whose_scales_are_wide(bits: int) -> None:
    """Products of two scales that a word holds, and that it does not."""
    fmt = Format(exponent_bits=5, mantissa_bits=bits, name=f"ue5m{bits}", bias=15, signed=False, infinities=False, nan="none")
    unit, rng = (
        NVFP4.replace(a="float8_e4m3fn", b="float8_e4m3fn", scale=fmt, scale_block=4, group_size=4, block_size=16),
        np.random.default_rng(bits),
    )
    a, b = (
        Operand(rng.integers(0, 120, shape).astype(np.uint8), f)
        for shape, f in (((9, 1, 16), unit.a_format), ((9, 16, 1), unit.b_format))
    )
    scales = [rng.integers(10 << bits, 20 << bits, shape).astype(fmt.storage) for shape in ((9, 1, 4), (9, 4, 1))]
    problem, out = Problem(unit, Sequential().plan(16), a, b, None, *scales, 0), np.empty((9, 1, 1), unit.out_format.storage)
    multiply_general(problem, out, 1)
    np.testing.assert_array_equal(out, multiply_reference(problem))


COARSE = Format(exponent_bits=5, mantissa_bits=12, name="coarse", bias=3)  # to it many numbers of fp8 are subnormal
FINE = Format(exponent_bits=11, mantissa_bits=40, name="fine")


@pytest.mark.parametrize("arithmetic", ["aligned", "two-stage", "rounded"])
@pytest.mark.parametrize("wide", [COARSE, FINE, FORMATS["float64"]], ids=lambda f: f.name)
@pytest.mark.parametrize(
    "names", [("float8_e4m3fn", "float8_e4m3fn"), ("float4_e2m1fn", "float8_e4m3fn"), ("float6_e3m2fn", "float6_e2m3fn")]
)
def test_operands_in_a_wider_format_have_their_own_bits(
    names: tuple[str, str], wide: Format, arithmetic: str, fresh_seed: int
) -> None:
    rng = np.random.default_rng(fresh_seed)
    unit = Unit("random", "mma", *names, out="float32", block_size=int(rng.integers(1, 6)), arithmetic=arithmetic, operand_format=wide,
                **{"aligned": {"fraction_bits": int(rng.integers(1, 30)), "rounding": "sr"},
                   "two-stage": {"fraction_bits": int(rng.integers(1, 30)), "late_fraction_bits": int(rng.integers(1, 30))},
                   "rounded": {"rounding": "rne", "align_rounding": "exact"}}[arithmetic])  # fmt: skip
    assert widths(unit).product < 62
    for m, n in ((1, 1), (3, 4)):
        a, b = (
            Operand(rng.integers(0, 1 << f.width, shape).astype(f.storage), f)
            for shape, f in (((10, m, 11), unit.a_format), ((10, 11, n), unit.b_format))
        )
        problem, out = Problem(unit, Sequential().plan(11), a, b, None, seed=5), np.empty((10, m, n), np.uint32)
        multiply_general(problem, out, 1)
        np.testing.assert_array_equal(out, multiply_reference(problem))
