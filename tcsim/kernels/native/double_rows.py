"""Rows of a tile in float64 lanes: the passes of an aligned block, and what all kinds of blocks share.

A product of two narrow operands is exact in float64. Cutting a term at 2^q is an addition: |t| < s = 2^(52 + q), so t + s·sgn(t) has a
last place of 2^q, and the processor's rounding (toward zero but for terms that round otherwise) cuts it; taking s away again is
exact. So is the sum of a block, as long as its terms span less than 53 bits; where they may span more, the output is marked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, noalias
from tcsim.codegen.scalar_ops import fused_multiply_add, wide_vectors
from tcsim.kernels.general.numbers import ANY_ZERO, ZERO_E, bits_of_float64, float64_of_bits
from tcsim.kernels.native.double_round import (
    DRAWN_SHARE,
    FIELD,
    MAGNITUDE,
    SIGN,
    near_pattern,
    numbers_of,
    round_double,
    round_lifted,
    rounded_pattern,
    settled,
    settled_pattern,
    sum_and_error,
)

# How terms are cut: by the processor's rounding, or by it toward zero and what is told in `add_cut_terms`.
MACHINE, AWAY, ODD, RANDOM, UNCUT, LIFTED = range(6)
FAR = np.int32(1 << 24)
WORD_GROUPS = 4  # of four blocks, whose words a row has room for
NUMBER = np.int64((52 + 1023) << 52)  # with 32 bits below, the pattern of 2^52 + them


class DoubleRow(NamedTuple):
    """Pointers to the columns of a row: the sums, and room for a block's passes."""

    c: Any  # float64: the unit's values
    late: Any  # float64: a c that is added later
    bad: Any  # int64: not computed here
    marks: Any  # int64: scratch
    top: Any  # int32: the largest exponent
    other: Any  # int32: that of odd places, where even and odd ones are summed apart
    least: Any  # int32: the least place of a term
    scale: Any  # float64: s of the column's block
    total: Any  # float64
    other_total: Any  # float64
    words: Any  # int64 [4·WORD_GROUPS·width]: the random words of four blocks' results, or of more
    term_words: Any  # int64 [(1 + block)·4·width]: of their terms, c's first; or of the operations of a tree
    tree: Any  # float64: the numbers of a tree, or other sums
    width: int
    near: int  # whether no product leaves float64's normal numbers
    given: int  # whether c is the one that is given, of all its bits


@inline
def with_sign(x, sign_of):
    """|x| with another's sign, x >= 0."""
    return float64_of_bits(bits_of_float64(x) | bits_of_float64(sign_of) & SIGN)


@noalias
def start_exponents(c, width, emin, mantissa, deep, top, least):
    """c as the first term; its least place where sums are deep."""
    wide_vectors()
    if deep:
        for j in range(width):
            magnitude = bits_of_float64(c[j]) & MAGNITUDE
            least[j] = FAR if magnitude == 0 else np.int32(max((magnitude >> 52) - 1023, emin) - mantissa)
    for j in range(width):
        magnitude = bits_of_float64(c[j]) & MAGNITUDE
        top[j] = np.int32(ZERO_E if magnitude == 0 else max((magnitude >> 52) - 1023, emin))


@noalias
def mark_negative_zeros(c, width, top, bad):
    """Marks a c of -0 with products that are all zero, before a floor hides it: the sum is -0 if they are."""
    wide_vectors()
    for j in range(width):
        minus = (np.int64(top[j]) <= ANY_ZERO) & (bits_of_float64(c[j]) == SIGN)
        bad[j] |= np.int64(1) if minus else np.int64(0)


@noalias
def scales_of(width, fraction, tame, deep, room, top, least, scale, bad):
    """s of each column; marks what leaves the exponents or the bits of float64: no exponent of tame formats, no bit of cut terms."""
    wide_vectors()
    if tame and not deep:
        for j in range(width):
            place = max(top[j], np.int32(-900)) + np.int32(52 + 1023 - fraction)
            scale[j] = float64_of_bits(np.int64(place) << 52)
        return
    for j in range(width):
        e = np.int64(top[j])
        some = e > ANY_ZERO
        e = max(e, np.int64(-900))
        scale[j] = float64_of_bits((e - fraction + 52 + 1023) << 52)
        far = (np.int64(top[j]) > 900) | (some & (np.int64(top[j]) < -900))
        narrow = some & (deep != 0) & ((e - np.int64(least[j]) > room) | (e - fraction > np.int64(least[j])))
        bad[j] |= np.int64(1) if far | narrow else np.int64(0)


