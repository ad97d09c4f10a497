"""Exact sums of any width, for the blocks that 64-bit integers cannot hold.

The sum of a block is a row of 32-bit limbs in two's complement, limb i weighing 2^(base + 32 i). Terms come as two
factors, so that products of 53-bit significands need no wider integer. The sum is then rounded from its leading bits,
the next 32, and whether anything lies below.
"""

from __future__ import annotations

import numpy as np

from tcsim.kernels.jit import inline, routine
from tcsim.kernels.numbers import (
    FINITE,
    MINUS_INF,
    PLUS_INF,
    RD,
    RNA,
    RNE,
    RO,
    RU,
    SR,
    ZERO_E,
    bit_length,
)

_LOW = 0xFFFFFFFF


@inline
def wide_product(x, y):
    """(high, low) of x·y for 0 <= x, y < 2^63: x·y = high·2^64 + low, as uint64."""
    mask = np.uint64(_LOW)
    half = np.uint64(32)
    x0, x1 = np.uint64(x) & mask, np.uint64(x) >> half
    y0, y1 = np.uint64(y) & mask, np.uint64(y) >> half
    low = x0 * y0
    middle = x1 * y0 + (low >> half)
    other = x0 * y1 + (middle & mask)
    return x1 * y1 + (middle >> half) + (other >> half), (other << half) | (low & mask)


@inline
def _limb(limbs, i):
    return np.uint64(limbs[i]) if 0 <= i < limbs.size else np.uint64(0)


@inline
def bits_of(limbs, position, count):
    """`count` < 64 bits of a non-negative row of limbs, from bit `position` (below bit 0 there are zeros)."""
    first, offset = position >> 5, np.uint64(position & 31)
    half, one = np.uint64(32), np.uint64(1)
    low = _limb(limbs, first) | _limb(limbs, first + 1) << half
    high = _limb(limbs, first + 2)
    return (low >> offset | (high << half) << (half - offset)) & ((one << np.uint64(count)) - one)


@routine
def any_below(limbs, position):
    """Whether a non-negative row of limbs has a bit below `position`."""
    if position <= 0:
        return False
    whole = min(position >> 5, limbs.size)
    for i in range(whole):
        if limbs[i] != 0:
            return True
    if whole < limbs.size:
        return (limbs[whole] & ((np.int64(1) << (position & 31)) - 1)) != 0
    return False


@inline
def round_up(mode, negative, kept, rest32, below, random):
    """Whether a magnitude kept.rest32·2^-32 (and more where `below`) rounds away from zero in the last place."""
    half = np.uint64(1) << np.uint64(31)
    nonzero = rest32 != 0 or below
    if mode == RNE:
        return rest32 > half or (rest32 == half and (below or (kept & np.uint64(1)) != 0))
    if mode == RNA:
        return rest32 >= half
    if mode == RU:
        return nonzero and not negative
    if mode == RD:
        return nonzero and negative
    if mode == RO:
        return nonzero and (kept & np.uint64(1)) == 0
    if mode == SR:
        return rest32 + random >= (np.uint64(1) << np.uint64(32))
    return False


@routine
def add_term(limbs, high, low, negative, shift, cut):
    """Add ±(high·2^64 + low)·2^shift to the limbs, a negative shift cutting the bits below 2^0 (0 rz, 1 rd, 2 rne)."""
    if shift < 0:
        s = -shift
        odd = np.uint64(0)
        lost, tie, more = False, False, False
        one = np.uint64(1)
        if s >= 128:
            lost, more = (high | low) != 0, False
            if s == 128:
                tie = (high >> np.uint64(63)) != 0
                more = ((high << one) | low) != 0
            high, low = np.uint64(0), np.uint64(0)
        else:
            rest_high, rest_low = high, low
            if s >= 64:
                keep = np.uint64(s - 64)
                rest_high = high & ((one << keep) - one)
                low, high = (high >> keep), np.uint64(0)
            else:
                keep = np.uint64(s)
                rest_high = np.uint64(0)
                rest_low = low & ((one << keep) - one)
                low, high = (low >> keep) | (high << (np.uint64(64) - keep) if s > 0 else np.uint64(0)), high >> keep
            lost = (rest_high | rest_low) != 0
            if s > 64:
                top = one << np.uint64(s - 65)
                tie, more = (rest_high & top) != 0, ((rest_high & (top - one)) | rest_low) != 0
            else:
                top = one << np.uint64(s - 1)
                tie, more = (rest_low & top) != 0, (rest_low & (top - one)) != 0
            odd = low & one
        if (cut == 1 and negative and lost) or (cut == 2 and tie and (more or odd != 0)):
            low += one
            if low == 0:
                high += one
        shift = np.int64(0)
    first, offset = shift >> 5, np.uint64(shift & 31)
    mask = np.uint64(_LOW)
    sign = np.int64(-1 if negative else 1)
    words = (low & mask, low >> np.uint64(32), high & mask, high >> np.uint64(32))
    carry = np.uint64(0)
    for i in range(4):
        moved = (words[i] << offset) | carry
        if first + i < limbs.size:
            limbs[first + i] += sign * np.int64(moved & mask)
        carry = moved >> np.uint64(32)
    if first + 4 < limbs.size:
        limbs[first + 4] += sign * np.int64(carry)


@routine
def normalise(limbs):
    """Carry the limbs into 0 … 2^32 - 1 and make the sum non-negative; whether it was negative."""
    carry = np.int64(0)
    for i in range(limbs.size):
        x = limbs[i] + carry
        limbs[i] = x & _LOW
        carry = x >> 32
    if carry >= 0:
        return False
    borrow = np.int64(1)
    for i in range(limbs.size):
        x = (~limbs[i] & _LOW) + borrow
        limbs[i] = x & _LOW
        borrow = x >> 32
    return True


@routine
def round_limbs(limbs, base, mode, random, kept_bits, out):
    """The sum of the limbs rounded to `kept_bits` significand bits of `out`: (sig, e, negative, special)."""
    negative = normalise(limbs)
    top = np.int64(-1)
    for i in range(limbs.size):
        if limbs[i] != 0:
            top = 32 * i + bit_length(limbs[i]) - 1
    if top < 0:
        return np.int64(0), np.int64(ZERO_E), np.int64(0), np.int64(FINITE)
    e = max(top + base, out.emin)
    place = e - (kept_bits - 1) - base
    kept = bits_of(limbs, place, kept_bits)
    rest = bits_of(limbs, place - 32, np.int64(32))
    if round_up(mode, negative, kept, rest, any_below(limbs, place - 32), random):
        kept += np.uint64(1)
    sig = np.int64(kept)
    if sig >> kept_bits:
        sig, e = sig >> 1, e + 1
    sig = sig << (out.mantissa + 1 - kept_bits)
    sign = np.int64(negative)
    if sig == 0:
        return np.int64(0), np.int64(ZERO_E), sign, np.int64(FINITE)
    if e > out.emax:
        return np.int64(0), np.int64(ZERO_E), sign, np.int64(MINUS_INF if negative else PLUS_INF)
    return (-sig if negative else sig), e, sign, np.int64(FINITE)
