"""Zeros, flushing and a late c: a unit's choices as the switches that every backend reads, so that there is one place to change.

The rules in words stand with the fields (`Specials`, `LateC`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tcsim.hardware.unit import Unit


@dataclass(frozen=True)
class Zeros:
    """What a unit does with zeros and numbers below the smallest normal one.

    flush_operands
        An element of a or b, or the c that a chain starts with, is +0 where its magnitude is below the smallest normal
        number of its format, a -0 among them.
    operand_sign
        But it keeps its sign, as with DAZ on x86; in a paired sum (RDNA3), where "small" is said of the output's format.
    flush_results
        A subnormal result of an operation is a zero: of every product and sum of a unit that rounds each, of a block's
        sum, of the addition of a late c, of the last rounding to the output.
    signed
        A zero result may be -0: one that was flushed or rounded from a negative number, or a sum whose terms are all -0.
        Otherwise every zero result is +0, that of a schedule's sum outside the unit too: the -0 which such a sum may come to
        (a negative one below half of the least number of a format narrower than the output) is not passed on.
    late
        Each instruction sums from a zero of its own, and c is added to its result.
    late_negative
        That zero is -0, which adds nothing to zeros of either sign.
    """

    flush_operands: bool
    operand_sign: bool
    flush_results: bool
    signed: bool
    late: bool
    late_negative: bool


def zeros_of(unit: Unit) -> Zeros:
    """The switches of a record."""
    flush, signed, late = unit.subnormals == "flush", unit.zero_sign == "ieee", unit.c_enters == "after"
    return Zeros(flush, unit.arithmetic in ("fused", "paired"), flush, signed, late, late and signed)
