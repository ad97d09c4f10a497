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

from tcsim.codegen.vector_ops import UNROLL
from tcsim.fp.formats import FORMATS
from tcsim.fp.modes import mode
from tcsim.gates import ANY_ORDER, LABELS, ONE_NAN, Asked, Gate, any_formats, one_of, only, operands, schedules, up_to
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast import exact as simd_exact
from tcsim.kernels.fast.record import (
    A_OFFSET,
    B_OFFSET,
    C_EXPONENT,
    MOST_BLOCK,
    SAFE,
    Exponents,
    FastPlan,
    most_significand_of_both,
    operand_held,
    par_of,
    scale_held,
    stored_held,
    unchanging,
    unit_reach,
    whole_instructions,
)
from tcsim.kernels.fast.round import AWAY, HALF, INTEGER, MASKED, NATIVE, ODD, RANDOM, Par
from tcsim.kernels.fast.special import CHAINS, GROUPED, HALF_ROUNDED, ROUNDED, TWO_STAGE, special_plan
from tcsim.kernels.fast.tile import CARRY, NO_SCALES, PLAIN, SHIFTED, WIDE

EXACT = 3  # a width of its own: sums in float64
_SCALED = 40  # sums of exponents up to here stay within float32's when two scales of 2^scales.LIMIT move them
_MOST_PERIOD = 1 << 12


def _partial_sums(asked: Asked) -> bool:
    return asked.sum in (None, "float32", "float64") or (asked.sum == "float16" and asked.unit.out_format.width == 16)


def _scale(unit: Unit) -> bool:
    """None, or powers of two, of which none is zero: they are exponents."""
    form = unit.scale_format
    return form is None or (scale_held(form) and form.mantissa_bits == 0 and not form.zero and unit.c_enters == "aligned")


def _segments(asked: Asked) -> bool:
    """Whole instructions where scales are counted by them, and where an order of k may not be filled with zeros.

    A block of zeros draws a word, and cuts a sum of more bits than its fraction has.
    """
    unit = asked.unit
    if unit.scale is not None and not whole_instructions(asked):
        return False
    if unit.k_order is None or asked.lengths % len(unit.k_order) == 0:
        return True
    whole = unit.chain == 1 or (unit.fraction_bits or 0) >= unit.kept_bits - 1
    return unit.c_enters == "after" and unit.rounding != "sr" and whole


