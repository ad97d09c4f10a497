"""Exact sums in float64 lanes whose results have far fewer bits: what a chain of float64 additions lacks hardly ever decides.

Such a chain's errors are float64 numbers themselves: the exact sum is within S, the sum of their magnitudes, of the last total. Rounding is
monotone: where the ends of an interval of 2·S and a place more on either side have one result, it is the exact sum's; where S is zero, so is
the interval. Where they have not, as near a tie or where a sum cancels, the whole line of sums is for the exact way.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, noalias
from tcsim.codegen.memory import ahead
from tcsim.codegen.scalar_ops import fused_multiply_add, wide_vectors
from tcsim.kernels.general.numbers import bits_of_float64
from tcsim.kernels.native.double_round import numbers_of, rounded_pattern, settled_pattern
from tcsim.kernels.native.double_rows import RANDOM

QUICK = 32  # kept bits up to which few intervals hold a tie


@inline
def add_measured(x, y, z, size):
    """(fl(x·y + z) of a product that float64 holds, size + the magnitude of what it lost), to nearest."""
    total = fused_multiply_add(x, y, z)
    part = total - z
    return total, size + abs(fused_multiply_add(x, y, -part) + (z - (total - part)))


@inline
def doubt_of(total, size):
    return fused_multiply_add(abs(total), 2.0**-52, size + size) if size != 0.0 else 0.0


@inline
def both_ends(how, total, size):
    """(the result of the sum, whether there may be another)."""
    doubt = doubt_of(total, size)
    first, last = rounded_pattern(total - doubt, 0.0, how), rounded_pattern(total + doubt, 0.0, how)
    return settled_pattern(first, how, False), first ^ last


@inline
def both_by_word(how, total, size, word):
    """The same of a random word."""
    doubt, more = doubt_of(total, size), word >> (32 - how.drop)
    first, last = bits_of_float64(total - doubt) + more, bits_of_float64(total + doubt) + more
    return settled_pattern(first & ~how.ones, how, False), (first ^ last) & ~how.ones


@noalias
def round_both_ends(how, way, width, total, size, words, before, c):
    """c = the rounded sums, and what it was goes to `before`; not 0 where some sum could round otherwise."""
    wide_vectors()
    how, other = numbers_of(how), np.int64(0)
    if way == RANDOM:
        for j in range(width):
            found, differ = both_by_word(how, total[j], size[j], words[j])
            before[j], c[j] = c[j], found
            other |= differ
    else:
        for j in range(width):
            found, differ = both_ends(how, total[j], size[j])
            before[j], c[j] = c[j], found
            other |= differ
    return other


@noalias
def add_two_quickly(how, a, b, pitch, width, before, c):
    """The same of two products and c by masks, in one pass."""
    wide_vectors()
    how, other, x0, x1 = numbers_of(how), np.int64(0), a[0], a[1]
    for j in range(width):
        start = c[j]
        total, size = add_measured(x0, b[j], start, 0.0)
        total, size = add_measured(x1, b[j + pitch], total, size)
        found, differ = both_ends(how, total, size)
        before[j], c[j] = start, found
        other |= differ
    return other


@noalias
def add_four_quickly(how, a, b, pitch, width, before, c):
    """The same of four products."""
    wide_vectors()
    how, other, x0, x1, x2, x3 = numbers_of(how), np.int64(0), a[0], a[1], a[2], a[3]
    for j in range(width):
        start = c[j]
        total, size = add_measured(x0, b[j], start, 0.0)
        total, size = add_measured(x1, b[j + pitch], total, size)
        total, size = add_measured(x2, b[j + 2 * pitch], total, size)
        total, size = add_measured(x3, b[j + 3 * pitch], total, size)
        found, differ = both_ends(how, total, size)
        before[j], c[j] = start, found
        other |= differ
    return other


@noalias
def start_quickly(c, width, total, size):
    wide_vectors()
    for j in range(width):
        total[j], size[j] = c[j], 0.0


@noalias
def add_quickly(a, b, steps, pitch, width, total, size):
    """Add products."""
    wide_vectors()
    fours = steps & ~np.int64(3)
    for p in range(0, fours, 4):
        x0, x1, x2, x3 = a[p], a[p + 1], a[p + 2], a[p + 3]
        for j in range(width):
            at = p * pitch + j
            found, lost = add_measured(x0, b[at], total[j], size[j])
            found, lost = add_measured(x1, b[at + pitch], found, lost)
            found, lost = add_measured(x2, b[at + 2 * pitch], found, lost)
            total[j], size[j] = add_measured(x3, b[at + 3 * pitch], found, lost)
    for p in range(fours, steps):
        x, first = a[p], p * pitch
        for j in range(width):
            total[j], size[j] = add_measured(x, b[first + j], total[j], size[j])


@noalias
def take_back(before, width, c):
    wide_vectors()
    for j in range(width):
        c[j] = before[j]


@no_refcount
def sum_quickly(unit, sides, r, p0, steps, words, width, row):
    """c = the rounded sums of a block, and True; False, and c as it was, where some sum needs the exact way."""
    a, b = ahead(sides.a, r * sides.deep + p0), ahead(sides.b, p0 * sides.wide)
    before, sums, sizes = row.scale, row.total, row.tree
    if steps == 2 and unit.way != RANDOM:
        other = add_two_quickly(unit.how, a, b, sides.wide, width, before, row.c)
    elif steps == 4 and unit.way != RANDOM:
        other = add_four_quickly(unit.how, a, b, sides.wide, width, before, row.c)
    else:
        start_quickly(row.c, width, sums, sizes)
        add_quickly(a, b, steps, sides.wide, width, sums, sizes)
        other = round_both_ends(unit.how, unit.way, width, sums, sizes, words, before, row.c)
    if other == 0:
        return True
    take_back(before, width, row.c)
    return False
