"""Blocks that are not aligned sums, one output at a time: CDNA3's two stages, and units that round every operation."""

from __future__ import annotations

import numpy as np

from tcsim.kernels.blocks import all_negative_zero, exponents, special_add, special_product, sums
from tcsim.kernels.jit import inline, routine
from tcsim.kernels.numbers import (
    ANY_ZERO,
    FINITE,
    MINUS_INF,
    PLUS_INF,
    SR,
    ZERO_E,
    bit_length,
    round_sum,
)
from tcsim.kernels.philox import word
from tcsim.kernels.wide import add_term, round_limbs, wide_product


@inline
def floor_shift(x, shift):
    """floor(x·2^-shift)."""
    return (x >> min(max(shift, np.int64(0)), np.int64(63))) << min(max(-shift, np.int64(0)), np.int64(62))


@routine
def two_stage_row(spec, panel, r, p0, p1, block, width, state, work, random):
    """CDNA3's block over the columns: products truncated at their own largest exponent, then against c, floors, one rounding."""
    sig, e, negative, special = state[0], state[1], state[2], state[3]
    total, place = _products_sum(spec, panel, r, p0, p1, block, width, work)
    for j in range(width):
        if place[j] + spec.fraction >= spec.out.emax:
            for p in range(p0, p1):
                if overflowing(spec, panel, r, p, j):
                    special[j] = special_add(
                        special[j], np.int64(MINUS_INF if (panel.ma[r, p] ^ panel.mb[p, j]) & 4 else PLUS_INF)
                    )
    for j in range(width):
        x, ex, minus, kind = two_stage(
            spec, total[j], place[j], sig[j], e[j] if sig[j] != 0 else np.int64(spec.out.emin), random[j]
        )
        zeros = total[j] == 0 and sig[j] == 0 and negative[j] != 0 and all_negative_zero(panel, r, p0, p1, j)
        if special[j] == FINITE:
            sig[j], e[j], negative[j], special[j] = x, ex, np.int64(minus or zeros), kind


@inline
def _products_sum(spec, panel, r, p0, p1, block, width, work):
    """(total[j], place[j]): the sum of the truncated products is total·2^place, place = largest exponent - fraction."""
    top, low, lsb, place, total, other = work[0], work[1], work[2], work[3], work[4], work[5]
    step = 2 if spec.parity else 1
    for half in range(step):
        for j in range(width):
            top[j] = ZERO_E
        exponents(spec, panel, r, p0 + half, p1, step, block, width, top, low, lsb)
        for j in range(width):
            top[j] = (top[j] if top[j] > ANY_ZERO else np.int64(ZERO_E)) - spec.fraction
        into = other if half else total
        into[:width] = 0
        sums(spec, panel, r, p0 + half, p1, step, width, top, into)
        for j in range(width):
            if half:
                q = max(place[j], top[j])
                total[j] = floor_shift(total[j], q - place[j]) + floor_shift(other[j], q - top[j])
                place[j] = q
            else:
                place[j] = top[j]
    return total, place


@inline
def two_stage(spec, products, place, c_sig, c_e, random):
    """(sig, e, negative, special) of products·2^place + c. `c_e` is emin where c is zero."""
    f = spec.fraction
    emax = max(place + f, c_e)
    q = emax - spec.late - 1
    total = floor_shift(products, q - place)
    if not spec.parity or c_e >= emax - f - 1:
        total += floor_shift(c_sig, emax - f - (c_e - spec.out.mantissa)) << (spec.late + 1 - f)
    leading = max(bit_length(abs(total)) - 1 + q, spec.out.emin)
    more = max(leading - spec.late - q, np.int64(0)) if total != 0 else np.int64(0)
    total, q = total >> more, q + more
    sig, ex, special = round_sum(total, q, spec.mode, random, spec.kept, spec.out)
    return sig, ex, total < 0, special


@inline
def overflowing(spec, panel, r, p, j):
    """Whether a product reaches 2^(emax + 1) of the output, which CDNA3 takes for infinity."""
    e = panel.ea[r, p] + panel.eb[p, j]
    x = abs(panel.sa[r, p] * panel.sb[p, j])
    return x != 0 and bit_length(x) - 1 + e - spec.weight > spec.out.emax


@inline
def round_result(spec, sig, e, negative, special):
    """A rounded value with subnormals flushed and the unit's sign of zero."""
    if spec.flush and sig != 0 and bit_length(abs(sig)) <= spec.out.mantissa:
        sig, e = np.int64(0), np.int64(ZERO_E)
    return sig, e, negative if spec.ieee_zero or sig != 0 else np.int64(0), special


