"""CDNA3's sum in two stages in float64 lanes: products truncated among themselves, their sum and c floored against each other.

With the processor rounding toward zero, (x + s) - s is the floor of x to a multiple of 2^q for s = 1.5·2^(52 + q) and |x| < 2^(51 + q),
the sum being positive; s with the sign of x truncates. All else is exact, as the unit's counts are bounded (`double_plan`).
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, noalias, variant
from tcsim.codegen.memory import ahead
from tcsim.codegen.scalar_ops import fused_multiply_add, wide_vectors
from tcsim.kernels.general.numbers import ANY_ZERO, ZERO_E, bits_of_float64, float64_of_bits
from tcsim.kernels.native.double_round import MAGNITUDE, SIGN
from tcsim.kernels.native.double_rows import FAR, cut_by_machine, round_any, round_totals


@inline
def floor_at(x, q):
    """The floor of x to a multiple of 2^q, |x| < 2^(51 + q)."""
    s = float64_of_bits(((q + np.int64(52 + 1023)) << 52) | np.int64(1 << 51))
    return (x + s) - s


@noalias
def places_of(ea, eb, count, stride, pitch, width, deep, weight, top, least):
    """top[j] the largest exponent of the products, and with `deep` least[j] the least place of one that is not zero."""
    wide_vectors()
    for j in range(width):
        top[j], least[j] = np.int32(ZERO_E), FAR
    for p in range(0, count, stride):
        x, first = ea[p], p * pitch
        for j in range(width):
            top[j] = max(top[j], np.int32(x + eb[first + j]))
    if deep:
        for p in range(0, count, stride):
            x, first = ea[p], p * pitch
            for j in range(width):
                e = np.int32(x + eb[first + j])
                least[j] = min(least[j], np.int32(e - weight) if e > np.int32(ANY_ZERO) else FAR)


@noalias
def cut_products(a, b, count, stride, pitch, width, deep, fraction, top, scale, total):
    """total[j] the sum of the products, each truncated to a multiple of 2^(top - fraction); of `deep` ones as they are."""
    wide_vectors()
    for j in range(width):
        scale[j] = float64_of_bits((max(np.int64(top[j]), np.int64(-900)) - fraction + 52 + 1023) << 52)
        total[j] = 0.0
    if deep:
        for p in range(0, count, stride):
            x, first = a[p], p * pitch
            for j in range(width):
                total[j] = fused_multiply_add(x, b[first + j], total[j])
    else:
        for p in range(0, count, stride):
            x, first = a[p], p * pitch
            for j in range(width):
                total[j] += cut_by_machine(x * b[first + j], scale[j])


@noalias
def add_halves(fraction, top, total, other, sums, width):
    """total = the floors of two sums at their common exponent, which becomes `top`."""
    wide_vectors()
    for j in range(width):
        top[j] = max(top[j], other[j])
        q = max(np.int64(top[j]), np.int64(-900)) - fraction
        total[j] = floor_at(total[j], q) + floor_at(sums[j], q)


@noalias
def add_floored_c(spec, unit, top, least, width, total, c, bad):
    """total = the floored sum of the products' sum and c; marks what is not proved, and a c of -0 whose products are all zero."""
    wide_vectors()
    late, fraction, fine, emin, parity = unit.late, unit.fraction, unit.fine, spec.out.emin, spec.parity
    mantissa, limit, deep, room, ieee = spec.out.mantissa, spec.out.emax, unit.deep, unit.room, spec.ieee_zero
    for j in range(width):
        magnitude = bits_of_float64(c[j]) & MAGNITUDE
        ce, e = max((magnitude >> 52) - 1023, emin), np.int64(top[j])
        some = e > ANY_ZERO
        e = e if some else np.int64(-(1 << 14))
        emax = max(e, ce)
        far = (emax > 900) | (emax < -900) | (some & (e >= limit))
        far |= (deep != 0) & (
            some & (e - np.int64(least[j]) > room) | (fraction > fine) & (magnitude != 0) & (ce - mantissa < emax - fine)
        )
        far |= (ieee != 0) & (some == False) & (bits_of_float64(c[j]) == SIGN)  # noqa: E712
        emax = min(max(emax, np.int64(-900)), np.int64(900))
        near = (parity == 0) | (ce >= emax - fraction - 1)
        both = floor_at(total[j], emax - late - 1) + (floor_at(c[j], emax - fine) if near else 0.0)
        place = max(((bits_of_float64(both) & MAGNITUDE) >> 52) - 1023, emin) - late
        total[j] = floor_at(both, max(place, np.int64(-950)))
        bad[j] |= np.int64(1) if far else np.int64(0)


def block_in_stages(draws):
    """One block of a two-stage sum, of units that may draw words or of others."""

    @no_refcount
    @variant(draws)
    def block_in_stages(spec, unit, sides, r, block, p0, steps, word, width, row):
        a, ea = ahead(sides.a, r * sides.deep + p0), ahead(sides.ea, r * sides.deep + p0)
        b, eb, pitch = ahead(sides.b, p0 * sides.wide), ahead(sides.eb, p0 * sides.wide), sides.wide
        apart, weight = spec.parity != 0 and not unit.deep, np.int32(spec.weight)
        stride = 2 if apart else 1
        places_of(ea, eb, steps, stride, pitch, width, unit.deep, weight, row.top, row.least)
        cut_products(a, b, steps, stride, pitch, width, unit.deep, unit.fraction, row.top, row.scale, row.total)
        if apart:
            a, ea, b, eb = ahead(a, 1), ahead(ea, 1), ahead(b, pitch), ahead(eb, pitch)
            places_of(ea, eb, steps - 1, stride, pitch, width, unit.deep, weight, row.other, row.least)
            cut_products(a, b, steps - 1, stride, pitch, width, unit.deep, unit.fraction, row.other, row.scale, row.late)
            add_halves(unit.fraction, row.top, row.total, row.other, row.late, width)
        add_floored_c(spec, unit, row.top, row.least, width, row.total, row.c, row.bad)
        if draws:
            round_any(unit.how, unit.way, row.total, width, ahead(row.words, word * row.width), row.c)
        else:
            round_totals(unit.how, unit.way, row.total, width, row.words, row.c)

    return block_in_stages
