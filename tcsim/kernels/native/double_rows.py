"""Rows of a tile in float64 lanes: the passes of an aligned block, and of the sum of one product and c.

A product of two narrow operands is exact in float64. Cutting a term at 2^q is an addition: |t| < s = 2^(52 + q), so t + s·sgn(t) has a
last place of 2^q, and the processor's rounding (toward zero but for terms that round otherwise) cuts it; taking s away again is
exact. So is the sum of a block, as long as its terms span less than 53 bits; where they may span more, the output is marked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.codegen.jit import inline, inline_ir, noalias
from tcsim.codegen.scalar_ops import fused_multiply_add, wide_vectors
from tcsim.kernels.general.numbers import ANY_ZERO, ZERO_E, bits_of_float64, float64_of_bits
from tcsim.kernels.native.double_round import LEAST, MAGNITUDE, MOST, SIGN, round_double, sum_and_error

# How terms are cut: by the processor's rounding, or by it toward zero and what is told in `add_cut_terms`.
MACHINE, AWAY, ODD, RANDOM, UNCUT = range(5)
_FAR = np.int32(1 << 24)


class DoubleRow(NamedTuple):
    """Pointers to the columns of a row: the sums, and room for a block's passes."""

    c: Any  # float64: the unit's values
    late: Any  # float64: a c that is added later
    bad: Any  # int64: not computed here
    top: Any  # int32: the largest exponent
    least: Any  # int32: the least place of a term
    scale: Any  # float64: s of the column's block
    total: Any  # float64
    words: Any  # float64 [4·width]: the random words of four blocks' results
    term_words: Any  # float64 [(1 + block)·4·width]: of their terms, c's first
    drawn: Any  # uint64 [4·width]: scratch
    width: int


@inline
def with_sign(x, sign_of):
    """|x| with another's sign, x >= 0."""
    return float64_of_bits(bits_of_float64(x) | bits_of_float64(sign_of) & SIGN)


@noalias
def words_as_floats(drawn, count, words):
    wide_vectors()
    for j in range(count):
        words[j] = np.float64(np.int64(drawn[j]))


@noalias
def start_exponents(c, width, emin, mantissa, top, least):
    """c as the first term."""
    wide_vectors()
    for j in range(width):
        magnitude = bits_of_float64(c[j]) & MAGNITUDE
        e = max((magnitude >> 52) - 1023, emin)
        zero = magnitude == 0
        top[j] = np.int32(ZERO_E if zero else e)
        least[j] = _FAR if zero else np.int32(e - mantissa)


@noalias
def largest_exponents32(ea, eb, steps, pitch, width, top):
    """top[j] the largest sum of exponents."""
    wide_vectors()
    for p in range(steps):
        x, first = ea[p], p * pitch
        for j in range(width):
            top[j] = max(top[j], np.int32(x + eb[first + j]))


@noalias
def least_places32(ea, eb, steps, pitch, width, weight, least):
    """least[j] the least place of a nonzero product."""
    wide_vectors()
    for p in range(steps):
        x, first = ea[p], p * pitch
        for j in range(width):
            e = np.int32(x + eb[first + j])
            least[j] = min(least[j], np.int32(e - weight) if e > np.int32(ANY_ZERO) else _FAR)


@noalias
def mark_negative_zeros(c, width, top, bad):
    """Marks a c of -0 with products that are all zero, before a floor hides it: the sum is -0 if they are."""
    wide_vectors()
    for j in range(width):
        minus = (np.int64(top[j]) <= ANY_ZERO) & (bits_of_float64(c[j]) == SIGN)
        bad[j] |= np.int64(1) if minus else np.int64(0)


@noalias
def raise_floor(c, zero_row, zero_columns, width, floor, top):
    """A block with a zero term aligns at the floor at least."""
    wide_vectors()
    for j in range(width):
        zero = (c[j] == 0.0) | ((zero_row | zero_columns[j]) != 0)
        top[j] = max(top[j], floor) if zero else top[j]


@noalias
def scales_of(width, fraction, deep, room, top, least, scale, bad):
    """s of each column; marks what leaves the exponents or the bits of float64."""
    wide_vectors()
    for j in range(width):
        e = np.int64(top[j])
        some = e > ANY_ZERO
        e = max(e, np.int64(-900))
        scale[j] = float64_of_bits((e - fraction + 52 + 1023) << 52)
        far = (np.int64(top[j]) > 900) | (some & (np.int64(top[j]) < -900))
        narrow = some & (deep != 0) & ((e - np.int64(least[j]) > room) | (e - fraction > np.int64(least[j])))
        bad[j] |= np.int64(1) if far | narrow else np.int64(0)


