"""The definition: what every unit, what-if and schedule computes, in Python integers, one output at a time.

`reference_blocks` says what one block computes; here a unit is walked along k. Nothing in either is fast, and nothing is
shared with the kernels that are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tcsim.fp.formats import Format, format_named
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, Gate, any_format, any_formats, one_of, operands, schedules, up_to
from tcsim.hardware.unit import Unit
from tcsim.problem import Codes, Problem
from tcsim.reference.blocks import ZERO, Draws, block, flushed_operand, flushed_result, integer_block, to_output
from tcsim.reference.fused import fused_block
from tcsim.reference.paired import paired_block
from tcsim.reference.values import (
    NAN,
    ROUNDINGS,
    Value,
    code_of_value,
    exact_product,
    round_value,
    special_sum,
    sum_of_values,
    value_of_code,
)
from tcsim.schedule import Plan, walk_plan

# Each value has its own words in this package; nothing of it is derived from the table that the kernels read.
GATE = Gate(
    "the reference",
    {
        **LABELS,
        **any_formats("a", "b", "out", "scale", "operand_format", "sum_format"),
        **one_of("arithmetic", "aligned", "two-stage", "rounded", "fused", "paired", "integer"),
        **one_of("align_rounding", *ROUNDINGS, "exact"),
        **one_of("rounding", *ROUNDINGS),
        **one_of("product_rounding", *ROUNDINGS),
        **one_of("c_enters", "aligned", "after"),
        **one_of("subnormals", "keep", "flush"),
        **one_of("zero_sign", "positive", "ieee"),
        **one_of("nan_from", "code", "operand"),
        **one_of("overflow", "wrap", "saturate"),
        **one_of("parity_split", False, True),
        **one_of("term_cut", "floor", "pairs", "complement"),
        **up_to("factor_nan", 1 << 64),
        **up_to("block_size", 1 << 62),
        **up_to("group_size", 1 << 62),
        **up_to("scale_block", 1 << 62),
        **up_to("chain", 1 << 62),
        **up_to("chains", 1 << 62),
        **up_to("lanes", 1 << 62),
        **up_to("fraction_bits", 1 << 20),
        **up_to("late_fraction_bits", 1 << 20),
        **up_to("min_exponent", 1 << 20),
        **up_to("out_precision", 1 << 20),
        **ANY_ORDER,
        **up_to("nan_code", 1 << 64),
    },
    {**schedules(*ANY_SUM), **operands(any_format, empty=True)},
)


def add_rounded(unit: Unit, x: Value, y: Value, sum_format: str | Format) -> Value:
    """x + y rounded to nearest-even in `sum_format`, the addition outside the unit; zeros are signed as in IEEE 754."""
    if unit.arithmetic == "integer":
        return integer_block([x], y)
    fmt = format_named(sum_format)
    total = special_sum((x, y)) or sum_of_values((x, y))
    if total.special:
        return total
    return value_of_code(code_of_value(round_value(total, fmt.emin, fmt.precision, "rne"), fmt), fmt)


def instructions(unit: Unit, start: int, stop: int) -> Iterator[list[list[int]]]:
    """The blocks of k indices of each instruction from start to stop, in the unit's order; a short last one stays short."""
    period = unit.instruction_k
    for base in range(start, stop, period):
        order = [base + i for i in unit.k_order or range(period)]
        blocks = [[k for k in order[i : i + unit.block_size] if k < stop] for i in range(0, period, unit.block_size)]
        yield [ks for ks in blocks if ks]


