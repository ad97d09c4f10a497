"""Patterns of a storage format that a format holds exactly: packing them into codes, and finding the first that is not one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.codegen.jit import inline, kernel, kernel_uncounted
from tcsim.codegen.unsigned import both, differ, either, less, more, pick, same, shl, shr, sub
from tcsim.fp.compiled.rounding import BLOCK, CHUNK, magnitude_shift


class CodeRules(NamedTuple):
    """How a code is put together, as unsigned integers of the storage format's width, before `padding` is shifted in."""

    rebias: Any  # (storage bias - format bias) << mantissa bits
    padding: Any
    infinity: Any
    nan: Any  # bits of every NaN
    payload: Any  # bits of a NaN taken from the storage format's significand
    quiet: Any  # set if no payload bit survives
    sign_place: Any
    signed: Any  # 1 if values carry a sign
    negative_zero: Any  # 1 if zeros do
    nan_signed: Any  # 1 if NaNs do


@inline
def _code(pattern, p, r):
    none = sub(p.one, p.one)
    sign = both(pattern, p.sign)
    a = differ(pattern, sign)
    implicit = shl(p.one, p.mantissa)
    fraction = both(a, sub(implicit, p.one))
    s, field = magnitude_shift(a, p)
    below = less(field, p.field)
    significand = pick(less(a, implicit), a, either(fraction, implicit))
    code = pick(below, shr(significand, s), sub(shr(a, p.shift), r.rebias))
    payload = both(shr(fraction, p.shift), r.payload)
    code = pick(more(a, p.infinity), either(r.nan, pick(same(payload, none), r.quiet, payload)), code)
    code = pick(same(a, p.infinity), r.infinity, code)
    code = pick(same(a, none), none, code)
    signed = pick(same(a, none), r.negative_zero, pick(more(a, p.infinity), r.nan_signed, r.signed))
    negative = both(pick(same(sign, none), none, p.one), signed)
    return shl(either(code, shl(negative, r.sign_place)), r.padding)


@kernel_uncounted
def pack_codes(first, last, x, out, p, r):
    """The code of every pattern of chunks [first, last), all of them values of the format."""
    start = first * CHUNK
    x, out = x[start : last * CHUNK], out[start : last * CHUNK]
    for i in range(x.size):
        out[i] = _code(x[i], p, r)


@inline
def _bad(pattern, p, infinite, nan, zero):
    """Whether the format lacks this value: bits below its last place, beyond its range, or a special it has not."""
    none = sub(p.one, p.one)
    sign = both(pattern, p.sign)
    a = differ(pattern, sign)
    s, _ = magnitude_shift(a, p)
    lost = not same(both(a, sub(shl(p.one, s), p.one)), none)
    lost |= less(a, p.least) & (not (zero & same(a, none)))
    lost |= more(a, pick(same(sign, p.sign), p.limit_neg, p.limit_pos))
    special = not less(a, p.infinity)
    held = (same(a, p.infinity) & infinite & same(either(sign, p.value_sign), p.value_sign)) | (more(a, p.infinity) & nan)
    return pick(special, not held, lost)


@kernel_uncounted
def first_bad(x, p, infinite, nan, zero):
    """The place of the first pattern that the format lacks, -1 if it has them all."""
    for i in range(x.size):
        if _bad(x[i], p, infinite, nan, zero):
            return i
    return -1


@inline
def _plain(block, p):
    """Whether all patterns of a block are zeros or finite numbers of the format; False also where it takes a closer look to tell."""
    none = sub(p.one, p.one)
    most, least, lost, signs = none, sub(none, p.one), none, none
    for i in range(block.size):
        a = both(block[i], sub(p.sign, p.one))
        s, _ = magnitude_shift(a, p)
        lost = either(lost, both(a, sub(shl(p.one, s), p.one)))
        below = sub(a, p.one)  # of a zero, the largest number
        most, least = pick(less(most, a), a, most), pick(less(below, least), below, least)
        signs = either(signs, block[i])
    limit = pick(less(p.limit_neg, p.limit_pos) & (not same(both(signs, p.sign), none)), p.limit_neg, p.limit_pos)
    return same(lost, none) & (not more(most, limit)) & (not less(least, sub(p.least, p.one)))


@inline
def _bad_block(block, p, infinite, nan, zero):
    """Whether the format lacks a pattern of a block."""
    if zero and _plain(block, p):
        return False
    found = False
    for i in range(block.size):
        found |= _bad(block[i], p, infinite, nan, zero)
    return found


@kernel
def any_bad_doubles(base, offsets, stride, count, p, infinite, nan, zero):
    """`any_bad_rows` of float64 values for a format whose values float32 holds, p being of float32: twice as fast."""
    short = np.empty(BLOCK, np.float32)
    patterns = short.view(np.uint32)
    for row in range(offsets.size):
        for start in range(0, count, BLOCK):
            size, first = min(BLOCK, count - start), offsets[row] + start * stride
            cut = np.int64(0)
            if stride == 1:
                line = base[first : first + size]
                for i in range(line.size):
                    short[i] = np.float32(line[i])
                    cut += np.int64((np.float64(short[i]) < line[i]) | (np.float64(short[i]) > line[i]))
            else:
                for i in range(size):
                    x = base[first + i * stride]
                    short[i] = np.float32(x)
                    cut += np.int64((np.float64(short[i]) < x) | (np.float64(short[i]) > x))
            if cut != 0 or _bad_block(patterns[:size], p, infinite, nan, zero):
                return True
    return False


@kernel_uncounted
def any_bad_rows(base, offsets, stride, count, p, infinite, nan, zero):
    """Whether the format lacks a pattern of rows of `count`, `stride` apart, that begin at `offsets` of the flat array `base`."""
    for row in range(offsets.size):
        first = offsets[row]
        if stride == 1:
            for start in range(first, first + count, BLOCK):
                if _bad_block(base[start : min(start + BLOCK, first + count)], p, infinite, nan, zero):
                    return True
        else:
            found = False
            for i in range(count):
                found |= _bad(base[first + i * stride], p, infinite, nan, zero)
            if found:
                return True
    return False
