"""Block-scaled quantisers: the OCP rule by hand, exact division, and the block-scaled units fed with the result."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tcsim.fp.codes import decode, encode
from tcsim.fp.round_to import round_to
from tcsim.hardware import unit
from tcsim.quantize import POWER_RULES, dequantize, quantize, scaled_formats, tensor_scale_of

MX = [name for name, kind in scaled_formats().items() if not kind.scale.mantissa_bits]


def sample(shape, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-20, 20, shape))).astype(np.float32)


def test_the_kinds_are_those_of_the_units():
    assert {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "nvfp4"} <= set(scaled_formats())
    assert (scaled_formats()["nvfp4"].element.name, scaled_formats()["nvfp4"].scale.name, scaled_formats()["nvfp4"].block) == (
        "float4_e2m1fn",
        "float8_ue4m3fn",
        16,
    )
    assert scaled_formats()["mxfp8_e4m3"].block == scaled_formats()["mxfp4"].block == 32


@pytest.mark.parametrize("rule", POWER_RULES)
@pytest.mark.parametrize("name", MX)
def test_power_of_two_scales_by_hand(name, rule):
    """Each block in Python numbers: the rule, then one rounding of an exact product."""
    kind, x = scaled_formats()[name], sample((3, 70))
    codes, scales = quantize(x, name, scale_rounding=rule)
    assert codes.shape == x.shape
    assert scales.shape == (3, -(-70 // kind.block))
    for row in range(3):
        for j in range(scales.shape[1]):
            part = x[row, j * kind.block : (j + 1) * kind.block].astype(np.float64)
            amax = float(np.abs(part).max())
            floor = math.frexp(amax)[1] - 1
            exponent = {
                "floor": floor - kind.element.emax,
                "ceil": math.ceil(math.log2(amax)) - kind.element.emax,
                "even": math.frexp(math.floor(amax / 2.0 ** (floor - kind.element.mantissa_bits) + 0.5))[1]
                + floor - kind.element.mantissa_bits - 1 - kind.element.emax,
                "rceil": next(e for e in range(-200, 200) if amax <= kind.element.max_finite * 2.0**e),
            }[rule]  # fmt: skip
            assert int(scales[row, j]) - 127 == exponent
            want = encode(part * 2.0**-exponent, kind.element, round="rne", overflow="saturate_finite")
            assert np.array_equal(codes[row, j * kind.block : (j + 1) * kind.block], want)


def test_the_rule_of_the_standard_on_paper():
    """amax 6.5: floor(log2) = 2; e4m3 has emax 8, so the scale is 2^-6 and 6.5 becomes 416."""
    codes, scales = quantize([6.5, 1.0], "mxfp8_e4m3")
    assert scales.tolist() == [127 - 6]
    assert decode(codes, "e4m3").tolist() == [416.0, 64.0]
    codes, scales = quantize([7.9, 1.0], "mxfp4")  # emax 2: scale 1, and 7.9 saturates at 6
    assert (scales.tolist(), decode(codes, "fp4").tolist()) == ([127], [6.0, 1.0])
    codes, scales = quantize([7.9, 1.0], "mxfp4", scale_rounding="rceil")
    assert (scales.tolist(), decode(codes, "fp4").tolist()) == ([128], [4.0, 0.5])


@pytest.mark.parametrize("tensor_scale", [1.0, float(np.float32(0.1))])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nvfp4_divides_exactly(dtype, tensor_scale):
    """Every element is the even-tied nearest of the exact quotient, also where the float64 quotient lies on a tie."""
    x = sample((4, 64), 3).astype(dtype)
    x[0, :16] = 6.0 * tensor_scale  # the scale is 1: ties and their float64 neighbours
    tie = 2.5 * np.float64(np.float32(tensor_scale))
    x[0, 1:4] = [tie, np.nextafter(tie, 9), np.nextafter(tie, 0)]
    codes, scales = quantize(x, "nvfp4", tensor_scale=tensor_scale)
    table = [Fraction(v) for v in decode(np.arange(8, dtype=np.uint8), "fp4").tolist()]
    for i in range(4):
        for j in range(4):
            part = x[i, 16 * j : 16 * j + 16]
            amax = Fraction(float(np.abs(part).max()))
            exact = amax / 6 / Fraction(tensor_scale)
            scale = Fraction(float(decode(scales, "ue4m3")[i, j]))
            neighbours = decode(np.arange(0x7F, dtype=np.uint8), "ue4m3").tolist()
            assert scale == min(
                (Fraction(v) for v in neighbours), key=lambda v: (abs(v - exact), encode(float(v), "ue4m3") & 1)
            )
            for value, code in zip(part.tolist(), codes[i, 16 * j : 16 * j + 16].tolist(), strict=True):
                quotient = abs(Fraction(value)) / (scale * Fraction(tensor_scale)) if scale else Fraction(0)
                assert code & 7 == min(range(8), key=lambda c: (abs(table[c] - quotient), c & 1))
                assert code >> 3 == (math.copysign(1, value) < 0)


@pytest.mark.parametrize("name", scaled_formats())
def test_values_of_the_format_come_back(name):
    kind = scaled_formats()[name]
    rng = np.random.default_rng(4)
    elements = decode(rng.integers(0, kind.element.max_code + 1, (5, kind.block * 2), dtype=np.uint8), kind.element)
    elements[:, :: kind.block] = kind.element.max_finite
    x = elements * rng.choice([0.25, 0.5, 1, 2], (5, 1))
    codes, scales = quantize(x, name)
    assert np.array_equal(dequantize(codes, scales, name), x)


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
@pytest.mark.parametrize("name", ["mxfp6_e2m3", "nvfp4"])
def test_axis_and_layout(name, axis):
    x = sample((17, 40, 33), 5)
    codes, scales = quantize(x, name, axis)
    moved_codes, moved_scales = quantize(np.ascontiguousarray(np.moveaxis(x, axis, -1)), name)
    assert np.array_equal(codes, np.moveaxis(moved_codes, -1, axis))
    assert np.array_equal(scales, np.moveaxis(moved_scales, -1, axis))
    back = dequantize(codes, scales, name, axis)
    assert np.array_equal(back, np.moveaxis(dequantize(moved_codes, moved_scales, name), -1, axis))


@pytest.mark.parametrize("name", scaled_formats())
def test_special_blocks(name):
    kind = scaled_formats()[name]
    x = np.full((4, kind.block), 6.0)
    x[0], x[1, 3], x[2, 0] = 0.0, np.nan, -np.inf
    codes, scales = quantize(x, name)
    back = dequantize(codes, scales, name)
    assert (back[0] == 0).all()
    assert scales[0] == 0
    assert (codes[1:3] & (kind.element.sign_bit - 1) == 0).all()
    assert np.isnan(back[1:3]).all()
    assert (back[3] == 6).all()


def test_scales_keep_to_their_range():
    codes, scales = quantize([1e-60, 1e-70], "mxfp4")
    assert (codes.tolist(), scales.tolist()) == ([0, 0], [0])
    codes, scales = quantize([1e300, 1.0], "mxfp4")
    assert (codes.tolist(), scales.tolist()) == ([7, 0], [254])


def test_tensor_scale_spreads_over_the_range():
    x = sample((8, 64), 6) * np.float32(1e-3)
    scale = tensor_scale_of(x)
    _, scales = quantize(x, "nvfp4", tensor_scale=scale)
    assert decode(scales, "ue4m3").max() == 448
    assert tensor_scale_of(np.zeros(3)) == 1.0


def test_stochastic_elements_follow_round_to():
    x = sample((6, 64), 7)
    codes, scales = quantize(x, "mxfp8_e5m2", rounding="sr", seed=11)
    factors = np.repeat(decode(scales, "e8m0"), 32, axis=1)
    want = round_to(x.astype(np.float64) / factors, "e5m2", "sr", overflow="saturate_finite", seed=11)
    assert np.array_equal(decode(codes, "e5m2"), want)


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp6_e3m2", "mxfp4", "nvfp4"])
def test_a_block_scaled_unit_takes_the_result(name):
    """matmul of codes and scales is close to the product of what they stand for, and equals the integer reference."""
    from tcsim.matmul import matmul

    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((5, 100)), rng.standard_normal((100, 7))
    a_codes, scale_a = quantize(a, name, -1)
    b_codes, scale_b = quantize(b, name, -2)
    u = unit("b200", name)
    got = matmul(a_codes, b_codes, unit=u, scale_a=scale_a, scale_b=scale_b)
    assert np.array_equal(got, matmul(a_codes, b_codes, unit=u, scale_a=scale_a, scale_b=scale_b, backend="reference"))
    exact = dequantize(a_codes, scale_a, name) @ dequantize(b_codes, scale_b, name, -2)
    assert np.abs(got - exact).max() < 1e-4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantize([1.0], "mxfp8_e4m2"), r"unknown block-scaled format 'mxfp8_e4m2' \(nearest: 'mxfp8_e5m2'\)"),
        (lambda: quantize([1.0], "mxfp4", scale_rounding="flor"), "nearest: 'floor'"),
        (lambda: quantize([1.0], "nvfp4", scale_rounding="floor"), "unknown rounding of the scale 'floor'"),
        (lambda: quantize([1.0], "mxfp4", tensor_scale=2.0), "goes with nvfp4 alone"),
        (lambda: quantize([1.0], "nvfp4", tensor_scale=0.1), "positive float32 value; got 0.1"),
        (lambda: quantize(1.0, "mxfp4"), "needs an axis"),
        (lambda: dequantize(np.zeros(40, np.uint8), np.zeros(1, np.uint8), "mxfp4"), r"scales of shape \(2,\) along axis -1"),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
