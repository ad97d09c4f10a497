"""Operands of the library's tiles packed: rows of a, panels of b, of any layout; for int8 the pairs of int16 that a tile multiplies.

Lines that lie as tiles read them are copied by vectors, lines that lie along k are turned over in squares; what fills none of
these, and float64 codes of float32 values, go one by one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.jit import inline, inline_ir
from tcsim.codegen.scratch import address_of
from tcsim.codegen.vector_memory import double_of_bits, float_of_bits, peek8, peek32, peek64
from tcsim.codegen.vector_ops import F32, F64, I8, I16, I32, I64, LANES, Emitted
from tcsim.kernels.fast.turn import turn_square
from tcsim.kernels.native.library_tile import LANES_OF, WIDTHS
from tcsim.kernels.native.library_units import DOUBLE, INTEGER


@inline
def value_at(address, item):
    """The float32 or float64 at an address, as float64."""
    return double_of_bits(peek64(address)) if item == 8 else np.float64(float_of_bits(np.uint32(peek32(address))))


@inline
def pair_at(address, along, some):
    """Two int8 that are `along` bytes apart as int16 in 32 bits; some: how many there are, else 0 in place of the second."""
    low = (peek8(address) ^ 128) - 128
    high = (peek8(address + along) ^ 128) - 128 if some > 1 else np.int64(0)
    return (low & 0xFFFF) | (high << 16)


@inline
def pack_lines(kind, item, source, across, along, lines, first, depth, across_pitch, along_pitch, target, at):
    """Lines of elements first … of `depth` codes along k to target[at + line·across_pitch + element·along_pitch], one by one."""
    step = 2 if kind == INTEGER else 1
    for k in range(first, (depth + step - 1) // step):
        for line in range(lines):
            address = source + line * across + step * k * along
            to = at + line * across_pitch + k * along_pitch
            target[to] = pair_at(address, along, depth - 2 * k) if kind == INTEGER else value_at(address, item)


_COPY = ("target", "source", "line", "lines", "count")


def _copy(b: ir.IRBuilder, kind: int, **arg: Any) -> None:
    v = {name: Emitted(b, arg[name]) for name in _COPY}
    number = {INTEGER: I32, DOUBLE: F64}.get(kind, F32)
    width, lanes = WIDTHS[kind], LANES_OF[kind]
    target = b.inttoptr(arg["target"], number.as_pointer())

    def copied(k: Emitted, j: Emitted, count: int) -> None:
        """Element k of `count` columns from j on; 0 for one column alone."""
        address = v["source"] + k * v["line"]
        if kind == INTEGER:
            lines = [b.inttoptr((address + k * v["line"] + v["line"] * i).v, I8.as_pointer()) for i in (0, 1)]
            low, high = (ops.emit_load(b, line, j, count).cast(I32, "sext") for line in lines)
            found = (low & 0xFFFF) | (high << 16)
        else:
            found = ops.emit_load(b, b.inttoptr(address.v, number.as_pointer()), j, count)
        ops.emit_store(b, found, target, k * width + j)

    whole = v["count"] & -lanes
    with ops.loop(b, v["lines"]) as k, b.if_else(v["count"].compare("==", width).v) as (full, some):
        with full:
            for place in range(0, width, lanes):
                copied(k, Emitted(b, I64(place)), lanes)
        with some:
            with ops.loop(b, whole, lanes, small=True) as j:
                copied(k, j, lanes)
            with ops.loop(b, v["count"], 1, whole, small=True) as j:
                copied(k, j, 0)


@intrinsic(prefer_literal=True)
def copy_panel(typingctx, kind, numbers):
    """Elements 0 … lines - 1 along k of `count` neighbouring columns, codes at `source` and lines `line` bytes apart, to a panel. numbers: _COPY."""
    chosen = kind.literal_value

    def codegen(context, builder, signature, args):
        values = [builder.extract_value(args[1], i) for i in range(len(_COPY))]
        function = ops.function(
            builder.module, f"tcsim_library_copy_{chosen}", dict.fromkeys(_COPY, I64), partial(_copy, kind=chosen)
        )
        builder.call(function, values)
        return context.get_dummy_value()

    return types.void(kind, numbers), codegen


def _pairs(b: ir.IRBuilder, **arg: Any) -> None:
    v = {name: Emitted(b, arg[name]) for name in _PAIRS}
    source, target = b.inttoptr(arg["source"], I16.as_pointer()), b.inttoptr(arg["target"], I32.as_pointer())
    with ops.loop(b, v["count"], LANES) as i:
        codes = ops.emit_load(b, source, i, LANES)
        low, high = codes.cast(I8, "trunc").cast(I32, "sext"), (codes >> 8).cast(I8, "trunc").cast(I32, "sext")
        ops.emit_store(b, (low & 0xFFFF) | (high << 16), target, i)


_PAIRS = ("target", "source", "count")


@intrinsic
def widen_pairs(typingctx, numbers):
    """Pairs of int8 as pairs of int16, a multiple of 16 of them. numbers: _PAIRS."""

    def codegen(context, builder, signature, args):
        values = [builder.extract_value(args[0], i) for i in range(len(_PAIRS))]
        builder.call(ops.function(builder.module, "tcsim_library_pairs", dict.fromkeys(_PAIRS, I64), _pairs), values)
        return context.get_dummy_value()

    return types.void(numbers), codegen


@inline_ir
def turn_elements(kind, size, side, width, source, column, count, depth, target, narrow):
    """Columns that lie along k, as elements of a panel; how many fill squares and are written. size: bytes of an element as it lies;
    side: of a square of them.
    """
    whole = (depth // 2 if kind == INTEGER else depth) // side * side
    place = address_of(narrow) if kind == INTEGER else address_of(target)
    for k in range(0, whole, side):
        for j in range(0, count, side):
            turn_square(size, (place + (k * width + j) * size, np.int64(width * size), source + k * size + j * column, column))
    if kind == INTEGER:
        widen_pairs((address_of(target), place, whole * width))
    return whole


@inline_ir
def pack_panel(kind, size, side, width, job, source, count, depth, target, narrow):
    """`count` columns of b from `source` on, `depth` codes each, as a panel; narrow: room for a panel of pairs of int8."""
    item, step = (1, 2) if kind == INTEGER else (size, 1)
    done = np.int64(0)
    if job.b_item == item and job.b_column == item:
        done = depth // step
        copy_panel(kind, (address_of(target), source, job.b_k, done, count))
    elif job.b_item == item and job.b_k == item and count % side == 0:
        done = turn_elements(kind, size, side, width, source, job.b_column, count, depth, target, narrow)
    pack_lines(kind, job.b_item, source, job.b_column, job.b_k, count, done, depth, 1, width, target, 0)
