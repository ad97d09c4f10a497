"""Signs of drawn operands: products that cancel, operands without signs, outputs with every sign changed."""

from __future__ import annotations

from typing import Any

from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions.codes import Ints, negated, unsigned


def cancel(batch: Batch, known: Formats, rows: Ints, one: Ints, other: Ints) -> None:
    """The product at `other` made the negative of that at `one`, by the factor that has a sign."""
    first, second = batch.a[rows, 0, one], batch.b[rows, one, 0]
    batch.a[rows, 0, other] = negated(first, known.a) if known.a.signed else first
    batch.b[rows, other, 0] = second if known.a.signed else negated(second, known.b)


def without_signs(batch: Batch, known: Formats, which: Any) -> None:
    """These outputs with operands of no sign: what is little then tips a result half-way upwards."""
    for codes, fmt in ((batch.a, known.a), (batch.b, known.b), (batch.c, known.out)):
        codes[which] = codes[which] if fmt.integer else unsigned(codes[which], fmt)


def mirror(batch: Batch, known: Formats, rows: Any) -> None:
    """These outputs with every sign changed: a sum that is full is rounded down otherwise than toward zero where it is negative."""
    codes, fmt = (batch.a, known.a) if known.a.signed else (batch.b, known.b)
    if fmt.signed and not fmt.integer:
        codes[rows] = negated(codes[rows], fmt)
        batch.c[rows] = negated(batch.c[rows], known.out)
