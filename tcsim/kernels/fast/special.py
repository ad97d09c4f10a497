"""Units past the plain aligned sum: two stages, float32's own operations, exact groups with block scales; their gates."""

from __future__ import annotations

from functools import lru_cache
from math import floor

import numpy as np

from tcsim.fp.formats import FORMATS
from tcsim.fp.modes import processor_mode
from tcsim.gates import LABELS, ONE_NAN, Asked, Gate, Rest, Test, any_formats, one_of, only, operands, schedules, up_to
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast import staged
from tcsim.kernels.fast.folded import GROUP, GROUPS
from tcsim.kernels.fast.record import (
    A_OFFSET,
    B_OFFSET,
    C_EXPONENT,
    MOST_BLOCK,
    SAFE,
    Exponents,
    FastPlan,
    most_significand,
    operand_held,
    par_of,
    scale_held,
    stored_held,
    unchanging,
    unit_reach,
    whole_instructions,
)
from tcsim.kernels.fast.round import (
    CHAIN,
    CHAIN_NEGATIVE,
    HALF_TREE,
    HALF_TREE_FLUSHING,
    HALVES,
    NATIVE,
    PAR_COUNT,
    PARITY,
    STAGED,
    TREE,
    TREE_FLUSHING,
    Par,
)
from tcsim.kernels.fast.tile import BY_PRODUCT, FOLDED, PLAIN

_CALM = 64  # a floor of exponents from which on no c that is left of a sum underflows when it is scaled
_SHORT = 20  # bits that products reach, up to which numbers mostly prove that a block's sum is exact
_TREE_LEAST = -100  # with all products multiples of 2^this, no sum with a normal float32 is subnormal


def _staged_plan(unit: Unit, reach: Exponents) -> FastPlan | None:
    """CDNA3's two-stage sums (`staged`)."""
    a, b = unit.a_operand, unit.b_operand
    held = (unit.fraction_bits, unit.late_fraction_bits, unit.rounding) == (staged.FRACTION, staged.LATE, "rne") and (
        unit.out_format,
        unit.kept_bits,
        unit.k_order,
    ) == (FORMATS["float32"], 24, None)
    product = floor(most_significand(a) * most_significand(b) * 2.0**staged.FRACTION)
    if not held or unit.block_size * product > staged.MOST:
        return None
    low, high = staged.LATE + 3, 252 - unit.block_size.bit_length()
    base, lowest = max(reach.a_most + A_OFFSET, reach.b_most + B_OFFSET) + 1, reach.a_least + reach.b_least + 127
    words = not (
        min(reach.a_least + A_OFFSET, reach.b_least + B_OFFSET) > 0
        and reach.a_most + reach.b_most <= SAFE
        and _CALM <= base <= lowest
    )
    numbers = {Par.HIGH: high, Par.LOW: low, Par.LEAST: low - 1, Par.FLOOR: 0 if words else base}
    par = par_of(unit, staged.FRACTION, numbers, 0)
    par[Par.MODE] = 1
    least, most = (1 << 23, 0x7F7FFFFF) if words else (base << 23, (127 + C_EXPONENT) << 23)
    return FastPlan(PARITY if unit.parity_split else STAGED, PLAIN, words, par, least, most)


def _directed(unit: Unit) -> bool:
    """Whether a unit's additions round as the processor can, other than to nearest, and nothing else of it rounds.

    Products of numbers that multiply to no more than 24 bits within float32's normal numbers are exact. An exact difference
    of 0 is -0 where rounding goes down: left to others where zeros keep their signs.
    """
    a, b = unit.a_operand, unit.b_operand
    exact = a.emin - a.mantissa_bits + b.emin - b.mantissa_bits >= _TREE_LEAST and a.emax + b.emax < 100
    ways = ("rz", "ru") if unit.zero_sign == "ieee" else ("rz", "ru", "rd")
    return unit.arithmetic == "rounded" and exact and unit.rounding in ways


