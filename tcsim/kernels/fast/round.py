"""How the fast path rounds a block: 16 sums S in 32 or 64 bits to float32 values of S·2^(emax - F), the new accumulators.

NATIVE
    Converting S to float32 under the rounding mode "toward zero" normalises and truncates in one step, under "nearest" it
    rounds to nearest-even, and so on. MASKED then keeps fewer bits.
ODD
    Truncated so; where converting back tells that something was cut, the last bit is set.
AWAY, RANDOM
    Ties away and stochastic rounding truncate so after adding half a last place, or a random word, below it.
HALF
    float16 results are rounded to nearest-even by the processor's conversions, or by adding and subtracting a large number.
INTEGER
    What is left: integers are added below the last kept place and cut.

The scaling is by a power of two and exact. An infinite float16 accumulator is a number so large that no finite product
reaches its last place; where one more block is all that it enters, infinity, of which that makes infinity again, of either sign.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from llvmlite import ir

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.directed import has_feature, has_rounded_conversions, odd_float
from tcsim.codegen.vector_ops import F32, I32, I64, LANES, Emitted

NATIVE, MASKED, AWAY, HALF, INTEGER, RANDOM, ODD, STAGED, PARITY = range(9)  # the last two: `staged`
TREE, TREE_FLUSHING, CHAIN, CHAIN_NEGATIVE, HALVES, HALF_TREE, HALF_TREE_FLUSHING = range(9, 16)  # `ieee`


class Par(IntEnum):
    """The numbers of a unit that a tile reads, by place in an int64 array."""

    BLOCK = 0  # L
    GROUP = 1  # products that int32 holds, for WIDE
    SCALE = 2  # (254 + F) << 23
    UNSCALE = 3  # F << 23
    FLOOR = 4  # the least code of a block, e + 127
    LEAST = 5  # words: codes of nonzero products are raised to this
    HIGH = 6  # words: the largest code that fits
    LOW = 7  # words: the smallest nonzero one that fits
    MODE = 8  # llvm.set.rounding's number
    MASK = 9  # bits of a float32 result that are kept
    KEPT = 10  # significand bits that are kept
    GRID = 11  # for float16 results: 127 + F + the exponent of the smallest subnormal
    ONE = 12  # 1: round to nearest, 0: toward zero
    EVEN = 13  # 1: ties to even, 0: ties away
    C_LEAST = 14  # the least exponent field of a nonzero c, in place
    SEED = 15
    NONE = 16  # scaled: a code sum up to here is no product's
    MOST = 17  # folded: pattern of the square of the largest sum of a block, in units of its last place, that is proved


PAR_COUNT = len(Par)
HALF_END = (127 + 16) << 23  # from here on a float16 is infinite
STICKY = (127 + 100) << 23  # what stands for infinity in an accumulator: no finite product reaches its last place
_PLACES = (13 << 23) | (1 << 22)  # from the exponent field of x to 1.5·2^23 last places of x in 11 bits
_SIGN = -(1 << 31)
FIELD = 0x7F800000


def nearest_half(x: Emitted, least: Emitted | int) -> Emitted:
    """x to 11 bits, ties to even, or to the last place of exponent field `least`: 1.5·2^23 of its last places are added and taken off."""
    magic = ((x.bits_as(I32) & FIELD).call("smax", least) + _PLACES).bits_as(F32)
    return (x + magic) - magic


def through_half(x: Emitted) -> Emitted:
    """The nearest float16, ties to even, by the processor's own conversions."""
    return x.cast(ir.HalfType(), "fptrunc").cast(F32, "fpext")


