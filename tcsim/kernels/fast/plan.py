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
    that `fast.round` adds to round is at most 2^14 times as large as the sum, so finite too.
float64 sums (`fast.exact`)
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
from tcsim.fp.modes import masks, mode
from tcsim.gates import LABELS, ONE_NAN, Asked, Gate, any_formats, one_of, only, operands, schedules, up_to
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast import exact as simd_exact
from tcsim.kernels.fast.round import AWAY, HALF, INTEGER, MASKED, NATIVE, PAR_COUNT, RANDOM, Par
from tcsim.kernels.fast.tile import CARRY, PLAIN, WIDE

EXACT = 3  # a width of its own: sums in float64
A_OFFSET, B_OFFSET = 63, 64  # exponent codes: e + offset; together e + 127
MOST_BLOCK = 1024
_SAFE = 60  # sums of exponents up to here need no checks
_C_EXPONENT = 100  # the largest of a c that needs none


class FastPlan(NamedTuple):
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


def _stored(fmt: Format) -> bool:
    """Whether codes of a format can be packed."""
    return fmt == FORMATS["float64"] or (
        not fmt.integer and fmt.zero and fmt.mantissa_bits + fmt.padding <= 23 and rescales(fmt)
    )


def _partial_sums(asked: Asked) -> bool:
    return asked.sum in (None, "float32", "float64") or (asked.sum == "float16" and asked.unit.out_format.width == 16)


GATE = Gate(
    "the fast path's aligned blocks",
    {
        **LABELS,
        "a": lambda unit: _operand(unit.a_operand),
        "b": lambda unit: _operand(unit.b_operand),
        "out": lambda unit: unit.out_format in (FORMATS["float32"], FORMATS["float16"]),
        **any_formats("operand_format"),
        **only(arithmetic="aligned", align_rounding="rz", c_enters="aligned", chain=1, chains=1, sum_format=None),
        **only(k_order=None, group_size=1, scale=None, scale_block=0, subnormals="keep", zero_sign="positive"),
        **only(late_fraction_bits=None, parity_split=False, lanes=1, product_rounding="rne", overflow="wrap"),
        **one_of("rounding", "rz", "rne", "rna", "sr"),
        "block_size": lambda unit: 1 <= unit.block_size <= MOST_BLOCK,
        **up_to("out_precision", 24),
        **up_to("min_exponent", 1 << 20),
        **up_to("nan_code", 1 << 32),
        **ONE_NAN,
        "fraction_bits": lambda unit: (
            unit.fraction_bits is not None and 2 <= unit.fraction_bits <= 29 and _plan(unit, unit.fraction_bits) is not None
        ),
    },
    {
        **schedules(None, "float16", "float32", "float64"),
        "plan.sum": _partial_sums,
        **operands(lambda asked, stored: _stored(stored)),
    },
)
EXACT_SUMS = Gate(
    "the fast path's exact blocks",
    {
        **LABELS,
        "a": lambda unit: _operand(unit.a_operand),
        "b": lambda unit: _operand(unit.b_operand),
        "out": lambda unit: unit.out_format == FORMATS["float32"],
        **any_formats("operand_format"),
        **only(arithmetic="aligned", align_rounding="exact", c_enters="aligned", chain=1, chains=1, sum_format=None),
        **only(k_order=None, group_size=1, scale=None, scale_block=0, subnormals="keep", overflow="wrap"),
        **only(late_fraction_bits=None, parity_split=False, lanes=1, product_rounding="rne"),
        **one_of("rounding", "rz", "rne", "rna", "sr"),
        # ties to even go by the last kept bit, which no pattern holds where one is kept
        "out_precision": lambda unit: 2 - (unit.rounding != "rne") <= unit.kept_bits <= 24 and simd_exact.FE_INEXACT != 0,
        "block_size": lambda unit: 1 <= unit.block_size <= MOST_BLOCK,
        **up_to("fraction_bits", 1 << 20),  # of no effect where alignment is exact, nor has the floor of the exponent
        **up_to("min_exponent", 1 << 20),
        **one_of("zero_sign", "positive", "ieee"),
        **up_to("nan_code", 1 << 32),
        **ONE_NAN,
    },
    {**schedules(None, "float32", "float64"), **operands(lambda asked, stored: _stored(stored))},
)


@lru_cache(maxsize=256)
def fast_plan(unit: Unit) -> FastPlan | None:
    """How the fast path runs a unit, or None where neither of its gates takes it."""
    if EXACT_SUMS.takes(unit):
        return _exact_plan(unit)
    return _plan(unit, unit.fraction_bits) if unit.fraction_bits is not None and GATE.takes(unit) else None


def _exact_plan(unit: Unit) -> FastPlan:
    par = simd_exact.exact_par(unit)
    a, b = unit.a_operand, unit.b_operand
    ranged = a.emax + b.emax > _SAFE or a.emin - a.mantissa_bits + b.emin - b.mantissa_bits < -126
    least, most = (1, 254) if ranged else (127 - _C_EXPONENT, 127 + _C_EXPONENT)
    kind = {"nearest": simd_exact.NEAREST, "zero": simd_exact.NEAREST, "random": simd_exact.RANDOM}[mode(unit.rounding).toward]
    return FastPlan(kind, EXACT, ranged, par, least << 23, most << 23)


def _plan(unit: Unit, f: int) -> FastPlan | None:
    """Exponent codes, the floor of emax, and the width of sums; None where a number would not fit."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    lowest, half = a.emin + b.emin, out.width == 16
    least = unit.min_exponent
    if least is not None and least > max(out.emin, lowest):
        return None  # a floor that only some blocks have
    single = max(a.emax + A_OFFSET, b.emax + B_OFFSET)
    floor_code = -1 if least is None else least + 127
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
    smallest = min(lowest, out.emin) if least is None else max(least, min(lowest, out.emin))
    smallest = max(smallest, low - 127) if words else smallest
    if half and out.emin - (unit.kept_bits - 1) - (smallest - f) > 31:
        return None  # a fixed last place too far above the terms
    c_least = (1 << 23) if words else base << 23
    return FastPlan(
        kind, width, words, _par(unit, f, numbers, group), c_least, 0x7F7FFFFF if words else (127 + _C_EXPONENT) << 23
    )


def _kind(unit: Unit) -> int:
    """How a block's sum is rounded; see `fast.round`."""
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
    half, how = unit.out_format.width == 16, masks(unit.rounding)
    values = numbers | {
        Par.BLOCK: unit.block_size,
        Par.GROUP: group,
        Par.SCALE: (254 + f) << 23,
        Par.UNSCALE: f << 23,
        Par.MODE: int(half or how.even),
        Par.MASK: -(1 << (24 - unit.kept_bits)) if not half else -1,
        Par.KEPT: unit.kept_bits,
        Par.GRID: 127 + f + unit.out_format.emin - (unit.kept_bits - 1) if half else 0,
        Par.ONE: -how.near,
        Par.EVEN: how.even,
        Par.C_LEAST: (unit.out_format.emin + 127) << 23 if half else 0,
    }
    par = np.zeros(PAR_COUNT, dtype=np.int64)
    for place, value in values.items():
        par[place] = value
    return par