@inline
def cut_lane(t, s, kind, word):
    """t cut at 2^-52·s."""
    size = float64_of_bits(bits_of_float64(t) & MAGNITUDE)
    if kind == AWAY:
        size = size + s * 2.0**-53
    if kind == RANDOM:
        size = size + word * (s * 2.0**-84)
    raised = size + s
    if kind == ODD:
        bits = bits_of_float64(raised)
        raised = float64_of_bits(bits | (np.int64(1) if raised - s != size else np.int64(0)))
    return with_sign(raised - s, t)


@inline
def cut_by_machine(t, s):
    s = with_sign(s, t)
    return (t + s) - s


@noalias
def start_total(c, width, kind, words, scale, total):
    """c as the first term of the sum."""
    wide_vectors()
    if kind == MACHINE:
        for j in range(width):
            total[j] = cut_by_machine(c[j], scale[j])
    elif kind == AWAY:
        for j in range(width):
            total[j] = cut_lane(c[j], scale[j], AWAY, 0.0)
    elif kind == ODD:
        for j in range(width):
            total[j] = cut_lane(c[j], scale[j], ODD, 0.0)
    elif kind == RANDOM:
        for j in range(width):
            total[j] = cut_lane(c[j], scale[j], RANDOM, words[j])
    else:
        for j in range(width):
            total[j] = c[j]


@noalias
def add_cut_terms(a, b, steps, pitch, width, kind, words, word_pitch, scale, total):
    """Add the cut products of `steps` places."""
    wide_vectors()
    for p in range(steps):
        x, first, drawn = a[p], p * pitch, p * word_pitch
        if kind == MACHINE:
            for j in range(width):
                total[j] += cut_by_machine(x * b[first + j], scale[j])
        elif kind == AWAY:
            for j in range(width):
                total[j] += cut_lane(x * b[first + j], scale[j], AWAY, 0.0)
        elif kind == ODD:
            for j in range(width):
                total[j] += cut_lane(x * b[first + j], scale[j], ODD, 0.0)
        elif kind == RANDOM:
            for j in range(width):
                total[j] += cut_lane(x * b[first + j], scale[j], RANDOM, words[drawn + j])
        else:
            for j in range(width):
                total[j] = fused_multiply_add(x, b[first + j], total[j])


@inline
def settled(h, x, how, bad):
    """A result x of the sum h, and whether it is infinite or the sum below 2^-900 or above 2^900, which are computed elsewhere."""
    size = bits_of_float64(h) & MAGNITUDE
    far = ((bits_of_float64(x) & MAGNITUDE) >= how.beyond) | ((size < LEAST) & (size != 0)) | (size > MOST)
    return 0.0 if far else x, bad | (np.int64(1) if far else np.int64(0))


@noalias
def round_totals(how, total, width, words, c, bad):
    """c = the rounded sums; a sum of zero is +0."""
    wide_vectors()
    for j in range(width):
        x = round_double(how, total[j], 0.0, 0.0, words[j])
        x = 0.0 if total[j] == 0.0 else x
        c[j], bad[j] = settled(total[j], x, how, bad[j])


@noalias
def add_one_product(how, x, b, width, words, c, bad):
    """c + x·b rounded once, where x·b is exact in float64."""
    wide_vectors()
    for j in range(width):
        s, e = sum_and_error(c[j], x * b[j])
        c[j], bad[j] = settled(s, round_double(how, s, e, 0.0, words[j]), how, bad[j])


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
    """1 where a part of a product's error could leave float64's normal numbers."""
    p = bits_of_float64(product) & MAGNITUDE
    far = (p > MOST) | ((p < LEAST) & (p != 0)) | ((p == 0) & (x != 0.0) & (y != 0.0))
    return np.int64(far)


@noalias
def add_wide_product(how, x, b, width, words, c, bad):
    """c + x·b rounded once, of float64 numbers."""
    wide_vectors()
    for j in range(width):
        s, e, lowest, product = fused_and_error(x, b[j], c[j])
        far = far_product(x, b[j], product)
        c[j], bad[j] = settled(s, round_double(how, s, e, lowest, words[j]), how, bad[j] | far)


@inline
def settled_pattern(found, how, bad):
    """A rounded pattern as a number; infinite and subnormal ones, and `bad` ones, are computed elsewhere."""
    size = found & MAGNITUDE
    far = (size >= how.beyond) | ((size < how.least) & (size != 0))
    return float64_of_bits(np.int64(0) if far else found), bad | (np.int64(1) if far else np.int64(0))


