"""Blocks whose groups, products or sums 64 bits do not hold: in limbs of whatever number, one output at a time.

A number is a row of 32-bit limbs, see `limbs`; here rows are also cut, added to one another and multiplied.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, routine
from tcsim.codegen.scratch import release, zeros
from tcsim.kernels.general.cuts import C_OPERATION, FIRST_PRODUCT, cut_word
from tcsim.kernels.general.limbs import add_term, any_below, bits_of, new_limbs, normalise, product_128, round_limbs, round_up
from tcsim.kernels.general.numbers import ANY_ZERO, DOWN, FINITE, MINUS_INF, PLUS_INF, TO_ZERO, ZERO_E, bit_length, round_sum
from tcsim.kernels.general.row import all_negative_zero, special_add
from tcsim.kernels.general.spec import WINDOW

_NONE = np.uint64(0)  # the random word of roundings that need none
_NOWHERE = 1 << 40
_LOW = np.uint64(0xFFFFFFFF)


@routine
def add_row(total, x, negative, shift, how, random):
    """total += ±x·2^shift for a non-negative row x, a negative shift rounding the bits below 2^0 away."""
    sign = np.int64(-1 if negative else 1)
    for i in range(total.size):
        total[i] += sign * np.int64(bits_of(x, 32 * i - shift, np.int64(32)))
    if shift < 0:
        below = -shift
        kept, rest = bits_of(x, below, np.int64(1)), bits_of(x, below - 32, np.int64(32))
        if round_up(how, negative, kept, rest, any_below(x, below - 32), random):
            total[0] += sign


@routine
def times(x, high, low, product):
    """product = x·(high·2^64 + low) for a non-negative row x; of zeros before, and 5 limbs longer than x at least."""
    words = (low & _LOW, low >> np.uint64(32), high & _LOW, high >> np.uint64(32))
    for i in range(x.size):
        for w in range(4):
            part = np.uint64(x[i]) * words[w]
            product[i + w] += np.int64(part & _LOW)
            product[i + w + 1] += np.int64(part >> np.uint64(32))
    normalise(product)


@routine
def add_cut_products(limbs, spec, panel, r, p0, p1, step, j, place):
    """limbs = |the sum of every `step`-th product, each truncated at 2^place|; whether that is negative."""
    for p in range(p0, p1, step):
        x, y = panel.sa[r, p], panel.sb[p, j]
        if x != 0 and y != 0:
            high, low = product_128(abs(x), abs(y))
            shift = panel.ea[r, p] + panel.eb[p, j] - (spec.a_precision + spec.b_precision - 2) - place
            add_term(limbs, high, low, (x < 0) != (y < 0), shift, TO_ZERO, _NONE)
    return normalise(limbs)


@routine
def any_width_groups(spec, panel, r, p0, p1, j, c, random, seed, element, step):
    """A block of exact groups and c = (sig, e, negative), aligned by the groups' scales: (sig, e, negative, special)."""
    bits = bit_length(np.int64(p1 - p0)) + 2 * (spec.scale.mantissa + 1) + 4
    top, least, high, floor = np.int64(ZERO_E), np.int64(_NOWHERE), np.int64(ZERO_E), np.int64(ZERO_E)
    if c[0] == 0:
        floor = spec.floor
    else:
        top, least, high = c[1], c[1] - spec.out.mantissa, c[1] + 1
    for begin in range(p0, p1, spec.group):
        end = min(begin + spec.group, p1)
        (e, _), place = _terms_reach(spec, panel, r, begin, end, np.int64(1), j)
        if e == ZERO_E:
            floor = spec.floor
        else:
            scale = panel.ha[r, begin] + panel.hb[begin, j]
            top, least = max(top, scale), min(least, place + scale - 2 * spec.scale.mantissa)
            high = max(high, e + scale + bits)
    if top < ANY_ZERO:
        negative = spec.ieee_zero != 0 and c[2] != 0 and all_negative_zero(panel, r, p0, p1, j)
        return np.int64(0), np.int64(ZERO_E), np.int64(negative), np.int64(FINITE)
    q = least if spec.exact else max(max(top, floor) - spec.fraction, least)
    total = new_limbs(high + 2 + bit_length(np.int64(p1 - p0)) - q)
    if c[0] != 0:
        word = cut_word(spec, seed, element, step, C_OPERATION)
        add_term(total, np.uint64(0), np.uint64(abs(c[0])), c[0] < 0, c[1] - spec.out.mantissa - q, spec.cut_how, word)
    for begin in range(p0, p1, spec.group):
        end = min(begin + spec.group, p1)
        (e, _), place = _terms_reach(spec, panel, r, begin, end, np.int64(1), j)
        if e != ZERO_E:
            limbs = new_limbs(e + 3 + bit_length(np.int64(end - begin)) - place)
            negative = add_cut_products(limbs, spec, panel, r, begin, end, 1, j, place)
            product = new_limbs(np.int64(32 * limbs.size))
            scale_high, scale_low = product_128(panel.ga[r, begin], panel.gb[begin, j])
            scale = panel.ha[r, begin] + panel.hb[begin, j] - 2 * spec.scale.mantissa
            word = cut_word(spec, seed, element, step, FIRST_PRODUCT + (begin - p0) // spec.group)
            times(limbs, scale_high, scale_low, product)
            add_row(total, product, negative, place + scale - q, spec.cut_how, word)
            release((limbs, product))
    found = round_limbs(total, q, spec.how, random, spec.kept, spec.out)
    release((total,))
    return found


@routine
def any_width_stages(spec, panel, r, p0, p1, j, c, random):
    """CDNA3's block for one column, see `two_stage`: (sig, e, negative, special).

    Cuts below the last place of every term change nothing, so fractions count up to there; where a word then holds all terms
    it is summed in one.
    """
    step, bits = 2 if spec.parity else 1, bit_length(np.int64(p1 - p0)) + 6
    tops, least = _terms_reach(spec, panel, r, p0, p1, step, j)
    c_e = spec.out.emin
    if c[0] != 0:
        c_e, least = c[1], min(least, c[1] - spec.out.mantissa)
    emax = max(max(tops[0], tops[1]), c_e)
    deep = emax - least + bits  # below 0 where every term is zero
    f, late = min(spec.fraction, max(deep, np.int64(0))), min(spec.late, max(deep, np.int64(0)))
    if deep <= WINDOW:
        total, q = _stages_in_a_word(spec, panel, r, p0, p1, step, j, c, tops, c_e, least, f, late)
        if total == 0:
            return _of_zeros(panel, r, p0, p1, j, c)
        sig, e, special = round_sum(total, q, spec.how, random, spec.kept, spec.out)
        return sig, e, np.int64(1) if total < 0 else np.int64(0), special
    exponent = max(tops[0], tops[1])
    size = (max(f, late + 1) + bits + 1) // 32 + 3
    rows = zeros(5 * size, np.int64)  # one piece of memory: to ask for five takes longer than to add
    products, floored, accumulator = rows[size : 2 * size], rows[2 * size : 3 * size], rows[3 * size : 4 * size]
    place = exponent - f
    for half in range(step):
        if tops[half] != ZERO_E:
            part = rows[:size]
            for i in range(size):
                part[i] = 0
            cut = max(least, tops[half] - f)
            negative = add_cut_products(part, spec, panel, r, p0 + half, p1, step, j, cut)
            add_row(products, part, negative, cut - place, DOWN, _NONE)
    products_negative = normalise(products)
    if exponent != ZERO_E:
        add_row(floored, products, products_negative, place - (emax - late - 1), DOWN, _NONE)
    floored_negative = normalise(floored)
    if c[0] != 0 and (spec.parity == 0 or c_e >= emax - f - 1):
        add_term(accumulator, np.uint64(0), np.uint64(abs(c[0])), c[0] < 0, c_e - spec.out.mantissa - (emax - f), DOWN, _NONE)
    accumulator_negative = normalise(accumulator)
    q = emax - max(f, late + 1)
    total = rows[4 * size :]
    add_row(total, floored, floored_negative, emax - late - 1 - q, TO_ZERO, _NONE)
    add_row(total, accumulator, accumulator_negative, emax - f - q, TO_ZERO, _NONE)
    found = _floored_and_rounded(spec, late, total, q, panel, r, p0, p1, j, c, random)
    release((rows,))
    return found


@routine
def _terms_reach(spec, panel, r, p0, p1, step, j):
    """The largest exponents of products, of even and of odd ones where step is 2 (ZERO_E where they are zero), and the last
    place of any (_NOWHERE)."""
    even, odd, least = np.int64(ZERO_E), np.int64(ZERO_E), np.int64(_NOWHERE)
    for p in range(p0, p1):
        if panel.sa[r, p] != 0 and panel.sb[p, j] != 0:
            e = panel.ea[r, p] + panel.eb[p, j]
            least = min(least, e - (spec.a_precision + spec.b_precision - 2))
            if (p - p0) & (step - 1):
                odd = max(odd, e)
            else:
                even = max(even, e)
    return (even, odd), least


@inline
def _floored_at(x, n):
    """floor(x·2^-n)·2^n, n < 63."""
    return (x >> max(n, np.int64(0))) << max(n, np.int64(0))


@routine
def _stages_in_a_word(spec, panel, r, p0, p1, step, j, c, tops, c_e, least, f, late):
    """(total, q): the sum of a block whose terms are all multiples of 2^least below 2^(least + WINDOW), floored to late + 1
    significand bits."""
    weight = spec.a_precision + spec.b_precision - 2
    exponent = max(tops[0], tops[1])
    emax = max(exponent, c_e)
    products = np.int64(0)
    for half in range(step):
        cut, part = max(tops[half] - f - least, np.int64(0)), np.int64(0)
        for p in range(p0 + half, p1, step):
            x = panel.sa[r, p] * panel.sb[p, j]
            if x != 0:
                magnitude = (abs(x) << (panel.ea[r, p] + panel.eb[p, j] - weight - least)) >> cut << cut
                part += -magnitude if x < 0 else magnitude
        products += _floored_at(part, exponent - f - least)
    total = _floored_at(products, emax - late - 1 - least)
    if c[0] != 0 and (spec.parity == 0 or c_e >= emax - f - 1):
        total += _floored_at(c[0] << (c_e - spec.out.mantissa - least), emax - f - least)
    leading = max(bit_length(abs(total)) - 1 + least, spec.out.emin)
    more = max(leading - late - least, np.int64(0))
    return total >> min(more, np.int64(63)), least + more


@inline
def _of_zeros(panel, r, p0, p1, j, c):
    """The result where nothing is left."""
    minus = c[0] == 0 and c[2] != 0 and all_negative_zero(panel, r, p0, p1, j)
    return np.int64(0), np.int64(ZERO_E), np.int64(minus), np.int64(FINITE)


@routine
def _floored_and_rounded(spec, late, total, q, panel, r, p0, p1, j, c, random):
    """total·2^q floored to late + 1 significand bits, then rounded once."""
    negative = normalise(total)
    top = np.int64(-1)
    for i in range(total.size):
        if total[i] != 0:
            top = 32 * i + bit_length(total[i]) - 1
    if top < 0:
        return _of_zeros(panel, r, p0, p1, j, c)
    last = max(max(top + q, spec.out.emin) - late, q)
    kept = new_limbs(max(top + q - last, np.int64(0)) + 3)
    add_row(kept, total, negative, q - last, DOWN, _NONE)
    found = round_limbs(kept, last, spec.how, random, spec.kept, spec.out)
    release((kept,))
    return found


@routine
def overflowing_products(spec, panel, r, p0, p1, j, special):
    """Mark a column in which a product reaches 2^(emax + 1) of the output, which CDNA3 takes for infinity."""
    for p in range(p0, p1):
        x, y = panel.sa[r, p], panel.sb[p, j]
        if x != 0 and y != 0:
            high, low = product_128(abs(x), abs(y))
            bits = 64 + bit_length(np.int64(high)) if high != 0 else 64 - _zeros_above(low)
            place = panel.ea[r, p] + panel.eb[p, j] - (spec.a_precision + spec.b_precision - 2)
            if bits - 1 + place > spec.out.emax:
                infinity = np.int64(MINUS_INF if (panel.ma[r, p] ^ panel.mb[p, j]) & 4 else PLUS_INF)
                special[j] = special_add(special[j], infinity)


@inline
def _zeros_above(x):
    """Zero bits above the top set bit of a uint64 that is not zero."""
    half = np.int64(x >> np.uint64(32))
    return np.int64(32) - bit_length(half) if half != 0 else np.int64(64) - bit_length(np.int64(x & _LOW))
