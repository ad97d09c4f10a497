"""Rounding bit patterns of a carrier (float32 or float64) to the values of a format, one pass, no branches.

A magnitude pattern `a` is rounded to multiples of 2^s of itself: within a binade a pattern is linear in the value, and
a carry out of the significand is the next binade. s grows by one for every binade below the format's smallest normal
one. Magnitudes below `Fields.least`, the format's smallest, become 0 or `least`; patterns beyond `limit` overflow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.kernels.jit import inline, kernel
from tcsim.kernels.philox import words
from tcsim.kernels.words import add, both, differ, either, less, like, more, pick, same, shl, shr, sub

CHUNK = 1 << 15  # elements of one task
_BLOCK = 1024  # elements brought into the first-level cache and rounded there in place: one array in, the same out, vectorises
_ZERO64 = np.uint64(0)


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
    parity: Any  # 1 where a format without significand bits is odd at an even field of the carrier
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


@inline
def magnitude_shift(a, p):  # type: ignore[no-untyped-def]
    """Bits to drop from magnitude a, and its exponent field (1 for a subnormal of the carrier)."""
    field = shr(a, p.mantissa)
    field = pick(less(field, p.one), p.one, field)
    s = add(p.shift, pick(less(field, p.field), sub(p.field, field), sub(p.one, p.one)))
    return pick(less(p.top, s), p.top, s), field


@inline
def _by_sign(sign, p, pos, neg):  # type: ignore[no-untyped-def]
    return pick(same(sign, p.sign), neg, pos)


@inline
def _cut(a, increment, s):  # type: ignore[no-untyped-def]
    return shl(shr(add(a, increment), s), s)


@inline
def _finish(a, sign, rounded, up, p):  # type: ignore[no-untyped-def]
    """The result's pattern: `rounded` or, below the smallest value, that value if `up`; then everything special."""
    none = sub(p.one, p.one)
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
def _fetch(x, out, start, stop):  # type: ignore[no-untyped-def]
    """The block out[start:stop], holding x[start:stop]."""
    block, source = out[start:stop], x[start:stop]
    for i in range(block.size):
        block[i] = source[i]
    return block


@kernel
def nearest(first, last, x, out, p):  # type: ignore[no-untyped-def]
    """rne, rna, rnz: chunks [first, last) of the patterns x into out (which may be x)."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        block = _fetch(x, out, start, min(start + _BLOCK, end))
        for i in range(block.size):
            sign = both(block[i], p.sign)
            a = differ(block[i], sign)
            s, _ = magnitude_shift(a, p)
            mask = sub(shl(p.one, s), p.one)
            tie = both(either(differ(shr(a, s), p.parity), p.tie_always), both(mask, p.tie_odd))
            rounded = _cut(a, add(shr(mask, p.one), tie), s)
            block[i] = _finish(a, sign, rounded, not less(a, p.least_from_pos), p)


@kernel
def directed(first, last, x, out, p):  # type: ignore[no-untyped-def]
    """rz, ru, rd."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        block = _fetch(x, out, start, min(start + _BLOCK, end))
        for i in range(block.size):
            sign = both(block[i], p.sign)
            a = differ(block[i], sign)
            s, _ = magnitude_shift(a, p)
            mask = sub(shl(p.one, s), p.one)
            rounded = _cut(a, both(mask, _by_sign(sign, p, p.away_pos, p.away_neg)), s)
            up = not less(a, _by_sign(sign, p, p.least_from_pos, p.least_from_neg))
            block[i] = _finish(a, sign, rounded, up, p)


@kernel
def odd(first, last, x, out, p):  # type: ignore[no-untyped-def]
    """ro: an inexact value goes to the neighbour whose code is odd."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        block = _fetch(x, out, start, min(start + _BLOCK, end))
        for i in range(block.size):
            sign = both(block[i], p.sign)
            a = differ(block[i], sign)
            s, _ = magnitude_shift(a, p)
            is_odd = both(differ(shr(a, s), p.parity), p.one)
            rounded = _cut(a, pick(same(is_odd, p.one), sub(p.one, p.one), sub(shl(p.one, s), p.one)), s)
            block[i] = _finish(a, sign, rounded, not less(a, p.one), p)


@inline
def _proportional(pattern, random, p):  # type: ignore[no-untyped-def]
    """Away from zero iff floor(f·2^width) + random >= 2^width, f being the discarded fraction of the last place."""
    sign = both(pattern, p.sign)
    a = differ(pattern, sign)
    s, field = magnitude_shift(a, p)
    rounded = _cut(a, shr(shr(random, p.one), sub(p.top, s)), s)
    implicit = shl(p.one, p.mantissa)
    significand = pick(less(a, implicit), a, either(both(a, sub(implicit, p.one)), implicit))
    distance = sub(p.left_field, field)  # wraps for values that are not below `least`, and then does not matter
    near = not more(distance, p.top)
    fraction = shr(shl(significand, p.left), pick(near, distance, p.top))
    fraction = pick(near, fraction, sub(p.one, p.one))
    up = more(random, sub(sub(sub(p.one, p.one), p.one), fraction)) | (not less(a, p.least_always))
    return _finish(a, sign, rounded, up, p)


@inline
def _equal(pattern, random, p):  # type: ignore[no-untyped-def]
    """Away from zero iff inexact and the highest random bit is set."""
    sign = both(pattern, p.sign)
    a = differ(pattern, sign)
    s, _ = magnitude_shift(a, p)
    heads = same(shr(random, p.top), p.one)
    rounded = _cut(a, pick(heads, sub(shl(p.one, s), p.one), sub(p.one, p.one)), s)
    up = (heads & (not less(a, p.one))) | (not less(a, p.least_always))
    return _finish(a, sign, rounded, up, p)


@inline
def _fill(words32, seed, start, count):  # type: ignore[no-untyped-def]
    """The words of (seed, element, step 0) for `count` elements from `start`."""
    base = np.uint64(start)
    for i in range(count):
        words32[i] = np.uint32(words(seed, base + np.uint64(i), _ZERO64, _ZERO64)[0])


@kernel
def stochastic(first, last, x, out, p, seed, coin):  # type: ignore[no-untyped-def]
    """sr, or with `coin` sr-equal: the word of (seed, element i, step 0)."""
    random = np.empty(_BLOCK, np.uint32)
    high = sub(p.top, like(np.uint32(31), p.top))
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        block = _fetch(x, out, start, min(start + _BLOCK, end))
        _fill(random, seed, start, block.size)
        if coin:
            for i in range(block.size):
                block[i] = _equal(block[i], shl(like(random[i], p.one), high), p)
        else:
            for i in range(block.size):
                block[i] = _proportional(block[i], shl(like(random[i], p.one), high), p)


@kernel
def stochastic_given(first, last, x, out, p, random, coin):  # type: ignore[no-untyped-def]
    """The same with the caller's bits, at the high end of the carrier's width."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, _BLOCK):
        block = _fetch(x, out, start, min(start + _BLOCK, end))
        given = random[start : start + block.size]
        if coin:
            for i in range(block.size):
                block[i] = _equal(block[i], given[i], p)
        else:
            for i in range(block.size):
                block[i] = _proportional(block[i], given[i], p)


@kernel
def random_words(first, last, out, seed):  # type: ignore[no-untyped-def]
    """The words of (seed, element i, step 0) themselves, chunks [first, last)."""
    end = min(last * CHUNK, out.size)
    part = out[first * CHUNK : end]
    _fill(part, seed, first * CHUNK, part.size)
