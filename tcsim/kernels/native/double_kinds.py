"""The kinds of sums in float64 lanes, and of which a unit's are."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from tcsim.fp.formats import Format
from tcsim.fp.modes import processor_mode
from tcsim.hardware.unit import Unit

_REACH = 400  # exponents of operands and scales: products and sums then stay far inside float64's
_SHORT, _FEW = 30, 32  # bits of products, and of results, up to which exact sums of ordinary data hardly leave float64


class SumKind(Enum):
    """What a unit adds. Each kind has a walk of its own, compiled when it is used."""

    TERMS = "products, the terms of an aligned sum, each cut as the processor rounds"
    TOLD_TERMS = "the same, cut as it does not: away from zero at half, to odd, by random words"
    EXACT_TERMS = "products, exactly, no more bits apart than float64 has"
    ONE_PRODUCT = "one product at a time to c, exactly"
    LONG_PRODUCTS = "long products, exactly"
    GROUPS = "exact groups of products"
    STAGES = "terms that align in two stages"
    OPERATIONS = "every operation rounded"


def _held(fmt: Format) -> bool:
    return fmt.zero and fmt.emin - fmt.mantissa_bits >= -_REACH and fmt.emax <= _REACH


@lru_cache(maxsize=256)
def narrow_products(unit: Unit) -> bool:
    """Whether products are exact in float64, far from its smallest and largest numbers."""
    a, b, scale = unit.a_operand, unit.b_operand, unit.scale_format
    return _held(a) and _held(b) and a.precision + b.precision <= 53 and (scale is None or scale.emax - scale.emin <= _REACH)


def _group_bits(unit: Unit) -> tuple[int, int]:
    """(bits of a group's sum, how far it may reach above its scales' exponents), as wide as the formats are."""
    a, b, scale = unit.a_format, unit.b_format, unit.scale_format
    assert scale is not None
    least = a.emin - a.mantissa_bits + b.emin - b.mantissa_bits
    reach = a.emax + b.emax + 2 + unit.group_size.bit_length()
    return reach - least, reach + (2 if scale.mantissa_bits else 0)


def _grouped(unit: Unit) -> bool:
    """Whether cut groups fit two float64, and a group in its span times its scales one."""
    assert unit.scale_format is not None
    most, terms = unit.fraction_bits or 0, unit.block_size // unit.group_size
    small = unit.a_operand.emin <= unit.a_format.emin and unit.b_operand.emin <= unit.b_format.emin
    fits = 0 <= most <= 45 and terms <= 64 and most + _group_bits(unit)[1] + terms.bit_length() <= 80
    return fits and small and unit.group_size <= 62 and unit.block_size <= 512 and unit.scale_format.precision <= 8


@lru_cache(maxsize=256)
def double_kind(unit: Unit) -> SumKind | None:
    """Which rows compute a unit; None for none."""
    narrow, exact = narrow_products(unit), unit.align_rounding == "exact"
    if unit.arithmetic == "two-stage":
        deep = unit.block_size.bit_length() + max(unit.late_fraction_bits or 0, 0)
        return SumKind.STAGES if narrow and unit.block_size <= 128 and deep <= 48 else None
    if unit.arithmetic == "rounded":
        return SumKind.OPERATIONS if narrow and unit.block_size <= 64 else None
    if unit.group_size > 1:
        return SumKind.GROUPS if narrow and not exact and _grouped(unit) else None
    if unit.block_size > 512 or not (narrow or (exact and unit.scale is None)):
        return None
    if exact and unit.block_size == 1:
        return SumKind.ONE_PRODUCT
    if exact and (unit.a_operand.precision + unit.b_operand.precision > _SHORT or unit.kept_bits > _FEW):
        return SumKind.LONG_PRODUCTS
    if exact or unit.fraction_bits is None or unit.fraction_bits > room_of_terms(unit):
        return SumKind.EXACT_TERMS
    return SumKind.TOLD_TERMS if processor_mode(unit.align_rounding) is None else SumKind.TERMS


def room_of_terms(unit: Unit) -> int:
    """Bits that the largest term of a block may have below its exponent where float64 holds its sums."""
    return 53 - (4 * unit.block_size + 2).bit_length()