@inline
def power_of_two(exponent):
    """2^exponent, a normal number."""
    return float64_of_bits((np.int64(exponent) + 1023) << 52)


@inline
def power_below(x):
    """The power of two in a normal number, 0 for none."""
    return float64_of_bits(bits_of_float64(x) & FIELD)


@inline
def larger(x, y):
    return x if x > y else y


@inline
def power_of_four(e0, e1, e2, e3):
    """2 to the largest of four exponents, 2^-900 at least."""
    low, high = max(np.int32(e0), np.int32(e1)), max(np.int32(e2), np.int32(e3))
    return power_of_two(max(max(low, high), np.int32(-900)))


@inline
def cut_lane(t, s, kind):
    """t cut at 2^-52·s."""
    size = float64_of_bits(bits_of_float64(t) & MAGNITUDE)
    if kind == AWAY:
        size = size + s * 2.0**-53
    raised = size + s
    if kind == ODD:
        bits = bits_of_float64(raised)
        raised = float64_of_bits(bits | (np.int64(1) if raised - s != size else np.int64(0)))
    return with_sign(raised - s, t)


@inline
def cut_by_word(t, s, word):
    """t cut at 2^-52·s by 32 random bits, the processor truncating; `word` is the pattern of 2^52 + them.

    They are a fraction of the last place, in units of 2^-84·s. They are added to |t| as 2^52 + word, and 2^-32·s less than s after it.
    """
    size = float64_of_bits(bits_of_float64(t) & MAGNITUDE)
    raised = fused_multiply_add(float64_of_bits(word), s * 2.0**-84, size) + (s - s * 2.0**-32)
    return with_sign(raised - s, t)


@inline
def cut_by_machine(t, s):
    s = with_sign(s, t)
    return (t + s) - s


@noalias
def start_total(c, width, kind, scale, total):
    """c as the first term of the sum."""
    wide_vectors()
    if kind == MACHINE:
        for j in range(width):
            total[j] = cut_by_machine(c[j], scale[j])
    elif kind == AWAY:
        for j in range(width):
            total[j] = cut_lane(c[j], scale[j], AWAY)
    elif kind == ODD:
        for j in range(width):
            total[j] = cut_lane(c[j], scale[j], ODD)
    else:
        for j in range(width):
            total[j] = c[j]


@noalias
def start_by_words(c, width, words, scale, total):
    """The same by random words."""
    wide_vectors()
    for j in range(width):
        total[j] = cut_by_word(c[j], scale[j], words[j])


@inline
def without_sign_of_zero(x):
    """x, +0 for a zero."""
    return float64_of_bits(bits_of_float64(x) & -np.int64(x != 0.0))


@noalias
def round_normal(how, total, width, words, c):
    """c = the sums rounded as normal numbers by masks; not 0 where some is none, or becomes infinite."""
    wide_vectors()
    how, lost = numbers_of(how), np.int64(0)
    if how.plus == how.minus and how.odd_ones == 0 and how.positive != DRAWN_SHARE:
        for j in range(width):
            c[j] = settled_pattern(near_pattern(without_sign_of_zero(total[j]), how), how, False)
            lost |= np.int64(1) if (c[j] == np.inf) & (abs(total[j]) < np.inf) else np.int64(0)
    else:
        for j in range(width):
            found = rounded_pattern(without_sign_of_zero(total[j]), 0.0, how, words[j])
            c[j] = settled_pattern(found, how, False)
            lost |= np.int64(1) if (c[j] == np.inf) & (abs(total[j]) < np.inf) else np.int64(0)
    return lost


