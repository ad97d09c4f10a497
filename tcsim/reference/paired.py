"""One block of a paired sum, as RDNA's matrix units compute it: one grid for products and c, and how a term is cut to it."""

from __future__ import annotations

from collections.abc import Sequence

from tcsim.hardware.unit import Unit
from tcsim.reference.blocks import ZERO, align, below_normal, flushed_operand
from tcsim.reference.fused import NO_LIMIT
from tcsim.reference.values import (
    NAN,
    Value,
    code_of_value,
    exact_product,
    round_value,
    shift_right,
    special_sum,
    sum_of_values,
    value_of_code,
)


def paired_block(unit: Unit, pairs: Sequence[tuple[Value, Value]], c: Value) -> Value:
    """c and the products of (a, b), in the order in which the unit takes them."""
    out = unit.out_format
    products = [exact_product(*(flushed_operand(unit, x, out.emin) for x in pair)) for pair in pairs]
    special = _special(unit, pairs, products, c)
    if special is not None:
        return special
    total = grid_sum(unit, products, c)
    exact = round_value(total, NO_LIMIT if unit.subnormals == "flush" else out.emin, out.precision, "rne")
    if exact.significand == 0 or (unit.subnormals == "flush" and below_normal(exact, out.emin)):
        return ZERO._replace(exponent=out.emin)
    return value_of_code(code_of_value(exact, out), out)


def _special(unit: Unit, pairs: Sequence[tuple[Value, Value]], products: Sequence[Value], c: Value) -> Value | None:
    """The result where a factor or c is not finite: a NaN factor's before what is invalid among the products, then c's."""
    out = unit.out_format
    invalid = NAN._replace(payload=unit.nan)
    if any(x.special == "nan" for pair in pairs for x in pair):
        return invalid if unit.factor_nan is None else NAN._replace(payload=unit.factor_nan)
    of_products = special_sum(products)
    if of_products is not None and of_products.special == "nan":
        return invalid
    if c.special == "nan":
        assert c.payload is not None
        return c._replace(payload=c.payload | 1 << (out.mantissa_bits - 1 + out.padding))
    total = special_sum([*products, c])
    return invalid if total is not None and total.special == "nan" else total


def grid_of(unit: Unit, products: Sequence[Value], c: Value) -> int | None:
    """The exponent of the grid that terms are cut to; None where no term sets one."""
    assert unit.fraction_bits is not None
    assert unit.late_fraction_bits is not None
    places = [p.exponent - unit.fraction_bits for p in products if not p.zero]
    leading = [] if c.significand == 0 else [abs(c.significand).bit_length() - 1 + c.lsb]
    if unit.min_exponent is not None:
        leading = [max([unit.min_exponent, *leading])]
    return max([*places, *(e - unit.late_fraction_bits for e in leading)], default=None)


def cut_terms(unit: Unit, products: Sequence[Value], c: Value) -> list[Value]:
    """What every product, or every pair of them, and c become on the grid."""
    grid = grid_of(unit, products, c)
    if grid is None or (c.significand == 0 and all(p.zero for p in products)):
        return [ZERO for _ in (*products, c)]
    if unit.term_cut == "complement":
        return [_complemented(t, grid, c.negative) for t in (*products, c)]
    terms = list(products)
    if unit.term_cut == "pairs":
        terms = [_pair(unit, products[i : i + 2]) for i in range(0, len(products), 2)]
    lost = abs(c.significand).bit_length() + c.lsb <= grid and (unit.min_exponent is None or grid > unit.min_exponent)
    return align([*terms, ZERO if lost else c], grid, "rd")


def grid_sum(unit: Unit, products: Sequence[Value], c: Value) -> Value:
    """The exact sum of what the grid leaves of every term."""
    return sum_of_values(cut_terms(unit, products, c))


def _pair(unit: Unit, pair: Sequence[Value]) -> Value:
    """Two products floored below the larger exponent of the two, added."""
    assert unit.fraction_bits is not None
    exponents = [p.exponent for p in pair if not p.zero]
    return sum_of_values(align(pair, max(exponents) - unit.fraction_bits, "rd")) if exponents else ZERO


def _complemented(t: Value, grid: int, negative: bool) -> Value:
    """A term truncated to the grid, in one's complement where its sign is not c's."""
    m = shift_right(abs(t.significand), grid - t.lsb, "rz")
    along = m if t.negative == negative else -m - 1
    return Value(-along if negative else along, grid)
