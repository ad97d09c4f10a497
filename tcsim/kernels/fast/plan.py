"""Which units the fast path holds, and the numbers its kernels read: everything that could overflow is bounded here.

Let L be the block size, L < 2^l, F the fraction bits, p the sum of the operands' largest exponents, and E = emax + 127 of a
block as the kernels see it, an exponent field of float32. A product with exponents ea + eb = e is below 2^(e+2), c is below
2^(emax+1), and both have at most 24 bits, so:

scales
    s = 2^(F-emax) and its inverse are normal float32 numbers for F + 2 <= E <= 252 = LOW … . Every sum is then a multiple of
    2^(emax-F) >= 2^-125: no accumulator is subnormal, and what underflows in a·b or in a scaling is below the last kept place.
terms
    a·b·s < 4·2^F and c·s < 2·2^F: int32 holds a term for F <= 29. A significand is at most 2 - 2^-M, also where the largest
    finite number has a smaller one (448 = 1.75·2^8 in e4m3, but 240 = 1.875·2^7): `_plan` counts by it how many products
    int32 holds.
sums
    |S|·2^(emax-F) < (4 L + 2)·2^emax <= 2^(emax+2+l), below 2^127 for E <= 252 - l = HIGH.
word codes
    E is told apart at each block: what leaves LOW … HIGH is computed elsewhere.
byte codes
    are not told apart, so the formats bound E: the floor of E is at least LOW, and p <= 60. A c beyond 2^(p+F+2) loses the
    products altogether and only ever changes by its own rounding, so c, at most 2^100 at first, stays below 2^102.
float16 results
    Infinity is an accumulator of 2^100. Its sign is safe while all products of a block are below 2^98: p + 2 + l <= 73 with
    byte codes, HIGH <= 223 - l with word codes (an infinite accumulator, E = 227, is then computed elsewhere). The number
    that `simd_round` adds to round is at most 2^14 times as large as the sum, so finite too.
float64 sums (`simd_exact`)
    A sum is a multiple of the least product's last place and of c's, and grows by at most 2^(p+2+l) a block; stochastic
    rounding adds nothing below 2^-32 of a last place. Results need no check where p <= 60, all last places are 2^-126 or
    more and 2^-100 <= c <= 2^100.
"""

from __future__ import annotations

from functools import lru_cache
from math import floor
from typing import Any, NamedTuple

import numpy as np

from tcsim.fp.formats import FORMATS, Format
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast import exact as simd_exact
from tcsim.kernels.fast.exact import exact_par
from tcsim.kernels.fast.round import AWAY, HALF, INTEGER, MASKED, NATIVE, PAR_COUNT, RANDOM, Par
from tcsim.kernels.fast.tile import CARRY, PLAIN, WIDE

EXACT = 3  # a width of its own: sums in float64
A_OFFSET, B_OFFSET = 63, 64  # exponent codes: e + offset; together e + 127
MOST_BLOCK = 1024
_SAFE = 60  # sums of exponents up to here need no checks
_C_EXPONENT = 100  # the largest of a c that needs none


class Plan(NamedTuple):
    """What the kernels need to know of a unit."""

    kind: int
    width: int
    words: bool
    par: np.ndarray[Any, Any]
    c_least: int
    c_most: int


def rescales(fmt: Format) -> bool:
    """Whether 2^(127 - bias), which repairs the exponents of unpacked codes, is a normal float32 number."""
    return 0 <= fmt.bias <= 127


def _operand(fmt: Format) -> bool:
    """Whether values of the format are float32 values with room for an exact product."""
    return not fmt.integer and fmt.zero and fmt.mantissa_bits <= 11 and fmt.emin >= -126 and fmt.emax <= 127 and rescales(fmt)


def _most(fmt: Format) -> float:
    """A significand that none of the format exceeds."""
    return 2.0 - 2.0**-fmt.mantissa_bits


