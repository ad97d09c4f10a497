"""The table of formats says what the standards say."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim.fp.codes import decode, encode
from tcsim.fp.formats import NAN_STYLES, Format, format_named
from tcsim.reference import values

TABLE = tcsim.formats()


@pytest.mark.parametrize("name", [n for n in TABLE if hasattr(ml_dtypes, n)])
def test_limits_are_those_of_ml_dtypes(name: str) -> None:
    fmt, info = TABLE[name], ml_dtypes.finfo(getattr(ml_dtypes, name))
    assert fmt.max_finite == float(info.max)
    assert fmt.width == info.bits
    assert fmt.mantissa_bits == info.nmant
    assert 2.0**fmt.emin == float(info.smallest_normal if fmt.zero else info.tiny)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_limits_are_those_of_numpy(name: str) -> None:
    fmt, info = TABLE[name], np.finfo(name)
    assert (fmt.max_finite, fmt.emin, fmt.emax, fmt.mantissa_bits) == (
        float(info.max),
        info.minexp,
        info.maxexp - 1,
        info.nmant,
    )
    assert fmt.inf_code == int(np.array(np.inf, name).view(fmt.storage))


def test_tfloat32_travels_as_a_float32_pattern() -> None:
    fmt = TABLE["tfloat32"]
    assert (fmt.width, fmt.padding, fmt.precision, fmt.storage) == (32, 13, 11, "uint32")
    assert fmt.nan_code == 0x7FFFE000


@pytest.mark.parametrize("alias", ["fp16", "half", "binary16", "bf16", "e4m3", "E5M2", "tf32", "fp64", "ue8m0", "s8"])
def test_aliases(alias: str) -> None:
    assert format_named(alias).name in TABLE


def test_unknown_format_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown format 'float61' \(nearest: 'float64'\); known: float16, bfloat16"):
        format_named("float61")


def test_a_custom_format_needs_two_widths() -> None:
    fmt = tcsim.Format(exponent_bits=4, mantissa_bits=2)
    assert (fmt.name, fmt.bias, fmt.width, fmt.emax, fmt.max_finite) == ("e4m2", 7, 7, 7, 1.75 * 2**7)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"exponent_bits": 0, "mantissa_bits": 3}, "at least 1 exponent bit"),
        ({"exponent_bits": 12, "mantissa_bits": 3}, "0 to 11 exponent bits"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "nan": "all-ones"}, "pass infinities=False"),
        ({"exponent_bits": 4, "mantissa_bits": 0}, "same code"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "nan": "iee"}, "nearest: 'ieee'"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "nan": "none"}, "infinities=True and nan='none' leave the other codes"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "infinities": False}, "leaves the code of infinity no meaning"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "padding": -1}, "padding=-1"),
        ({"exponent_bits": 8, "mantissa_bits": 40, "padding": 30}, "at most 64 bits"),
        ({"exponent_bits": 1, "mantissa_bits": 0, "nan": "none"}, "no finite number but zero"),
        (
            {"exponent_bits": 4, "mantissa_bits": 3, "infinities": False, "nan": "negative-zero", "zero": False},
            "a signed format with a zero",
        ),
        ({"exponent_bits": 4, "mantissa_bits": True}, "mantissa_bits must be an integer; got True"),
        ({"exponent_bits": 4.0, "mantissa_bits": 3}, "exponent_bits must be an integer; got 4.0"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "bias": 1.5}, "bias must be an integer; got 1.5"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "signed": 1}, "signed must be True or False; got 1"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "name": "float32"}, "name='float32' is that of a format of the table"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "name": "fp16"}, "choose another name"),
        ({"exponent_bits": 0, "mantissa_bits": 3, "integer": True}, "mantissa_bits 7, 15 or 31"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "integer": True}, "mantissa_bits 7, 15 or 31"),
        (
            {"exponent_bits": 0, "mantissa_bits": 7, "integer": True, "signed": False},
            "an integer format leaves it at its default",
        ),
    ],
)
def test_fields_that_do_not_go_together(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        tcsim.Format(**fields)


def meaning(code: int, fmt: Format) -> Fraction | str:
    """What a code stands for, from the fields alone: a number, "-0", "inf", "-inf" or "nan"."""
    bits = code >> fmt.padding
    digits = f"{bits:0{fmt.width - fmt.padding}b}"
    sign, digits = (digits[0], digits[1:]) if fmt.signed else ("0", digits)
    exponent, fraction = digits[: fmt.exponent_bits], digits[fmt.exponent_bits :]
    top, empty = "0" not in exponent, "1" not in fraction
    if fmt.nan == "negative-zero" and sign == "1" and "1" not in digits:
        return "nan"
    if fmt.nan == "all-ones" and top and "0" not in fraction:
        return "nan"
    if fmt.infinities and top and empty:
        return "-inf" if sign == "1" else "inf"
    if fmt.nan == "ieee" and top:
        return "nan"
    field = int(exponent, 2)
    lead = 0 if fmt.zero and field == 0 else 1
    size = Fraction(lead * 2**fmt.mantissa_bits + int(fraction or "0", 2), 2**fmt.mantissa_bits)
    size *= Fraction(2) ** ((1 if fmt.zero and field == 0 else field) - fmt.bias)
    return ("-0" if sign == "1" else Fraction(0)) if size == 0 else (-size if sign == "1" else size)


def shown(x: float) -> Fraction | str:
    if np.isnan(x):
        return "nan"
    if np.isinf(x):
        return "inf" if x > 0 else "-inf"
    return "-0" if x == 0 and np.signbit(x) else Fraction(float(x))


def all_formats(bits: int, biases: tuple[int | None, ...]) -> list[Format]:
    """Every format of a few bits that can be made."""
    made = []
    for e, m, bias, signed, infinities, nan, zero, padding in product(
        range(bits + 1), range(bits), biases, (True, False), (True, False), NAN_STYLES, (True, False), (0, 2)
    ):
        try:
            made.append(
                Format(e, m, bias=bias, signed=signed, infinities=infinities, nan=nan, zero=zero, padding=padding)  # type: ignore[arg-type]
            )
        except ValueError:
            continue
    return made


def test_every_format_that_can_be_made_means_what_its_fields_say() -> None:
    """All codes there and back, equal to the definition above and to the reference's: no code without a meaning or with two."""
    made = all_formats(4, (None, -1, 2, -140, 150))
    assert len(made) > 1000
    for fmt in made:
        codes = np.arange(1 << (fmt.width - fmt.padding), dtype=np.uint64).astype(fmt.storage) << np.uint8(fmt.padding)
        found = decode(codes.astype(fmt.storage), fmt)
        assert np.array_equal(encode(found, fmt), codes), fmt
        for code, value in zip(codes.tolist(), found.tolist(), strict=True):
            expected = meaning(code, fmt)
            assert shown(value) == expected, (fmt, code)
            own = values.value_of_code(code, fmt)
            finite = "-0" if own.zero and own.negative else Fraction(own.significand) * Fraction(2) ** own.lsb
            assert (own.special or finite) == expected, (fmt, code)


