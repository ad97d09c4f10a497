"""The reference's smallest parts beside their definitions in rationals: what every other bit rests on."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest

import tcsim
from tcsim import reference
from tcsim.fp.formats import FORMATS, format_named
from tcsim.fp.philox import word
from tcsim.problem import Operand, Problem
from tcsim.reference.blocks import Draws, flushed_operand, flushed_result, integer_block, to_output, two_stage_block
from tcsim.reference.values import (
    NAN,
    Value,
    code_of_value,
    exact_product,
    infinity,
    round_value,
    shift_right,
    special_sum,
    sum_of_values,
    value_of_code,
)
from tcsim.schedule import Sequential

MODES = ("rz", "rne", "rna", "ru", "rd", "ro", "sr")
WORDS = (0, 1, (1 << 29) - 1, 1 << 29, (1 << 30) - 1, 1 << 30, (1 << 31) - 1, 1 << 31, 3 << 30, (1 << 32) - 1)


def nearest_integer(x: Fraction, mode: str, random: int) -> int:
    """x to an integer, by the words of the mode."""
    low, half = floor(x), x - floor(x) - Fraction(1, 2)
    toward = low if x >= 0 else low + (x != low)
    away = toward if x == toward else toward + (1 if x > 0 else -1)
    if x == low:
        return low
    if mode == "sr":
        return away if floor(abs(x - toward) * 2**32) + random >= 2**32 else toward
    return {
        "rz": toward,
        "ru": low + 1,
        "rd": low,
        "ro": low if low % 2 else low + 1,
        "rne": low if half < 0 or (half == 0 and low % 2 == 0) else low + 1,
        "rna": low if half < 0 else low + 1 if half > 0 else away,
    }[mode]


@pytest.mark.parametrize("mode", MODES)
def test_shifts_are_the_modes(mode: str) -> None:
    """Every integer up to 70, every shift up to 7, words at both sides of each threshold."""
    for x in range(-70, 71):
        for bits in range(-2, 8):
            for random in WORDS if mode == "sr" else (0,):
                expected = nearest_integer(Fraction(x) / Fraction(2) ** bits, mode, random)
                assert shift_right(x, bits, mode, random) == expected, (x, bits, random)


def test_stochastic_rounding_takes_the_32_leading_bits() -> None:
    """A fraction of 40 bits: its last eight never decide."""
    x = (5 << 40) + (1 << 31 << 8) + 255
    assert shift_right(x, 40, "sr", (1 << 31) - 1) == 5
    assert shift_right(x, 40, "sr", 1 << 31) == 6


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_fraction_equal_to_the_threshold_rounds_up(backend: str) -> None:
    """1 + f·2^-23 on a unit of one product, f = 1 - word/2^32 exactly, and the next fraction below."""
    unit = tcsim.unit("h200", "float64").replace(out="float32", rounding="sr", nan_code=None)
    for seed in range(5):
        fraction = 2**32 - word(seed, 0, 0)
        for less, expected in ((0, 1 + 2.0**-23), (1, 1.0)):
            small = float(Fraction(fraction - less, 2**32) / 2**23)
            got = tcsim.matmul([small], [1.0], np.float32(1), unit=unit, seed=seed, backend=backend)
            assert got == np.float32(expected), (seed, less)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn", "float4_e2m1fn", "float8_e4m3fnuz"])
def test_values_align_by_their_exponent(name: str) -> None:
    """floor(log2 |x|), at least emin; a zero has none of its own, and its sign is kept."""
    fmt = FORMATS[name]
    for code in range(0, 1 << fmt.width, max(1, (1 << fmt.width) // 4096)):
        value = value_of_code(code, fmt)
        if value.special:
            continue
        x = Fraction(value.significand) * Fraction(2) ** value.lsb
        assert value.negative == bool(code & fmt.sign_bit)
        assert value.zero == (x == 0)
        exponent = fmt.emin
        while abs(x) >= Fraction(2) ** (exponent + 1):
            exponent += 1
        assert value.exponent == exponent
        assert code_of_value(value, fmt) == code
        wide = value_of_code(code, fmt, FORMATS["float64"])
        assert (wide.significand, wide.lsb) == (value.significand, value.lsb)
        if x:
            assert wide.exponent == floor_log2(abs(x))


def floor_log2(x: Fraction) -> int:
    place = x.numerator.bit_length() - x.denominator.bit_length()
    return place if Fraction(2) ** place <= x else place - 1


def test_products() -> None:
    half, minus = FORMATS["float16"], -1
    one, zero, inf = value_of_code(0x3C00, half), value_of_code(0x8000, half), infinity(False)
    assert exact_product(one, zero) == Value(0, one.lsb + zero.lsb, one.exponent + zero.exponent, True, zero=True)
    assert exact_product(inf, zero) == exact_product(NAN, one) == exact_product(zero, inf) == exact_product(one, NAN) == NAN
    assert exact_product(inf, one._replace(negative=True, significand=minus)) == infinity(True)
    assert exact_product(infinity(True), infinity(True)) == infinity(False)


def test_sums() -> None:
    plus, minus, one = Value(zero=True), Value(zero=True, negative=True), Value(3, -2)
    assert [sum_of_values(t).negative for t in ((minus, minus), (minus, plus), (plus,), (minus,))] == [True, False, False, True]
    assert sum_of_values((one, Value(-3, -2, negative=True))) == Value(0, -2)
    assert sum_of_values((one, Value(-1, 3, negative=True)))[:2] == (3 - 32, -2)
    assert sum_of_values((Value(-1, 0, negative=True),)).negative
    assert special_sum((one, plus)) is None
    assert special_sum((one, infinity(True))) == infinity(True)
    assert special_sum((infinity(True), infinity(True))) == infinity(True)
    assert special_sum((infinity(True), infinity(False))) == NAN
    assert special_sum((infinity(True), NAN)) == NAN


def test_rounding_keeps_a_fixed_last_place_below_emin() -> None:
    assert round_value(Value(0b10111, -20), -14, 3, "rz")[:2] == (0b1, -16)
    assert round_value(Value(0b10111, 0), -14, 3, "rne")[:2] == (0b110, 2)
    assert round_value(Value(-1, -30, negative=True), -14, 11, "rz") == Value(0, -24, negative=True)


def test_results() -> None:
    """Overflow, the sign of zero, subnormals flushed with or without their sign."""
    unit = tcsim.unit("v100", "float16", out="float16")
    fp16 = format_named("float16")
    for significand, lsb, expected in (
        (2047, 5, 0x7BFF),
        (4095, 4, 0x7C00),
        (1, 16, 0x7C00),
        (4093, 4, 0x7BFE),
        (-4095, 4, 0xFC00),
    ):
        value = to_output(unit, Value(significand, lsb, negative=significand < 0), "rne")
        assert code_of_value(value, fp16, unit.nan) == expected, significand
    tiny = Value(-1, -40, negative=True)
    assert not to_output(unit, tiny, "rne").negative
    assert to_output(unit.replace(zero_sign="ieee"), tiny, "rne").negative
    assert not to_output(unit.replace(zero_sign="ieee"), Value(1, -40), "rne").negative
    subnormal, least, zero = value_of_code(0x8001, fp16), value_of_code(0x0400, fp16), value_of_code(0x8000, fp16)
    for sign in ("ieee", "positive"):
        flushing = unit.replace(subnormals="flush", zero_sign=sign)
        taken, given = flushed_operand(flushing, subnormal, fp16.emin), flushed_result(flushing, subnormal)
        assert (taken.significand, taken.zero, taken.negative, taken.exponent) == (0, True, False, fp16.emin)
        assert (given.significand, given.zero, given.negative, given.exponent) == (0, True, sign == "ieee", fp16.emin)
        assert to_output(flushing, subnormal, "rne").negative == (sign == "ieee")
        assert not flushed_operand(flushing, zero, fp16.emin).negative  # as the source's: all below the smallest normal
        assert flushed_result(flushing, zero).negative == (sign == "ieee")
        assert flushed_operand(flushing, least, fp16.emin) == flushed_result(flushing, least) == least
        assert flushed_operand(flushing, value_of_code(0x03FF, fp16), fp16.emin).zero
        assert flushed_result(flushing, value_of_code(0x03FF, fp16)).zero
    assert flushed_operand(unit, subnormal, fp16.emin) == flushed_result(unit, subnormal) == subnormal
    assert flushed_operand(unit, zero, fp16.emin) == zero


def test_integers_wrap_and_saturate_at_their_ends() -> None:
    top = (1 << 31) - 1
    for total, wrapped, held in (
        (top, top, top),
        (top + 1, -top - 1, top),
        (-top - 1, -top - 1, -top - 1),
        (-top - 2, top, -top - 1),
    ):
        c = Value(total - 1)
        assert integer_block([Value(1)], c).significand == wrapped
        assert integer_block([Value(1)], c, "saturate").significand == held


MI300, FNUZ = tcsim.unit("mi300x", "float16"), tcsim.unit("mi300x", "e4m3fnuz")


def staged(unit: tcsim.Unit, products: list[tuple[int, int]], c: tuple[int, int]) -> Fraction:
    """Facts, section 3: products given as (significand, exponent) of powers of two."""
    terms = [Value(s, e, e, s < 0, zero=s == 0) for s, e in products]
    start = Value(c[0], c[1], max(c[1], -126) if c[0] else -126, c[0] < 0, zero=c[0] == 0)
    got = two_stage_block(unit, terms, start, Draws(0, 0))
    return Fraction(got.significand) * Fraction(2) ** got.lsb


def test_cdna3_by_hand() -> None:
    """c is floored at 2^(emax - 24), what they add up to at 32 bits; of fp8, a c of exponent below emax - 25 is dropped."""
    big, below = 2**20, 2**20 - Fraction(1, 16)  # neighbours in float32
    assert staged(FNUZ, [(1, 20), (0, 0)], (1, -4)) == big  # half an ulp above, to even
    assert staged(FNUZ, [(1, 20), (0, 0)], (-1, -4)) == below
    assert staged(FNUZ, [(1, 20), (0, 0)], (-1, -5)) == below  # the last exponent that counts; it floors to -2^-4
    assert staged(FNUZ, [(1, 20), (0, 0)], (-1, -6)) == big
    assert staged(MI300, [(1, 20)], (-1, -30)) == below
    assert staged(MI300, [(1, 20)], (1, -30)) == big
    for unit in (MI300, FNUZ):
        assert staged(unit, [(1, -4), (1, -11)], (1, 20)) == big + Fraction(
            1, 8
        )  # a tie and 2^(emax - 31), the last of 32 bits
        assert staged(unit, [(1, -4), (1, -12)], (1, 20)) == big
    assert staged(MI300, [(1, 20), (1, -4), (1, -5)], (0, 0)) == big  # products are cut at 2^(20 - 24): a tie


def test_products_from_two_to_the_128_count_as_infinite() -> None:
    bf16 = tcsim.unit("mi300x", "bfloat16")
    for exponents, expected in (((64, 63), 0x7F000000), ((64, 64), 0x7F800000)):
        a, b = (np.array([[[e + 127 << 7]]], np.uint16) for e in exponents)
        problem = Problem(bf16, Sequential().plan(1), Operand(a, bf16.a_format), Operand(b, bf16.b_format), None)
        assert reference.multiply_reference(problem)[0, 0, 0] == expected
    # beside its negative: infinite from 2^128 on, so NaN; below, zero
    for first, expected in ((63, 0), (64, bf16.nan)):
        a = np.array([[[first + 127 << 7, (first + 127 << 7) | 0x8000]]], np.uint16)
        b = np.full((1, 2, 1), 64 + 127 << 7, np.uint16)
        problem = Problem(bf16, Sequential().plan(2), Operand(a, bf16.a_format), Operand(b, bf16.b_format), None)
        assert reference.multiply_reference(problem)[0, 0, 0] == expected


def test_a_group_of_zeros_or_a_zero_scale_has_no_exponent() -> None:
    """Otherwise its scales' exponent would cut what stands beside it: 1.0 at 2^(60 - 35), c = 2^-40 at 2^(2 - 35)."""
    mx, nv = tcsim.unit("b200", "mxfp4"), tcsim.unit("b200", "nvfp4")
    a = np.array([0.0] * 32 + [1.0] + [0.0] * 31)
    scales = np.array([2.0**60, 1.0])
    got = tcsim.matmul(a, np.ones(64), unit=mx, scale_a=scales[None, :], scale_b=np.ones((2, 1)), backend="reference")
    assert got == 1.0
    zero, large = np.zeros((1, 4)), np.full((4, 1), 448.0)
    c = np.float32(2.0**-40)
    assert tcsim.matmul(np.ones(64), np.ones(64), c, unit=nv, scale_a=zero, scale_b=large, backend="reference") == c