@noalias
def round_everywhere(how, way, total, width, words, c):
    """c = the rounded sums."""
    wide_vectors()
    how = numbers_of(how)
    if way == MACHINE and how.plus == how.minus and how.odd_ones == 0:
        for j in range(width):
            c[j] = settled_pattern(near_pattern(without_sign_of_zero(total[j]), how), how, False)
    elif way == MACHINE:
        for j in range(width):
            c[j] = settled_pattern(rounded_pattern(without_sign_of_zero(total[j]), 0.0, how), how, False)
    elif way == LIFTED:
        for j in range(width):
            exact = total[j] if total[j] == total[j] else np.inf  # NaN is what became of an infinite c
            c[j] = round_lifted(how, without_sign_of_zero(exact), 0.0, words[j])
    else:
        for j in range(width):
            x = round_double(how, total[j], 0.0, 0.0, words[j])
            x = 0.0 if total[j] == 0.0 else x
            c[j] = settled(total[j], x, how, False)


@no_refcount
def round_totals(how, way, total, width, words, c):
    """c = the rounded sums; a sum of zero is +0. Where masks do not round what is below the normal numbers, few lines hold such sums."""
    if way != LIFTED or round_normal(how, total, width, words, c):
        round_everywhere(how, way, total, width, words, c)


@noalias
def round_by_words(how, total, width, words, c):
    """The same stochastically, to 21 bits or more."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        found = bits_of_float64(without_sign_of_zero(total[j])) + (words[j] >> (32 - how.drop))
        c[j] = settled_pattern(found & ~how.ones, how, False)


@no_refcount
def round_any(how, way, total, width, words, c):
    """In any of the ways."""
    if way == RANDOM:
        round_by_words(how, total, width, words, c)
    else:
        round_totals(how, way, total, width, words, c)


@noalias
def add_kept(how, way, late, width, c):
    """c = a late c + the instruction's result, rounded once to nearest-even in more than 24 bits."""
    wide_vectors()
    how = numbers_of(how)
    if way == MACHINE:
        for j in range(width):
            s, e = sum_and_error(late[j], c[j])
            c[j] = settled_pattern(rounded_pattern(s, e, how), how, False)
    elif way == LIFTED:
        for j in range(width):
            s, e = sum_and_error(late[j], c[j])
            c[j] = round_lifted(how, s, e, np.int64(0))
    elif how.kept == 53:
        for j in range(width):
            c[j] = settled_pattern(bits_of_float64(late[j] + c[j]), how, False)
    else:
        for j in range(width):
            s, e = sum_and_error(late[j], c[j])
            c[j] = settled(s, round_double(how, s, e, 0.0, np.int64(0)), how, False)


@noalias
def add_kept_anywhere(how, way, down, late, width, c):
    """`add_kept` to at most 24 bits, with the processor rounding in any direction: of two such numbers float64's own sum is no tie and hides
    none, but `down` a zero's sign. A sum below the normal numbers is exact."""
    wide_vectors()
    how = numbers_of(how)
    for j in range(width):
        s = -(-late[j] - c[j]) if down else late[j] + c[j]
        near = near_pattern(s, how)
        if way == LIFTED:
            pattern = bits_of_float64(s)
            found = pattern if pattern & MAGNITUDE < how.lift else near
            size = found & MAGNITUDE
            found = found & SIGN if size < how.normal else found
            c[j] = np.inf if size >= how.beyond else float64_of_bits(found)
        else:
            c[j] = settled_pattern(near, how, False)


@noalias
def round_to_half(sign, width, c):
    """c rounded to float16 to nearest-even; `sign` is the mask of a zero's sign, 0 where it is +0. Infinity where it is too large."""
    wide_vectors()
    for j in range(width):
        bits = bits_of_float64(c[j])
        size = float64_of_bits(bits & MAGNITUDE)
        guard = float64_of_bits(max(bits & FIELD, np.int64((1023 - 14) << 52)) + np.int64(42 << 52))
        size = (size + guard) - guard
        found = bits_of_float64(size) | (bits & (sign | (-np.int64(size != 0.0) & SIGN)))
        c[j] = float64_of_bits(found) if size < 65536.0 else np.inf


@noalias
def put_aside(width, zero, c, late):
    """The instruction starts from zero, of either sign, and c is kept."""
    wide_vectors()
    for j in range(width):
        late[j], c[j] = c[j], zero
