"""One product and c, rounded once, in float64 lanes: a chain of fused multiply-adds in any rounding.

Between the sums rounded down and up there is no number of float64, so where they differ the odd one of them stands for the exact
sum: rounded on to at most 50 bits it gives what that gives (Boldo and Melquiond, 2008). Both come from the processor rounding down,
fl_up(v) being -fl_down(-v). Random words need the error of the sum to nearest itself, as ties away do to all 53 bits.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, inline_ir, no_refcount, noalias, variant
from tcsim.codegen.memory import ahead
from tcsim.codegen.scalar_ops import fused_multiply_add, wide_vectors
from tcsim.kernels.general.numbers import bits_of_float64, float64_of_bits
from tcsim.kernels.native.double_drawn import add_drawn
from tcsim.kernels.native.double_round import (
    LEAST,
    MAGNITUDE,
    MOST,
    SHIFTED,
    SIGN,
    by_sign,
    near_pattern,
    numbers_of,
    round_double,
    round_lifted,
    rounded_pattern,
    settled,
    settled_pattern,
    sum_and_error,
)
from tcsim.kernels.native.double_tree import copy_line

# How a product and c are rounded: by the processor to nearest; one of its two neighbours, or the odd one rounded on by masks, also below the
# normal numbers; with the error of the sum to nearest, by a random word or with ties away; by `round_double` from that error; by masks from the
# processor's own sum, truncated as the mode is, or to nearest where terms are too short for it to be or hide a tie.
PROCESSOR, NEIGHBOUR, ODD_MASKED, ODD_LIFTED, WORDS, TIES_AWAY, ROUNDED, MASKED = range(10, 18)
DRAWN = 32  # kept bits up to which what a truncated sum of float64 lacks hardly ever decides what a word makes of it
UNSHIFTED = -SHIFTED  # what words have above their own bits for `double_drawn`
SMALLEST, LARGEST = np.int64((1023 - 800) << 52), np.int64((1023 + 800) << 52)  # and its products
TO_ODD, BY_SIGN, BY_ANY = range(3)  # masks of rounding to odd, of no mode that looks at the last bit kept, of any
FROM_BELOW = (NEIGHBOUR, ODD_MASKED, ODD_LIFTED)  # with the processor rounding down


@inline
def neighbours(x, y, z):
    """x·y + z rounded down and up, with the processor rounding down; of an exact sum both are that, a zero as to nearest."""
    down, up = fused_multiply_add(x, y, z), -fused_multiply_add(-x, y, -z)
    return up if down == up else down, up


@inline
def odd_sum(x, y, z):
    """x·y + z rounded to odd, with the processor rounding down: a zero, which is even, comes from the sum rounded up."""
    down, up = fused_multiply_add(x, y, z), -fused_multiply_add(-x, y, -z)
    return down if bits_of_float64(down) & 1 != 0 else up


@noalias
def add_by_processor(how, x, b, width, c):
    """To nearest-even in all 53 bits."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        c[j] = settled_pattern(bits_of_float64(fused_multiply_add(x, b[j], c[j])), how, False)


@noalias
def add_by_neighbour(how, odd, x, b, width, c):
    """To one of the neighbours in all 53 bits: the odd one, or the upper or the lower by the sum's sign."""
    wide_vectors()
    how = numbers_of(how)
    if odd:
        for j in range(width):
            c[j] = settled_pattern(bits_of_float64(odd_sum(x, b[j], c[j])), how, False)
    else:
        for j in range(width):
            down, up = neighbours(x, b[j], c[j])
            upward = by_sign(bits_of_float64(down), how.positive, how.negative) == 0
            toward_zero = up if bits_of_float64(down) < 0 else down
            away = down if bits_of_float64(down) < 0 else up
            c[j] = settled_pattern(bits_of_float64(away if upward else toward_zero), how, False)


@inline
def odd_masked(how, rule, x, y, z):
    """The pattern of x·y + z rounded to at most 50 bits, with the processor rounding down; `rule` is a constant."""
    v = odd_sum(x, y, z)
    pattern = bits_of_float64(v)
    if rule == TO_ODD:
        return (pattern | ((pattern & how.ones) + how.ones)) & ~how.ones
    if rule == BY_SIGN:
        return (pattern + by_sign(pattern, how.plus, how.minus)) & ~how.ones
    return rounded_pattern(v, 0.0, how)


