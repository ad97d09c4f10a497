"""Rounding bit patterns of a carrier (float32 or float64) to the values of a format, one pass, no branches.

A magnitude pattern `a` is rounded to multiples of 2^s of itself: within a binade a pattern is linear in the value, and
a carry out of the significand is the next binade. s grows by one for every binade below the format's smallest normal
one. Magnitudes below `Fields.least`, the format's smallest, become 0 or `least`; patterns beyond `limit` overflow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.kernels.jit import inline, kernel
from tcsim.kernels.philox import ten_rounds
from tcsim.kernels.words import add, both, differ, either, less, less_signed, like, more, pick, same, shl, shr, sub

CHUNK = 1 << 15  # elements of one task
_BLOCK = 1024  # elements at a time: they and their random words stay in the first-level cache
_ZERO64, _LOW, _HIGH = np.uint64(0), np.uint64(0xFFFFFFFF), np.uint64(32)


class Fields(NamedTuple):
    """A format, a rounding and an overflow rule as patterns of the carrier, all unsigned integers of its width.

    Pairs `x_pos`, `x_neg` are for positive and negative operands. Patterns have no sign unless said.
    """

    mantissa: Any  # significand bits of the carrier, the implicit one excluded
    sign: Any  # the carrier's sign bit
    infinity: Any  # the carrier's infinity
    one: Any
    top: Any  # width - 1
    shift: Any  # bits that rounding drops from a normal number
    field: Any  # exponent field of the carrier at the format's smallest normal number, 0 if nothing lies below
    parity: Any  # added to a magnitude, makes the lowest bit kept odd where the code is odd
    least: Any  # smallest positive value
    normal: Any  # results below this are flushed to zero; 0 to keep them
    limit_pos: Any  # largest finite value
    limit_neg: Any
    over_pos: Any  # what a finite value beyond it becomes
    over_neg: Any
    inf_pos: Any  # what an infinity becomes
    inf_neg: Any
    nan_keep: Any  # bits of a NaN that survive
    nan_set: Any  # bits of every NaN, the sign included where the format has one NaN alone
    zero: Any  # what zero becomes
    zero_sign: Any  # `sign` where the format has -0, else 0
    value_sign: Any  # `sign` where the format has negative numbers, else 0
    tie_always: Any  # nearest: 1 if a tie goes away from zero
    tie_odd: Any  # nearest: 1 if a tie goes away from an odd (or, with tie_always, any) number
    away_pos: Any  # directed: all ones if magnitudes grow
    away_neg: Any
    least_from_pos: Any  # the magnitude from which a value below `least` becomes `least`, for nearest and directed
    least_from_neg: Any
    least_always: Any  # the same for every rounding: 1 in a format without zero, else `least`
    left: Any  # fraction of `least`: significand << left >> (left_field - field) is floor(fraction * 2^width)
    left_field: Any
    plain: Any  # 1 where the shorter `_plain` functions compute the same
    deepest: Any  # shift + field, so that `deepest - field` bits are dropped below the normal numbers


@inline
def magnitude_shift(a, p):  # type: ignore[no-untyped-def]
    """Bits to drop from magnitude a, at most the width less one, and its exponent field (1 for the carrier's subnormals)."""
    field = shr(a, p.mantissa)
    field = pick(less(field, p.one), p.one, field)
    s = add(p.shift, pick(less(field, p.field), sub(p.field, field), sub(p.one, p.one)))
    return pick(less(p.top, s), p.top, s), field


@inline
def _plain_shift(a, p):  # type: ignore[no-untyped-def]
    """The same where the carrier's subnormals are zero or drop no more than its normal numbers; not held below width."""
    field = shr(a, p.mantissa)
    below = sub(p.deepest, field)
    return pick(less_signed(below, p.shift), p.shift, below), field


@inline
def _by_sign(sign, p, pos, neg):  # type: ignore[no-untyped-def]
    return pick(same(sign, p.sign), neg, pos)


@inline
def _keep_from(a, s, p):  # type: ignore[no-untyped-def]
    """`a` with its s low bits cleared."""
    return both(a, shl(sub(sub(p.one, p.one), p.one), s))


@inline
def _finish(pattern, rounded, up, p):  # type: ignore[no-untyped-def]
    """The result's pattern: `rounded` or, below the smallest value, that value if `up`; then everything special."""
    none = sub(p.one, p.one)
    sign = both(pattern, p.sign)
    a = differ(pattern, sign)
    result = pick(less(a, p.least), pick(up, p.least, none), rounded)
    result = pick(less(result, p.normal), none, result)
    over = more(result, _by_sign(sign, p, p.limit_pos, p.limit_neg))
    result = pick(over, _by_sign(sign, p, p.over_pos, p.over_neg), result)
    result = pick(same(a, p.infinity), _by_sign(sign, p, p.inf_pos, p.inf_neg), result)
    result = pick(more(a, p.infinity), either(both(a, p.nan_keep), p.nan_set), result)
    empty = same(result, none)
    result = pick(empty, p.zero, result)
    return either(result, both(sign, pick(empty, p.zero_sign, p.value_sign)))


@inline
def _finish_plain(pattern, rounded, up, infinities_apart, p):  # type: ignore[no-untyped-def]
    """The same where both signs are alike, -0 exists and nothing is flushed."""
    none = sub(p.one, p.one)
    a = both(pattern, sub(p.sign, p.one))
    result = pick(less(a, p.least), pick(up, p.least, none), rounded)
    result = pick(more(result, p.limit_pos), p.over_pos, result)
    if infinities_apart:
        result = pick(same(a, p.infinity), p.inf_pos, result)
    result = pick(more(a, p.infinity), either(both(a, p.nan_keep), p.nan_set), result)
    return either(result, both(pattern, p.sign))


@inline
def _short_way(source, target, p):  # type: ignore[no-untyped-def]
    """Whether a plain loop may go straight from one block to another; in place it would not vectorise."""
    return (p.plain == p.one) & (target.ctypes.data != source.ctypes.data)


@inline
def _fetch(source, target):  # type: ignore[no-untyped-def]
    """Bring a block to where it is then rounded in place."""
    if target.ctypes.data != source.ctypes.data:
        for i in range(target.size):
            target[i] = source[i]


@inline
def _to_nearest(a, s, p):  # type: ignore[no-untyped-def]
    mask = sub(shl(p.one, s), p.one)
    tie = both(either(shr(add(a, p.parity), s), p.tie_always), both(mask, p.tie_odd))
    return _keep_from(add(a, add(shr(mask, p.one), tie)), s, p)


@kernel
def nearest(first, last, x, out, p):  # type: ignore[no-untyped-def]
    """rne, rna, rnz: chunks [first, last) of the patterns x into out (which may be x)."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        stop = min(start + _BLOCK, end)
        source, target = x[start:stop], out[start:stop]
        if _short_way(source, target, p) & less(p.least, p.one):  # bfloat16: every binade drops the same bits
            for i in range(target.size):
                a = both(source[i], sub(p.sign, p.one))
                target[i] = _finish_plain(source[i], _to_nearest(a, p.shift, p), False, False, p)
        elif _short_way(source, target, p):
            for i in range(target.size):
                a = both(source[i], sub(p.sign, p.one))
                s, _ = _plain_shift(a, p)
                target[i] = _finish_plain(source[i], _to_nearest(a, s, p), not less(a, p.least_from_pos), False, p)
        else:
            _fetch(source, target)
            for i in range(target.size):
                a = both(target[i], sub(p.sign, p.one))
                s, _ = magnitude_shift(a, p)
                target[i] = _finish(target[i], _to_nearest(a, s, p), not less(a, p.least_from_pos), p)


@kernel
def directed(first, last, x, out, p):  # type: ignore[no-untyped-def]
    """rz, ru, rd; the short way is for rz alone."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        stop = min(start + _BLOCK, end)
        source, target = x[start:stop], out[start:stop]
        if _short_way(source, target, p):
            for i in range(target.size):
                a = both(source[i], sub(p.sign, p.one))
                s, _ = _plain_shift(a, p)
                target[i] = _finish_plain(source[i], _keep_from(a, s, p), False, True, p)
        else:
            _fetch(source, target)
            for i in range(target.size):
                sign = both(target[i], p.sign)
                a = differ(target[i], sign)
                s, _ = magnitude_shift(a, p)
                away = both(sub(shl(p.one, s), p.one), _by_sign(sign, p, p.away_pos, p.away_neg))
                up = not less(a, _by_sign(sign, p, p.least_from_pos, p.least_from_neg))
                target[i] = _finish(target[i], _keep_from(add(a, away), s, p), up, p)


@kernel
def odd(first, last, x, out, p):  # type: ignore[no-untyped-def]
    """ro: an inexact value goes to the neighbour whose code is odd."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        stop = min(start + _BLOCK, end)
        target = out[start:stop]
        _fetch(x[start:stop], target)
        for i in range(target.size):
            a = both(target[i], sub(p.sign, p.one))
            s, _ = magnitude_shift(a, p)
            is_odd = both(shr(add(a, p.parity), s), p.one)
            away = pick(same(is_odd, p.one), sub(p.one, p.one), sub(shl(p.one, s), p.one))
            target[i] = _finish(target[i], _keep_from(add(a, away), s, p), not less(a, p.one), p)


@inline
def _proportional(pattern, random, p):  # type: ignore[no-untyped-def]
    """Away from zero iff floor(f·2^width) + random >= 2^width, f being the discarded fraction of the last place."""
    a = both(pattern, sub(p.sign, p.one))
    s, field = magnitude_shift(a, p)
    rounded = _keep_from(add(a, shr(shr(random, p.one), sub(p.top, s))), s, p)
    implicit = shl(p.one, p.mantissa)
    significand = pick(less(a, implicit), a, either(both(a, sub(implicit, p.one)), implicit))
    distance = sub(p.left_field, field)  # wraps for values that are not below `least`, and then does not matter
    fraction = pick(more(distance, p.top), sub(p.one, p.one), shr(shl(significand, p.left), distance))
    up = less(add(fraction, random), random) | (not less(a, p.least_always))
    return _finish(pattern, rounded, up, p)


@inline
def _proportional_plain(pattern, random, p):  # type: ignore[no-untyped-def]
    """The same for formats that drop a bit at least, whose smallest value is far above the carrier's or drops no more."""
    a = both(pattern, sub(p.sign, p.one))
    s, field = _plain_shift(a, p)
    rounded = _keep_from(add(a, shr(random, sub(add(p.top, p.one), s))), s, p)
    implicit = shl(p.one, p.mantissa)
    significand = either(both(a, sub(implicit, p.one)), implicit)
    distance = sub(p.left_field, field)
    fraction = pick(more(distance, p.top), sub(p.one, p.one), shr(shl(significand, p.left), distance))
    return _finish_plain(pattern, rounded, less(add(fraction, random), random), False, p)


@inline
def _equal(pattern, random, p):  # type: ignore[no-untyped-def]
    """Away from zero iff inexact and the highest random bit is set."""
    a = both(pattern, sub(p.sign, p.one))
    s, _ = magnitude_shift(a, p)
    heads = same(shr(random, p.top), p.one)
    away = pick(heads, sub(shl(p.one, s), p.one), sub(p.one, p.one))
    up = (heads & (not less(a, p.one))) | (not less(a, p.least_always))
    return _finish(pattern, _keep_from(add(a, away), s, p), up, p)


@inline
def _fill(random, seed, start):  # type: ignore[no-untyped-def]
    """The words of (seed, element, step 0) for elements from `start` on, where random.size elements share a high half.

    Two streams, because one alone waits for its own multiplications.
    """
    k0, k1 = seed & _LOW, seed >> _HIGH
    c0, c1 = np.uint64(start) & _LOW, np.uint64(start) >> _HIGH
    half = random.size >> 1
    first, second = random[:half], random[half : 2 * half]
    other = c0 + np.uint64(half)
    for i in range(half):
        near = ten_rounds(c0 + np.uint64(i), c1, _ZERO64, _ZERO64, k0, k1)[0]
        far = ten_rounds(other + np.uint64(i), c1, _ZERO64, _ZERO64, k0, k1)[0]
        first[i] = np.uint32(near)
        second[i] = np.uint32(far)


@inline
def _stochastic_block(source, target, random, high, coin, p):  # type: ignore[no-untyped-def]
    if _short_way(source, target, p) & (not coin):
        for i in range(target.size):
            target[i] = _proportional_plain(source[i], shl(like(random[i], p.one), high), p)
    else:
        _fetch(source, target)
        if coin:
            for i in range(target.size):
                target[i] = _equal(target[i], shl(like(random[i], p.one), high), p)
        else:
            for i in range(target.size):
                target[i] = _proportional(target[i], shl(like(random[i], p.one), high), p)


@kernel
def stochastic(first, last, x, out, p, seed, coin):  # type: ignore[no-untyped-def]
    """sr, or with `coin` sr-equal: the word of (seed, element i, step 0)."""
    random = np.empty(_BLOCK, np.uint32)
    high = sub(p.top, like(np.uint32(31), p.top))
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        stop = min(start + _BLOCK, end)
        _fill(random, seed, start)
        _stochastic_block(x[start:stop], out[start:stop], random, high, coin, p)


@kernel
def stochastic_given(first, last, x, out, p, random, coin):  # type: ignore[no-untyped-def]
    """The same with the caller's bits, at the high end of the carrier's width."""
    none = sub(p.one, p.one)
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        stop = min(start + _BLOCK, end)
        _stochastic_block(x[start:stop], out[start:stop], random[start:stop], none, coin, p)


@inline
def _tie_up(above, to_odd, p):  # type: ignore[no-untyped-def]
    """1 if a tie goes up from the integer `above` the point."""
    return both(differ(above, to_odd), p.one)


@inline
def _reduced(pattern, random, n, to_odd, p):  # type: ignore[no-untyped-def]
    """Away from zero iff round(f·2^n) + r >= 2^n; r are the n high bits of `random`, and there are bits to spare below."""
    none = sub(p.one, p.one)
    a = both(pattern, sub(p.sign, p.one))
    s, field = magnitude_shift(a, p)
    k = pick(less(n, s), sub(s, n), none)
    mask = sub(shl(p.one, k), p.one)
    half = add(shr(mask, p.one), both(_tie_up(shr(a, k), to_odd, p), mask))
    reduced = _keep_from(add(a, half), k, p)
    rounded = _keep_from(add(reduced, shr(shr(random, p.one), sub(p.top, s))), s, p)
    implicit = shl(p.one, p.mantissa)
    significand = pick(less(a, implicit), a, either(both(a, sub(implicit, p.one)), implicit))
    distance = sub(p.left_field, field)
    far = more(distance, p.top)
    distance = pick(far, none, distance)
    scaled = shl(significand, p.left)
    lost = pick(far, significand, both(scaled, sub(shl(p.one, distance), p.one)))
    fraction = pick(far, none, shr(scaled, distance))
    fraction = either(fraction, pick(same(lost, none), none, p.one))
    below = sub(p.top, sub(n, p.one))
    units = shr(fraction, below)
    rest = sub(fraction, shl(units, below))
    middle = shl(p.one, sub(below, p.one))
    units = add(units, pick(same(rest, middle), _tie_up(units, to_odd, p), pick(more(rest, middle), p.one, none)))
    up = (not less(add(units, shr(random, below)), shl(p.one, n))) | (not less(a, p.least_always))
    return _finish(pattern, rounded, up, p)


@kernel
def stochastic_reduced(first, last, x, out, p, random, n, to_odd):  # type: ignore[no-untyped-def]
    """sr-nearest, or with to_odd = 1 sr-nearest-odd: float64 patterns, n <= 32 bits at the high end of uint64."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        stop = min(start + _BLOCK, end)
        target, given = out[start:stop], random[start:stop]
        _fetch(x[start:stop], target)
        for i in range(target.size):
            target[i] = _reduced(target[i], given[i], n, to_odd, p)


@kernel
def random_words(first, last, out, seed):  # type: ignore[no-untyped-def]
    """The words of (seed, element i, step 0) themselves, chunks [first, last)."""
    random = np.empty(_BLOCK, np.uint32)
    end = min(last * CHUNK, out.size)
    for start in range(first * CHUNK, end, _BLOCK):
        _fill(random, seed, start)
        block = out[start : min(start + _BLOCK, end)]
        for i in range(block.size):
            block[i] = random[i]