@dataclass
class Dot:
    """One output element: its row of a, its column of b, their scales, and its random words."""

    unit: Unit
    a: Sequence[Value]
    b: Sequence[Value]
    scale_a: Sequence[Value] | None
    scale_b: Sequence[Value] | None
    draws: Draws

    def scale(self, k: int) -> Value:
        """The product of the two scales at k."""
        assert self.scale_a is not None
        assert self.scale_b is not None
        i = k // self.unit.scale_block
        return exact_product(self.scale_a[i], self.scale_b[i])

    def products(self, ks: Sequence[int]) -> list[Value]:
        """The terms of a block: products, scaled products, or exact groups that align by their scales alone."""
        unit = self.unit
        pairs = [(self.a[k], self.b[k]) for k in ks]
        if unit.zeros.flush_operands:
            taken = (unit.out_format,) * 2 if unit.arithmetic == "paired" else (unit.a_operand, unit.b_operand)
            a, b = (fmt.emin for fmt in taken)
            pairs = [(flushed_operand(unit, x, a), flushed_operand(unit, y, b)) for x, y in pairs]
        plain = [exact_product(x, y) for x, y in pairs]
        if unit.scale is None:
            return plain
        if unit.group_size == 1:
            return [exact_product(p, self.scale(k)) for p, k in zip(plain, ks, strict=True)]
        return [self._group(plain[i : i + unit.group_size], self.scale(ks[i])) for i in range(0, len(ks), unit.group_size)]

    def _group(self, terms: Sequence[Value], scale: Value) -> Value:
        """The exact sum times its scales; where they are zero, the sum of zeros signed like the products."""
        scaled = exact_product(special_sum(terms) or sum_of_values(terms), scale)
        if scaled.special:
            return scaled
        zero = scale.zero or all(t.zero for t in terms)
        negative = all(t.negative for t in terms) if zero else scaled.negative
        return scaled._replace(exponent=scale.exponent, zero=zero, negative=negative)

    def kept_nan(self, k: int, sum_so_far: Value) -> Value:
        """The NaN that a unit which keeps them makes of one product and the sum so far."""
        for x in (self.b[k], sum_so_far, self.a[k]):
            if x.special == "nan":
                assert x.payload is not None
                out = self.unit.out_format
                return x._replace(payload=x.payload | 1 << (out.mantissa_bits - 1 + out.padding))
        return NAN._replace(payload=self.unit.nan)

    def narrowing_chain(self, c: Value | None, start: int, stop: int) -> Value:
        """The chain of a unit whose instructions add in a wider format than their output."""
        out, within = self.unit.out_format, replace(self, unit=self.unit.inner)
        result = c
        for base in range(start, stop, self.unit.instruction_k):
            wide = within.chain(result, base, min(base + self.unit.instruction_k, stop))
            narrow = code_of_value(to_output(self.unit, wide, "rne"), out, self.unit.nan)
            result = value_of_code(narrow, out, self.unit.inner.out_format)
        return ZERO if result is None else result

    def chain(self, c: Value | None, start: int, stop: int) -> Value:
        """The unit walked from start to stop, from c (None for zero)."""
        if self.unit.sum_format is not None:
            return self.narrowing_chain(c, start, stop)
        unit, zeros, emin = self.unit, self.unit.zeros, self.unit.out_format.emin
        result = ZERO._replace(exponent=emin) if c is None else flushed_operand(unit, c, emin)
        for blocks in instructions(unit, start, stop):
            partial = ZERO._replace(exponent=emin, negative=zeros.late_negative) if zeros.late else result
            for ks in blocks:
                if unit.arithmetic in ("fused", "paired"):
                    of_pairs = fused_block if unit.arithmetic == "fused" else paired_block
                    partial = of_pairs(unit, [(self.a[k], self.b[k]) for k in ks], partial)
                    continue
                before, partial = partial, block(self.unit, self.products(ks), partial, self.draws)
                if partial.special == "nan" and self.unit.keeps_nan:
                    partial = self.kept_nan(ks[0], before)
                self.draws.step += 1
            result = flushed_result(unit, add_rounded(unit, result, partial, unit.out_format)) if zeros.late else partial
        return result

    def walk(self, plan: Plan, c: Value | None) -> Value:
        """The schedule's segments, and their sum."""

        def add(x: Value | None, y: Value) -> Value:
            return add_rounded(self.unit, ZERO if x is None else x, y, str(plan.sum))

        walked: Value | None = walk_plan(plan, c, None, self.chain, add)
        total = ZERO if walked is None else walked
        if plan.sum is None:
            return total if self.unit.keeps_nan and plan.bounds[-1] else total._replace(payload=None)
        if self.unit.arithmetic == "integer":
            return total
        total = total._replace(payload=None)
        return to_output(self.unit, total, "rne", precision=self.unit.out_format.precision)


def multiply_reference(problem: Problem) -> Codes:
    """Codes of D = C + A·B, shape (batch, m, n). ValueError for a problem with something in it that has no meaning here."""
    GATE.check_problem(problem)
    unit = problem.unit
    batch, m, n, _ = problem.shape
    out = np.empty((batch, m, n), dtype=unit.out_format.storage)
    for t in range(batch):
        rows = _values(problem.a.codes[t], problem.a.stored, unit.a_operand)
        columns = _values(problem.b.codes[t].T, problem.b.stored, unit.b_operand)
        row_scales, column_scales = _scales(problem, t)
        for i in range(m):
            for j in range(n):
                draws = Draws(problem.seed, (t * m + i) * n + j)
                c = None if problem.c is None else value_of_code(int(problem.c[t, i, j]), unit.out_format)
                dot = Dot(unit, rows[i], columns[j], row_scales[i], column_scales[j], draws)
                result = dot.walk(problem.plan, c)
                out[t, i, j] = code_of_value(result, unit.out_format, unit.nan if result.payload is None else result.payload)
    return out


def _values(codes: Codes, stored: Format, fmt: Format | None) -> list[list[Value]]:
    distinct = {int(x): value_of_code(int(x), stored, fmt) for x in np.unique(codes)}
    return [[distinct[int(x)] for x in row] for row in codes]


def _scales(problem: Problem, t: int) -> tuple[list[list[Value] | None], list[list[Value] | None]]:
    fmt = problem.unit.scale_format
    if fmt is None or problem.scale_a is None or problem.scale_b is None:
        return [None] * problem.shape[1], [None] * problem.shape[2]
    return list(_values(problem.scale_a[t], fmt, None)), list(_values(problem.scale_b[t].T, fmt, None))
