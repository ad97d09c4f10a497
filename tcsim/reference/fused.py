"""One block of fused multiply-adds as x86's matrix units run them: DAZ, FTZ, and which NaN is kept."""

from __future__ import annotations

from collections.abc import Sequence

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.reference.blocks import ZERO, below_normal, flushed_operand
from tcsim.reference.values import (
    NAN,
    Value,
    code_of_value,
    exact_product,
    round_value,
    special_sum,
    sum_of_values,
    value_of_code,
)

NO_LIMIT = -(1 << 40)  # the least exponent of a rounding that knows no subnormals


def fused_block(unit: Unit, pairs: Sequence[tuple[Value, Value]], c: Value) -> Value:
    """c and the products of (a, b) in the order in which the unit takes them: one chain from c, or lanes from +0, then c."""
    if unit.lanes == 1:
        return _chain(unit, pairs, c)
    zero = ZERO._replace(exponent=unit.out_format.emin)
    sums = [_chain(unit, pairs[lane :: unit.lanes], zero) for lane in range(unit.lanes)]
    total = sums[0]
    for x in sums[1:]:
        total = _rounded(unit, (total, x), (total, x))
    return _rounded(unit, (c, total), (c, total))


def _chain(unit: Unit, pairs: Sequence[tuple[Value, Value]], total: Value) -> Value:
    for a, b in pairs:
        x, y = flushed_operand(unit, a, unit.a_operand.emin), flushed_operand(unit, b, unit.b_operand.emin)
        nans = (_widened(unit, a, unit.a_operand), _widened(unit, b, unit.b_operand), total)
        total = _rounded(unit, (exact_product(x, y), total), nans)
    return total


def _rounded(unit: Unit, terms: Sequence[Value], operands: Sequence[Value]) -> Value:
    """The sum of the terms rounded once; a NaN is that of the first operand which is one, made quiet, or the unit's own."""
    out = unit.out_format
    total = special_sum(terms) or sum_of_values(terms)
    if total.special == "nan":
        kept = next((x.payload for x in operands if x.special == "nan"), unit.nan)
        assert kept is not None
        return NAN._replace(payload=kept | 1 << (out.mantissa_bits - 1 + out.padding))
    if total.special:
        return total
    if below_normal(round_value(total, NO_LIMIT, out.precision, "rne"), out.emin):
        return ZERO._replace(exponent=out.emin, negative=total.negative)
    return value_of_code(code_of_value(round_value(total, out.emin, out.precision, "rne"), out), out)


def _widened(unit: Unit, x: Value, fmt: Format) -> Value:
    """A NaN operand with its sign and fraction moved to their places in the output's format."""
    if x.special != "nan":
        return x
    out = unit.out_format
    assert x.payload is not None
    assert out.inf_code is not None
    fraction = (x.payload >> fmt.padding) & ((1 << fmt.mantissa_bits) - 1)
    up = out.mantissa_bits - fmt.mantissa_bits
    moved = fraction << up if up >= 0 else fraction >> -up
    return x._replace(payload=(out.sign_bit if x.payload & fmt.sign_bit else 0) | out.inf_code | moved << out.padding)
