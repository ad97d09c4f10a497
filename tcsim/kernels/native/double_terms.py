"""The passes of an aligned block in float64 lanes whose terms are single products."""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, noalias, variant
from tcsim.codegen.memory import ahead
from tcsim.codegen.scalar_ops import fused_multiply_add, wide_vectors
from tcsim.kernels.general.numbers import ANY_ZERO
from tcsim.kernels.native.double_kinds import SumKind
from tcsim.kernels.native.double_quick import sum_quickly
from tcsim.kernels.native.double_rows import (
    AWAY,
    FAR,
    MACHINE,
    ODD,
    RANDOM,
    UNCUT,
    cut_by_machine,
    cut_by_word,
    cut_lane,
    larger,
    mark_negative_zeros,
    power_below,
    power_of_four,
    power_of_two,
    round_any,
    round_totals,
    scales_of,
    start_by_words,
    start_exponents,
)
from tcsim.kernels.native.double_tree import copy_line


@noalias
def largest_exponents32(ea, eb, steps, stride, pitch, width, top):
    """top[j] the largest sum of exponents of every stride-th product, four at a time; the last ones more than once."""
    wide_vectors()
    last = (steps - 1) // stride * stride
    for p in range(0, steps, 4 * stride):
        q0, q1, q2, q3 = p, min(p + stride, last), min(p + 2 * stride, last), min(p + 3 * stride, last)
        x0, x1, x2, x3 = ea[q0], ea[q1], ea[q2], ea[q3]
        q0, q1, q2, q3 = q0 * pitch, q1 * pitch, q2 * pitch, q3 * pitch
        for j in range(width):
            low = max(np.int32(x0 + eb[q0 + j]), np.int32(x1 + eb[q1 + j]))
            high = max(np.int32(x2 + eb[q2 + j]), np.int32(x3 + eb[q3 + j]))
            top[j] = max(top[j], max(low, high))


@noalias
def least_places32(ea, eb, steps, stride, pitch, width, weight, least):
    """least[j] the least place of a nonzero product."""
    wide_vectors()
    for p in range(0, steps, stride):
        x, first = ea[p], p * pitch
        for j in range(width):
            e = np.int32(x + eb[first + j])
            least[j] = min(least[j], np.int32(e - weight) if e > np.int32(ANY_ZERO) else FAR)


@noalias
def raise_floor(c, zero_row, zero_columns, width, floor, top):
    """A block with a zero term aligns at the floor at least."""
    wide_vectors()
    for j in range(width):
        zero = (c[j] == 0.0) | ((zero_row | zero_columns[j]) != 0)
        top[j] = max(top[j], floor) if zero else top[j]


@noalias
def add_fours(a, b, steps, stride, pitch, width, scale, total):
    """Add every stride-th product of `steps` places, a multiple of four of them, cut by the processor."""
    wide_vectors()
    line = stride * pitch
    for p in range(0, steps, 4 * stride):
        x0, x1, x2, x3 = a[p], a[p + stride], a[p + 2 * stride], a[p + 3 * stride]
        for j in range(width):
            at, s = p * pitch + j, scale[j]
            low = cut_by_machine(x0 * b[at], s) + cut_by_machine(x1 * b[at + line], s)
            high = cut_by_machine(x2 * b[at + 2 * line], s) + cut_by_machine(x3 * b[at + 3 * line], s)
            total[j] += low + high


@noalias
def add_fours_by_words(a, b, steps, pitch, width, words, word_pitch, scale, total):
    """The same by random words."""
    wide_vectors()
    for p in range(0, steps, 4):
        x0, x1, x2, x3 = a[p], a[p + 1], a[p + 2], a[p + 3]
        for j in range(width):
            at, w, s = p * pitch + j, p * word_pitch + j, scale[j]
            low = cut_by_word(x0 * b[at], s, words[w]) + cut_by_word(x1 * b[at + pitch], s, words[w + word_pitch])
            high = cut_by_word(x2 * b[at + 2 * pitch], s, words[w + 2 * word_pitch])
            high += cut_by_word(x3 * b[at + 3 * pitch], s, words[w + 3 * word_pitch])
            total[j] += low + high


@noalias
def add_by_words(a, b, done, steps, pitch, width, words, word_pitch, scale, total):
    """Of places done … steps - 1."""
    wide_vectors()
    for p in range(done, steps):
        x, first, drawn = a[p], p * pitch, p * word_pitch
        for j in range(width):
            total[j] += cut_by_word(x * b[first + j], scale[j], words[drawn + j])


