"""The values of a format around a number, in Python integers."""

from __future__ import annotations

import math
from fractions import Fraction

from tcsim.fp.formats import Format
from tcsim.fp.storage import least_exponent


def _range(fmt: Format) -> tuple[Fraction, Fraction]:
    """The smallest and the largest finite value."""
    if fmt.integer:
        return Fraction(-(1 << fmt.mantissa_bits)), Fraction((1 << fmt.mantissa_bits) - 1)
    largest = Fraction(fmt.max_finite)
    lowest = Fraction(0) if fmt.zero else Fraction(2) ** least_exponent(fmt)
    return (-largest if fmt.signed else lowest), largest


def spacing(magnitude: Fraction, fmt: Format) -> Fraction:
    """The distance of the format's values at a magnitude: 2^(max(floor(log2 |x|), emin) - mantissa_bits)."""
    if fmt.integer:
        return Fraction(1)
    place = fmt.emin
    if magnitude:
        place = max(place, _floor_log2(magnitude))
    return Fraction(2) ** (place - fmt.mantissa_bits)


def _floor_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def adjacent(x: float, fmt: Format) -> tuple[float | None, float | None]:
    """The largest finite value of the format that is at most x and the smallest that is at least x; None for neither.

    The two are equal exactly if x is a value of the format. NaN has no neighbours.
    """
    if math.isnan(x):
        return None, None
    low, high = _range(fmt)
    if math.isinf(x):
        return (float(high), None) if x > 0 else (None, float(low))
    exact = Fraction(x)
    step = spacing(abs(exact), fmt)
    below, above = math.floor(exact / step) * step, math.ceil(exact / step) * step
    return (
        float(min(max(below, low), high)) if exact >= low else None,
        float(max(min(above, high), low)) if exact <= high else None,
    )