@routine
def exact_round(spec, x1, y1, l1, x2, l2, mode, random):
    """x1·y1·2^l1 + x2·2^l2 rounded once to the output: (sig, e, negative, special)."""
    bits1, bits2 = bit_length(abs(x1)) + bit_length(abs(y1)), bit_length(abs(x2))
    low = min(l1 if bits1 > 1 else l2, l2 if bits2 > 0 else l1)
    if max(bits1 + l1, bits2 + l2) - low <= 61:
        first = (x1 * y1) << (l1 - low) if x1 != 0 and y1 != 0 else np.int64(0)
        second = x2 << (l2 - low) if x2 != 0 else np.int64(0)
        total = first + second
        sig, e, special = round_sum(total, low, mode, random, spec.kept, spec.out)
        return sig, e, np.int64(total < 0), special
    limbs = np.zeros((max(bits1 + l1, bits2 + l2) - low) // 32 + 6, dtype=np.int64)
    high, low_bits = wide_product(abs(x1), abs(y1))
    if x1 != 0 and y1 != 0:
        add_term(limbs, high, low_bits, (x1 < 0) != (y1 < 0), l1 - low, 3)
    if x2 != 0:
        add_term(limbs, np.uint64(0), np.uint64(abs(x2)), x2 < 0, l2 - low, 3)
    return round_limbs(limbs, low, mode, random, spec.kept, spec.out)


@inline
def _random(spec, mode, seed, element, step, operation):
    if mode != SR:
        return np.uint64(0)
    return word(np.uint64(seed), np.uint64(element), np.uint64(step), np.uint64(operation))


@routine
def rounded_product(spec, panel, r, p, j, random):
    """(sig, e, negative, special) of one product rounded to the output."""
    special = special_product(panel.ma[r, p], panel.mb[p, j], panel.sa[r, p], panel.sb[p, j])
    negative = np.int64((panel.ma[r, p] >> 2) != (panel.mb[p, j] >> 2))
    if special != FINITE:
        return np.int64(0), np.int64(ZERO_E), np.int64(special == MINUS_INF), special
    x, y = panel.sa[r, p], panel.sb[p, j]
    if x == 0 or y == 0:
        return np.int64(0), np.int64(ZERO_E), negative if spec.ieee_zero else np.int64(0), np.int64(FINITE)
    place = panel.ea[r, p] + panel.eb[p, j] - spec.weight
    sig, e, _, special = exact_round(spec, x, y, place, np.int64(0), place, spec.product_mode, random)
    return round_result(spec, sig, e, negative, special)


@routine
def rounded_add(spec, a, b, mode, random):
    """The rounded sum of two rounded values, each (sig, e, negative, special)."""
    special = special_add(a[3], b[3])
    if special != FINITE:
        return np.int64(0), np.int64(ZERO_E), np.int64(special == MINUS_INF), special
    if a[0] == 0 and b[0] == 0:
        both = np.int64(a[2] != 0 and b[2] != 0)
        return np.int64(0), np.int64(ZERO_E), both if spec.ieee_zero else np.int64(0), np.int64(FINITE)
    m = spec.out.mantissa
    sig, e, negative, special = exact_round(spec, a[0], np.int64(1), a[1] - m, b[0], b[1] - m, mode, random)
    return round_result(spec, sig, e, negative, special)


@routine
def rounded(spec, panel, r, p0, p1, j, c, tree, seed, element, step):
    """A block in which every product and every addition rounds: a balanced tree of the products, then c."""
    count = p1 - p0
    for i in range(count):
        x = rounded_product(spec, panel, r, p0 + i, j, _random(spec, spec.product_mode, seed, element, step, i))
        tree[i, 0], tree[i, 1], tree[i, 2], tree[i, 3] = x
    operation = count
    while count > 1:
        for i in range(count // 2):
            left = (tree[2 * i, 0], tree[2 * i, 1], tree[2 * i, 2], tree[2 * i, 3])
            right = (tree[2 * i + 1, 0], tree[2 * i + 1, 1], tree[2 * i + 1, 2], tree[2 * i + 1, 3])
            x = rounded_add(spec, left, right, spec.mode, _random(spec, spec.mode, seed, element, step, operation))
            tree[i, 0], tree[i, 1], tree[i, 2], tree[i, 3] = x
            operation += 1
        if count % 2:
            for f in range(4):
                tree[count // 2, f] = tree[count - 1, f]
        count = (count + 1) // 2
    root = (tree[0, 0], tree[0, 1], tree[0, 2], tree[0, 3])
    return rounded_add(spec, root, c, spec.mode, _random(spec, spec.mode, seed, element, step, operation))
