"""Numbers as kernels see them: an integer significand, an exponent, a flag for NaN and infinity.

A finite value of a format with p significand bits is ``sig * 2^(e - (p - 1))``, |sig| < 2^p, where e is the exponent it
aligns by, max(floor(log2 |x|), emin). A zero has sig 0 and e = ZERO_E, so far below every real exponent that the sum of
two such still tells that a factor was zero.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tcsim.codegen.jit import inline
from tcsim.fp.formats import Format
from tcsim.fp.modes import masks

ZERO_E = -(1 << 20)  # the exponent of a zero
ANY_ZERO = -(1 << 19)  # a product's exponent below this had a zero factor
FINITE, PLUS_INF, MINUS_INF, NAN = 0, 1, 2, 3
NEAREST, TO_ZERO, DOWN = masks("rne"), masks("rz"), masks("rd")


class Layout(NamedTuple):
    """A Format in integers, for kernels."""

    mantissa: int
    exponent_bits: int
    bias: int
    emin: int
    emax: int
    padding: int
    sign: int
    zero: int
    max_code: int
    inf_code: int
    nan_code: int


@lru_cache(maxsize=256)
def layout(fmt: Format) -> Layout:
    """The Layout of a floating-point format; a special code that it lacks is -1."""
    inf = -1 if fmt.inf_code is None else fmt.inf_code
    as_signed = fmt.sign_bit - (1 << 64) if fmt.sign_bit >= 1 << 63 else fmt.sign_bit
    nan = as_signed if fmt.nan == "negative-zero" else -1
    return Layout(fmt.mantissa_bits, fmt.exponent_bits, fmt.bias, fmt.emin, fmt.emax, fmt.padding, as_signed,
                  int(fmt.zero), fmt.max_code, inf, nan)  # fmt: skip


@intrinsic
def leading_zeros(typingctx: Any, x: Any) -> Any:
    """Zero bits above the top set bit of an int64 (64 for zero); LLVM makes a vector instruction of it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], cgutils.false_bit)

    return types.int64(types.int64), codegen


@intrinsic
def bits_of_float64(typingctx: Any, x: Any) -> Any:
    """The bit pattern of a float64 as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def float64_of_bits(typingctx: Any, x: Any) -> Any:
    """The float64 with an int64 bit pattern."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@inline
def bit_length(x):
    """Bits of a non-negative int64."""
    return np.int64(64) - leading_zeros(x)


@inline
def decode_number(code, stored, emin, precision):
    """(sig, e, negative, special) of an int64 code of `stored`, in a format with `emin` and `precision` that holds it."""
    magnitude = code & ~stored.sign
    negative = np.int64(1) if code & stored.sign != 0 else np.int64(0)
    fields = magnitude >> stored.padding
    field = fields >> stored.mantissa
    normal = np.int64(1) if (field > 0) | (stored.zero == 0) else np.int64(0)
    significand = fields & ((np.int64(1) << stored.mantissa) - 1) | normal << stored.mantissa
    lsb = field + 1 - normal - stored.bias - stored.mantissa
    e = max(bit_length(significand) - 1 + lsb, emin)
    up = lsb - (e - (precision - 1))
    significand = (significand << min(max(up, np.int64(0)), np.int64(63))) >> min(max(-up, np.int64(0)), np.int64(63))
    no_number = (code == stored.nan_code) | (magnitude > stored.max_code)
    other = np.int64(PLUS_INF) + negative if magnitude == stored.inf_code else np.int64(NAN)
    special = other if no_number else np.int64(FINITE)
    nothing = no_number | (significand == 0)
    sig = np.int64(0) if nothing else (-significand if negative else significand)
    return sig, np.int64(ZERO_E) if nothing else e, negative, special


