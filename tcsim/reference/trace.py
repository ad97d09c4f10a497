"""One block FMA opened up: every term, its shift, the bits it loses, the sum, the rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.hardware.unit import Unit
from tcsim.reference.blocks import ZERO, Draws, align, block, flushed_operand, largest_exponent
from tcsim.reference.paired import cut_terms, grid_of, grid_sum
from tcsim.reference.values import Value, code_of_value, exact_product, special_sum, sum_of_values, value_of_code


@dataclass(frozen=True)
class Term:
    """A term of the block: what it was, and what the alignment left of it (exact rationals; None where not finite).

    `scale` is the product of the two block scales that is in the value of a term; None for a unit without.
    """

    name: str
    factors: str
    value: Fraction | None
    exponent: int | None
    shift: int | None
    kept: Fraction | None
    scale: Fraction | None = None

    @property
    def dropped(self) -> Fraction | None:
        """What the alignment cut off."""
        return None if self.value is None or self.kept is None else self.value - self.kept


@dataclass(frozen=True)
class Block:
    """One block of a dot product on a unit: its terms, the quantum they were cut at, their sum and the result.

    Where c enters late, `partial` is the block's own rounded result, to which c, uncut, is added; else None.
    """

    unit: str
    terms: tuple[Term, ...]
    emax: int | None
    quantum: int | None
    exact: Fraction | None
    sum: Fraction | None
    result: float
    code: int
    partial: Fraction | None = None

    @property
    def rounding_error(self) -> Fraction | None:
        """result - sum: what the final rounding did, or the two where c is added to a rounded block."""
        return None if self.sum is None or not np.isfinite(self.result) else Fraction(float(self.result)) - self.sum

    @property
    def error(self) -> Fraction | None:
        """result - the exact value of c + a·b."""
        return None if self.exact is None or not np.isfinite(self.result) else Fraction(float(self.result)) - self.exact

    def table(self) -> list[tuple[str, ...]]:
        """The rows that are printed: term, factors, value, exponent, shift, kept, dropped."""
        return [
            (t.name, t.factors, _show(t.value), _whole(t.exponent), _whole(t.shift), _show(t.kept), _show(t.dropped))
            for t in self.terms
        ]

    def summary(self) -> list[str]:
        """The lines below the table."""
        lines = []
        if self.quantum is not None:
            largest = "" if self.emax is None else f"largest exponent {self.emax}: "
            lines.append(f"{largest}every term is cut to a multiple of 2^{self.quantum}")
        lines.append(f"exact value     {_show(self.exact)}")
        lines.append(f"sum of the cut terms  {_show(self.sum)}")
        if self.partial is not None:
            lines.append(
                f"the products' sum rounded  {_show(self.partial)}, then c is added and the sum rounded to nearest-even"
            )
        lines.append(f"result          {self.result!r}  (code {self.code:#x})")
        if self.rounding_error is not None:
            lines.append(f"final rounding {_show(self.rounding_error)}, whole error {_show(self.error)}")
        return lines

    def __repr__(self) -> str:
        return f"<{self.unit}: {len(self.terms)} terms, result {self.result!r} ({self.code:#x})>"

    def __str__(self) -> str:
        rows = [_HEAD, *self.table()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
        body = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.unit, *body, *self.summary()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{h}</th>" for h in _HEAD)
        body = "".join("<tr>" + "".join(f"<td>{escape(x)}</td>" for x in row) + "</tr>" for row in self.table())
        notes = "<br>".join(escape(line) for line in self.summary())
        return f"<b>{escape(self.unit)}</b><table><tr>{head}</tr>{body}</table><p>{notes}</p>"


_HEAD = ("term", "factors", "value", "exponent", "shift", "kept", "dropped")


def trace_block(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c: Any = 0.0,
    *,
    unit: Unit,
    seed: int = 0,
    round: str | None = None,
    scale_a: npt.ArrayLike | None = None,
    scale_b: npt.ArrayLike | None = None,
) -> Block:
    """One block of `unit`: c + a[0]·b[0] + … of at most block_size products, term by term.

    a and b are vectors of equal length and c a number, as `matmul` takes them (values or codes). The shift of a term
    is emax minus its exponent: how many places it moves to align with the largest. The printed form is a table. Of a unit
    with a sum_format, whose blocks are rounded to that, c and the result are in that format. Where c enters late
    (c_enters="after") it is no term: the block starts from zero and c is added to its rounded result. The products of the
    block are those given, whatever the k_order of a unit that adds them together. The result is that of `matmul` on the same vectors.
    ValueError for vectors that are longer than a block or differ in length.
    """
    from tcsim.operands import accumulator, check_round, input_seeds, operand, scales

    if not isinstance(unit, Unit):
        raise TypeError(f"unit must be a Unit, as tcsim.unit('a100', 'float16') gives; got {unit!r}")
    seed = arguments.seed(seed)
    check_round(round)
    if unit.scale is None and not (scale_a is None and scale_b is None):
        raise ValueError(f"{unit.label} takes no block scales")
    unit = unit if unit.sum_format is None else unit.inner
    unit = unit if unit.arithmetic == "fused" else replace(unit, k_order=None)  # a chain's order shows
    seeds = input_seeds(seed)
    left = operand(np.atleast_1d(arguments.array(a, "a")), unit.a_format, "a", round, seeds[0])
    right = operand(np.atleast_1d(arguments.array(b, "b")), unit.b_format, "b", round, seeds[1])
    if left.codes.ndim != 1 or left.codes.shape != right.codes.shape or not 0 < left.codes.size <= unit.block_size:
        raise ValueError(
            f"trace shows one block: a and b are vectors of equal length, at most block_size = {unit.block_size}; "
            f"got shapes {left.codes.shape} and {right.codes.shape}"
        )
    start = value_of_code(int(accumulator(c, unit.out_format, ())), unit.out_format)
    from tcsim.reference.dot import Dot

    def values(codes: Any, stored: Any, fmt: Any) -> list[Value]:
        return [value_of_code(int(x), stored, fmt) for x in codes]

    row_scales = column_scales = None
    if unit.scale_format is not None:
        count = -(-left.codes.size // unit.scale_block)
        row_scales = values(scales(scale_a, unit.scale_format, (count,), "scale_a", unit.scale_block), unit.scale_format, None)
        column_scales = values(
            scales(scale_b, unit.scale_format, (count,), "scale_b", unit.scale_block), unit.scale_format, None
        )
    xs, ys = values(left.codes, left.stored, unit.a_operand), values(right.codes, right.stored, unit.b_operand)
    dot = Dot(unit, xs, ys, row_scales, column_scales, Draws(seed, 0))
    products = dot.products(range(len(xs)))
    late = unit.c_enters == "after"
    entry = flushed_operand(unit, start, unit.out_format.emin)
    names = (
        [f"a[{i}]*b[{i}]" for i in range(len(products))]
        if unit.group_size == 1
        else [f"group {i}" for i in range(len(products))]
    )
    factors = (
        [f"{_show(_number(x))} * {_show(_number(y))}" for x, y in zip(xs, ys, strict=True)]
        if unit.group_size == 1
        else [_group_sum(xs[i : i + unit.group_size], ys[i : i + unit.group_size]) for i in range(0, len(xs), unit.group_size)]
    )
    own_scales = [None if unit.scale is None else _number(dot.scale(i * unit.group_size)) for i in range(len(products))]
    result = dot.chain(start, 0, len(xs))
    partial = None
    if late:
        zero = ZERO._replace(exponent=unit.out_format.emin, negative=unit.zero_sign == "ieee")
        partial = block(unit, products, zero, Draws(seed, 0))
    whole = [exact_product(x, y) for x, y in zip(xs, ys, strict=True)]
    if unit.scale is not None:
        whole = Dot(replace(unit, subnormals="keep"), xs, ys, row_scales, column_scales, Draws(seed, 0)).products(
            range(len(xs))
        )
    words = Draws(seed, 0).term_words(unit.align_rounding, len(products))
    found = _block(unit, products, entry, [*names, "c"], [*factors, ""], result, partial, [*whole, start], words)
    terms = tuple(replace(t, scale=s) for t, s in zip(found.terms, [*own_scales, None], strict=True))
    return replace(found, terms=terms)


def _block(
    unit: Unit,
    products: Sequence[Value],
    c: Value,
    names: Sequence[str],
    factors: Sequence[str],
    result: Value,
    partial: Value | None,
    given: Sequence[Value],
    words: Sequence[int],
) -> Block:
    terms = [*products, c]
    together = [*products, ZERO] if partial is not None else terms  # what is aligned: a late c is not
    finite = not any(t.special for t in terms)
    aligned = unit.arithmetic == "aligned" and unit.align_rounding != "exact" and finite
    emax = largest_exponent(unit, together) if aligned else None
    quantum = emax - unit.fraction_bits if emax is not None and unit.fraction_bits is not None else None
    cut = terms if quantum is None else align(together, quantum, unit.align_rounding, words)
    if partial is not None:
        cut = [*cut[:-1], c]
    paired = unit.arithmetic == "paired" and finite
    if paired:
        quantum = grid_of(unit, products, c)
        cut = terms if unit.term_cut == "pairs" else cut_terms(unit, products, c)  # pairs are cut, not their products
    shifts = [None if emax is None or t.zero else emax - t.exponent for t in products]
    shifts.append(None if emax is None or c.zero or partial is not None else emax - c.exponent)
    shown = tuple(
        Term(name, factor, _number(t), None if t.zero or t.special else t.exponent, shift, _number(k))
        for name, factor, t, shift, k in zip(names, factors, terms, shifts, cut, strict=True)
    )
    code = code_of_value(result, unit.out_format, unit.nan if result.payload is None else result.payload)
    value = _number(value_of_code(code, unit.out_format))
    number = float(value) if value is not None else float(result.special or ("-inf" if result.negative else "inf"))
    keeps_sum = finite and unit.arithmetic in ("aligned", "integer")
    return Block(
        unit.label,
        shown,
        emax,
        quantum,
        _number(sum_of_values(given)) if finite else None,
        _number(grid_sum(unit, products, c) if paired else sum_of_values(cut)) if keeps_sum or paired else None,
        number,
        code,
        None if partial is None else _number(partial),
    )


def _group_sum(xs: Sequence[Value], ys: Sequence[Value]) -> str:
    """The exact sum of a group's products, before its scales."""
    products = [exact_product(x, y) for x, y in zip(xs, ys, strict=True)]
    return f"sum of {len(products)}: {_show(_number(special_sum(products) or sum_of_values(products)))}"


def _number(x: Value) -> Fraction | None:
    return None if x.special else Fraction(x.significand) * Fraction(2) ** x.lsb


def _whole(x: int | None) -> str:
    return "" if x is None else str(x)


def _show(x: Fraction | None) -> str:
    """An exact decimal where it is short, else significand·2^exponent."""
    if x is None:
        return "not finite"
    short = repr(float(x)) if abs(x) < Fraction(2) ** 1023 and Fraction(float(x)) == x else ""
    if 0 < len(short) <= 12:
        return short
    power = x.denominator.bit_length() - 1
    return f"{x.numerator}*2^-{power}" if power else str(x.numerator)
