"""Accumulators to codes, 16 at a time, where no output is marked."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.vector_ops import F32, I16, I32, I64, LANES, Emitted

_MAGNITUDE, _INFINITY = 0x7FFFFFFF, 0x7F800000
_NUMBERS = ("first", "rows", "columns", "pitch", "out_row", "nan", "signed_zero")


def _half(pattern: Emitted, magnitude: Emitted) -> Emitted:
    """Codes of float16 values, and of infinity for what is 2^16 or more."""
    small = (magnitude.bits_as(F32) * 2.0**24).cast(I32, "fptosi")  # subnormal: as a count of the least one
    code = magnitude.compare("<", 113 << 23).where(small, (magnitude >> 13) - (112 << 10))
    code = magnitude.compare(">=", (127 + 16) << 23).where(code.like(0x7C00), code)
    return code | ((pattern >> 16) & 0x8000)


def _store(b: ir.IRBuilder, half: bool, c: Any, out: Any, **arg: Any) -> None:
    n = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    nan = n["nan"].cast(I32, "trunc").spread(LANES)
    signed = n["signed_zero"].compare("!=", 0).spread(LANES)
    whole = n["columns"] & -LANES

    def codes(at: Emitted) -> Emitted:
        pattern = ops.emit_load(b, c, at, LANES)
        magnitude = pattern & _MAGNITUDE
        code = _half(pattern, magnitude) if half else pattern
        kept = Emitted(b, b.or_(magnitude.compare("!=", 0).v, signed.v))
        code = magnitude.compare(">", _INFINITY).where(nan, kept.where(code, 0))
        return code.cast(I16, "trunc") if half else code

    with ops.loop(b, n["rows"]) as i:
        source, target = i * n["pitch"], n["first"] + i * n["out_row"]
        with ops.loop(b, whole, LANES) as j:
            ops.emit_store(b, codes(source + j), out, target + j)
        with b.if_then(whole.compare("<", n["columns"]).v):
            last = codes(source + whole)
            with ops.loop(b, n["columns"] - whole) as lane:
                one = b.extract_element(last.v, lane.cast(I32, "trunc").v)
                ops.emit_store(b, Emitted(b, one), out, target + whole + lane)


@intrinsic(prefer_literal=True)
def store_rows(typingctx, half, c, out, numbers):
    """Write the codes of float32 accumulators, in float16 those of exact values: zeros are +0 unless signed_zero, NaN is `nan`.

    numbers: int64 (first, rows, columns, pitch, out_row, nan, signed_zero): rows of c are `pitch` apart and padded to a multiple
    of 16, those of out `out_row` apart, from place `first` on.
    """
    to_half = bool(half.literal_value)
    code = I16 if to_half else I32
    arguments = {"c": I32.as_pointer(), "out": code.as_pointer()} | dict.fromkeys(_NUMBERS, I64)

    def body(b: ir.IRBuilder, **arg: Any) -> None:
        _store(b, to_half, **arg)

    def codegen(context, builder, signature, args):
        emitted = ops.function(builder.module, f"tcsim_store_{int(to_half)}", arguments, body)
        data = [context.make_array(signature.args[i])(context, builder, args[i]).data for i in (1, 2)]
        data = [builder.bitcast(x, kind) for x, kind in zip(data, arguments.values(), strict=False)]
        values = [builder.extract_value(args[3], i) for i in range(len(_NUMBERS))]
        values = [builder.zext(x, I64) if x.type.width < 64 else x for x in values]
        builder.call(emitted, [*data, *values])
        return context.get_dummy_value()

    return types.void(half, c, out, numbers), codegen
