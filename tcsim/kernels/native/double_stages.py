"""CDNA3's sum in two stages in float64 lanes: products truncated among themselves, their sum and c floored against each other.

With the processor rounding toward zero, (x + s) - s is the floor of x to a multiple of 2^q for s = 1.5·2^(52 + q) and |x| < 2^(51 + q),
the sum being positive; s with the sign of x truncates. All else is exact, as the unit's counts are bounded (`double_plan`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, noalias, variant
from tcsim.codegen.memory import ahead
from tcsim.codegen.scalar_ops import fused_multiply_add, wide_vectors
from tcsim.kernels.general.numbers import ANY_ZERO, ZERO_E, bits_of_float64, float64_of_bits
from tcsim.kernels.native.double_round import MAGNITUDE, SIGN
from tcsim.kernels.native.double_rows import (
    FAR,
    cut_by_machine,
    larger,
    power_below,
    power_of_four,
    power_of_two,
    round_any,
    round_totals,
)
from tcsim.kernels.native.double_terms import add_fours, largest_exponents32, least_places32

NOTHING = 2.0**-899  # a product's exponent below this had a zero factor


@inline
def floor_at(x, q):
    """The floor of x to a multiple of 2^q, |x| < 2^(51 + q)."""
    s = float64_of_bits(((q + np.int64(52 + 1023)) << 52) | np.int64(1 << 51))
    return (x + s) - s


@noalias
def start_places(width, top, least):
    """No exponent and no place yet."""
    wide_vectors()
    for j in range(width):
        top[j], least[j] = np.int32(ZERO_E), FAR


@noalias
def start_products(width, fraction, top, scale, total):
    """s of the products' own alignment; their sum is zero."""
    wide_vectors()
    for j in range(width):
        scale[j] = float64_of_bits((max(np.int64(top[j]), np.int64(-900)) - fraction + 52 + 1023) << 52)
        total[j] = 0.0


@noalias
def add_some(a, b, first, count, stride, pitch, width, deep, scale, total):
    """Add every stride-th product from `first`, truncated; of `deep` ones as they are."""
    wide_vectors()
    for p in range(first, count, stride):
        x, at = a[p], p * pitch
        if deep:
            for j in range(width):
                total[j] = fused_multiply_add(x, b[at + j], total[j])
        else:
            for j in range(width):
                total[j] += cut_by_machine(x * b[at + j], scale[j])


@no_refcount
def sum_products(spec, unit, a, ea, b, eb, count, stride, pitch, width, top, least, scale, total):
    """The largest exponent of every stride-th product and the sum of them, each truncated to a multiple of 2^(top - fraction); with
    `deep`, as they are, and the least place of one that is not zero."""
    start_places(width, top, least)
    largest_exponents32(ea, eb, count, stride, pitch, width, top)
    if unit.deep:
        least_places32(ea, eb, count, stride, pitch, width, np.int32(spec.weight), least)
    start_products(width, unit.fraction, top, scale, total)
    fours = np.int64(0) if unit.deep else (count + stride - 1) // stride // 4 * 4 * stride
    add_fours(a, b, fours, stride, pitch, width, scale, total)
    add_some(a, b, fours, count, stride, pitch, width, unit.deep, scale, total)


@noalias
def add_halves(fraction, top, total, other, sums, width):
    """total = the floors of two sums at their common exponent, which becomes `top`."""
    wide_vectors()
    for j in range(width):
        top[j] = max(top[j], other[j])
        q = max(np.int64(top[j]), np.int64(-900)) - fraction
        total[j] = floor_at(total[j], q) + floor_at(sums[j], q)


class Powers(NamedTuple):
    """The numbers of a unit whose sums are not deep, where exponents are powers of two: no product leaves those from -900 to 900."""

    least: float  # the power of the least exponent of c
    limit: float  # products from which on others compute
    of_cut: float  # what s is of the power at which products align,
    of_products: float  # what is added to floor their sum at the common power,
    of_c: float  # c,
    of_sum: float  # and the sum of both
    reach: float  # c below so much of the common power is lost
    signed_zero: bool


@inline
def powers_of(spec, unit):
    reach = 2.0 ** -(unit.fraction + 1) if spec.parity else 0.0
    least, limit = (
        float64_of_bits((np.int64(spec.out.emin) + 1023) << 52),
        float64_of_bits((np.int64(spec.out.emax) + 1023) << 52),
    )
    cut = 2.0 ** (52 - unit.fraction)
    return Powers(
        least, limit, cut, 1.5 * 2.0 ** (51 - unit.late), 1.5 * cut, 1.5 * 2.0 ** (52 - unit.late), reach, spec.ieee_zero != 0
    )


@inline
def floored_sum(one, products, total, c):
    """(the floored sum of c and the products' sum, which align at the power `products`; whether others must compute it)."""
    mine = larger(power_below(c), one.least)
    place = larger(products, mine)
    at_products, at_c = place * one.of_products, place * one.of_c
    cut = (c + at_c) - at_c
    both = ((total + at_products) - at_products) + (cut if mine >= place * one.reach else 0.0)
    at_sum = larger(power_below(both), one.least) * one.of_sum
    far = (products >= one.limit) | (one.signed_zero & (products < NOTHING) & (bits_of_float64(c) == SIGN))
    return (both + at_sum) - at_sum, np.int64(1) if far else np.int64(0)


