"""Codes of any layout lined up: contiguous rows in 32 bits at most, which is what packing reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.jit import inline_ir
from tcsim.codegen.scratch import address_of
from tcsim.codegen.vector_ops import F32, F64, I32, I64, LANES, Emitted
from tcsim.kernels.fast.pack import LINED_UP, call_packed


def emit_copy(b: ir.IRBuilder, item: ir.Type, **arg: Any) -> None:
    """target[r * count + i] = the code at source + r * row_step + i * step, in squares that stay in the cache."""
    v = {name: Emitted(b, arg[name]) for name in _COPY}
    stored = I32 if item == I64 else item
    target, zero = b.inttoptr(arg["target"], stored.as_pointer()), Emitted(b, I64(0))
    if item == I64:
        with b.if_then(v["step"].compare("==", 8).v):
            _shorten(b, v, target)
            b.ret_void()
    with ops.loop(b, v["count"], LANES, small=True) as i0, ops.loop(b, v["rows"], LANES, small=True) as r0:
        r1, i1 = (r0 + LANES).call("smin", v["rows"]), (i0 + LANES).call("smin", v["count"])
        whole = b.and_((r1 - r0).compare("==", LANES).v, (i1 - i0).compare("==", LANES).v)
        along = v["row_step"].compare("==", item.width // 8).v
        with b.if_else(b.and_(whole, along)) as (square, some):
            with square:
                _transpose(b, item, v, target, r0, i0)
            with some, ops.loop(b, i1, 1, i0, small=True) as i, ops.loop(b, r1, 1, r0, small=True) as r:
                address = v["source"] + r * v["row_step"] + i * v["step"]
                code = ops.emit_load(b, b.inttoptr(address.v, item.as_pointer()), zero)
                if item == I64:
                    code = code.bits_as(F64).cast(F32, "fptrunc").bits_as(I32)
                ops.emit_store(b, code, target, r * v["count"] + i)


def _shorten(b: ir.IRBuilder, v: dict[str, Emitted], target: Any) -> None:
    """Rows of contiguous float64 values as float32."""
    whole = v["count"] & -LANES
    with ops.loop(b, v["rows"]) as r:
        source = b.inttoptr((v["source"] + r * v["row_step"]).v, F64.as_pointer())
        for stop, start, count in ((whole, 0, LANES), (v["count"], whole, 0)):
            with ops.loop(b, stop, count or 1, start, small=True) as i:
                short = ops.emit_load(b, source, i, count).cast(F32, "fptrunc").bits_as(I32)
                ops.emit_store(b, short, target, r * v["count"] + i)


def _transpose(b: ir.IRBuilder, item: ir.Type, v: dict[str, Emitted], target: Any, r0: Emitted, i0: Emitted) -> None:
    """16 x 16 codes that are contiguous the other way: in four rounds the lanes of vectors i and i + 8 take turns."""
    first = v["source"] + r0 * (item.width // 8)
    lines = []
    for i in range(LANES):
        address = (first + (i0 + i) * v["step"]).v
        if item == I64:
            line = ops.emit_load(b, b.inttoptr(address, F64.as_pointer()), 0, LANES)
            lines.append(line.cast(F32, "fptrunc").bits_as(I32))
        else:
            lines.append(ops.emit_load(b, b.inttoptr(address, item.as_pointer()), 0, LANES))
    for _ in range(4):
        turns = []
        for low, high in zip(lines[:8], lines[8:], strict=True):
            for half in (0, 8):
                places = [place for j in range(half, half + 8) for place in (j, LANES + j)]
                mask = ir.Constant(ir.VectorType(I32, LANES), places)
                turns.append(Emitted(b, b.shuffle_vector(low.v, high.v, mask)))
        lines = turns
    for r, line in enumerate(lines):
        ops.emit_store(b, line, target, (r0 + r) * v["count"] + i0)


_COPY = ("target", "source", "row_step", "rows", "step", "count")
COPY_ARGUMENTS = dict.fromkeys(_COPY, I64)


@intrinsic
def copy_codes(typingctx, table, item, numbers):
    """Codes of `item` bytes in any layout to contiguous rows; float64 ones as float32. numbers: int64, as in _COPY."""

    def codegen(context, builder, signature, args):
        values = [builder.extract_value(args[2], i) for i in range(len(_COPY))]
        call_packed(builder, args[0], LINED_UP, args[1], COPY_ARGUMENTS, values)
        return context.get_dummy_value()

    return types.void(table, item, numbers), codegen


@inline_ir
def make_contiguous(table, target, item, source, row_step, rows, step, count):
    """Codes of any layout as contiguous rows in `target`, bytes. Returns where rows start and how far apart they are.

    table: address of `packing`'s.
    Codes that are contiguous along a row stay where they are; float64 ones become float32.
    """
    if step == item and item < 8:
        return source, row_step
    address = address_of(target)
    copy_codes(table, item, (address, source, row_step, rows, step, count))
    return address, np.int64(count * min(item, 4))