@inline
def lines_by_odd_masked(how, rule, x, b, width, c):
    for j in range(width):
        c[j] = settled_pattern(odd_masked(how, rule, x, b[j], c[j]), how, False)


@noalias
def add_by_odd_masked(how, x, b, width, c):
    """To a normal number of at most 50 bits."""
    wide_vectors()
    how = numbers_of(how)
    if how.odd_ones != 0:
        lines_by_odd_masked(how, TO_ODD, x, b, width, c)
    elif how.even == 0:
        lines_by_odd_masked(how, BY_SIGN, x, b, width, c)
    else:
        lines_by_odd_masked(how, BY_ANY, x, b, width, c)


@noalias
def add_by_masks(how, x, b, width, c):
    """To a normal number of at most 50 bits, which the processor's own sum tells: one truncated, or to nearest of one product that float64 holds,
    or of terms of no more bits than results, 24 at most.

    Such a sum is inexact in float64 only where one term is below 2^-27 of the other, which is a result itself, far from every tie.
    """
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        c[j] = settled_pattern(near_pattern(fused_multiply_add(x, b[j], c[j]), how), how, False)


@noalias
def add_by_odd_lifted(how, x, b, width, c):
    """To 2 to 50 bits, also below the normal numbers."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        v = odd_sum(x, b[j], c[j])
        c[j] = settled(v, round_lifted(how, v, 0.0, np.int64(0)), how, False)


@noalias
def add_one_product(how, x, b, width, words, c):
    """c + x·b rounded once, where x·b is exact in float64."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        s, e = sum_and_error(c[j], x * b[j])
        c[j] = settled(s, round_double(how, s, e, 0.0, words[j]), how, False)


@inline_ir
def fused_and_error(x, y, z):
    """fl(x·y + z), what it lost in two parts (Boldo and Muller, 2011), and fl(x·y)."""
    product = x * y
    s, rest = fused_multiply_add(x, y, z), fused_multiply_add(x, y, -product)
    high, low = sum_and_error(z, rest)
    beta, lower = sum_and_error(product, high)
    gamma = (beta - s) + lower
    e = gamma + low
    return s, e, low - (e - gamma), product


@inline_ir
def far_product(x, y, product):
    """Whether a part of a product's error could leave float64's normal numbers."""
    p = bits_of_float64(product) & MAGNITUDE
    return (p > MOST) | ((p < LEAST) & (p != 0)) | ((p == 0) & (x != 0.0) & (y != 0.0))


