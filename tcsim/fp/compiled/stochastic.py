"""Stochastic rounding of bit patterns: how random bits, made here or given, decide which neighbour is taken.

Random bits stand at the high end of an unsigned integer of the storage format's width, so that n bits compare with the first n
of the discarded fraction.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, kernel, kernel_uncounted
from tcsim.codegen.unsigned import add, both, differ, either, less, like, more, pick, same, shl, shr, sub
from tcsim.fp.compiled.philox import ten_rounds
from tcsim.fp.compiled.rounding import (
    BLOCK,
    CHUNK,
    fetch,
    finish_pattern,
    finish_plain,
    keep_from,
    magnitude_shift,
    plain_shift,
    short_way,
)

_ZERO64, _LOW, _HIGH = np.uint64(0), np.uint64(0xFFFFFFFF), np.uint64(32)


@inline
def _proportional(pattern, random, p):
    """Away from zero iff floor(f·2^width) + random >= 2^width, f being the discarded fraction of the last place."""
    a = both(pattern, sub(p.sign, p.one))
    s, field = magnitude_shift(a, p)
    rounded = keep_from(add(a, shr(shr(random, p.one), sub(p.top, s))), s, p)
    implicit = shl(p.one, p.mantissa)
    significand = pick(less(a, implicit), a, either(both(a, sub(implicit, p.one)), implicit))
    distance = sub(p.left_field, field)  # wraps for values that are not below `least`, and then does not matter
    fraction = pick(more(distance, p.top), sub(p.one, p.one), shr(shl(significand, p.left), distance))
    up = less(add(fraction, random), random) | (not less(a, p.least_always))
    return finish_pattern(pattern, rounded, up, p)


@inline
def _proportional_plain(pattern, random, p):
    """The same for formats that drop a bit at least, whose smallest value is far above the storage format's or drops no more."""
    a = both(pattern, sub(p.sign, p.one))
    s, field = plain_shift(a, p)
    rounded = keep_from(add(a, shr(random, sub(add(p.top, p.one), s))), s, p)
    implicit = shl(p.one, p.mantissa)
    significand = either(both(a, sub(implicit, p.one)), implicit)
    distance = sub(p.left_field, field)
    fraction = pick(more(distance, p.top), sub(p.one, p.one), shr(shl(significand, p.left), distance))
    return finish_plain(pattern, rounded, less(add(fraction, random), random), False, p)


@inline
def _equal(pattern, random, p):
    """Away from zero iff inexact and the highest random bit is set."""
    a = both(pattern, sub(p.sign, p.one))
    s, _ = magnitude_shift(a, p)
    heads = same(shr(random, p.top), p.one)
    away = pick(heads, sub(shl(p.one, s), p.one), sub(p.one, p.one))
    up = (heads & (not less(a, p.one))) | (not less(a, p.least_always))
    return finish_pattern(pattern, keep_from(add(a, away), s, p), up, p)


@inline
def _fill(random, seed, start):
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
def _stochastic_block(source, target, random, high, coin, p):
    if short_way(source, target, p) & (not coin):
        for i in range(target.size):
            target[i] = _proportional_plain(source[i], shl(like(random[i], p.one), high), p)
    else:
        fetch(source, target)
        if coin:
            for i in range(target.size):
                target[i] = _equal(target[i], shl(like(random[i], p.one), high), p)
        else:
            for i in range(target.size):
                target[i] = _proportional(target[i], shl(like(random[i], p.one), high), p)


@kernel
def stochastic(first, last, x, out, p, seed, coin):
    """sr, or with `coin` sr-equal: the word of (seed, element i, step 0)."""
    random = np.empty(BLOCK, np.uint32)
    high = sub(p.top, like(np.uint32(31), p.top))
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, BLOCK):
        stop = min(start + BLOCK, end)
        _fill(random, seed, start)
        _stochastic_block(x[start:stop], out[start:stop], random, high, coin, p)


@kernel_uncounted
def stochastic_given(first, last, x, out, p, random, coin):
    """The same with the caller's bits, at the high end of the storage format's width."""
    none = sub(p.one, p.one)
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, BLOCK):
        stop = min(start + BLOCK, end)
        _stochastic_block(x[start:stop], out[start:stop], random[start:stop], none, coin, p)


@inline
def _tie_up(above, to_odd, p):
    """1 if a tie goes up from the integer `above` the point."""
    return both(differ(above, to_odd), p.one)


@inline
def _reduced(pattern, random, n, to_odd, p):
    """Away from zero iff round(f·2^n) + r >= 2^n; r are the n high bits of `random`, and there are bits to spare below."""
    none = sub(p.one, p.one)
    a = both(pattern, sub(p.sign, p.one))
    s, field = magnitude_shift(a, p)
    k = pick(less(n, s), sub(s, n), none)
    mask = sub(shl(p.one, k), p.one)
    half = add(shr(mask, p.one), both(_tie_up(shr(a, k), to_odd, p), mask))
    reduced = keep_from(add(a, half), k, p)
    rounded = keep_from(add(reduced, shr(shr(random, p.one), sub(p.top, s))), s, p)
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
    return finish_pattern(pattern, rounded, up, p)


@kernel_uncounted
def stochastic_reduced(first, last, x, out, p, random, n, to_odd):
    """sr-nearest, or with to_odd = 1 sr-nearest-odd: float64 patterns, n <= 32 bits at the high end of uint64."""
    end = min(last * CHUNK, x.size)
    for start in range(first * CHUNK, end, BLOCK):
        stop = min(start + BLOCK, end)
        target, given = out[start:stop], random[start:stop]
        fetch(x[start:stop], target)
        for i in range(target.size):
            target[i] = _reduced(target[i], given[i], n, to_odd, p)


@kernel
def random_words(first, last, out, seed):
    """The words of (seed, element i, step 0) themselves, chunks [first, last)."""
    random = np.empty(BLOCK, np.uint32)
    end = min(last * CHUNK, out.size)
    for start in range(first * CHUNK, end, BLOCK):
        _fill(random, seed, start)
        block = out[start : min(start + BLOCK, end)]
        for i in range(block.size):
            block[i] = random[i]
