"""Attempts to exceed a bound: inputs made to err as much as they can, and the error in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from support import patterns
from tcsim.fp.codes import decode, encode
from tcsim.fp.formats import Format
from tcsim.hardware.choices import ALIGN_ROUNDINGS, ARITHMETICS, C_ENTERS, ROUNDINGS, SUBNORMALS
from tcsim.hardware.unit import Unit

KINDS = (*(k for k in patterns.KINDS if k != "special"), "lost", "spread", "lone", "edge")


def fractions(x):
    """The array's elements as Fractions."""
    array = np.asarray(x)
    if array.dtype == object:
        return array
    made = np.empty(array.shape, dtype=object)
    made.ravel()[:] = [Fraction(v) for v in array.astype(np.float64).ravel().tolist()]
    return made


def exact_product(a, b, c=None):
    """C + A·B as an object array of Fractions."""
    total = fractions(a) @ fractions(b)
    return total if c is None else total + fractions(c)


def share(computed, truth, limit):
    """max |computed - truth| / limit, exactly but for the last division; infinity where a limit of 0, or an error that is no
    number under a finite limit, is exceeded. Elements without a limit (infinity) count 0."""
    worst = 0.0
    for value, right, most in zip(np.ravel(computed), truth.ravel(), np.ravel(limit), strict=True):
        if np.isinf(most):
            continue
        if not np.isfinite(value):
            return np.inf
        gap = abs(Fraction(float(value)) - right)
        if gap:
            worst = max(worst, float(gap / Fraction(float(most))) if most else np.inf)
    return worst


def finite(codes, fmt: Format):
    """The codes with specials replaced by the largest finite magnitude of their sign."""
    if fmt.integer:
        return codes
    values = decode(codes, fmt)
    top = codes.dtype.type(fmt.max_code)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(values.astype(np.float64)), codes, top | (codes & codes.dtype.type(fmt.sign_bit)))


def operands(rng, unit: Unit, m: int, n: int, k: int, kind: str):
    """a, b, c in codes, all finite.

    "lost": one large term and others of one sign just below the place that is cut off. "spread": rows and columns at
    exponents of their own. "lone": one term among zeros. "edge": the largest magnitudes beside the least.
    """
    if kind in patterns.KINDS:
        a, b, c = patterns.operands(rng, unit, m, n, k, kind)
        if rng.random() < 0.3 and not unit.a_format.integer:  # one sign: nothing cancels
            a, b, c = (
                z & z.dtype.type(~f.sign_bit & ((1 << f.width) - 1))
                for z, f in ((a, unit.a_format), (b, unit.b_format), (c, unit.out_format))
            )
        return finite(a, unit.a_format), finite(b, unit.b_format), finite(c, unit.out_format)
    values = [rng.integers(1, 1 << 10, shape) * 2.0**-9 for shape in ((m, k), (k, n), (m, n))]
    places = [np.zeros(v.shape, dtype=int) for v in values]
    if kind == "lost":
        depth = unit.fraction_bits or unit.kept_bits
        down = depth // 2 + rng.integers(-1, 2)
        places[0][:], places[1][:], places[2][:] = -down, -(depth - down) + rng.integers(-1, 2), rng.integers(-2, 2)
        places[0][:, rng.integers(k)], places[1][rng.integers(k)] = 0, 0
        values = [2.0 - v * 2.0**-7 for v in values]
        if rng.random() < 0.5:
            values[0] = values[0] * rng.choice([-1.0, 1.0])
    elif kind == "spread":
        places[0] += rng.integers(-20, 21, (m, 1))
        places[1] += rng.integers(-20, 21, (1, n))
        values = [v * rng.choice([-1.0, 1.0], v.shape) for v in values]
    elif kind == "lone":
        values[0] = np.where(np.arange(k) == rng.integers(k), values[0], 0.0)
        places[0] += rng.integers(-30, 31)
        places[2] += rng.integers(-150, 31)
    elif kind == "edge":
        low, high = (np.exp2([f.emin - f.mantissa_bits, f.emax]) for f in (unit.a_format, unit.b_format))
        values = [rng.choice(low, (m, k)), rng.choice(high, (k, n)), values[2]]
    formats = unit.a_format, unit.b_format, unit.out_format
    return tuple(_codes(np.ldexp(v, p), f) for v, p, f in zip(values, places, formats, strict=True))


def random_unit(rng) -> Unit:
    """A what-if over every field: a unit of the table with some fields changed at random, as often as not all of one kind."""
    from tcsim.hardware import units

    choices = {
        "block_size": (1, 2, 3, 4, 5, 8, 16, 24, 33),
        "fraction_bits": (1, 2, 5, 8, 10, 13, 19, 20, 21, 22, 23, 24, 25, 30, 40, None),
        "late_fraction_bits": (8, 23, 24, 31, 40),
        "align_rounding": ALIGN_ROUNDINGS,
        "rounding": ROUNDINGS,
        "product_rounding": ROUNDINGS,
        "out": ("float32", "float16", "bfloat16", "tfloat32", "float64", "float8_e5m2"),
        "a": ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "tfloat32", "float64"),
        "b": ("float16", "bfloat16", "float8_e4m3fn", "float32", "tfloat32"),
        "out_precision": (None, 1, 2, 8, 11, 14),
        "min_exponent": (None, -133, -20, -5, 0, 10),
        "c_enters": C_ENTERS,
        "chain": (1, 2, 3),
        "subnormals": SUBNORMALS,
        "parity_split": (True, False),
        "arithmetic": ARITHMETICS,
        "group_size": (1, 2, 4),
        "operand_format": (None, "float32", "float64"),
    }
    table = units()
    while True:
        made = table[rng.integers(len(table))]
        for key in rng.permutation(list(choices))[: rng.integers(1, 8)]:
            known = choices[key]
            value = known[rng.integers(len(known))]
            try:
                made = made.replace(**{"nan_code": None, key: value})
            except ValueError:
                continue
        if made.evidence == "?":
            return made


def _codes(values, fmt: Format):
    if fmt.integer:
        top = 2 ** (fmt.width - 1) - 1
        return np.clip(np.rint(values), -top, top).astype(np.int64).astype(fmt.storage)
    with np.errstate(over="ignore", under="ignore"):
        return finite(encode(np.where(np.isnan(values), 0.0, values), fmt, round="rz", overflow="saturate"), fmt)
