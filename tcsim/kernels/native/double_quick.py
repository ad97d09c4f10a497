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
from tcsim.kernels.native.double_round import SIGN, numbers_of, rounded_pattern, settled_pattern, sum_and_error
from tcsim.kernels.native.double_rows import RANDOM
from tcsim.kernels.native.double_tree import copy_line

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
def told(how, first, last, start):
    """A rounded pattern as a number, not 0 where the other end's differs or it is no normal number, as c was."""
    found = settled_pattern(first, how, False)
    return found, (first ^ last) | (np.int64(1) if (found == np.inf) & (start != np.inf) else np.int64(0))


@inline
def both_ends(how, total, size, start):
    """(the result of the sum of c and products, whether there may be another)."""
    doubt = doubt_of(total, size)
    return told(how, rounded_pattern(total - doubt, 0.0, how), rounded_pattern(total + doubt, 0.0, how), start)


@inline
def both_by_word(how, total, size, word, start):
    """The same of a random word."""
    doubt, more = doubt_of(total, size), word >> (32 - how.drop)
    first, last = bits_of_float64(total - doubt) + more, bits_of_float64(total + doubt) + more
    return told(how, first & ~how.ones, last & ~how.ones, start)


@noalias
def round_both_ends(how, way, width, total, size, words, before, c):
    """c = the rounded sums, and what it was goes to `before`; not 0 where some sum could round otherwise."""
    wide_vectors()
    how, other = numbers_of(how), np.int64(0)
    if way == RANDOM:
        for j in range(width):
            found, differ = both_by_word(how, total[j], size[j], words[j], c[j])
            before[j], c[j] = c[j], found
            other |= differ
    else:
        for j in range(width):
            found, differ = both_ends(how, total[j], size[j], c[j])
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
        found, differ = both_ends(how, total, size, start)
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
        found, differ = both_ends(how, total, size, start)
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
    copy_line(before, width, row.c)
    return False


@inline
def add_long(x, y, high, low, size):
    """high + low + x·y of float64 numbers: the sum's error and the product's go to low, their magnitudes to size, which tells what low lost."""
    product = x * y
    total, lost = sum_and_error(high, product)
    lost += fused_multiply_add(x, y, -product)
    return total, low + lost, size + abs(lost)


@inline
def long_result(how, start, high, low, size, share):
    """(high + low to nearest-even in all 53 bits, whether what low lost could tell): neither end of the doubt moves the result."""
    s, rest = sum_and_error(high, low)
    doubt = size * share
    moved = (s + (rest + doubt) != s) | (s + (rest - doubt) != s) | ((s == 0.0) & (bits_of_float64(start) == SIGN))
    return settled_pattern(bits_of_float64(0.0 if s == 0.0 else s), how, False), np.int64(1) if moved else np.int64(0)


@noalias
def add_two_long(how, a, b, pitch, width, before, c):
    """`add_two_quickly` to nearest-even in all 53 bits."""
    wide_vectors()
    how, other, x0, x1 = numbers_of(how), np.int64(0), a[0], a[1]
    for j in range(width):
        start = c[j]
        high, low, size = add_long(x0, b[j], start, 0.0, 0.0)
        high, low, size = add_long(x1, b[j + pitch], high, low, size)
        found, moved = long_result(how, start, high, low, size, 2.0**-49)
        before[j], c[j] = start, found
        other |= moved
    return other


@noalias
def add_many_long(a, b, steps, pitch, width, high, low, size):
    """Add products of float64 numbers."""
    wide_vectors()
    twos = steps & ~np.int64(1)
    for p in range(0, twos, 2):
        x0, x1 = a[p], a[p + 1]
        for j in range(width):
            at = p * pitch + j
            h, rest, some = add_long(x0, b[at], high[j], low[j], size[j])
            high[j], low[j], size[j] = add_long(x1, b[at + pitch], h, rest, some)
    for p in range(twos, steps):
        x, first = a[p], p * pitch
        for j in range(width):
            high[j], low[j], size[j] = add_long(x, b[first + j], high[j], low[j], size[j])


@noalias
def round_long(how, terms, width, high, low, size, before, c):
    """c = the sums to nearest-even in all 53 bits, as `round_both_ends`."""
    wide_vectors()
    how, share, other = numbers_of(how), np.float64(terms + 2) * 2.0**-51, np.int64(0)
    for j in range(width):
        start = c[j]
        found, moved = long_result(how, start, high[j], low[j], size[j], share)
        before[j], c[j] = start, found
        other |= moved
    return other


@no_refcount
def sum_long_quickly(unit, sides, r, p0, steps, width, row):
    """`sum_quickly` to nearest-even in all 53 bits: of n products what low lost is at most n·2^-52·(1 + 2^-40) of `size`."""
    a, b = ahead(sides.a, r * sides.deep + p0), ahead(sides.b, p0 * sides.wide)
    before, high, low, size = row.scale, row.total, row.tree, ahead(row.tree, row.width)
    if steps == 2:
        other = add_two_long(unit.how, a, b, sides.wide, width, before, row.c)
    else:
        start_quickly(row.c, width, high, low)
        start_quickly(row.c, width, high, size)
        add_many_long(a, b, steps, sides.wide, width, high, low, size)
        other = round_long(unit.how, steps, width, high, low, size, before, row.c)
    if other == 0:
        return True
    copy_line(before, width, row.c)
    return False