@noalias
def add_wide_product(how, x, b, width, words, c):
    """c + x·b rounded once, of float64 numbers."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        s, e, lowest, product = fused_and_error(x, b[j], c[j])
        far = far_product(x, b[j], product)
        c[j] = settled(s, round_double(how, s, e, lowest, words[j]), how, far)


@noalias
def add_product_by_words(how, x, b, width, words, c):
    """c + x·b rounded stochastically to a normal number of 21 to 32 bits, where x·b is exact in float64 and the processor truncates.

    What is cut, of D >= 21 bits, is the first D of the 32 that meet the word: with the word's own first D it carries as all 32 do, but where
    their sum is all ones, once in 2^D times. Those are left to others.
    """
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        raised = bits_of_float64(fused_multiply_add(x, b[j], c[j])) + (words[j] >> (32 - how.drop))
        c[j] = settled_pattern(raised & ~how.ones, how, (raised & how.ones) == how.ones)


@noalias
def mark_far_products(x, b, width, bad):
    """Marks products that are not 0 and not between 2^-800 and 2^800."""
    wide_vectors()
    for j in range(width):
        p = bits_of_float64(x * b[j]) & MAGNITUDE
        bad[j] |= np.int64((p >= LARGEST) | ((p < SMALLEST) & ((p != 0) | ((x != 0.0) & (b[j] != 0.0)))))


@no_refcount
def add_wide_by_words(unit, sides, r, p0, blocks, word, width, row):
    """Blocks of one product each, of float64 numbers, by the words that `word` is the number of and those behind it."""
    x, b = ahead(sides.a, r * sides.deep + p0), ahead(sides.b, p0 * sides.wide)
    if not row.near:
        for i in range(blocks):
            mark_far_products(x[i], ahead(b, i * sides.wide), width, row.bad)
    add_drawn(x, b, ahead(row.words, word * row.width), row.c, row.bad, (blocks, sides.wide, row.width, width))


@inline
def lines_unless_subnormal(how, rule, x, b, width, before, c):
    lost = np.int64(0)
    for j in range(width):
        start = c[j]
        found = settled_pattern(odd_masked(how, rule, x, b[j], start), how, False)
        before[j], c[j] = start, found
        lost |= np.int64(1) if (found == np.inf) & (start != np.inf) else np.int64(0)
    return lost


@noalias
def add_unless_subnormal(how, x, b, width, before, c):
    """c = the sums as of normal numbers of at most 50 bits, and what it was goes to `before`; not 0 where some sum is none."""
    wide_vectors()
    how = numbers_of(how)
    if how.odd_ones != 0:
        return lines_unless_subnormal(how, TO_ODD, x, b, width, before, c)
    if how.even == 0:
        return lines_unless_subnormal(how, BY_SIGN, x, b, width, before, c)
    return lines_unless_subnormal(how, BY_ANY, x, b, width, before, c)


@inline
def half_a_place(x):
    """Half of the last place of a float64, with its sign."""
    pattern = bits_of_float64(x)
    return float64_of_bits((((pattern >> 52) - 53) << 52) | (pattern & SIGN))


@noalias
def add_unless_ties(how, x, b, width, before, c):
    """c = the sums to nearest-even, and what it was goes to `before`; not 0 where a sum may be a tie from which ties away go to the other side.

    fl(s - n) + (e + low) is n's error, but for a last bit: a tie is seen for sure, if some that are none too.
    """
    wide_vectors()
    how, ties = numbers_of(how), np.int64(0)
    for j in range(width):
        start = c[j]
        n, product = fused_multiply_add(x, b[j], start), x * b[j]
        low = fused_multiply_add(x, b[j], -product)
        s, e = sum_and_error(start, product)
        error = (s - n) + (e + low)
        ties |= np.int64(1) if (error == half_a_place(n)) | (error != error) else np.int64(0)
        before[j], c[j] = start, settled_pattern(bits_of_float64(n), how, False)
    return ties


@noalias
def any_of(marks, width):
    wide_vectors()
    found = np.int64(0)
    for j in range(width):
        found |= marks[j]
    return found


@noalias
def add_with_ties_away(how, x, b, width, c):
    """c + x·b of float64 numbers rounded to nearest in all 53 bits, ties away from zero."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        s, e, lowest, product = fused_and_error(x, b[j], c[j])
        far = far_product(x, b[j], product)
        found = bits_of_float64(s) + (np.int64(1) if (e == half_a_place(s)) & (lowest == 0.0) else np.int64(0))
        c[j] = settled_pattern(found, how, far)


def block_of_one(draws):
    """c + one product, rounded once, of units that may draw words or of others."""

    @no_refcount
    @variant(draws)
    def block_of_one(spec, unit, sides, r, block, p0, steps, word, width, row):
        x, b, words, how = (
            sides.a[r * sides.deep + p0],
            ahead(sides.b, p0 * sides.wide),
            ahead(row.words, word * row.width),
            unit.how,
        )
        if unit.way == PROCESSOR:
            add_by_processor(how, x, b, width, row.c)
        elif unit.way == NEIGHBOUR:
            add_by_neighbour(how, how.odd, x, b, width, row.c)
        elif unit.way == ODD_MASKED:
            add_by_odd_masked(how, x, b, width, row.c)
        elif unit.way == MASKED:
            add_by_masks(how, x, b, width, row.c)
        elif unit.way == ODD_LIFTED:
            if add_unless_subnormal(how, x, b, width, row.total, row.c):
                copy_line(row.total, width, row.c)
                add_by_odd_lifted(how, x, b, width, row.c)
        elif unit.way == TIES_AWAY:
            if add_unless_ties(how, x, b, width, row.total, row.c):
                copy_line(row.total, width, row.c)
                add_with_ties_away(how, x, b, width, row.c)
        elif draws:
            if unit.way == WORDS and unit.wide:
                add_wide_by_words(unit, sides, r, p0, np.int64(1), word, width, row)
            elif unit.way == WORDS:
                add_product_by_words(how, x, b, width, words, row.c)
            elif unit.wide:
                add_wide_product(how, x, b, width, words, row.c)
            else:
                add_one_product(how, x, b, width, words, row.c)
        elif unit.wide:
            add_wide_product(how, x, b, width, words, row.c)
        else:
            add_one_product(how, x, b, width, words, row.c)

    return block_of_one
