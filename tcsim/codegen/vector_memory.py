"""Scalars at an address, and patterns of floats: what the drivers of the fast path read c with and write results by."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen.jit import inline

_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)
_INF64 = np.int64(0x7FF0000000000000)


def _peek(width: int):
    @intrinsic
    def peek(typingctx, address):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(width).as_pointer())
            return (
                builder.zext(builder.load(pointer, align=1), ir.IntType(64)) if width < 64 else builder.load(pointer, align=1)
            )

        return types.int64(address), codegen

    return peek


def _poke(width: int):
    @intrinsic
    def poke(typingctx, address, code):
        def codegen(context, builder, signature, args):
            kind = ir.IntType(width)
            builder.store(builder.trunc(args[1], kind), builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(address, code), codegen

    return poke


peek8, peek16, peek32, peek64 = (_peek(width) for width in (8, 16, 32, 64))
poke8, poke16, poke32 = (_poke(width) for width in (8, 16, 32))


def _bits(source: types.Type, target: types.Type):
    @intrinsic
    def bits(typingctx, x):
        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), codegen

    return bits


bits_of_double, double_of_bits = _bits(types.float64, types.int64), _bits(types.int64, types.float64)
bits_of_float, float_of_bits = _bits(types.float32, types.uint32), _bits(types.uint32, types.float32)


@inline
def float_of_half(code):
    """The value of a finite float16 code, as float32."""
    magnitude = np.int64(code) & 0x7FFF
    value = float_of_bits(np.uint32(magnitude << 13)) * np.float32(2.0**112)
    return -value if code & 0x8000 else value


@inline
def half_of_double(x):
    """The float16 code (int64) nearest to x, ties to even, infinite from 65520 on; x is not NaN."""
    bits = bits_of_double(x)
    sign = np.int64(0x8000) if bits < 0 else np.int64(0)
    magnitude = bits & _MAGNITUDE
    if magnitude >= _INF64:
        return sign | np.int64(0x7C00)
    drop = np.int64(42) + max(np.int64(1009) - (magnitude >> 52), np.int64(0))  # 1009: the field of 2^-14
    if drop > 53:
        return sign
    kept = (magnitude & ((np.int64(1) << 52) - 1)) | (np.int64(1) << 52)
    kept = (kept + (np.int64(1) << (drop - 1)) - 1 + ((kept >> drop) & 1)) >> drop
    code = kept if drop > 42 else kept + (((magnitude >> 52) - 1009) << 10)
    return sign | min(code, np.int64(0x7C00))