def _ieee_plan(unit: Unit) -> FastPlan | None:
    """Units whose operations are float32's own (`ieee`)."""
    a, b, kept = unit.a_operand, unit.b_operand, unit.subnormals == "keep"
    halves, short = unit.sum_format is not None, unit.arithmetic == "rounded" and unit.out_format == FORMATS["float16"]
    held = (
        (unit.align_rounding, unit.k_order) == ("exact", None)
        and (unit.rounding == "rne" or (_directed(unit) and not short))
        and unit.kept_bits == unit.out_format.precision
        and unit.out_format == FORMATS["float16" if halves or short else "float32"]
    )
    if not held:
        return None
    par, none = np.zeros(PAR_COUNT, np.int64), 0x7F7FFFFF
    par[Par.MODE] = processor_mode(unit.rounding) or 0
    if unit.arithmetic == "rounded":
        if unit.product_rounding != "rne" or unit.block_size not in (2, 4, 8) or (not kept and a.emin != b.emin):
            return None
        if short:
            kind, flushed = (HALF_TREE, 0.0) if kept else (HALF_TREE_FLUSHING, 2.0**a.emin)
            return FastPlan(kind, unit.block_size, False, par, 0, none, flushed=flushed)
        never = kept or a.emin - a.mantissa_bits + b.emin - b.mantissa_bits >= _TREE_LEAST
        calm = 2.0 ** -((-_TREE_LEAST - a.mantissa_bits - b.mantissa_bits) // 2)
        return FastPlan(TREE if never else TREE_FLUSHING, unit.block_size, False, par, 0 if kept else 1 << 23, none,
                    flushed=0.0 if kept else 2.0**a.emin, calm=calm)  # fmt: skip
    if unit.arithmetic != "aligned" or unit.block_size != 1 or not kept or unit.scale is not None:
        return None
    signed = unit.zero_sign == "ieee"
    if halves:
        return FastPlan(HALVES, 4, False, par, 0, none) if (unit.chain, unit.chains, signed) == (2, 2, True) else None
    return FastPlan(CHAIN_NEGATIVE if signed else CHAIN, unit.chain, False, par, 0, none) if unit.chain in (2, 4, 8) else None


def _folded_plan(unit: Unit) -> FastPlan | None:
    """Exact groups of 16 with block scales (`folded`), where float32 holds a group's sum and 64 bits a block's."""
    a, b, scale, f = unit.a_operand, unit.b_operand, unit.scale_format, unit.fraction_bits
    held = (
        (unit.arithmetic, unit.align_rounding, unit.c_enters, unit.k_order) == ("aligned", "rz", "aligned", None)
        and unit.rounding in ("rz", "rne")
        and (unit.out_format, unit.kept_bits) == (FORMATS["float32"], 24)
        and (unit.subnormals, unit.zero_sign) == ("keep", "positive")
        and unit.group_size == GROUP
        and unit.block_size % GROUP == 0
        and unit.scale_block % GROUP == 0
    )
    if not held or f is None or scale is None or scale.width > 8 or not 2 <= f <= 40:
        return None
    if (
        (unit.min_exponent is not None and unit.min_exponent + 127 > f + 2)
        or min(a.emin, b.emin) < -14
        or max(a.emax, b.emax) > 8
    ):
        return None
    products = (
        GROUP
        * most_significand(a)
        * most_significand(b)
        * 2.0 ** (a.emax - a.emin + a.mantissa_bits + b.emax - b.emin + b.mantissa_bits)
    )
    if products * 4.0**scale.precision > 2**24:
        return None
    blocks = unit.block_size.bit_length()
    if f + a.emax + b.emax + 8 + blocks > 62:
        return None
    small = sum(max(x.mantissa_bits - x.emin - 1, 0) for x in (a, b))
    most = 2 * min(24, f - 2 - 2 * scale.mantissa_bits - small)
    proved = (127 + most) << 23 if f >= 23 and most >= 0 else -1  # a narrower alignment cuts c itself
    numbers = {Par.LOW: f + 2, Par.HIGH: 244 - blocks, Par.MOST: proved}
    par = par_of(unit, f, numbers, 0)
    least = -1 if unit.min_exponent is None else unit.min_exponent + 127
    uncut = max(least - f + 23, 1) << 23  # a smaller c may lose bits at the floor, scaled products are far above it
    return FastPlan(NATIVE, PLAIN, False, par, uncut, 0x7F7FFFFF, FOLDED, GROUPS + unit.block_size // GROUP)


def _reach(unit: Unit) -> int:
    """Bits from the largest number of one format times the other's to the last place of their products."""
    return sum(x.emax - x.emin + x.mantissa_bits for x in (unit.a_operand, unit.b_operand))


def scales_apart(unit: Unit) -> int:
    """Up to how many powers of two between scales, a's and b's together, blocks as one sum are the faster way, as measured."""
    return max(24 - _reach(unit), 8)


def may_be_one_sum(unit: Unit) -> bool:
    """Whether blocks of products that align one by one may be one exact sum (`folded_products`), if they have a scale each of a and of b."""
    f = unit.fraction_bits
    return (
        (unit.arithmetic, unit.align_rounding, unit.c_enters, unit.k_order) == ("aligned", "rz", "aligned", None)
        and unit.rounding in ("rz", "rne")
        and (unit.out_format, unit.kept_bits) == (FORMATS["float32"], 24)
        and unit.group_size == unit.chain == unit.chains == 1
        and unit.block_size in (GROUP, 2 * GROUP)
        and f is not None
        and 23 <= f <= 26
        and _reach(unit) <= _SHORT
    )


@lru_cache(maxsize=256)
def one_sum_plan(unit: Unit) -> FastPlan | None:
    """Blocks with scales as one exact sum, of formats so short that numbers mostly prove it."""
    a, b, f = unit.a_operand, unit.b_operand, unit.fraction_bits
    if f is None or unit.scale is None or not may_be_one_sum(unit) or unit.scale_block % unit.block_size:
        return None
    if min(a.emin, b.emin) < -14 or max(a.emax, b.emax) > 8:
        return None
    if unit.min_exponent is not None and unit.min_exponent + 127 > f + 2:
        return None
    numbers = {Par.LOW: f + 2, Par.HIGH: 244 - unit.block_size.bit_length(), Par.MOST: (127 + 48) << 23}
    least = -1 if unit.min_exponent is None else unit.min_exponent + 127
    uncut = max(least - f + 23, 1) << 23
    fields = GROUPS + unit.block_size // GROUP
    return unchanging(FastPlan(NATIVE, BY_PRODUCT, False, par_of(unit, f, numbers, 0), uncut, 0x7F7FFFFF, FOLDED, fields))


def _common(out: str) -> dict[str, Test]:
    return {
        **LABELS,
        "a": lambda unit: operand_held(unit.a_operand),
        "b": lambda unit: operand_held(unit.b_operand),
        "out": lambda unit: unit.out_format == FORMATS[out],
        "out_precision": lambda unit: unit.kept_bits == unit.out_format.precision,
        **any_formats("operand_format"),
        **only(k_order=None, overflow="wrap", product_rounding="rne", lanes=1, term_cut="floor", factor_nan=None),
        **up_to("nan_code", 1 << 32),
        **ONE_NAN,
    }


_UNSCALED = only(group_size=1, scale=None, scale_block=0)
_NO_STAGES = only(late_fraction_bits=None, parity_split=False)


def _rest(*sums: str | None) -> dict[str, Rest]:
    return {**schedules(*sums), "plan.bounds": whole_instructions, **operands(lambda asked, stored: stored_held(stored))}


def _unflushed_sum(asked: Asked) -> bool:
    return asked.sum in (None, "float32", "float64") and (asked.sum is None or asked.unit.subnormals == "keep")


TWO_STAGE = Gate(
    "the fast path's two stages",
    {
        **_common("float32"),
        **_UNSCALED,
        **only(arithmetic="two-stage", align_rounding="rz", rounding="rne", min_exponent=None, c_enters="aligned", chain=1),
        **only(chains=1, sum_format=None, subnormals="keep", fraction_bits=staged.FRACTION, late_fraction_bits=staged.LATE),
        **one_of("parity_split", False, True),
        **one_of("zero_sign", "positive", "ieee"),
        "block_size": lambda unit: 1 <= unit.block_size <= MOST_BLOCK and _staged_plan(unit, unit_reach(unit)) is not None,
    },
    {**schedules(None, "float32", "float64"), **operands(lambda asked, stored: stored_held(stored))},
)
_TREE = {
    **_UNSCALED,
    **_NO_STAGES,
    **only(arithmetic="rounded", align_rounding="exact", fraction_bits=None, min_exponent=None),
    **only(c_enters="aligned", chain=1, chains=1, sum_format=None),
    **one_of("subnormals", "keep", "flush"),
    **one_of("zero_sign", "positive", "ieee"),
    "block_size": lambda unit: unit.block_size in (2, 4, 8) and _ieee_plan(unit) is not None,
}
ROUNDED = Gate(
    "the fast path's trees",
    {**_common("float32"), **_TREE, **one_of("rounding", "rne", "rz", "ru", "rd")},
    {**_rest(None, "float32", "float64"), "plan.sum": _unflushed_sum},
)
HALF_ROUNDED = Gate(
    "the fast path's trees in float16",
    {**_common("float16"), **_TREE, **only(rounding="rne")},
    {**_rest(None, "float32", "float64"), "plan.sum": _unflushed_sum},
)
_CHAINED = {
    **_UNSCALED,
    **_NO_STAGES,
    **only(arithmetic="aligned", align_rounding="exact", rounding="rne", c_enters="after", block_size=1, subnormals="keep"),
    **up_to("fraction_bits", 1 << 20),
    **up_to("min_exponent", 1 << 20),
}
CHAINS = Gate(
    "the fast path's chains with a late c",
    {
        **_common("float32"),
        **_CHAINED,
        **only(chains=1, sum_format=None),
        **one_of("chain", 2, 4, 8),
        **one_of("zero_sign", "positive", "ieee"),
    },
    _rest(None, "float32", "float64"),
)
TO_HALF = Gate(
    "the fast path's chains rounded to float16",
    {**_common("float16"), **_CHAINED, **only(chain=2, chains=2, zero_sign="ieee"), **one_of("sum_format", "float32")},
    _rest(None, "float16", "float32", "float64"),
)
GROUPED = Gate(
    "the fast path's exact groups",
    {
        **_common("float32"),
        **_NO_STAGES,
        **only(arithmetic="aligned", align_rounding="rz", c_enters="aligned", chain=1, chains=1, sum_format=None),
        **only(subnormals="keep", zero_sign="positive", group_size=GROUP),
        **one_of("rounding", "rz", "rne"),
        **up_to("min_exponent", 1 << 20),
        "block_size": lambda unit: GROUP <= unit.block_size <= MOST_BLOCK,
        "scale": lambda unit: unit.scale_format is not None and scale_held(unit.scale_format),
        "scale_block": lambda unit: GROUP <= unit.scale_block <= 1 << 20,
        "fraction_bits": lambda unit: unit.fraction_bits is not None and _folded_plan(unit) is not None,
    },
    _rest(None, "float32", "float64"),
)


def special_plan(unit: Unit, reach: Exponents) -> FastPlan | None:
    """How the fast path runs a unit that one of these gates takes; None for any other."""
    if TWO_STAGE.takes(unit):
        return _staged_plan(unit, reach)
    if GROUPED.takes(unit):
        return _folded_plan(unit)
    return _ieee_plan(unit) if any(gate.takes(unit) for gate in (ROUNDED, HALF_ROUNDED, CHAINS, TO_HALF)) else None
