"""Conversions between float32 and int32 with a rounding of their own: single instructions of AVX-512, several elsewhere.

Everywhere else in vectors the rounding is the mode of the processor, which costs too much to change from one conversion to the next.
"""

from __future__ import annotations

from functools import cache

from llvmlite import ir
from numba.core import cgutils
from numba.core.registry import cpu_target

from tcsim.codegen.vector_ops import F32, I32, LANES, Emitted

_DOWN, _TO_ZERO = 9, 11  # as an instruction says it
_I16 = ir.IntType(16)
_FLOATS, _WORDS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)


@cache
def has_feature(name: str) -> bool:
    """Whether kernels are compiled for processors that have it, by LLVM's name."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return f"+{name}" in features.split(",")


def has_rounded_conversions() -> bool:
    """Whether kernels are compiled for AVX-512."""
    return has_feature("avx512f")


def _ask(b: ir.IRBuilder, result: ir.Type, name: str, values: list[ir.Value]) -> Emitted:
    kind = ir.FunctionType(result, [x.type for x in values])
    return Emitted(b, b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.x86.avx512.{name}"), values))


def floor_to_int(x: Emitted) -> Emitted:
    """The largest integers not above 16 float32 numbers that int32 holds."""
    if not has_rounded_conversions():
        return x.call("floor").cast(I32, "fptosi")
    everywhere = ir.Constant(_I16, -1)
    return _ask(x.b, _WORDS, "mask.cvtps2dq.512", [x.v, ir.Constant(_WORDS, ir.Undefined), everywhere, I32(_DOWN)])


def odd_float(x: Emitted) -> Emitted:
    """16 integers of 32 bits as float32, cut toward zero, with the last bit set where something was cut; AVX-512 alone."""
    found = _ask(x.b, _FLOATS, "sitofp.round.v16f32.v16i32", [x.v, I32(_TO_ZERO)])
    pattern = found.bits_as(I32)
    return found.cast(I32, "fptosi").compare("!=", x).where(pattern | 1, pattern).bits_as(F32)
