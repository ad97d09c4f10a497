"""Rounding in float64 lanes: an exact sum h + low to the kept bits of a format, in any mode and whatever the processor's own is.

Let g = 2^52 grid, grid being the distance of the results around |h|: (|h| + g) - g is a multiple of grid beside |h|, and with one
comparison the lower one, T. The rest |h| - T + low is compared with the share of grid from which on the result goes up.
All of it is exact but for the last sum, whose sign is right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tcsim.codegen.jit import inline
from tcsim.fp.modes import masks, mode
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.numbers import bits_of_float64, float64_of_bits

SIGN = np.int64(-(1 << 63))
MAGNITUDE = np.int64((1 << 63) - 1)
FIELD = np.int64(0x7FF << 52)


DRAWN_SHARE = 16  # of what a random word decides: all of it, in sixteenths


class DoubleRounding(NamedTuple):
    """How h + low rounds: in what share of grid it goes up, in sixteenths to be integers: of positive and of negative numbers.

    `odd` is what is added where T is odd; `tie_even` and `tie_odd` whether a rest that is just the share goes up. A random word, less 2^32,
    is taken from the share by those who draw.
    """

    positive: int
    negative: int
    odd: int
    tie_even: int
    tie_odd: int
    kept: int
    guard: int  # mask: 0 where all bits of a float64 are kept, and T is |h| itself
    emin: int  # what lies below 2^-900 is left to others
    beyond: int  # the pattern from which on a magnitude is infinite, or near the end of float64
    normal: int  # the pattern of the least normal number where smaller results are flushed, else 0
    least: int  # below which results are no normal numbers, or the sum's error may not be one; of random words, those they may raise
    drop: int  # bits of a float64 that are not kept, and masks as in `tcsim.fp.modes.masks`, by sign
    ones: int
    plus: int
    minus: int
    even: int
    odd_ones: int  # the mask `ones` where what is cut makes the last bit kept odd
    raised: int  # how far a random word goes up to stand at the top of what is cut
    lift: int  # the pattern of the least normal number: smaller ones are rounded from as much above it


def rounding_of(name: str, unit: Unit, kept: int | None = None) -> DoubleRounding:
    """The rounding of a mode to a unit's output, or to more or fewer `kept` bits."""
    out, bits = unit.out_format, unit.kept_bits if kept is None else kept
    how, never = masks(name), 32
    share = DRAWN_SHARE if mode(name).toward == "random" else 8 if how.near else never
    positive, negative = (0 if how.up else share), (0 if how.down else share)
    if how.odd:
        positive = negative = 0
    drop = 53 - bits
    ones = (1 << drop) - 1
    near = ((ones >> 1) + how.away if how.near else 0) if drop else 0
    tie_even = int(bool(how.away) or share == DRAWN_SHARE)
    tie_odd = int(bool(how.even) or bool(how.away) or share == DRAWN_SHARE)
    return DoubleRounding(
        positive, negative, never if how.odd else 0, tie_even, tie_odd, bits, 0 if bits == 53 else -1, max(out.emin, -900),
        (min(out.emax + 1, 900) + 1023) << 52, (out.emin + 1023) << 52 if unit.zeros.flush_results else 0,
        ((max(out.emin, -900) + 1023) << 52) + (share == DRAWN_SHARE), drop, ones, near + (ones & how.up), near + (ones & how.down), how.even & (ones > 0), ones * how.odd,
        max(drop - 32, 0), (max(out.emin, -900) + 1023) << 52,
    )  # fmt: skip


SHIFT = 1.5 * 2.0**52  # with it added, an integer below 2^51 stands in the last bits of a float64
SHIFTED = np.float64(SHIFT).view(np.int64)


@inline
def integer_of_lane(x):
    """A float64 below 2^51 in magnitude as an integer, rounded as the processor does; lanes have no instruction for this before AVX-512."""
    return bits_of_float64(x + SHIFT) - SHIFTED


@inline
def lane_of_integer(n):
    """An integer below 2^51 in magnitude as a float64."""
    return float64_of_bits(n + SHIFTED) - SHIFT


LEAST, MOST = np.int64((1023 - 900) << 52), np.int64((1023 + 900) << 52)


@inline
def numbers_of(how):
    """A record's numbers, read once before a loop: where a lane chooses one of two, it would gather it from memory."""
    return DoubleRounding(
        how.positive, how.negative, how.odd, how.tie_even, how.tie_odd, how.kept, how.guard, how.emin, how.beyond, how.normal, how.least,
        how.drop, how.ones, how.plus, how.minus, how.even, how.odd_ones, how.raised, how.lift,
    )  # fmt: skip


@inline
def by_sign(pattern, plus, minus):
    """One of two numbers by the sign of a pattern."""
    return plus + ((pattern >> 63) & (minus - plus))