class Rounding:
    """Emits the rounding of a vector of sums; holds the unit's numbers. goes_on: whether results enter more than another block."""

    def __init__(self, b: ir.IRBuilder, par: Any, kind: int, half: bool, goes_on: bool = True) -> None:
        self.b, self.kind, self.half, self.goes_on = b, kind, half, goes_on
        self.par = [ops.emit_load(b, par, p) for p in range(PAR_COUNT)]

    def number(self, which: Par, bits: int = 32) -> Emitted:
        """One of the unit's numbers in 16 lanes of i32 or i64."""
        scalar = self.par[which] if bits == 64 else self.par[which].cast(I32, "trunc")
        return scalar.spread(LANES)

    def rounded(self, total: Emitted, emax: Emitted, random: Emitted | None) -> Emitted:
        """float32 of total·2^(emax-F), rounded as the unit does; total in 32 or 64 bits."""
        unscale = (emax - self.number(Par.UNSCALE)).bits_as(F32)
        if self.kind in (NATIVE, MASKED):
            value = total.cast(F32, "sitofp") * unscale
            return value if self.kind == NATIVE else (value.bits_as(I32) & self.number(Par.MASK)).bits_as(F32)
        if self.kind == ODD:
            value = total.cast(F32, "sitofp")
            cut = value.cast(total.element, "fptosi").compare("!=", total)
            return (value.bits_as(I32) | cut.cast(I32, "zext")).bits_as(F32) * unscale
        if self.kind == HALF and has_rounded_conversions():
            return self._through_half(odd_float(total, self.number(Par.ONE)) * unscale)
        if self.kind == HALF and total.element == I32:
            return self._nearest_half(total, unscale)
        sign = total >> (total.element.width - 32)
        sign = (sign if total.element == I32 else sign.cast(I32, "trunc")) & _SIGN
        magnitude = total.call("abs", flags=(False,))
        added = not self.half and self.kind in (AWAY, RANDOM)
        magnitude = magnitude + self._dither(magnitude, random) if added else self._cut(magnitude, emax, random)
        pattern = (magnitude.cast(F32, "uitofp") * unscale).bits_as(I32)
        if self.half:
            pattern = pattern.compare(">=", HALF_END).where(pattern.like(STICKY), pattern)
        if added:
            pattern = pattern & self.number(Par.MASK)
        result: Emitted = (pattern | sign).bits_as(F32)
        return result

    def _dither(self, magnitude: Emitted, random: Emitted | None) -> Emitted:
        """What is added below the last kept place before truncation: a random word, or half of that place."""
        kind, width = magnitude.element, magnitude.element.width
        field = magnitude.cast(F32, "uitofp").bits_as(I32) >> 23
        drop = field - (self.number(Par.KEPT) + 126)
        word = random if random is not None else field.like(_SIGN)
        if kind == I32:
            shift = drop.like(width) - drop
            return shift.compare("u<", width).where(word >> shift, 0)
        shift = (drop.like(width - 1) - drop.call("smax", 0)).cast(I64, "zext")
        return (word.cast(I64, "zext") << 31) >> shift

    def _nearest_half(self, total: Emitted, unscale: Emitted) -> Emitted:
        """The float16 nearest to total·unscale, ties to even, by adding 1.5·2^23 of its last places in float32 where it is not asked for.

        A total of over 24 bits gives up its last 8, of which bit 8 then keeps whether any was set.
        """
        coarse = (total | ((total & 0xFF) + 0xFF)) & -0x100
        short = (total + (1 << 24)).compare("u<", 1 << 25)
        value = short.where(total, coarse).cast(F32, "sitofp") * unscale
        if has_feature("f16c"):
            return self._through_half(value)
        rounded = nearest_half(value, self.number(Par.C_LEAST)).bits_as(I32)
        over = (rounded & ~_SIGN).compare(">=", HALF_END)
        result: Emitted = over.where((rounded & _SIGN) | STICKY, rounded).bits_as(F32)
        return result

    def _through_half(self, value: Emitted) -> Emitted:
        """The nearest float16, ties to even, by the processor's own conversions; infinities become accumulators."""
        rounded = through_half(value)
        if not self.goes_on:
            return rounded
        result: Emitted = rounded.bits_as(I32).call("umin", STICKY - (1 << 31)).call("smin", STICKY).bits_as(F32)
        return result

    def _cut(self, magnitude: Emitted, emax: Emitted, random: Emitted | None) -> Emitted:
        """A magnitude rounded to the kept bits, or to the output's smallest subnormal where that is larger."""
        kind, width = magnitude.element, magnitude.element.width
        drop = (self.number(Par.KEPT, width) * -1 + width) - magnitude.call("ctlz", flags=(False,))
        if self.half:
            grid = self.number(Par.GRID) - (emax >> 23)
            drop = drop.call("smax", grid if kind == I32 else grid.cast(I64, "sext")).call("smin", width - 1)
        drop = drop.call("smax", 0)
        if random is not None:
            word = random >> 1 if kind == I32 else random.cast(I64, "zext") << 31
            more = word >> (magnitude.like(width - 1) - drop)
        else:
            even = self.number(Par.EVEN, width)
            half = (self.number(Par.ONE, width) << drop) >> 1
            more = (half - even + ((magnitude >> drop) & even)).call("smax", 0)
        result: Emitted = ((magnitude + more) >> drop) << drop
        return result