@noalias
def add_floored_c(spec, unit, scale, other, width, total, c, bad):
    """total = the floored sum of the products' sum and c, where products align as the larger of `scale` and `other` tells; marks what is not
    proved, and a c of -0 whose products are all zero."""
    wide_vectors()
    one, down = powers_of(spec, unit), power_of_two(unit.fraction - 52)
    for j in range(width):
        total[j], far = floored_sum(one, larger(scale[j], other[j]) * down, total[j], c[j])
        bad[j] |= far


@noalias
def sum_four_in_stages(spec, unit, a, ea, b, eb, pitch, width, total, c, bad):
    """total = the sum of c and four products, which is not deep, in one pass."""
    wide_vectors()
    one = powers_of(spec, unit)
    x0, x1, x2, x3, e0, e1, e2, e3 = a[0], a[1], a[2], a[3], ea[0], ea[1], ea[2], ea[3]
    for j in range(width):
        j1, j2, j3 = j + pitch, j + 2 * pitch, j + 3 * pitch
        products = power_of_four(e0 + eb[j], e1 + eb[j1], e2 + eb[j2], e3 + eb[j3])
        s = products * one.of_cut
        first = cut_by_machine(x0 * b[j], s) + cut_by_machine(x1 * b[j1], s)
        last = cut_by_machine(x2 * b[j2], s) + cut_by_machine(x3 * b[j3], s)
        total[j], far = floored_sum(one, products, first + last, c[j])
        bad[j] |= far


@noalias
def add_deep_c(spec, unit, top, least, width, total, c, bad):
    """total = the floored sum of the products' sum and c, of uncut products; marks what is not proved, and a c of -0 whose products are all zero."""
    wide_vectors()
    late, fraction, fine, emin, parity = unit.late, unit.fraction, unit.fine, spec.out.emin, spec.parity
    mantissa, limit, room, ieee = spec.out.mantissa, spec.out.emax, unit.room, spec.ieee_zero
    for j in range(width):
        magnitude = bits_of_float64(c[j]) & MAGNITUDE
        ce, e = max((magnitude >> 52) - 1023, emin), np.int64(top[j])
        some = e > ANY_ZERO
        e = e if some else np.int64(-(1 << 14))
        emax = max(e, ce)
        far = (emax > 900) | (emax < -900) | (some & (e >= limit))
        far |= some & (e - np.int64(least[j]) > room) | (fraction > fine) & (magnitude != 0) & (ce - mantissa < emax - fine)
        far |= (ieee != 0) & (some == False) & (bits_of_float64(c[j]) == SIGN)  # noqa: E712
        emax = min(max(emax, np.int64(-900)), np.int64(900))
        near = (parity == 0) | (ce >= emax - fraction - 1)
        both = floor_at(total[j], emax - late - 1) + (floor_at(c[j], emax - fine) if near else 0.0)
        place = max(((bits_of_float64(both) & MAGNITUDE) >> 52) - 1023, emin) - late
        total[j] = floor_at(both, max(place, np.int64(-950)))
        bad[j] |= np.int64(1) if far else np.int64(0)


@no_refcount
def sum_any(spec, unit, a, ea, b, eb, steps, apart, pitch, width, row):
    """row.total = the sum of c and products, even and odd ones `apart` or together."""
    stride, other = np.int64(2 if apart else 1), row.scale
    sum_products(spec, unit, a, ea, b, eb, steps, stride, pitch, width, row.top, row.least, row.scale, row.total)
    if apart:
        a, ea, b, eb, other = ahead(a, 1), ahead(ea, 1), ahead(b, pitch), ahead(eb, pitch), row.other_total
        sum_products(spec, unit, a, ea, b, eb, steps - 1, stride, pitch, width, row.other, row.least, other, row.late)
        add_halves(unit.fraction, row.top, row.total, row.other, row.late, width)
    if unit.deep:
        add_deep_c(spec, unit, row.top, row.least, width, row.total, row.c, row.bad)
    else:
        add_floored_c(spec, unit, row.scale, other, width, row.total, row.c, row.bad)


def block_in_stages(draws):
    """One block of a two-stage sum, of units that may draw words or of others."""

    @no_refcount
    @variant(draws)
    def block_in_stages(spec, unit, sides, r, block, p0, steps, word, width, row):
        a, ea = ahead(sides.a, r * sides.deep + p0), ahead(sides.ea, r * sides.deep + p0)
        b, eb, pitch = ahead(sides.b, p0 * sides.wide), ahead(sides.eb, p0 * sides.wide), sides.wide
        apart = spec.parity != 0 and not unit.deep
        if steps == 4 and not unit.deep and not apart:
            sum_four_in_stages(spec, unit, a, ea, b, eb, pitch, width, row.total, row.c, row.bad)
        else:
            sum_any(spec, unit, a, ea, b, eb, steps, apart, pitch, width, row)
        if draws:
            round_any(unit.how, unit.way, row.total, width, ahead(row.words, word * row.width), row.c)
        else:
            round_totals(unit.how, unit.way, row.total, width, row.words, row.c)

    return block_in_stages