GATE = Gate(
    "the fast path's aligned blocks",
    {
        **LABELS,
        "a": lambda unit: operand_held(unit.a_operand),
        "b": lambda unit: operand_held(unit.b_operand),
        "out": lambda unit: unit.out_format in (FORMATS["float32"], FORMATS["float16"]),
        **any_formats("operand_format"),
        **only(arithmetic="aligned", align_rounding="rz", chains=1, sum_format=None, group_size=1),
        **only(subnormals="keep", zero_sign="positive"),
        **one_of("c_enters", "aligned", "after"),
        "chain": lambda unit: unit.chain == 1 or (unit.c_enters == "after" and 1 <= unit.instruction_k <= _MOST_PERIOD),
        "k_order": lambda unit: ANY_ORDER["k_order"](unit) and (unit.k_order is None or unit.scale is None),
        "scale": _scale,
        "scale_block": lambda unit: (
            unit.scale_block == 0
            if unit.scale is None
            else 1 <= unit.scale_block <= 1 << 20 and unit.scale_block % unit.block_size == 0
        ),
        **only(
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
            product_rounding="rne",
            overflow="wrap",
        ),
        **one_of("rounding", "rz", "rne", "rna", "sr", "ru", "rd", "ro"),
        "block_size": lambda unit: 1 <= unit.block_size <= MOST_BLOCK,
        **up_to("out_precision", 24),
        **up_to("min_exponent", 1 << 20),
        **up_to("nan_code", 1 << 32),
        **ONE_NAN,
        "fraction_bits": lambda unit: (
            unit.fraction_bits is not None
            and 2 <= unit.fraction_bits <= 29
            and _plan(unit, unit.fraction_bits, unit_reach(unit)) is not None
        ),
    },
    {
        **schedules(None, "float16", "float32", "float64"),
        "plan.sum": _partial_sums,
        "plan.bounds": _segments,
        **operands(lambda asked, stored: stored_held(stored)),
    },
)
EXACT_SUMS = Gate(
    "the fast path's exact blocks",
    {
        **LABELS,
        "a": lambda unit: operand_held(unit.a_operand),
        "b": lambda unit: operand_held(unit.b_operand),
        "out": lambda unit: unit.out_format == FORMATS["float32"],
        **any_formats("operand_format"),
        **only(arithmetic="aligned", align_rounding="exact", c_enters="aligned", chain=1, chains=1, sum_format=None),
        **only(k_order=None, group_size=1, scale=None, scale_block=0, subnormals="keep", overflow="wrap"),
        **only(late_fraction_bits=None, parity_split=False, lanes=1, term_cut="floor", factor_nan=None, product_rounding="rne"),
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
    {**schedules(None, "float32", "float64"), **operands(lambda asked, stored: stored_held(stored))},
)


@lru_cache(maxsize=256)
def fast_plan(unit: Unit, within: Exponents | None = None) -> FastPlan | None:
    """How the fast path runs a unit, or None where none of its gates takes it; `within` bounds the exponents of its operands."""
    reach = within or unit_reach(unit)
    if EXACT_SUMS.takes(unit):
        return unchanging(_exact_plan(unit))
    if unit.fraction_bits is not None and GATE.takes(unit):
        return unchanging(_plan(unit, unit.fraction_bits, reach))
    return unchanging(special_plan(unit, reach))


def _exact_plan(unit: Unit) -> FastPlan:
    par = simd_exact.exact_par(unit)
    a, b = unit.a_operand, unit.b_operand
    ranged = a.emax + b.emax > SAFE or a.emin - a.mantissa_bits + b.emin - b.mantissa_bits < -126
    least, most = (1, 254) if ranged else (127 - C_EXPONENT, 127 + C_EXPONENT)
    kind = {"nearest": simd_exact.NEAREST, "zero": simd_exact.NEAREST, "random": simd_exact.RANDOM}[mode(unit.rounding).toward]
    return FastPlan(kind, EXACT, ranged, par, least << 23, most << 23)


def _plan(unit: Unit, f: int, reach: Exponents) -> FastPlan | None:
    """Exponent codes, the floor of emax, and the width of sums; None where a number would not fit."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    lowest, half = reach.a_least + reach.b_least, out.width == 16
    least = unit.min_exponent
    if least is not None and least > max(out.emin, lowest):
        return None  # a floor that only some blocks have
    single = max(reach.a_most + A_OFFSET, reach.b_most + B_OFFSET)
    floor_code = -1 if least is None else least + 127
    base = max(single + 1, floor_code)
    low, high = f + 2, (223 if half else 252) - unit.block_size.bit_length()
    known = max(lowest + 127, floor_code)  # a block with a nonzero product has at least this E
    words = not (
        min(reach.a_least + A_OFFSET, reach.b_least + B_OFFSET) > 0
        and reach.a_most + reach.b_most <= SAFE
        and low <= base <= min(known, max(out.emin + 127, floor_code) if half else known)
    )
    numbers = {Par.FLOOR: base, Par.HIGH: high, Par.LOW: low, Par.LEAST: low - 1}
    scaled = unit.scale is not None
    if scaled and (words or half or floor_code >= low or reach.a_most + reach.b_most > _SCALED or lowest < -_SCALED):
        return None
    if scaled:
        numbers |= {Par.NONE: single}
    if words:
        floored = floor_code >= low
        numbers |= {Par.FLOOR: floor_code, Par.LEAST: floor_code} if floored else {Par.FLOOR: 0}
    if max(numbers[Par.FLOOR], numbers[Par.LEAST] if words else 0) > high:
        return None
    product = floor(most_significand_of_both(unit.a_format, a) * most_significand_of_both(unit.b_format, b) * 2.0**f)
    group = (2**31 - 1) // product
    group = group // UNROLL * UNROLL or group
    if group < 1:
        return None
    spare = 2**31 - 1 - unit.block_size * product
    width = WIDE if spare < 0 else PLAIN if spare >= 2 ** (f + 1) else CARRY
    kind = _kind(unit)
    if kind is None:
        return None
    smallest = min(lowest, out.emin) if least is None else max(least, min(lowest, out.emin))
    smallest = max(smallest, low - 127) if words else smallest
    if half and out.emin - (unit.kept_bits - 1) - (smallest - f) > 31:
        return None  # a fixed last place too far above the terms
    ranged = words or scaled
    c_least, c_most = (1 << 23, 0x7F7FFFFF) if ranged else (base << 23, (127 + C_EXPONENT) << 23)
    if unit.c_enters == "after":
        return FastPlan(kind, width, words, par_of(unit, f, numbers, group), 0, 0x7F7FFFFF, late=True)
    return FastPlan(kind, width, words, par_of(unit, f, numbers, group), c_least, c_most, SHIFTED if scaled else NO_SCALES)


def _kind(unit: Unit) -> int | None:
    """How a block's sum is rounded (see `fast.round`); None where it is not."""
    half, short = unit.out_format.width == 16, unit.kept_bits < 24
    if unit.rounding == "sr":
        return RANDOM
    if unit.rounding in ("ru", "rd", "ro"):
        return None if half or short else ODD if unit.rounding == "ro" else NATIVE
    if half:
        return HALF if unit.rounding == "rne" and unit.kept_bits == 11 else INTEGER
    if unit.rounding == "rna":
        return AWAY
    if unit.rounding == "rne" and short:
        return INTEGER
    return MASKED if short else NATIVE


GATES = (EXACT_SUMS, GATE, TWO_STAGE, ROUNDED, HALF_ROUNDED, CHAINS, GROUPED)  # and TO_HALF, whose rest is walked by `narrow`
