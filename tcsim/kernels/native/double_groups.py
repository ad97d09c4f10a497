"""Exact groups of products as the terms of an aligned sum, in float64 lanes.

A group is summed exactly, times its scales, and aligns by their exponents alone, so that it may reach far above the largest of them. A
term of 2^(52 + q) or more has no bits below 2^q; where there are such, sums are kept in two float64, of multiples of 2^(q + 30) and
of what is below.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, noalias, routine
from tcsim.codegen.memory import ahead
from tcsim.codegen.scalar_ops import fused_multiply_add, use_rounding, wide_vectors
from tcsim.codegen.vector_ops import NEAREST
from tcsim.kernels.general.numbers import FINITE, ZERO_E, bits_of_float64, to_float64
from tcsim.kernels.general.panel import block_scale
from tcsim.kernels.native.double_round import (
    numbers_of,
    round_double,
    round_lifted,
    rounded_pattern,
    settled,
    settled_pattern,
    sum_and_error,
)
from tcsim.kernels.native.double_rows import (
    AWAY,
    LIFTED,
    MACHINE,
    ODD,
    RANDOM,
    cut_by_machine,
    cut_by_word,
    cut_lane,
    mark_negative_zeros,
    scales_of,
    start_by_words,
    start_exponents,
    start_total,
    without_sign_of_zero,
)


@inline
def span_of(x, emin, mantissa, least, most):
    """The least place and the largest exponent of numbers, x among them."""
    place = max((bits_of_float64(x) >> 52 & 0x7FF) - 1023, emin)
    return min(least, place - mantissa), max(most, place)


@routine
def mark_groups(spec, scales, side, t, first, count, ks, blocks, starts, forms, values, pitch, g, h, z, s):
    """Scales, nonzero elements and spans of the groups of rows (side 0) or columns (1)."""
    columns = side == 1
    emin, mantissa = forms
    for block in range(blocks):
        for p in range(starts[block], starts[block + 1], spec.group):
            last = min(p + spec.group, starts[block + 1])
            for i in range(count):
                at_scale = ks[p] // spec.scale_block
                sig, e, bad = (
                    block_scale(scales, t, at_scale, first + i, spec)
                    if columns
                    else block_scale(scales, t, first + i, at_scale, spec)
                )
                here, ones, least, most = (
                    (p * pitch + i if columns else i * pitch + p),
                    np.int64(0),
                    np.int64(1 << 20),
                    np.int64(-(1 << 20)),
                )
                for q in range(p, last):
                    x = values[q * pitch + i if columns else i * pitch + q]
                    if x != 0.0:
                        ones |= np.int64(1) << (q - p)
                        least, most = span_of(x, emin, mantissa, least, most)
                g[here] = to_float64(sig, e, np.int64(0), np.int64(FINITE), spec.scale.mantissa + 1)
                h[here], z[here] = np.int32(e), np.int64(0) if sig == 0 or bad else ones
                s[here] = np.int32(most - least + 1 if ones else 0)


@noalias
def sum_group(a, b, count, pitch, width, total):
    """The exact sum of `count` products."""
    wide_vectors()
    x = a[0]
    for j in range(width):
        total[j] = x * b[j]
    for p in range(1, count):
        x, first = a[p], p * pitch
        for j in range(width):
            total[j] = fused_multiply_add(x, b[first + j], total[j])


@noalias
def scale_group(scale, e, mine, span, scales, es, theirs, spans, most, width, total, top, none, bad):
    """The sum times its scales; the largest exponent of groups that are not zero, and whether one is; marks sums too long to be exact."""
    wide_vectors()
    for j in range(width):
        zero = mine & theirs[j] == 0
        total[j] = total[j] * (scale * scales[j])
        top[j] = max(top[j], np.int32(ZERO_E) if zero else np.int32(e + es[j]))
        none[j] |= np.int64(1) if zero else np.int64(0)
        bad[j] |= np.int64(1) if span + spans[j] > most else np.int64(0)


@noalias
def raise_where_zero(c, none, width, floor, top):
    """A block with a zero term aligns at the floor at least."""
    wide_vectors()
    for j in range(width):
        top[j] = max(top[j], floor) if (c[j] == 0.0) | (none[j] != 0) else top[j]


@inline
def cut_any(t, s, kind, word):
    """A term cut at 2^-52·s, which may be longer than that."""
    cut = cut_by_machine(t, s) if kind == MACHINE else cut_by_word(t, s, word) if kind == RANDOM else cut_lane(t, s, kind)
    return t if abs(t) >= s else cut


@inline
def add_in_two(cut, s, high, low):
    upper = cut_by_machine(cut, s * 2.0**30)
    return high + upper, low + (cut - upper)


@noalias
def add_groups(kind, groups, pitch, width, terms, words, word_pitch, scale, total, high):
    """Add the cut groups to the two parts of the sum."""
    wide_vectors()
    for j in range(width):
        high[j] = 0.0
    for g in range(groups):
        first, drawn = g * pitch, g * word_pitch
        if kind == MACHINE:
            for j in range(width):
                high[j], total[j] = add_in_two(
                    cut_any(terms[first + j], scale[j], MACHINE, np.int64(0)), scale[j], high[j], total[j]
                )
        elif kind == AWAY:
            for j in range(width):
                high[j], total[j] = add_in_two(
                    cut_any(terms[first + j], scale[j], AWAY, np.int64(0)), scale[j], high[j], total[j]
                )
        elif kind == ODD:
            for j in range(width):
                high[j], total[j] = add_in_two(
                    cut_any(terms[first + j], scale[j], ODD, np.int64(0)), scale[j], high[j], total[j]
                )
        else:
            for j in range(width):
                cut = cut_any(terms[first + j], scale[j], RANDOM, words[drawn + j])
                high[j], total[j] = add_in_two(cut, scale[j], high[j], total[j])


@noalias
def round_two(how, way, high, low, width, words, c):
    """c = the rounded sums of two parts; a sum of zero is +0."""
    wide_vectors()
    how = numbers_of(how)
    if way == MACHINE:
        for j in range(width):
            s, e = sum_and_error(high[j], low[j])
            c[j] = settled_pattern(rounded_pattern(without_sign_of_zero(s), e, how), how, False)
    elif way == LIFTED:
        for j in range(width):
            s, e = sum_and_error(high[j], low[j])
            c[j] = round_lifted(how, without_sign_of_zero(s), e, words[j])
    else:
        for j in range(width):
            s, e = sum_and_error(high[j], low[j])
            c[j] = settled(s, 0.0 if s == 0.0 else round_double(how, s, e, 0.0, words[j]), how, False)


@no_refcount
def block_of_groups(spec, unit, sides, r, block, p0, steps, word, width, row):
    """One block of exact groups."""
    start_exponents(row.c, width, spec.out.emin, spec.out.mantissa, 0, row.top, row.least)
    for j in range(width):
        row.marks[j] = 0
    if unit.machine != NEAREST:
        use_rounding(np.int64(NEAREST))
    for g in range(-(-steps // spec.group)):
        p = p0 + g * spec.group
        term, at_a, at_b = ahead(row.tree, g * row.width), r * sides.deep + p, p * sides.wide
        sum_group(ahead(sides.a, at_a), ahead(sides.b, at_b), min(spec.group, steps - g * spec.group), sides.wide, width, term)
        scale_group(
            sides.ga[at_a], sides.ha[at_a], sides.za[at_a], sides.sa[at_a], ahead(sides.gb, at_b), ahead(sides.hb, at_b),
            ahead(sides.zb, at_b), ahead(sides.sb, at_b), np.int32(unit.room), width, term, row.top, row.marks, row.bad,
        )  # fmt: skip
    if unit.machine != NEAREST:
        use_rounding(unit.machine)
    if spec.ieee_zero:
        mark_negative_zeros(row.c, width, row.top, row.bad)
    if unit.floored:
        raise_where_zero(row.c, row.marks, width, np.int32(unit.floor), row.top)
    scales_of(width, unit.fraction, unit.tame, 0, 0, row.top, row.least, row.scale, row.bad)
    if unit.cut == RANDOM:
        start_by_words(row.c, width, ahead(row.term_words, word * row.width), row.scale, row.total)
    else:
        start_total(row.c, width, unit.cut, row.scale, row.total)
    drawn, high = ahead(row.term_words, (4 + word) * row.width), row.other_total
    add_groups(unit.cut, -(-steps // spec.group), row.width, width, row.tree, drawn, 4 * row.width, row.scale, row.total, high)
    if unit.machine != NEAREST:
        use_rounding(np.int64(NEAREST))
    round_two(unit.how, unit.way, high, row.total, width, ahead(row.words, word * row.width), row.c)
    if unit.machine != NEAREST:
        use_rounding(unit.machine)
