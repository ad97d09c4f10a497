"""A chunk of both operands of `double`, decoded to float64 values and exponents."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.codegen.jit import noalias, routine
from tcsim.codegen.memory import at
from tcsim.codegen.scalar_ops import wide_vectors
from tcsim.kernels.general.numbers import ANY_ZERO, FINITE, ZERO_E, to_float64
from tcsim.kernels.general.panel import decode_lines, decode_unscaled


class Sides(NamedTuple):
    """Pointers to a chunk of both operands: a is [row, position], b [position, column], of the pitches `deep` and `wide`."""

    a: Any
    ea: Any
    za: Any  # whether a block has a zero factor, [row, block]
    b: Any
    eb: Any
    zb: Any  # [block, column]
    deep: int
    wide: int
    ga: Any  # the scales of the groups that begin at a position, as `a` and `b`: values,
    gb: Any
    ha: Any  # exponents,
    hb: Any
    sa: Any  # and the span of the group's elements; za and zb are which of them are not zero
    sb: Any


@routine
def decode_side(m, t, first, count, side, ks, positions, scales, spec, codes, sig, e, mark, pitch, values, exponents, bad):
    """Decode rows (side 0) or columns (1); bad[line] is set for lines with NaN or infinities."""
    special = decode_lines(m, t, first, count, side, ks, positions, scales, spec, codes, sig, e, mark)
    to_doubles(special, count, side, positions, spec, sig, e, mark, pitch, values, exponents, bad)


@routine
def decode_plain_side(m, t, first, count, side, ks, positions, spec, codes, sig, e, mark, pitch, values, exponents, bad):
    """The same without scales."""
    special = decode_unscaled(m, t, first, count, side, ks, positions, spec, codes, sig, e, mark)
    to_doubles(special, count, side, positions, spec, sig, e, mark, pitch, values, exponents, bad)


@routine
def to_doubles(special, count, side, positions, spec, sig, e, mark, pitch, values, exponents, bad):
    """Values and exponents of what was decoded."""
    columns = side == 1
    precision = spec.b_precision if columns else spec.a_precision
    outer, inner = (positions, count) if columns else (count, positions)
    for i in range(outer):
        here, there = i * sig.shape[1], i * pitch
        convert_line(at(sig, here), at(e, here), at(mark, here), inner, precision, at(values, there), at(exponents, there))
    if special:
        for i in range(outer):
            for j in range(inner):
                if mark[i, j] & 3 != FINITE:
                    values[i * pitch + j] = 0.0
                    bad[j if columns else i] = 1


@noalias
def convert_line(sig, e, mark, count, precision, values, exponents):
    """Values and exponents of decoded numbers."""
    wide_vectors()
    for j in range(count):
        values[j] = to_float64(sig[j], e[j], mark[j] >> 2, np.int64(FINITE), precision)
        exponents[j] = np.int32(e[j])


@routine
def mark_zero_blocks(sides, count, width, blocks, starts):
    """Which blocks hold a zero factor."""
    for block in range(blocks):
        for r in range(count):
            found = np.int64(0)
            for p in range(starts[block], starts[block + 1]):
                found |= np.int64(1) if sides.a[r * sides.deep + p] == 0.0 else np.int64(0)
            sides.za[r * sides.deep + block] = found
        for j in range(width):
            sides.zb[block * sides.wide + j] = 0
        for p in range(starts[block], starts[block + 1]):
            for j in range(width):
                sides.zb[block * sides.wide + j] |= np.int64(1) if sides.b[p * sides.wide + j] == 0.0 else np.int64(0)


@noalias
def exponents_of(e, rows_, columns, pitch):
    """The least and the largest exponent of what is not zero."""
    wide_vectors()
    least, most = np.int32(1 << 20), np.int32(ZERO_E)
    for i in range(rows_):
        for j in range(columns):
            x = e[i * pitch + j]
            least, most = min(least, x if x > np.int32(ANY_ZERO) else least), max(most, x)
    return np.int64(least), np.int64(most)