@inline
def cut_of(kind, t, s, word):
    """A term cut in one of the ways, a constant."""
    if kind == MACHINE:
        return cut_by_machine(t, s)
    return cut_by_word(t, s, word) if kind == RANDOM else cut_lane(t, s, kind)


def start_of(kind):
    """c as the first term of the sum, cut in one way."""

    @noalias
    @variant(kind)
    def start(c, width, scale, total):
        wide_vectors()
        for j in range(width):
            total[j] = cut_of(kind, c[j], scale[j], np.int64(0))

    return start


def add_terms_of(kind):
    """Add the products of places done … steps - 1, each cut in one way, or not."""

    @noalias
    @variant(kind)
    def add_terms(a, b, done, steps, pitch, width, scale, total):
        wide_vectors()
        for p in range(done, steps):
            x, first = a[p], p * pitch
            for j in range(width):
                if kind == UNCUT:
                    total[j] = fused_multiply_add(x, b[first + j], total[j])
                else:
                    total[j] += cut_of(kind, x * b[first + j], scale[j], np.int64(0))

    return add_terms


start_by_machine, start_away, start_odd = (start_of(kind) for kind in (MACHINE, AWAY, ODD))
add_by_machine, add_away, add_odd, add_uncut = (add_terms_of(kind) for kind in (MACHINE, AWAY, ODD, UNCUT))


def sum_four_of(kind):
    """The sum of c and four products of tame formats, each cut in one way, in one pass."""

    @noalias
    @variant(kind)
    def sum_four(fraction, emin, floor, floored, zero_row, zeros, a, ea, b, eb, pitch, width, words, word_pitch, c, total):
        wide_vectors()
        least, reach = power_of_two(emin), power_of_two(52 - fraction)
        floor, none = power_of_two(floor if floored else -900), np.int64(0)
        x0, x1, x2, x3, e0, e1, e2, e3 = a[0], a[1], a[2], a[3], ea[0], ea[1], ea[2], ea[3]
        for j in range(width):
            j1, j2, j3 = j + pitch, j + 2 * pitch, j + 3 * pitch
            w, w0, w1, w2, w3 = none, none, none, none, none
            if kind == RANDOM:
                w, w0, w1 = words[j], words[j + word_pitch], words[j + 2 * word_pitch]
                w2, w3 = words[j + 3 * word_pitch], words[j + 4 * word_pitch]
            mine, start = larger(power_below(c[j]), least), c[j]
            place = power_of_four(e0 + eb[j], e1 + eb[j1], e2 + eb[j2], e3 + eb[j3])
            place = larger(place, mine) if start != 0.0 else place
            if floored:
                place = larger(place, floor) if (start == 0.0) | ((zero_row | zeros[j]) != 0) else place
            s = place * reach
            low = cut_of(kind, x0 * b[j], s, w0) + cut_of(kind, x1 * b[j1], s, w1)
            high = cut_of(kind, x2 * b[j2], s, w2) + cut_of(kind, x3 * b[j3], s, w3)
            total[j] = cut_of(kind, start, s, w) + (low + high)

    return sum_four


sum_four_by_machine, sum_four_away, sum_four_odd, sum_four_by_words = (
    sum_four_of(kind) for kind in (MACHINE, AWAY, ODD, RANDOM)
)


def four_terms(draws, told):
    """row.total = the sum of a block of four products, of units that may draw words or of others."""

    @no_refcount
    @variant(draws, told)
    def four_terms(spec, unit, a, ea, b, eb, zero_row, zeros, word, width, row, pitch):
        words, lines = ahead(row.term_words, word * row.width), 4 * row.width
        places = (unit.fraction, np.int64(spec.out.emin), unit.floor, unit.floored, zero_row, zeros)
        given = (a, ea, b, eb, pitch, width, words, lines, row.c, row.total)
        if not told:
            sum_four_by_machine(*places, *given)
        elif draws and unit.cut == RANDOM:
            sum_four_by_words(*places, *given)
        elif unit.cut == AWAY:
            sum_four_away(*places, *given)
        else:
            sum_four_odd(*places, *given)

    return four_terms


@no_refcount
def sum_by_machine(unit, a, b, steps, width, sides, row):
    """The sum of c and the products, cut by the processor."""
    done = steps & ~np.int64(3)
    start_by_machine(row.c, width, row.scale, row.total)
    add_fours(a, b, done, np.int64(1), sides.wide, width, row.scale, row.total)
    add_by_machine(a, b, done, steps, sides.wide, width, row.scale, row.total)


