"""Exact values of codes, and their rounding, in Python integers: the vocabulary of the reference.

A finite value is ``significand * 2^lsb``. The `exponent` it aligns by is max(floor(log2 |x|), emin) of its format, and
for a product the sum of its factors' exponents, un-normalised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tcsim.errors import unknown
from tcsim.fp.formats import Format


class Value(NamedTuple):
    """An exact value: a number, or `special` "nan", "inf" or "-inf".

    `negative` is the sign, of a zero too. `zero` marks a zero operand or product, which has no exponent of its own; a
    sum that cancels to zero is not one. `payload` is the code that a NaN operand came with.
    """

    significand: int = 0
    lsb: int = 0
    exponent: int = 0
    negative: bool = False
    special: str = ""
    zero: bool = False
    payload: int | None = None


NAN = Value(special="nan")


def infinity(negative: bool) -> Value:
    return Value(negative=negative, special="-inf" if negative else "inf")


def value_of_code(code: int, stored: Format, fmt: Format | None = None) -> Value:
    """The value of a code of `stored`, with the exponent it has in `fmt` (a format that holds it exactly)."""
    if stored.integer:
        signed = code - (1 << stored.width) if code >> (stored.width - 1) else code
        return Value(signed)  # its sign is all that integer blocks read
    magnitude, negative = code & ~stored.sign_bit, bool(code & stored.sign_bit)
    if magnitude > stored.max_code or (stored.nan == "negative-zero" and code == stored.nan_code):
        kept = code if fmt is None or fmt == stored else fmt.nan_code  # a conversion gives the one NaN of its format
        return infinity(negative) if magnitude == stored.inf_code else NAN._replace(payload=kept)
    emin = stored.emin if fmt is None else fmt.emin
    field, fraction = divmod(magnitude >> stored.padding, 1 << stored.mantissa_bits)
    hidden = 1 << stored.mantissa_bits if field or not stored.zero else 0
    lsb = (max(field, 1) if stored.zero else field) - stored.bias - stored.mantissa_bits
    significand = hidden + fraction
    if significand == 0:
        return Value(0, lsb, emin, negative, zero=True)
    exponent = max(significand.bit_length() - 1 + lsb, emin)
    return Value(-significand if negative else significand, lsb, exponent, negative)


def exact_product(a: Value, b: Value) -> Value:
    """The exact product; Inf·0 is NaN."""
    negative = a.negative != b.negative
    if a.special or b.special:
        invalid = "nan" in (a.special, b.special) or a.zero or b.zero
        return NAN if invalid else infinity(negative)
    significand = a.significand * b.significand
    return Value(significand, a.lsb + b.lsb, a.exponent + b.exponent, negative, "", significand == 0)


def sum_of_values(terms: Sequence[Value]) -> Value:
    """The exact sum of finite terms; negative zero only where every term is."""
    lsb = min((t.lsb for t in terms), default=0)
    total = sum(t.significand << (t.lsb - lsb) for t in terms)
    return Value(total, lsb, negative=total < 0 or all(t.negative and not t.significand for t in terms))


def special_sum(terms: Sequence[Value]) -> Value | None:
    """The sum where a term is NaN or infinite, None where all are finite; opposite infinities give NaN."""
    kinds = {t.special for t in terms if t.special}
    if not kinds:
        return None
    return NAN if "nan" in kinds or len(kinds) == 2 else infinity("-inf" in kinds)


# The modes that `shift_right` defines: the second implementation of `tcsim.fp.modes`, which takes nothing from that table; a
# test holds the names of the two together.
ROUNDINGS = ("rz", "rne", "rna", "ru", "rd", "ro", "sr")


def shift_right(x: int, bits: int, rounding: str, random: int = 0) -> int:
    """x·2^-bits rounded to an integer, exact where bits <= 0. `random`: the 32-bit word of stochastic rounding.

    rz toward zero, rne and rna to nearest with ties to even or away, ru up, rd down, ro to odd, sr up in magnitude
    where the discarded fraction f has floor(f·2^32) + random >= 2^32.
    """
    if rounding not in ROUNDINGS:
        raise unknown("rounding", rounding, ROUNDINGS)
    if bits <= 0:
        return x << -bits
    negative, unit = x < 0, 1 << bits
    kept, rest = divmod(abs(x), unit)
    match rounding:
        case "rz":
            up = False
        case "rne":
            up = 2 * rest > unit or (2 * rest == unit and kept % 2 == 1)
        case "rna":
            up = 2 * rest >= unit
        case "ru":
            up = rest > 0 and not negative
        case "rd":
            up = rest > 0 and negative
        case "ro":
            up = rest > 0 and kept % 2 == 0
        case "sr":
            up = (rest << 32 >> bits) + random >= 1 << 32
    return -(kept + up) if negative else kept + up


def round_value(x: Value, emin: int, precision: int, rounding: str, random: int = 0) -> Value:
    """x rounded to `precision` significand bits, with a fixed last place below 2^emin."""
    exponent = max(abs(x.significand).bit_length() - 1 + x.lsb, emin)
    quantum = exponent - (precision - 1)
    return Value(shift_right(x.significand, quantum - x.lsb, rounding, random), quantum, negative=x.negative)


def code_of_value(x: Value, fmt: Format, nan: int | None = None) -> int:
    """The code of a value rounded to `fmt`: `nan` for NaN, infinity for all beyond the largest finite value."""
    if fmt.integer:
        return x.significand % (1 << fmt.width)
    if x.special == "nan":
        assert nan is not None
        return nan
    sign = fmt.sign_bit if x.negative else 0
    exponent = abs(x.significand).bit_length() - 1 + x.lsb
    if x.special or (x.significand and exponent > fmt.emax):
        assert fmt.inf_code is not None
        return sign | fmt.inf_code
    if x.significand == 0:
        return sign
    significand = shift_right(abs(x.significand), max(exponent, fmt.emin) - fmt.mantissa_bits - x.lsb, "rz")
    field = max(exponent, fmt.emin) + fmt.bias - 1  # the implicit bit of a normal significand adds the missing 1
    return sign | ((field << fmt.mantissa_bits) + significand) << fmt.padding
