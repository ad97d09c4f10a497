"""Packed numbers too small for a unit that flushes them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.vector_ops import I32, I64, LANES, Emitted, Variable

_NUMBERS = ("lines", "pitch", "count", "least")
_LARGEST = 0x7FFFFFFF


def _flush(b: ir.IRBuilder, values: Any, to: Any, **arg: Any) -> None:
    n = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    least = n["least"].cast(I32, "trunc").spread(LANES)
    smallest = Variable(b, least.like(_LARGEST))
    with ops.loop(b, n["lines"]) as i, ops.loop(b, n["count"], LANES) as j:
        at = i * n["pitch"] + j
        pattern = ops.emit_load(b, values, at, LANES)
        magnitude = pattern & _LARGEST
        kept = magnitude.compare("u>=", least)
        ops.emit_store(b, kept.where(pattern, 0), values, at)
        smallest.set(smallest.get().call("umin", kept.where(magnitude, _LARGEST)))
    ops.emit_store(b, smallest.get(), to, 0)


@intrinsic
def flush(typingctx, values, first, numbers):
    """Float32 numbers whose pattern is below `least`, zeros of both signs among them, become +0; the least pattern that is left.

    numbers: int64 (lines, pitch, count, least): `count` numbers of each line from values[first] on, and those that fill the last
    vector of 16; the least pattern is 0x7FFFFFFF where none is left.
    """
    arguments = {"values": I32.as_pointer(), "to": I32.as_pointer()} | dict.fromkeys(_NUMBERS, I64)

    def codegen(context, builder, signature, args):
        emitted = ops.function(builder.module, "tcsim_flush", arguments, _flush)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        data = builder.bitcast(builder.gep(data, [args[1]]), I32.as_pointer())
        to = Variable(builder, ops.constant(builder, ir.VectorType(I32, LANES), 0))
        place = builder.bitcast(to.slot, I32.as_pointer())
        builder.call(emitted, [data, place, *(builder.extract_value(args[2], i) for i in range(len(_NUMBERS)))])
        found = to.get()
        count = LANES
        while count > 1:
            count //= 2
            found = found.lanes(list(range(count))).call("umin", found.lanes(list(range(count, 2 * count))))
        return Emitted(builder, builder.extract_element(found.v, I32(0))).cast(I64, "zext").v

    return types.int64(values, first, numbers), codegen
