"""One block FMA opened up: every term, its shift, the bits it loses, the sum, the rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.reference_blocks import Draws, align, block, flushed_operand, largest_exponent
from tcsim.units import Unit
from tcsim.values import Value, decode, encode, exact_sum


@dataclass(frozen=True)
class Term:
    """A term of the block: what it was, and what the alignment left of it (exact rationals; None where not finite)."""

    name: str
    factors: str
    value: Fraction | None
    exponent: int | None
    shift: int | None
    kept: Fraction | None

    @property
    def dropped(self) -> Fraction | None:
        """What the alignment cut off."""
        return None if self.value is None or self.kept is None else self.value - self.kept


@dataclass(frozen=True)
class Block:
    """One block of a dot product on a unit: its terms, the quantum they were cut at, their sum and the result."""

    unit: str
    terms: tuple[Term, ...]
    emax: int | None
    quantum: int | None
    exact: Fraction | None
    sum: Fraction | None
    result: float
    code: int

    @property
    def rounding_error(self) -> Fraction | None:
        """result - sum: what the final rounding did."""
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
            lines.append(f"largest exponent {self.emax}: every term is cut to a multiple of 2^{self.quantum}")
        lines.append(f"exact value     {_show(self.exact)}")
        lines.append(f"sum of the cut terms  {_show(self.sum)}")
        lines.append(f"result          {self.result!r}  (code {self.code:#x})")
        if self.rounding_error is not None:
            lines.append(f"final rounding {_show(self.rounding_error)}, whole error {_show(self.error)}")
        return lines

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


def trace(
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
    with a sum_format, whose blocks are rounded to that, c and the result are in that format.
    ValueError for vectors that are longer than a block or differ in length.
    """
    from tcsim.operands import accumulator, operand, scales

    if unit.sum_format is not None:
        unit = unit.wide
    left, right = operand(np.atleast_1d(a), unit.a_format, "a", round), operand(np.atleast_1d(b), unit.b_format, "b", round)
    if left.codes.ndim != 1 or left.codes.shape != right.codes.shape or not 0 < left.codes.size <= unit.block_size:
        raise ValueError(
            f"trace shows one block: a and b are vectors of equal length, at most block_size = {unit.block_size}; "
            f"got shapes {left.codes.shape} and {right.codes.shape}"
        )
    start = decode(int(accumulator(np.asarray(c), unit.out_format, ())), unit.out_format)
    from tcsim.reference import Dot

    def values(codes: Any, stored: Any, fmt: Any) -> list[Value]:
        return [decode(int(x), stored, fmt) for x in codes]

    row_scales = column_scales = None
    if unit.scale_format is not None:
        count = -(-left.codes.size // unit.scale_block)
        row_scales = values(scales(scale_a, unit.scale_format, (count,), "scale_a", unit.scale_block), unit.scale_format, None)
        column_scales = values(
            scales(scale_b, unit.scale_format, (count,), "scale_b", unit.scale_block), unit.scale_format, None
        )
    xs, ys = values(left.codes, left.stored, unit.a_operand), values(right.codes, right.stored, unit.b_operand)
    draws = Draws(seed, 0)
    dot = Dot(unit, xs, ys, row_scales, column_scales, draws)
    products = dot.products(range(len(xs)))
    entry = flushed_operand(unit, start, unit.out_format.emin)
    names = (
        [f"a[{i}]*b[{i}]" for i in range(len(products))]
        if unit.group_size == 1
        else [f"group {i}" for i in range(len(products))]
    )
    factors = (
        [f"{_show(_number(x))} * {_show(_number(y))}" for x, y in zip(xs, ys, strict=True)]
        if unit.group_size == 1
        else [""] * len(names)
    )
    result = block(unit, products, entry, draws)
    if result.special == "nan" and unit.keeps_nan:
        result = dot.kept_nan(0, entry)
    return _block(unit, [*products, entry], [*names, "c"], [*factors, ""], result)


def _block(unit: Unit, terms: Sequence[Value], names: Sequence[str], factors: Sequence[str], result: Value) -> Block:
    finite = not any(t.special for t in terms)
    aligned = unit.arithmetic == "aligned" and unit.align_rounding != "exact" and finite
    emax = largest_exponent(unit, terms) if aligned else None
    quantum = emax - unit.fraction_bits if emax is not None and unit.fraction_bits is not None else None
    cut = terms if quantum is None else align(terms, quantum, unit.align_rounding)
    shown = tuple(
        Term(
            name,
            factor,
            _number(t),
            None if t.zero or t.special else t.exponent,
            None if emax is None or t.zero else emax - t.exponent,
            _number(k),
        )
        for name, factor, t, k in zip(names, factors, terms, cut, strict=True)
    )
    code = encode(result, unit.out_format, unit.nan if result.payload is None else result.payload)
    value = _number(decode(code, unit.out_format))
    number = float(value) if value is not None else float(result.special)
    exact = _number(exact_sum(terms)) if finite else None
    keeps_sum = finite and unit.arithmetic in ("aligned", "integer")
    return Block(unit.label, shown, emax, quantum, exact, _number(exact_sum(cut)) if keeps_sum else None, number, code)


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