@inline
def round_double(how, h, low, lowest, word):
    """h + low + lowest rounded, each much smaller than half an ulp of the one before; `word` are 32 random bits, or 0."""
    pattern = bits_of_float64(h)
    sign, magnitude = pattern & SIGN, pattern & MAGNITUDE
    size = float64_of_bits(magnitude)
    more, least = float64_of_bits(bits_of_float64(low) ^ sign), float64_of_bits(bits_of_float64(lowest) ^ sign)
    below = magnitude - (np.int64(1) if more < 0.0 else np.int64(0))
    e = max((below >> 52) - 1023, how.emin)
    place = (e - how.kept + 1 + 1023) << 52
    grid, guard = float64_of_bits(place), float64_of_bits(place + (np.int64(52) << 52) & how.guard)
    down = float64_of_bits(below)
    kept = (down + guard) - guard
    kept = kept - grid if kept > down else kept
    odd = bits_of_float64(kept + guard) & 1
    share = by_sign(pattern, how.positive, how.negative) + (-odd & how.odd)
    rest = (size - kept) - grid * (lane_of_integer(share) * 0.0625 - lane_of_integer(word) * 2.0**-32) + more
    tie = how.tie_even + (-odd & (how.tie_odd - how.tie_even))
    up = (rest > 0.0) | ((rest == 0.0) & ((least > 0.0) | ((least == 0.0) & (tie != 0))))
    found = bits_of_float64(kept + (grid if up else 0.0)) & MAGNITUDE
    found = np.int64(0) if found < how.normal else found
    return float64_of_bits(sign | found)


@inline
def sum_and_error(x, y):
    """fl(x + y) and what it lost, in rounding to nearest."""
    s = x + y
    z = s - x
    return s, (x - (s - z)) + (y - z)


@inline
def settled(h, x, how, wrong):
    """A result x of the sum h; infinity, which stays, where others must compute: it is infinite or the sum below 2^-900 or above 2^900, or `wrong`."""
    size = bits_of_float64(h) & MAGNITUDE
    far = ((bits_of_float64(x) & MAGNITUDE) >= how.beyond) | ((size < LEAST) & (size != 0)) | (size > MOST)
    return np.inf if far | wrong else x


@inline
def settled_pattern(found, how, wrong):
    """A rounded pattern as a number; infinity, which stays, where others must compute: it is infinite or subnormal, or `wrong`."""
    size = found & MAGNITUDE
    far = (np.uint64(size - how.least) >= np.uint64(how.beyond - how.least)) & (size != 0)
    return np.inf if far | wrong else float64_of_bits(found)


@inline
def rounded_pattern(s, e, how, word=0):
    """The pattern of s + e rounded by masks: s is cut to odd where it is not exact, which rounds as the sum does."""
    pattern = bits_of_float64(s)
    cut = (pattern - (((pattern ^ bits_of_float64(e)) >> 63) & 1)) | 1
    pattern = cut if e != 0.0 else pattern
    more = by_sign(pattern, how.plus, how.minus) + ((pattern >> how.drop) & how.even) + (word << how.raised)
    return ((pattern + more) | ((pattern & how.odd_ones) + how.odd_ones)) & ~how.ones


@inline
def round_lifted(how, h, low, word):
    """h + low, which is less than half an ulp of h, rounded to 2 to 50 bits, by a random word to 20 at most, where neither leaves 2^-900 to 2^900.

    Below 2^emin the last place is that of 2^emin: as much is added, and taken away again from the result. What this addition loses is told
    by its sign alone, however the processor rounds.
    """
    pattern = bits_of_float64(h)
    sign = pattern & SIGN
    below = (pattern & MAGNITUDE) - (np.int64(1) if float64_of_bits(bits_of_float64(low) ^ sign) < 0.0 else np.int64(0))
    base = float64_of_bits((how.lift if below < how.lift else np.int64(0)) | sign)
    s = h + base
    lost = h - (s - base)
    raised = float64_of_bits(rounded_pattern(s, lost if lost != 0.0 else low, how, word)) - base
    found = bits_of_float64(raised) & MAGNITUDE
    found = np.int64(0) if found < how.normal else found
    return np.inf if found >= how.beyond else float64_of_bits(found | sign)


@inline
def near_pattern(x, how):
    """The pattern of x rounded by masks that are one for both signs and none that makes odd: to nearest, or toward zero."""
    pattern = bits_of_float64(x)
    return (pattern + (how.plus + ((pattern >> how.drop) & how.even))) & ~how.ones


@inline
def drawn_pattern(s, e, lowest, how, word):
    """The pattern of s + e + lowest rounded stochastically, and whether another must: below a power of two the last places are closer,
    and of infinity the error is no number.

    With the word added to the fraction that is discarded, of 32 bits, what is cut is the result: the integer below the error and the word, in
    units of that fraction's last bit, goes to s's pattern as far as that has bits.
    """
    pattern = bits_of_float64(s)
    sign = pattern & SIGN
    error, least = float64_of_bits(bits_of_float64(e) ^ sign), float64_of_bits(bits_of_float64(lowest) ^ sign)
    scaled = error * float64_of_bits(((np.int64(32 + 52 + 2 * 1023) - how.drop) << 52) - (pattern & FIELD))
    part = np.floor(scaled)
    part = part - 1.0 if (part == scaled) & (least < 0.0) else part
    edge = (pattern & np.int64((1 << 52) - 1) == 0) & (not error >= 0.0)
    return (pattern + ((integer_of_lane(part) + word) >> (32 - how.drop))) & ~how.ones, edge
