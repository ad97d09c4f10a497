"""Exact sums of long or far products in float64 lanes: three numbers hold a sum to more than 150 bits (Ogita, Rump and Oishi, 2005).

high + mid + low, each sum's error going to the next; what is lost below `low`, in at most 1,024 additions, is at most 2^-42 of the sum of the
magnitudes that came there. A rounding that this can change is left to others; where nothing came there the sum is exact.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import no_refcount, noalias
from tcsim.codegen.memory import ahead
from tcsim.codegen.scalar_ops import fused_multiply_add, wide_vectors
from tcsim.kernels.general.numbers import bits_of_float64, float64_of_bits
from tcsim.kernels.native.double_quick import sum_long_quickly, sum_quickly
from tcsim.kernels.native.double_round import (
    MAGNITUDE,
    SIGN,
    numbers_of,
    round_double,
    round_lifted,
    rounded_pattern,
    settled,
    settled_pattern,
    sum_and_error,
)
from tcsim.kernels.native.double_rows import LIFTED, MACHINE, without_sign_of_zero
from tcsim.kernels.native.double_single import PROCESSOR, any_of, far_product


@noalias
def add_long_product(wide, near, x, b, width, high, mid, low, size, bad):
    """high + mid + low += x·b; `size` the sum of the magnitudes that came to low."""
    wide_vectors()
    if wide:
        if not near:
            for j in range(width):
                bad[j] |= np.int64(far_product(x, b[j], x * b[j]))
        for j in range(width):
            product = x * b[j]
            rest = fused_multiply_add(x, b[j], -product)
            high[j], e = sum_and_error(high[j], product)
            m, e1 = sum_and_error(mid[j], e)
            mid[j], e2 = sum_and_error(m, rest)
            low[j] += e1 + e2
            size[j] += abs(e1) + abs(e2)
    else:
        for j in range(width):
            high[j], e = sum_and_error(high[j], x * b[j])
            mid[j], e1 = sum_and_error(mid[j], e)
            low[j] += e1
            size[j] += abs(e1)


@noalias
def start_exactly(c, width, high, mid, low, size):
    """c as the first term."""
    wide_vectors()
    for j in range(width):
        high[j], mid[j], low[j], size[j] = c[j], 0.0, 0.0, 0.0


@noalias
def put_in_order(ieee, c, width, high, mid, low, size, bad):
    """The three numbers so that each is within half of the last place of the one before, and `size` the doubt that is left.

    Marks sums that cancelled too far for that, and those of zero from a c of -0, which may be -0."""
    wide_vectors()
    for j in range(width):
        h, m = sum_and_error(high[j], mid[j])
        m, rest = sum_and_error(m, low[j])
        h, m = sum_and_error(h, m)
        m, rest = sum_and_error(m, rest)
        doubt = size[j] * 2.0**-42
        next_one = m if m != 0.0 else rest
        lost = (doubt != 0.0) & (2.0 * doubt >= abs(next_one)) | (h + m != h)
        lost |= (ieee != 0) & (h == 0.0) & (bits_of_float64(c[j]) == SIGN)
        high[j], mid[j], low[j], size[j] = h, m, rest, doubt
        bad[j] |= np.int64(1) if lost else np.int64(0)


@noalias
def to_nearest(how, width, high, mid, low, size, c, marks):
    """c = the sums to nearest-even in all 53 bits; marks[j] where the sum is near a tie or its result a power of two."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        h, m = high[j], abs(mid[j]) + (abs(low[j]) + size[j])
        pattern = bits_of_float64(h) & MAGNITUDE
        half = float64_of_bits(max((pattern >> 52) - 53, np.int64(0)) << 52)
        plain = (m == 0.0) | ((m < half) & (pattern & ((np.int64(1) << 52) - 1) != 0))
        marks[j] = np.int64(0) if plain else np.int64(1)
        c[j] = 0.0 if h == 0.0 else h


@noalias
def to_fewer(how, width, high, mid, low, c):
    """c = the sums rounded to normal numbers of at most 50 bits by masks."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        h, e = high[j], mid[j] if mid[j] != 0.0 else low[j]
        c[j] = settled_pattern(rounded_pattern(without_sign_of_zero(h), e, how), how, False)


@noalias
def to_any(how, width, high, mid, low, size, words, c, bad):
    """c = the sums rounded; those on which the doubt could tell are left to others."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        h, m, rest, doubt = high[j], mid[j], low[j], size[j]
        x, y = round_double(how, h, m, rest - doubt, words[j]), round_double(how, h, m, rest + doubt, words[j])
        bad[j] |= np.int64(1) if x != y else np.int64(0)
        c[j] = settled(h, 0.0 if h == 0.0 else x, how, False)


@noalias
def to_lifted(how, width, high, mid, low, size, words, c, bad):
    """The same to 2 to 50 bits."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        h, m, rest, doubt = without_sign_of_zero(high[j]), mid[j], low[j], size[j]
        first = round_lifted(how, h, m if m != 0.0 else rest - doubt, words[j])
        last = round_lifted(how, h, m if m != 0.0 else rest + doubt, words[j])
        bad[j] |= np.int64(1) if first != last else np.int64(0)
        c[j] = first


@noalias
def settle_sums(how, width, c):
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        c[j] = settled_pattern(bits_of_float64(c[j]), how, False)


@no_refcount
def block_of_exact_sums(spec, unit, sides, r, block, p0, steps, word, width, row):
    """One block of products and c, added exactly."""
    if unit.quick and sum_quickly(unit, sides, r, p0, steps, ahead(row.words, word * row.width), width, row):
        return
    if unit.way == PROCESSOR and (row.near or not unit.wide) and sum_long_quickly(unit, sides, r, p0, steps, width, row):
        return
    high, mid, low, size = row.total, row.scale, row.tree, ahead(row.tree, row.width)
    start_exactly(row.c, width, high, mid, low, size)
    for p in range(p0, p0 + steps):
        x, b = sides.a[r * sides.deep + p], ahead(sides.b, p * sides.wide)
        add_long_product(unit.wide, row.near, x, b, width, high, mid, low, size, row.bad)
    put_in_order(spec.ieee_zero, row.c, width, high, mid, low, size, row.bad)
    if unit.way == PROCESSOR:
        to_nearest(unit.how, width, high, mid, low, size, row.c, row.marks)
        if any_of(row.marks, width):
            to_any(unit.how, width, high, mid, low, size, ahead(row.words, word * row.width), row.c, row.bad)
        else:
            settle_sums(unit.how, width, row.c)
    elif unit.way == MACHINE:
        to_fewer(unit.how, width, high, mid, low, row.c)
    elif unit.way == LIFTED:
        to_lifted(unit.how, width, high, mid, low, size, ahead(row.words, word * row.width), row.c, row.bad)
    else:
        to_any(unit.how, width, high, mid, low, size, ahead(row.words, word * row.width), row.c, row.bad)
