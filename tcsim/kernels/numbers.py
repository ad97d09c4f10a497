"""Numbers as kernels see them: an integer significand, an exponent, a flag for NaN and infinity.

A finite value of a format with p significand bits is ``sig * 2^(e - (p - 1))``, |sig| < 2^p, where e is the exponent it
aligns by, max(floor(log2 |x|), emin). A zero has sig 0 and e = ZERO_E, so far below every real exponent that the sum of
two such still tells that a factor was zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tcsim.formats import Format
from tcsim.kernels.jit import inline

ZERO_E = -(1 << 20)  # the exponent of a zero
ANY_ZERO = -(1 << 19)  # a product's exponent below this had a zero factor
FINITE, PLUS_INF, MINUS_INF, NAN = 0, 1, 2, 3
RZ, RNE, RNA, RU, RD, RO, SR = range(7)
MODES = {"rz": RZ, "rne": RNE, "rna": RNA, "ru": RU, "rd": RD, "ro": RO, "sr": SR}


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


def layout(fmt: Format) -> Layout:
    """The Layout of a floating-point format; a special code that it lacks is -1."""
    inf = -1 if fmt.inf_code is None else fmt.inf_code
    nan = fmt.sign_bit if fmt.nan == "negative-zero" else -1
    as_signed = fmt.sign_bit - (1 << 64) if fmt.sign_bit >= 1 << 63 else fmt.sign_bit
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
def decode(code, stored, emin, precision):
    """(sig, e, negative, special) of an int64 code of `stored`, in a format with `emin` and `precision` that holds it."""
    magnitude = code & ~stored.sign
    negative = np.int64((code & stored.sign) != 0)
    if code == stored.nan_code or magnitude > stored.max_code:
        infinite = magnitude == stored.inf_code
        return np.int64(0), np.int64(ZERO_E), negative, np.int64((PLUS_INF + negative) if infinite else NAN)
    fields = magnitude >> stored.padding
    fraction = fields & ((np.int64(1) << stored.mantissa) - 1)
    field = fields >> stored.mantissa
    significand = fraction
    exponent = field - stored.bias
    if field > 0 or stored.zero == 0:
        significand = fraction | (np.int64(1) << stored.mantissa)
    else:
        exponent += 1
    if significand == 0:
        return np.int64(0), np.int64(ZERO_E), negative, np.int64(FINITE)
    lsb = exponent - stored.mantissa
    e = max(bit_length(significand) - 1 + lsb, emin)
    shift = lsb - (e - (precision - 1))
    significand = significand << shift if shift >= 0 else significand >> -shift
    return (-significand if negative else significand), e, negative, np.int64(FINITE)


@inline
def encode(sig, e, negative, special, out, nan):
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
def round_bias(mode, negative, kept, shift, random):
    """What to add to a magnitude before it is shifted right by 0 < shift < 64, as uint64. Rounding to odd is apart."""
    one = np.uint64(1)
    unit = one << np.uint64(shift)
    if mode == RNE:
        return (unit >> one) - one + np.uint64(kept & 1)
    if mode == RNA:
        return unit >> one
    if mode == RU:
        return np.uint64(0) if negative else unit - one
    if mode == RD:
        return unit - one if negative else np.uint64(0)
    if mode == SR:
        return random >> np.uint64(32 - shift) if shift <= 32 else random << np.uint64(shift - 32)
    return np.uint64(0)


@inline
def round_sum(total, q, mode, random, kept_bits, out):
    """total·2^q, |total| < 2^62, rounded to `kept_bits` significand bits of `out`: (sig, e, special)."""
    negative = total < 0
    magnitude = abs(total)
    e = max(bit_length(magnitude) - 1 + q, out.emin)
    shift = e - (kept_bits - 1) - q
    if shift > 63:  # only whether something was there, and for sr its leading bits, can matter
        more = min(shift - 63, np.int64(63))
        lost = np.int64(magnitude & ((np.int64(1) << more) - 1) != 0)
        magnitude = (magnitude >> more) | lost
        shift = np.int64(63)
    if shift > 0:
        kept = np.int64(
            (np.uint64(magnitude) + round_bias(mode, negative, magnitude >> shift, shift, random)) >> np.uint64(shift)
        )
        if mode == RO:
            kept = (magnitude >> shift) | np.int64(magnitude & ((np.int64(1) << shift) - 1) != 0)
    else:
        kept = magnitude << -shift
    if kept >> kept_bits:
        kept, e = kept >> 1, e + 1
    sig = kept << (out.mantissa + 1 - kept_bits)
    if sig == 0:
        return np.int64(0), np.int64(ZERO_E), np.int64(FINITE)
    if e > out.emax:
        return np.int64(0), np.int64(ZERO_E), np.int64(MINUS_INF if negative else PLUS_INF)
    return (-sig if negative else sig), e, np.int64(FINITE)


@inline
def to_float64(sig, e, negative, special, precision):
    """The value as a float64, which holds it."""
    if special == NAN:
        return np.nan
    if special != FINITE:
        return np.inf if special == PLUS_INF else -np.inf
    if sig == 0:
        return -0.0 if negative else 0.0
    lsb = e - (precision - 1)
    first = max(lsb, np.int64(-1000))
    return float(sig) * float64_of_bits((first + 1023) << 52) * float64_of_bits((lsb - first + 1023) << 52)


@inline
def round_float64(x, kept_bits, out):
    """A float64 rounded to nearest-even in `out`: (sig, e, negative, special)."""
    bits = bits_of_float64(x)
    negative = np.int64(bits < 0)
    magnitude = bits & np.int64(0x7FFFFFFFFFFFFFFF)
    inf = np.int64(0x7FF0000000000000)
    if magnitude >= inf:
        return np.int64(0), np.int64(ZERO_E), negative, np.int64(NAN if magnitude > inf else PLUS_INF + negative)
    field = magnitude >> 52
    significand = magnitude & ((np.int64(1) << 52) - 1)
    if field > 0:
        significand |= np.int64(1) << 52
    else:
        field = np.int64(1)
    if significand == 0:
        return np.int64(0), np.int64(ZERO_E), negative, np.int64(FINITE)
    sig, e, special = round_sum(-significand if negative else significand, field - 1075, RNE, np.uint64(0), kept_bits, out)
    return sig, e, negative, special