@inline
def rounded_pattern(s, e, how):
    """The pattern of s + e rounded by masks: s is cut to odd where it is not exact, which rounds as the sum does."""
    pattern = bits_of_float64(s)
    cut = (pattern - (((pattern ^ bits_of_float64(e)) >> 63) & 1)) | 1
    pattern = cut if e != 0.0 else pattern
    more = (how.minus if pattern < 0 else how.plus) + ((pattern >> how.drop) & how.even)
    odd = how.cut_odd if pattern & how.ones != 0 else np.int64(0)
    return ((pattern + more) & ~how.ones) | odd


@noalias
def add_product_by_masks(how, x, b, width, c, bad):
    """c + x·b rounded once to a normal number of at most 50 bits, where x·b is exact in float64."""
    wide_vectors()
    for j in range(width):
        s, e = sum_and_error(c[j], x * b[j])
        c[j], bad[j] = settled_pattern(rounded_pattern(s, e, how), how, bad[j])


@inline
def drawn_pattern(s, e, lowest, how, word):
    """The pattern of s + e + lowest rounded stochastically, and whether another must: below a power of two the last places are closer.

    The discarded fraction to 32 bits is the integer below that of s's pattern with that of the error; with the word it carries, or borrows.
    """
    pattern = bits_of_float64(s)
    sign = pattern & SIGN
    error, least = float64_of_bits(bits_of_float64(e) ^ sign), float64_of_bits(bits_of_float64(lowest) ^ sign)
    e_field = (pattern >> 52) & 0x7FF
    scaled = error * float64_of_bits((np.int64(32 + 52 + 2 * 1023) - how.drop - e_field) << 52)
    part = np.floor(scaled)
    part = part - 1.0 if (part == scaled) & (least < 0.0) else part
    part = part if e != 0.0 else 0.0
    fraction = ((pattern & how.ones) << (32 - how.drop)) + np.int64(part) + np.int64(word)
    edge = (pattern & np.int64((1 << 52) - 1) == 0) & (error < 0.0)
    return (pattern & ~how.ones) + ((fraction >> 32) << how.drop), np.int64(1) if edge else np.int64(0)


@noalias
def add_product_by_words(how, x, b, width, words, c, bad):
    """c + x·b rounded stochastically to a normal number of 21 to 50 bits, where x·b is exact in float64."""
    wide_vectors()
    for j in range(width):
        s, e = sum_and_error(c[j], x * b[j])
        found, edge = drawn_pattern(s, e, 0.0, how, words[j])
        c[j], bad[j] = settled_pattern(found, how, bad[j] | edge)


@noalias
def add_wide_product_quickly(how, way, x, b, width, words, c, bad):
    """c + x·b of float64 numbers rounded once to all 53 bits: to odd, to nearest with ties away, or stochastically."""
    wide_vectors()
    if way == ODD:
        for j in range(width):
            s, e, lowest, product = fused_and_error(x, b[j], c[j])
            far = far_product(x, b[j], product)
            c[j], bad[j] = settled_pattern(rounded_pattern(s, e, how), how, bad[j] | far)
    elif way == AWAY:
        for j in range(width):
            s, e, lowest, product = fused_and_error(x, b[j], c[j])
            far = far_product(x, b[j], product)
            pattern, error = bits_of_float64(s), bits_of_float64(e)
            half = (((pattern >> 52) - 53) << 52) | (pattern & SIGN)  # of the last place, with the sign of s: a tie
            found = pattern + (np.int64(1) if (error == half) & (lowest == 0.0) else np.int64(0))
            c[j], bad[j] = settled_pattern(found, how, bad[j] | far)
    else:
        for j in range(width):
            s, e, lowest, product = fused_and_error(x, b[j], c[j])
            far = far_product(x, b[j], product)
            found, edge = drawn_pattern(s, e, lowest, how, words[j])
            c[j], bad[j] = settled_pattern(found, how, bad[j] | far | edge)


@noalias
def add_kept(how, late, width, c, bad):
    """c = a late c + the instruction's result, rounded once."""
    wide_vectors()
    for j in range(width):
        s, e = sum_and_error(late[j], c[j])
        c[j], bad[j] = settled(s, round_double(how, s, e, 0.0, 0.0), how, bad[j])


@noalias
def put_aside(width, zero, c, late):
    """The instruction starts from zero, of either sign, and c is kept."""
    wide_vectors()
    for j in range(width):
        late[j], c[j] = c[j], zero
