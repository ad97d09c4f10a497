"""An oracle that shares nothing with round_to: neighbours by search or scaling in float64, then the definitions."""

import numpy as np


def wide(x):
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return np.asarray(x).astype(np.float64)


def magnitudes(fmt):
    """All magnitudes of a narrow format in ascending order (place i is code i), from the definition of its fields."""
    if fmt.integer:
        return np.arange(2.0**fmt.mantissa_bits)
    codes = np.arange((fmt.max_code >> fmt.padding) + 1)
    field, fraction = codes >> fmt.mantissa_bits, codes & ((1 << fmt.mantissa_bits) - 1)
    implicit = np.where((field > 0) | (not fmt.zero), 1 << fmt.mantissa_bits, 0)
    exponent = (np.maximum(field, 1) if fmt.zero else field) - fmt.bias - fmt.mantissa_bits
    return np.ldexp((implicit + fraction).astype(np.float64), exponent)


def by_search(x, fmt, subnormals):
    """(lower neighbour, upper, whether the lower's code is odd) of |x| among the magnitudes and one step beyond them."""
    table = magnitudes(fmt)
    odd = np.arange(table.size) & 1
    if subnormals == "round" and fmt.zero and not fmt.integer:
        kept = (table == 0) | (table >= 2.0**fmt.emin)
        table, odd = table[kept], odd[kept]
    if not fmt.zero:
        table, odd = np.append(0, table), np.append(1, odd)
    beyond = table[-1] + 2.0 ** (0 if fmt.integer else fmt.emax - fmt.mantissa_bits)
    table, odd = np.append(table, beyond), np.append(odd, 1 - odd[-1])
    place = np.minimum(np.searchsorted(table, np.abs(x), side="right") - 1, table.size - 2)
    return table[place], table[place + 1], odd[place].astype(bool)


def by_scaling(x, fmt, subnormals):
    """The same by scaling with the last place, for formats too large to list."""
    size = np.abs(x)
    exponent = np.frexp(np.where(np.isfinite(size), size, 1))[1] - 1
    exponent = np.where(size == 0, fmt.emin, np.maximum(exponent, fmt.emin))
    place = exponent - fmt.mantissa_bits
    if subnormals == "round":
        place = np.where(size < 2.0**fmt.emin, fmt.emin, place)
    with np.errstate(over="ignore"):
        units = np.ldexp(np.where(np.isfinite(size), size, 0), -place)
        lower = np.ldexp(np.floor(units), place)
        upper = np.ldexp(np.floor(units) + 1, place)
    return lower, upper, (np.floor(units) % 2).astype(bool)


def around_integers(x, fmt, subnormals):
    size = np.minimum(np.abs(np.where(np.isnan(x), 0, x)), 2.0**40)
    return np.floor(size), np.floor(size) + 1, np.floor(size) % 2 == 1


def moves_away(rounding, negative, fraction, odd, random, n):
    """Whether the magnitude grows, from the definitions in round_to's docstring."""
    inexact = fraction > 0
    scale = 2.0**n
    whole = np.floor(fraction * scale)
    rest = fraction * scale - whole
    even = whole % 2 == 0
    return {
        "rz": lambda: np.zeros(fraction.shape, bool),
        "rne": lambda: (fraction > 0.5) | ((fraction == 0.5) & odd),
        "rna": lambda: fraction >= 0.5,
        "rnz": lambda: fraction > 0.5,
        "ru": lambda: inexact & ~negative,
        "rd": lambda: inexact & negative,
        "ro": lambda: inexact & ~odd,
        "sr": lambda: whole + random >= scale,
        "sr-centred": lambda: np.floor(fraction * 2 * scale) + 2 * random + 1 >= 2 * scale,
        "sr-nearest": lambda: whole + ((rest > 0.5) | ((rest == 0.5) & ~even)) + random >= scale,
        "sr-nearest-odd": lambda: whole + ((rest > 0.5) | ((rest == 0.5) & even)) + random >= scale,
        "sr-equal": lambda: inexact & (random >= scale / 2),
    }[rounding]()


def expected(x, fmt, rounding, overflow="inf", subnormals="keep", random=0, n=32, neighbours=by_search):
    """What round_to must return, as float64 (NaN standing for any NaN)."""
    x = wide(x)
    negative = np.signbit(x)
    lower, upper, odd = neighbours(x, fmt, subnormals)
    with np.errstate(invalid="ignore", over="ignore"):
        fraction = np.where(np.isfinite(x), (np.abs(x) - lower) / (upper - lower), 0)
    beyond = fraction >= 1
    fraction = np.where(beyond, 0, fraction)
    away = moves_away(rounding, negative, fraction, odd, random, n)
    signed = fmt.signed or fmt.integer
    result = np.where(away, upper, lower)
    result = np.where(beyond, np.inf, result)
    if not fmt.zero:
        result = np.where((x != 0) & (result == 0), 2.0**fmt.emin, result)
    if subnormals == "flush" and not fmt.integer:
        result = np.where(result < 2.0**fmt.emin, 0, result)
    result = special_cases(x, result, fmt, rounding, overflow, signed)
    if fmt.signed and fmt.nan != "negative-zero" and not fmt.integer:
        return np.where(negative, -result, result)
    return np.where(negative & signed & (result != 0), -result, result)


def special_cases(x, result, fmt, rounding, overflow, signed):
    """Magnitudes after overflow, infinities, NaN and missing zeros; NaN where the sign cannot be kept either."""
    negative = np.signbit(x)
    largest = 2.0**fmt.mantissa_bits - 1 if fmt.integer else fmt.max_finite
    least = 0.0 if fmt.zero else 2.0**fmt.emin
    has_nan, has_inf = fmt.nan != "none" and not fmt.integer, fmt.infinities and not fmt.integer
    infinity = np.inf if has_inf else np.nan
    if not has_nan and not has_inf:
        overflow = "saturate_finite"
    bottom = np.where(negative, largest + 1.0 if fmt.integer else largest, largest)
    toward_finite = {"rz": np.ones(x.shape, bool), "ro": np.ones(x.shape, bool), "ru": negative, "rd": ~negative}
    finite = toward_finite.get(rounding, np.zeros(x.shape, bool)) if overflow == "inf" else np.ones(x.shape, bool)
    over = (result > bottom) & np.isfinite(x)
    result = np.where(over, np.where(finite, bottom, infinity), result)
    result = np.where(np.isinf(x), bottom if overflow == "saturate_finite" else infinity, result)
    if not signed:
        below = least if overflow != "inf" else np.nan
        result = np.where(negative & (result != 0), below, result)
        minus_infinity = least if overflow == "saturate_finite" else np.nan
        result = np.where(negative & np.isinf(x), minus_infinity, result)
    if not fmt.zero:
        result = np.where(x == 0, least if overflow != "inf" else np.nan, result)
    return np.where(np.isnan(x), np.nan, result)


def assert_same(got, want, x, what=""):
    """Equal values with equal signs of zero; NaN where NaN."""
    got, want = wide(got), wide(want)
    same = ((got == want) & (np.signbit(got) == np.signbit(want))) | (np.isnan(got) & np.isnan(want))
    bad = np.argwhere(~same)
    assert not bad.size, f"{what}: {len(bad)} differ, first x={float(x[tuple(bad[0])])!r}: got {got[tuple(bad[0])]!r}, " + (
        f"expected {want[tuple(bad[0])]!r}"
    )
