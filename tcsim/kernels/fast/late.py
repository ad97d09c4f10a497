"""A late c on the fast path: what an instruction summed from zero is added to the accumulators by one rounded addition."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.directed import has_feature
from tcsim.codegen.parts import data_of
from tcsim.codegen.vector_ops import F32, I8, I32, I64, LANES, Emitted
from tcsim.kernels.fast.pack import SPECIAL
from tcsim.kernels.fast.round import HALF_END, nearest_half, through_half


def _add(b: ir.IRBuilder, half: bool, clear: bool, **arg: Any) -> None:
    n = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    zero = ops.constant(b, ir.VectorType(F32, LANES), 0.0)
    with ops.loop(b, n["rows"]) as i, ops.loop(b, n["width"], LANES) as j:
        at = i * n["pitch"] + j
        total = ops.emit_load(b, arg["late"], at, LANES) + ops.emit_load(b, arg["c"], at, LANES)
        if half:  # rounded twice without harm; infinities, and accumulators that stand for them, are left to others
            total = through_half(total) if has_feature("f16c") else nearest_half(total, (127 - 14) << 23)
            infinite = (total.bits_as(I32) & 0x7FFFFFFF).compare(">=", HALF_END)
            with b.if_then(infinite.any().v, likely=False):
                marks = infinite.cast(I8, "zext") * SPECIAL
                ops.emit_store(b, ops.emit_load(b, arg["bad"], at, LANES) | marks, arg["bad"], at)
        ops.emit_store(b, total, arg["late"], at)
        if clear:
            ops.emit_store(b, zero, arg["c"], at)


_POINTERS = {"late": F32, "c": F32, "bad": I8}
_NUMBERS = ("rows", "width", "pitch")


@intrinsic(prefer_literal=True)
def add_late(typingctx, half, clear, arrays, first, numbers):
    """late += c to nearest-even, in float32 or rounded to float16, and c = 0 if `clear`, from place `first` on; infinite ones are marked.

    arrays: (late, c, bad); numbers: int64 (rows, width, pitch), width a multiple of 16.
    """
    to_half_, clear_ = bool(half.literal_value), bool(clear.literal_value)
    arguments = {name: kind.as_pointer() for name, kind in _POINTERS.items()} | dict.fromkeys(_NUMBERS, I64)

    def body(b: ir.IRBuilder, **arg: Any) -> None:
        _add(b, to_half_, clear_, **arg)

    def codegen(context, builder, signature, args):
        emitted = ops.function(builder.module, f"tcsim_late_{int(to_half_)}_{int(clear_)}", arguments, body)
        data = data_of(context, builder, signature.args[2], args[2])
        moved = [builder.gep(p, [args[3]]) for p in data]
        builder.call(emitted, [*moved, *(builder.extract_value(args[4], i) for i in range(len(_NUMBERS)))])
        return context.get_dummy_value()

    return types.void(half, clear, arrays, first, numbers), codegen