@no_refcount
def sum_as_told(unit, a, b, steps, width, sides, row):
    """The same cut away from zero at half, or to odd."""
    if unit.cut == AWAY:
        start_away(row.c, width, row.scale, row.total)
        add_away(a, b, np.int64(0), steps, sides.wide, width, row.scale, row.total)
    else:
        start_odd(row.c, width, row.scale, row.total)
        add_odd(a, b, np.int64(0), steps, sides.wide, width, row.scale, row.total)


@no_refcount
def sum_exactly(unit, a, b, steps, width, sides, row):
    """The same uncut."""
    copy_line(row.c, width, row.total)
    add_uncut(a, b, np.int64(0), steps, sides.wide, width, row.scale, row.total)


@no_refcount
def cut_terms_by_words(a, b, steps, word, width, sides, row):
    """The same with random words."""
    words, pitch, done = ahead(row.term_words, word * row.width), 4 * row.width, steps & ~np.int64(3)
    start_by_words(row.c, width, words, row.scale, row.total)
    words = ahead(words, pitch)
    add_fours_by_words(a, b, done, sides.wide, width, words, pitch, row.scale, row.total)
    add_by_words(a, b, done, steps, sides.wide, width, words, pitch, row.scale, row.total)


SUMS = {SumKind.TERMS: sum_by_machine, SumKind.TOLD_TERMS: sum_as_told, SumKind.EXACT_TERMS: sum_exactly}


def sum_of_terms(draws, kind):
    """row.total = the sum of a block of any size, of units that may draw words or of others."""
    by_words, deep, add_terms = draws and kind is SumKind.TOLD_TERMS, kind is SumKind.EXACT_TERMS, SUMS[kind]

    @no_refcount
    @variant(draws, kind.name)
    def sum_of_terms(spec, unit, a, ea, b, eb, zero_row, zeros, steps, word, width, sides, row):
        one = np.int64(1)
        start_exponents(row.c, width, spec.out.emin, spec.out.mantissa, unit.deep, row.top, row.least)
        largest_exponents32(ea, eb, steps, one, sides.wide, width, row.top)
        if deep:
            least_places32(ea, eb, steps, one, sides.wide, width, np.int32(spec.weight), row.least)
        if spec.ieee_zero:
            mark_negative_zeros(row.c, width, row.top, row.bad)
        if unit.floored:
            raise_floor(row.c, zero_row, zeros, width, np.int32(unit.floor), row.top)
        scales_of(width, unit.fraction, unit.tame, unit.deep, unit.room, row.top, row.least, row.scale, row.bad)
        if by_words and unit.cut == RANDOM:
            cut_terms_by_words(a, b, steps, word, width, sides, row)
        else:
            add_terms(unit, a, b, steps, width, sides, row)

    return sum_of_terms


def block_of_terms(draws, kind):
    """One block of an aligned sum, of units that may draw words or of others."""
    deep = kind is SumKind.EXACT_TERMS
    sum_four, sum_any = four_terms(draws, kind is SumKind.TOLD_TERMS), sum_of_terms(draws, kind)

    @no_refcount
    @variant(draws, kind.name)
    def block_of_terms(spec, unit, sides, r, block, p0, steps, word, width, row):
        if deep and unit.quick and sum_quickly(unit, sides, r, p0, steps, ahead(row.words, word * row.width), width, row):
            return
        a, ea = ahead(sides.a, r * sides.deep + p0), ahead(sides.ea, r * sides.deep + p0)
        b, eb = ahead(sides.b, p0 * sides.wide), ahead(sides.eb, p0 * sides.wide)
        zero_row, zeros = sides.za[r * sides.deep + block], ahead(sides.zb, block * sides.wide)
        if deep:
            sum_any(spec, unit, a, ea, b, eb, zero_row, zeros, steps, word, width, sides, row)
        elif steps == 4 and unit.tame and not spec.ieee_zero:
            sum_four(spec, unit, a, ea, b, eb, zero_row, zeros, word, width, row, sides.wide)
        else:
            sum_any(spec, unit, a, ea, b, eb, zero_row, zeros, steps, word, width, sides, row)
        if draws:
            round_any(unit.how, unit.way, row.total, width, ahead(row.words, word * row.width), row.c)
        else:
            round_totals(unit.how, unit.way, row.total, width, row.words, row.c)

    return block_of_terms