def test_wide_formats_mean_what_their_fields_say_or_are_refused() -> None:
    """A sample of all widths and biases; what float64 cannot hold is refused by name, never rounded."""
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(600):
        e, m = int(rng.integers(1, 12)), int(rng.integers(0, 53))
        bias = None if rng.random() < 0.4 else int(rng.integers(-1100, 1200))
        style = str(rng.choice(["ieee", "all-ones", "none"]))
        try:
            fmt = Format(e, m, bias=bias, infinities=style == "ieee", nan=style, signed=bool(rng.integers(2)))  # type: ignore[arg-type]
        except ValueError:
            continue
        codes = rng.integers(0, 1 << (fmt.width - fmt.padding), 6, dtype=np.uint64).astype(fmt.storage)
        codes = np.array([*codes.tolist(), 0, fmt.max_code, fmt.nan_code or 0, fmt.inf_code or 0], fmt.storage)
        try:
            found = decode(codes, fmt)
            back = encode(found, fmt)
        except ValueError as error:
            assert "float64, the widest" in str(error)  # noqa: PT017
            refused += 1
            continue
        assert np.array_equal(back, codes), fmt
        assert [shown(v) for v in found.tolist()] == [meaning(c, fmt) for c in codes.tolist()], fmt
    assert 100 < refused < 500


def test_a_bias_of_minus_one_is_a_bias() -> None:
    assert (Format(3, 2, bias=-1).bias, Format(3, 2).bias) == (-1, 3)


def test_a_custom_format_takes_no_name_of_the_table() -> None:
    assert Format(4, 3).name == "e4m3_custom"
    assert Format(5, 10).name == "e5m10"
    assert Format(5, 10, name="fp16").width == 16