@inline
def encode_number(sig, e, negative, special, out, nan):
    """The int64 code of a rounded value of the format `out`, whose NaN is `nan`."""
    sign = out.sign if negative else np.int64(0)
    if special == NAN:
        return np.int64(nan)
    if special != FINITE:
        return out.inf_code | (out.sign if special == MINUS_INF else np.int64(0))
    if sig == 0:
        return sign
    return sign | ((((e + out.bias - 1) << out.mantissa) + abs(sig)) << out.padding)


@inline
def round_sum(total, q, how, random, kept_bits, out):
    """total·2^q, |total| < 2^62, rounded to `kept_bits` significand bits of `out`: (sig, e, special).

    A magnitude is kept.rest in binary; something below 2^(bits of rest) is added and the rest is cut off, see `tcsim.fp.modes.Masks`.
    Stochastic rounding adds `random`, 32 bits (else 0), at the upper end of the rest. No branch, so that a loop of these
    becomes vector code.
    """
    up, down, odd, emax = how.up, how.down, how.odd, out.emax  # read here, not where a condition would make gathers of it
    magnitude = abs(total)
    e = max(bit_length(magnitude) - 1 + q, out.emin)
    shift = e - (kept_bits - 1) - q
    far = min(
        max(shift - 63, np.int64(0)), np.int64(63)
    )  # beyond 63 bits only the leading ones and whether others follow count
    lost = np.int64(1) if magnitude & ((np.int64(1) << far) - 1) != 0 else np.int64(0)
    magnitude = (magnitude >> far) | lost
    left, right = min(max(-shift, np.int64(0)), np.int64(63)), min(max(shift, np.int64(0)), np.int64(63))
    ones = (np.int64(1) << right) - 1
    cut = magnitude >> right
    away = ones & (down if total < 0 else up)
    near = ((ones >> 1) & how.near) + (((cut & how.even) | how.away) & ones & 1)
    word = (np.uint64(random) << np.uint64(31)) >> np.uint64(63 - right)
    biased = np.uint64(magnitude) + np.uint64(away + near) + word
    kept = np.int64(biased >> np.uint64(right)) | (odd if magnitude & ones != 0 else np.int64(0))
    kept = kept << left
    over = kept >> kept_bits
    kept, e = kept >> over, e + over
    sig = kept << (out.mantissa + 1 - kept_bits)
    infinite = (sig != 0) & (e > emax)
    special = (np.int64(MINUS_INF) if total < 0 else np.int64(PLUS_INF)) if infinite else np.int64(FINITE)
    nothing = (sig == 0) | infinite
    sig = np.int64(0) if nothing else (-sig if total < 0 else sig)
    return sig, np.int64(ZERO_E) if nothing else e, special


@inline
def to_float64(sig, e, negative, special, precision):
    """The value as a float64, which holds it."""
    lsb = (np.int64(0) if sig == 0 else e) - (precision - 1)
    first = max(lsb, np.int64(-1000))
    value = float(sig) * float64_of_bits((first + 1023) << 52) * float64_of_bits((lsb - first + 1023) << 52)
    value = -value if sig == 0 and negative != 0 else value
    infinite = np.inf if special == PLUS_INF else -np.inf
    other = np.nan if special == NAN else infinite
    return value if special == FINITE else other


@inline
def round_float64(x, kept_bits, out):
    """A float64 rounded to nearest-even in `out`: (sig, e, negative, special)."""
    bits = bits_of_float64(x)
    negative = np.int64(1) if bits < 0 else np.int64(0)
    magnitude = bits & np.int64(0x7FFFFFFFFFFFFFFF)
    field = magnitude >> 52
    normal = np.int64(1) if field > 0 else np.int64(0)
    significand = magnitude & ((np.int64(1) << 52) - 1) | normal << 52
    inf = np.int64(0x7FF0000000000000)
    significand = np.int64(0) if magnitude >= inf else significand
    sig, e, special = round_sum(
        -significand if negative else significand, field - normal - 1074, NEAREST, np.uint64(0), kept_bits, out
    )
    special = np.int64(PLUS_INF) + negative if magnitude == inf else special
    return sig, e, negative, np.int64(NAN) if magnitude > inf else special
