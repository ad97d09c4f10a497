"""Operations on numbers that Numba has no name for, in loops that LLVM makes vectors of: fused multiply-add, rounding modes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops


@intrinsic
def fused_multiply_add(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """x·y + z rounded once, of three float32 or float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return x(x, x, x), codegen


@intrinsic
def wide_vectors(typingctx: Any) -> Any:
    """Let LLVM fill 512-bit registers in the function that calls this, where the processor has them: it prefers half by default.

    The function stays one of its own, so that nothing moves in or out of a stretch with another rounding."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.function.attributes.discard("alwaysinline")  # which Numba passes on from callers
        builder.function.attributes.add("noinline")
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def use_rounding(typingctx: Any, mode: Any) -> Any:
    """Set this thread's rounding of floating-point operations to an int64, a number of llvm.set.rounding."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ops.set_rounding(builder, ops.Emitted(builder, builder.trunc(args[0], ir.IntType(32))))
        return context.get_dummy_value()

    return types.void(types.int64), codegen
