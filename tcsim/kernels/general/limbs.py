"""Exact sums of any width, for the blocks that 64-bit integers cannot hold.

The sum of a block is a row of 32-bit limbs in two's complement, limb i weighing 2^(base + 32 i). Terms come as two
factors, so that products of 53-bit significands need no wider integer. The sum is then rounded from its leading bits,
the next 32, and whether anything lies below.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, inline_ir, routine
from tcsim.codegen.scratch import zeros
from tcsim.kernels.general.numbers import FINITE, MINUS_INF, PLUS_INF, ZERO_E, bit_length

_LOW = 0xFFFFFFFF


@inline
def product_128(x, y):
    """(high, low) of x·y for 0 <= x, y < 2^63: x·y = high·2^64 + low, as uint64."""
    mask = np.uint64(_LOW)
    half = np.uint64(32)
    x0, x1 = np.uint64(x) & mask, np.uint64(x) >> half
    y0, y1 = np.uint64(y) & mask, np.uint64(y) >> half
    low = x0 * y0
    middle = x1 * y0 + (low >> half)
    other = x0 * y1 + (middle & mask)
    return x1 * y1 + (middle >> half) + (other >> half), (other << half) | (low & mask)


@inline_ir
def new_limbs(bits):
    """Zero, with room for a sum of `bits` bits, its sign and a carry; whoever asks gives it back."""
    return zeros(max(bits, np.int64(0)) // 32 + 6, np.int64)


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
def round_up(how, negative, kept, rest32, below, random):
    """Whether a magnitude kept.rest32·2^-32 (and more where `below`) rounds away from zero in the last place.

    `how` are Masks; `random` is the word of stochastic rounding, 32 bits (else 0).
    """
    half, odd = np.uint64(1) << np.uint64(31), (kept & np.uint64(1)) != 0
    nonzero = rest32 != 0 or below
    if how.near != 0:
        return rest32 > half or (rest32 == half and (below or how.away != 0 or (how.even != 0 and odd)))
    if (how.down if negative else how.up) != 0:
        return nonzero
    if how.odd != 0:
        return nonzero and not odd
    return rest32 + random >= (np.uint64(1) << np.uint64(32))


@routine
def shifted(high, low, s):
    """(high, low) of floor((high·2^64 + low)·2^-s), s >= 0."""
    none = np.uint64(0)
    if s >= 128:
        return none, none
    if s >= 64:
        return none, high >> np.uint64(s - 64)
    if s == 0:
        return high, low
    return high >> np.uint64(s), (low >> np.uint64(s)) | (high << np.uint64(64 - s))


@routine
def below_32(high, low, s):
    """(the 32 bits under 2^s, whether any lie below those) of high·2^64 + low, s >= 1."""
    down = s - 32
    if down <= 0:
        return (low << np.uint64(-down)) & np.uint64(_LOW), False
    _, rest = shifted(high, low, down)
    if down >= 128:
        return rest & np.uint64(_LOW), (high | low) != 0
    if down >= 64:
        return rest & np.uint64(_LOW), (high & ((np.uint64(1) << np.uint64(down - 64)) - np.uint64(1)) | low) != 0
    return rest & np.uint64(_LOW), low & ((np.uint64(1) << np.uint64(down)) - np.uint64(1)) != 0


@routine
def add_term(limbs, high, low, negative, shift, how, random):
    """Add ±(high·2^64 + low)·2^shift to the limbs, a negative shift rounding the bits below 2^0 away."""
    if shift < 0:
        one = np.uint64(1)
        rest, below = below_32(high, low, -shift)
        high, low = shifted(high, low, -shift)
        if round_up(how, negative, low, rest, below, random):
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
def round_limbs(limbs, base, how, random, kept_bits, out):
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
    if round_up(how, negative, kept, rest, any_below(limbs, place - 32), random):
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