@lru_cache(maxsize=256)
def plan(unit: Unit) -> Plan | None:
    """How the fast path runs a unit, or None where it does not hold it."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    if not (_operand(a) and _operand(b) and unit.block_size <= MOST_BLOCK):
        return None
    if unit.align_rounding == "exact":
        return _exact_plan(unit)
    plain = (
        unit.arithmetic == "aligned"
        and unit.align_rounding == "rz"
        and unit.rounding in ("rz", "rne", "rna", "sr")
        and (unit.group_size, unit.scale, unit.k_order, unit.c_enters) == (1, None, None, "aligned")
        and (unit.subnormals, unit.zero_sign) == ("keep", "positive")
        and out in (FORMATS["float32"], FORMATS["float16"])
    )
    f = unit.fraction_bits
    if not plain or f is None or not 2 <= f <= 29:
        return None
    return _plan(unit, f)


def _exact_plan(unit: Unit) -> Plan | None:
    par = exact_par(unit)
    if par is None:
        return None
    a, b = unit.a_operand, unit.b_operand
    ranged = a.emax + b.emax > _SAFE or a.emin - a.mantissa_bits + b.emin - b.mantissa_bits < -126
    least, most = (1, 254) if ranged else (127 - _C_EXPONENT, 127 + _C_EXPONENT)
    return Plan(simd_exact.RANDOM if unit.rounding == "sr" else simd_exact.NEAREST, EXACT, ranged, par, least << 23, most << 23)


def _plan(unit: Unit, f: int) -> Plan | None:
    """Exponent codes, the floor of emax, and the width of sums; None where a number would not fit."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    lowest, half = a.emin + b.emin, out.width == 16
    floor_e = unit.min_exponent
    if floor_e is not None and floor_e > max(out.emin, lowest):
        return None  # a floor that only some blocks have
    single = max(a.emax + A_OFFSET, b.emax + B_OFFSET)
    floor_code = -1 if floor_e is None else floor_e + 127
    base = max(single + 1, floor_code)
    low, high = f + 2, (223 if half else 252) - unit.block_size.bit_length()
    known = max(lowest + 127, floor_code)  # a block with a nonzero product has at least this E
    words = not (
        min(a.emin + A_OFFSET, b.emin + B_OFFSET) > 0
        and a.emax + b.emax <= _SAFE
        and low <= base <= min(known, max(out.emin + 127, floor_code) if half else known)
    )
    numbers = {Par.FLOOR: base, Par.HIGH: high, Par.LOW: low, Par.LEAST: low - 1}
    if words:
        floored = floor_code >= low
        numbers |= {Par.FLOOR: floor_code, Par.LEAST: floor_code} if floored else {Par.FLOOR: 0}
    if max(numbers[Par.FLOOR], numbers[Par.LEAST] if words else 0) > high:
        return None
    product = floor(_most(a) * _most(b) * 2.0**f)
    group = (2**31 - 1) // product
    if group < 1:
        return None
    spare = 2**31 - 1 - unit.block_size * product
    width = WIDE if spare < 0 else PLAIN if spare >= 2 ** (f + 1) else CARRY
    kind = _kind(unit)
    smallest = min(lowest, out.emin) if floor_e is None else max(floor_e, min(lowest, out.emin))
    smallest = max(smallest, low - 127) if words else smallest
    if half and out.emin - (unit.kept_bits - 1) - (smallest - f) > 31:
        return None  # a fixed last place too far above the terms
    c_least = (1 << 23) if words else base << 23
    return Plan(kind, width, words, _par(unit, f, numbers, group), c_least, 0x7F7FFFFF if words else (127 + _C_EXPONENT) << 23)


def _kind(unit: Unit) -> int:
    """How a block's sum is rounded; see `simd_round`."""
    half, short = unit.out_format.width == 16, unit.kept_bits < 24
    if unit.rounding == "sr":
        return RANDOM
    if half:
        return HALF if unit.rounding == "rne" and unit.kept_bits == 11 else INTEGER
    if unit.rounding == "rna":
        return AWAY
    if unit.rounding == "rne" and short:
        return INTEGER
    return MASKED if short else NATIVE


def _par(unit: Unit, f: int, numbers: dict[Par, int], group: int) -> np.ndarray[Any, Any]:
    half = unit.out_format.width == 16
    values = numbers | {
        Par.BLOCK: unit.block_size,
        Par.GROUP: group,
        Par.SCALE: (254 + f) << 23,
        Par.UNSCALE: f << 23,
        Par.MODE: int(half or unit.rounding == "rne"),
        Par.MASK: -(1 << (24 - unit.kept_bits)) if not half else -1,
        Par.KEPT: unit.kept_bits,
        Par.GRID: 127 + f + unit.out_format.emin - (unit.kept_bits - 1) if half else 0,
        Par.ONE: 0 if unit.rounding == "rz" else 1,
        Par.EVEN: 1 if unit.rounding == "rne" else 0,
        Par.C_LEAST: (unit.out_format.emin + 127) << 23 if half else 0,
    }
    par = np.zeros(PAR_COUNT, dtype=np.int64)
    for place, value in values.items():
        par[place] = value
    return par
