"""What one block of a unit computes, in Python integers: the hardware facts section by section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcsim.errors import unknown
from tcsim.fp.philox import word
from tcsim.hardware.unit import Unit
from tcsim.reference.values import (
    Value,
    code_of_value,
    infinity,
    round_value,
    shift_right,
    special_sum,
    sum_of_values,
    value_of_code,
)

ZERO = Value(zero=True)


@dataclass
class Draws:
    """The random words of one output: `step` counts its block roundings along k."""

    seed: int
    element: int
    step: int = 0

    def word(self, rounding: str, operation: int = 0) -> int:
        return word(self.seed, self.element, self.step, operation) if rounding == "sr" else 0

    def term_words(self, rounding: str, products: int) -> list[int]:
        """The words that cut the terms of a block: operation 0 is its result's, 1 is c's, 2 + i that of product i."""
        return [self.word(rounding, 2 + i) for i in range(products)] + [self.word(rounding, 1)]


def to_output(unit: Unit, x: Value, rounding: str, random: int = 0, precision: int | None = None) -> Value:
    """x rounded once to the output: beyond the largest finite value's binade infinite, even for rz; zero as the unit has it."""
    out = unit.out_format
    if x.special:
        return x
    rounded = round_value(x, out.emin, precision or unit.kept_bits, rounding, random)
    result = value_of_code(code_of_value(rounded, out), out)
    return flushed_result(unit, result)


def below_normal(x: Value, emin: int) -> bool:
    """Whether a number is zero or subnormal."""
    return not x.special and (x.significand == 0 or abs(x.significand).bit_length() - 1 + x.lsb < emin)


def flushed_operand(unit: Unit, x: Value, emin: int) -> Value:
    """An element of a or b, or the c that a chain starts with, as the unit takes it."""
    if not (unit.zeros.flush_operands and below_normal(x, emin)):
        return x
    return ZERO._replace(exponent=emin, negative=x.negative and unit.zeros.operand_sign)


def flushed_result(unit: Unit, x: Value) -> Value:
    """A number of the output format as a result of the unit: zeros signed or not, subnormals kept or not."""
    emin = unit.out_format.emin
    if x.zero or (unit.zeros.flush_results and below_normal(x, emin)):
        return ZERO._replace(exponent=emin, negative=x.negative and unit.zeros.signed)
    return x


def align(terms: Sequence[Value], quantum: int, rounding: str, words: Sequence[int] | None = None) -> list[Value]:
    """Every term rounded to a multiple of 2^quantum; `words` holds the random word of each, for "sr"."""
    random = [0] * len(terms) if words is None else words
    cut = [shift_right(t.significand, quantum - t.lsb, rounding, w) for t, w in zip(terms, random, strict=True)]
    return [Value(s, quantum, *t[2:]) for t, s in zip(terms, cut, strict=True)]


def largest_exponent(unit: Unit, terms: Sequence[Value]) -> int:
    """emax of a block: the largest exponent of its nonzero terms, and at least the unit's floor if any term is zero."""
    exponents = [t.exponent for t in terms if not t.zero]
    if unit.min_exponent is not None and len(exponents) < len(terms):
        exponents.append(unit.min_exponent)
    return max(exponents, default=0)


def aligned_block(unit: Unit, products: Sequence[Value], c: Value, draws: Draws) -> Value:
    """Align every term to the largest exponent, cut, add exactly, round once."""
    terms = [*products, c]
    cut = terms
    if unit.align_rounding != "exact":
        assert unit.fraction_bits is not None
        words = draws.term_words(unit.align_rounding, len(products))
        cut = align(terms, largest_exponent(unit, terms) - unit.fraction_bits, unit.align_rounding, words)
    total = sum_of_values(cut)
    if not total.significand:  # a term cut to zero is not a negative zero
        total = total._replace(negative=sum_of_values(terms).negative and all(t.zero for t in terms))
    return to_output(unit, total, unit.rounding, draws.word(unit.rounding))


def two_stage_block(unit: Unit, products: Sequence[Value], c: Value, draws: Draws) -> Value:
    """CDNA3: products aligned among themselves, their sum and c floored against each other, one rounding."""
    f, late = unit.fraction_bits, unit.late_fraction_bits
    assert f is not None
    assert late is not None
    sums, exponents = [], []
    for group in (products[::2], products[1::2]) if unit.parity_split else (products,):
        exponents.append(max((t.exponent for t in group if not t.zero), default=-9999))
        sums.append(sum_of_values(align(group, exponents[-1] - f, "rz")))
    exponent = max(exponents)
    emax = max(exponent, c.exponent)
    if unit.parity_split:
        sums = align(sums, exponent - f, "rd")
        c = c if c.exponent >= emax - f - 1 else ZERO
    floored = align([sum_of_values(sums)], emax - late - 1, "rd") + align([c], emax - f, "rd")
    total = sum_of_values(floored)
    negative = total.significand < 0 or all(t.zero and t.negative for t in (*products, c))
    total = round_value(total._replace(negative=negative), unit.out_format.emin, late + 1, "rd")
    return to_output(unit, total, unit.rounding, draws.word(unit.rounding))


def rounded_block(unit: Unit, products: Sequence[Value], c: Value, draws: Draws) -> Value:
    """Every product and every addition rounded to the output: a balanced tree of the products, then c."""
    level = [to_output(unit, p, unit.product_rounding, draws.word(unit.product_rounding, i)) for i, p in enumerate(products)]
    operation = len(level)

    def add(x: Value, y: Value) -> Value:
        nonlocal operation
        operation += 1
        total = special_sum((x, y)) or sum_of_values((x, y))
        return to_output(unit, total, unit.rounding, draws.word(unit.rounding, operation - 1))

    while len(level) > 1:
        odd = level[-1:] if len(level) % 2 else []
        level = [add(x, y) for x, y in zip(level[::2], level[1::2], strict=False)] + odd
    return add(level[0], c)


def integer_block(products: Sequence[Value], c: Value, overflow: str = "wrap") -> Value:
    """Exact, wrapping modulo 2^32 or held at the ends of int32."""
    total = sum(p.significand for p in products) + c.significand
    if overflow == "saturate":
        return Value(min(max(total, -(1 << 31)), (1 << 31) - 1))
    return Value((total + (1 << 31)) % (1 << 32) - (1 << 31))


def block(unit: Unit, products: Sequence[Value], c: Value | None, draws: Draws) -> Value:
    """One block of products and c (None where the unit adds c later) to one rounded result."""
    if unit.arithmetic == "integer":
        return integer_block(products, c or ZERO, unit.overflow)
    start = ZERO._replace(exponent=unit.out_format.emin) if c is None else c
    if unit.arithmetic == "rounded":
        return rounded_block(unit, products, start, draws)
    if unit.arithmetic == "two-stage":
        limit = unit.out_format.emax + 1  # a product of 2^128 or more counts as infinite
        products = [
            infinity(p.negative) if p.significand and abs(p.significand).bit_length() - 1 + p.lsb >= limit else p
            for p in products
        ]
    special = special_sum([*products, start])
    if special is not None:
        return special
    if unit.arithmetic == "two-stage":
        return two_stage_block(unit, products, start, draws)
    if unit.arithmetic != "aligned":
        raise unknown("arithmetic", unit.arithmetic, ("aligned", "two-stage", "rounded", "integer"))
    return aligned_block(unit, products, start, draws)
