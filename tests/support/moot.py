"""Changes of a field that no bit can show, and why: short arguments from the formats' exponents, no list."""

from __future__ import annotations

import itertools
from typing import Any

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit


def moot_reason(unit: Unit, name: str, value: Any) -> str:
    """Why a change of a field cannot be seen in any bit; empty where it may."""
    if name == "nan_from" and not (unit.keeps_nan or unit.replace(nan_from=value).keeps_nan):
        return "kept NaNs need blocks of one product and one format"
    if unit.arithmetic == "integer":
        orders = name == "k_order" or (name == "block_size" and unit.overflow == "wrap")
        return "integers add up in any order, without rounding" if orders or name in ("rounding", "zero_sign") else ""
    if unit.arithmetic == "fused" and name == "block_size" and unit.lanes == 1:
        return (
            "one chain from c, whatever the blocks"
            if unit.instruction_k == unit.replace(block_size=value).instruction_k
            else ""
        )
    if unit.align_rounding == "exact" and name in ("fraction_bits", "min_exponent"):
        return "nothing is cut"
    if unit.align_rounding == "exact" and name == "operand_format" and unit.subnormals == "keep":
        return "nothing is cut"
    if name == "k_order" and unit.arithmetic not in ("rounded", "fused") and unit.c_enters == "aligned":
        period = unit.instruction_k
        sums = [_sums(tuple(order or range(period)), unit) for order in (unit.k_order, value)]
        return "the same products are added up together" if sums[0] == sums[1] and len(value or range(period)) == period else ""
    if name == "operand_format":
        return _operands(unit, unit.replace(operand_format=value))
    if name == "min_exponent" and unit.arithmetic == "paired":
        return _paired_floor(unit, max(e for e in (unit.min_exponent, value) if e is not None))
    if name == "min_exponent" and unit.fraction_bits is not None and unit.arithmetic != "paired":
        lsb = [f.emin - f.mantissa_bits for f in (unit.a_format, unit.b_format)]
        scale = unit.scale_format
        scales = 0 if scale is None else 2 * (scale.emin - scale.mantissa_bits)
        lowest = min(sum(lsb) + scales, unit.out_format.emin - unit.out_format.mantissa_bits)
        floors = [e for e in (unit.min_exponent, value) if e is not None]
        least = unit.a_operand.emin + unit.b_operand.emin + (0 if scale is None else 2 * scale.emin)
        if unit.group_size == 1 and floors and min(least, unit.out_format.emin) >= max(floors):
            return "every term that is not zero aligns at the floor or above it"
        return "no term has bits below the floor's" if floors and lowest >= max(floors) - unit.fraction_bits else ""
    if name == "k_order" and unit.arithmetic == "rounded" and unit.block_size == 2 and value == (1, 0):
        return "a sum of two is the same in either order"
    lsb = unit.a_operand.emin + unit.b_operand.emin - unit.a_operand.mantissa_bits - unit.b_operand.mantissa_bits
    if name == "zero_sign" and unit.arithmetic == "rounded" and unit.subnormals == "flush" and lsb - 24 > unit.out_format.emin:
        return "c is never -0, and no sum of such products and a normal c lies below the smallest normal number"
    if name == "product_rounding":
        fits = unit.a_format.precision + unit.b_format.precision <= unit.out_format.precision
        wide = unit.a_format.emin + unit.b_format.emin - unit.a_format.mantissa_bits - unit.b_format.mantissa_bits
        if fits and unit.subnormals == "flush":
            return "normal products are exact, others are flushed"
        return "products are exact" if fits and wide >= unit.out_format.emin - unit.out_format.mantissa_bits else ""
    return ""


def _paired_floor(unit: Unit, floor: int) -> str:
    """Why no bit shows a least exponent of c up to `floor` in a paired sum."""
    out, f, late = unit.out_format, unit.fraction_bits or 0, unit.late_fraction_bits or 0
    whole = floor - late <= out.emin - out.mantissa_bits
    if whole and unit.a_format.emin + unit.b_format.emin - f > floor:
        return "products that are not zero set a higher place, and c alone is whole at the floor's"
    low = floor - late + f + 2 + unit.block_size.bit_length()  # sums of products that set a lower place are below 2^low
    flushed = unit.subnormals == "flush" and floor <= out.emin and low < out.emin
    return "c is zero where the floor sets a place, and sums of products below it are flushed" if flushed else ""


def _operands(unit: Unit, other: Unit) -> str:
    """Why another format of the operands shows in no bit.

    The largest exponents of a block differ only if the greater one is that of a product whose exponent the format changes;
    both are then at most that of the greatest such product. Where no product and no c has bits below what is cut even there,
    nothing is cut by either.
    """
    if unit.group_size > 1:
        return "the exponents that products align by stay"

    def places(stored: Format, before: Format, after: Format) -> set[tuple[int, int]]:
        lowest = stored.emin - stored.mantissa_bits
        return {(max(e, before.emin), max(e, after.emin)) for e in range(lowest, stored.emax + 1)}

    pairs = itertools.product(
        places(unit.a_format, unit.a_operand, other.a_operand), places(unit.b_format, unit.b_operand, other.b_operand)
    )
    moved = [max(x[0] + y[0], x[1] + y[1]) for x, y in pairs if x[0] + y[0] != x[1] + y[1]]
    same = [f.emin for f in (unit.a_operand, unit.b_operand)] == [f.emin for f in (other.a_operand, other.b_operand)]
    if same or (not moved and unit.subnormals == "keep"):  # what is flushed is what the format calls subnormal
        return "the exponents that products align by stay"
    if unit.subnormals == "flush" or unit.scale is not None or unit.fraction_bits is None or unit.arithmetic != "aligned":
        return ""
    lowest = sum(f.emin - f.mantissa_bits for f in (unit.a_format, unit.b_format))
    if unit.c_enters == "aligned":
        lowest = min(lowest, unit.out_format.emin - unit.out_format.mantissa_bits)
    return "nothing is cut where they change the largest exponent" if lowest >= max(moved) - unit.fraction_bits else ""


def _sums(order: tuple[int, ...], unit: Unit) -> list[set[frozenset[int]]]:
    """The sets of k that are summed exactly, block by block; a parity split has two."""
    blocks = [order[i : i + unit.block_size] for i in range(0, len(order), unit.block_size)]
    if unit.term_cut == "pairs":
        return [{frozenset(x[i : i + 2]) for i in range(0, len(x), 2)} for x in blocks]
    return [{frozenset(x[::2]), frozenset(x[1::2])} if unit.parity_split else {frozenset(x)} for x in blocks]
