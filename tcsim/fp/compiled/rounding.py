"""Rounding bit patterns of a storage format (float32 or float64) to the values of a format, one pass, no branches.

A magnitude pattern `a` is rounded to multiples of 2^s of itself: within a binade a pattern is linear in the value, and
a carry out of the significand is the next binade. s grows by one for every binade below the format's smallest normal
one. Magnitudes below `Fields.least`, the format's smallest, become 0 or `least`; patterns beyond `limit` overflow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tcsim.codegen.jit import inline, kernel_uncounted
from tcsim.codegen.unsigned import add, both, differ, either, less, less_signed, more, pick, same, shl, shr, sub

CHUNK = 1 << 15  # elements of one task
BLOCK = 1024  # elements at a time: they and their random words stay in the first-level cache


class Fields(NamedTuple):
    """A format, a rounding and an overflow rule as patterns of the storage format, all unsigned integers of its width.

    Pairs `x_pos`, `x_neg` are for positive and negative operands. Patterns have no sign unless said.
    """

    mantissa: Any  # significand bits of the storage format, the implicit one excluded
    sign: Any  # the storage format's sign bit
    infinity: Any  # the storage format's infinity
    one: Any
    top: Any  # width - 1
    shift: Any  # bits that rounding drops from a normal number
    field: Any  # exponent field of the storage format at the format's smallest normal number, 0 if nothing lies below
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
    plain: Any  # 1 where the shorter `plain` functions compute the same
    deepest: Any  # shift + field, so that `deepest - field` bits are dropped below the normal numbers


@inline
def magnitude_shift(a, p):
    """Bits to drop from magnitude a, at most the width less one, and its exponent field (1 for the storage format's subnormals)."""
    field = shr(a, p.mantissa)
    field = pick(less(field, p.one), p.one, field)
    s = add(p.shift, pick(less(field, p.field), sub(p.field, field), sub(p.one, p.one)))
    return pick(less(p.top, s), p.top, s), field


@inline
def plain_shift(a, p):
    """The same where the storage format's subnormals are zero or drop no more than its normal numbers; not held below width."""
    field = shr(a, p.mantissa)
    below = sub(p.deepest, field)
    return pick(less_signed(below, p.shift), p.shift, below), field


@inline
def _by_sign(sign, p, pos, neg):
    return pick(same(sign, p.sign), neg, pos)


@inline
def keep_from(a, s, p):
    """`a` with its s low bits cleared."""
    return both(a, shl(sub(sub(p.one, p.one), p.one), s))


@inline
def finish_pattern(pattern, rounded, up, p):
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
def finish_plain(pattern, rounded, up, infinities_apart, p):
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
def short_way(source, target, p):
    """Whether a plain loop may go straight from one block to another; in place it would not vectorise."""
    return (p.plain == p.one) & (target.ctypes.data != source.ctypes.data)


@inline
def fetch(source, target):
    """Bring a block to where it is then rounded in place."""
    if target.ctypes.data != source.ctypes.data:
        for i in range(target.size):
            target[i] = source[i]


@inline
def _to_nearest(a, s, p):
    mask = sub(shl(p.one, s), p.one)
    tie = both(either(shr(add(a, p.parity), s), p.tie_always), both(mask, p.tie_odd))
    return keep_from(add(a, add(shr(mask, p.one), tie)), s, p)


@kernel_uncounted
def nearest(first, last, x, out, p):
    """rne, rna, rnz: chunks [first, last) of the patterns x into out (which may be x)."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, BLOCK):
        stop = min(start + BLOCK, end)
        source, target = x[start:stop], out[start:stop]
        if short_way(source, target, p) & less(p.least, p.one):  # bfloat16: every binade drops the same bits
            for i in range(target.size):
                a = both(source[i], sub(p.sign, p.one))
                target[i] = finish_plain(source[i], _to_nearest(a, p.shift, p), False, False, p)
        elif short_way(source, target, p):
            for i in range(target.size):
                a = both(source[i], sub(p.sign, p.one))
                s, _ = plain_shift(a, p)
                target[i] = finish_plain(source[i], _to_nearest(a, s, p), not less(a, p.least_from_pos), False, p)
        else:
            fetch(source, target)
            for i in range(target.size):
                a = both(target[i], sub(p.sign, p.one))
                s, _ = magnitude_shift(a, p)
                target[i] = finish_pattern(target[i], _to_nearest(a, s, p), not less(a, p.least_from_pos), p)


@kernel_uncounted
def directed(first, last, x, out, p):
    """rz, ru, rd; the short way is for rz alone."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, BLOCK):
        stop = min(start + BLOCK, end)
        source, target = x[start:stop], out[start:stop]
        if short_way(source, target, p):
            for i in range(target.size):
                a = both(source[i], sub(p.sign, p.one))
                s, _ = plain_shift(a, p)
                target[i] = finish_plain(source[i], keep_from(a, s, p), False, True, p)
        else:
            fetch(source, target)
            for i in range(target.size):
                sign = both(target[i], p.sign)
                a = differ(target[i], sign)
                s, _ = magnitude_shift(a, p)
                away = both(sub(shl(p.one, s), p.one), _by_sign(sign, p, p.away_pos, p.away_neg))
                up = not less(a, _by_sign(sign, p, p.least_from_pos, p.least_from_neg))
                target[i] = finish_pattern(target[i], keep_from(add(a, away), s, p), up, p)


@kernel_uncounted
def odd(first, last, x, out, p):
    """ro: an inexact value goes to the neighbour whose code is odd."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, BLOCK):
        stop = min(start + BLOCK, end)
        target = out[start:stop]
        fetch(x[start:stop], target)
        for i in range(target.size):
            a = both(target[i], sub(p.sign, p.one))
            s, _ = magnitude_shift(a, p)
            is_odd = both(shr(add(a, p.parity), s), p.one)
            away = pick(same(is_odd, p.one), sub(p.one, p.one), sub(shl(p.one, s), p.one))
            target[i] = finish_pattern(target[i], keep_from(add(a, away), s, p), not less(a, p.one), p)
