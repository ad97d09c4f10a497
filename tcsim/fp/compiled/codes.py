"""Patterns of a storage format that a format holds exactly: packing them into codes, and finding the first that is not one."""

from __future__ import annotations

from typing import Any, NamedTuple

from tcsim.codegen.jit import inline, kernel
from tcsim.codegen.unsigned import both, differ, either, less, more, pick, same, shl, shr, sub
from tcsim.fp.compiled.rounding import CHUNK, magnitude_shift


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


@kernel
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


@kernel
def first_bad(x, p, infinite, nan, zero):
    """The place of the first pattern that the format lacks, -1 if it has them all."""
    for i in range(x.size):
        if _bad(x[i], p, infinite, nan, zero):
            return i
    return -1


@kernel
def any_bad(first, last, x, p, infinite, nan, zero):
    """Whether the format lacks one of the patterns [first, last)."""
    x = x[first:last]
    found = False
    for i in range(x.size):
        found |= _bad(x[i], p, infinite, nan, zero)
    return found


@kernel
def any_bad_rows(base, offsets, stride, count, p, infinite, nan, zero):
    """The same for rows of `count` patterns, `stride` apart, that begin at `offsets` of the flat array `base`."""
    for row in range(offsets.size):
        start = offsets[row]
        found = False
        if stride == 1:
            line = base[start : start + count]
            for i in range(line.size):
                found |= _bad(line[i], p, infinite, nan, zero)
        else:
            for i in range(count):
                found |= _bad(base[start + i * stride], p, infinite, nan, zero)
        if found:
            return True
    return False
