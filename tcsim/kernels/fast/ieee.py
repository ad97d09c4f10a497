"""Units whose every operation is one of float32's own: register tiles of multiplications and additions.

TREE
    CDNA2: products rounded, added as a balanced tree, then c, all in the unit's rounding, which is a mode of the processor.
    FLUSHING does to every result what the unit does to subnormal ones; elsewhere `plan` knows that none can be subnormal. It is
    left out (fields = 1) in a chunk whose operands are all 0 or at least `calm`: their products are multiples of 2^-100, exact;
    sums of those are as well, so 0 or 2^-100 and more; and a normal c plus such a sum is a multiple of 2^-124 if |c| >= 2^-101,
    else it is c or at least 2^-101: nothing is subnormal.
HALF_TREE
    The same to nearest in float16: float32 has more than twice as many bits, so what it makes of a product or a sum rounds on as the exact
    one does; a product beyond its range is infinite or a zero in float16 too.
CHAIN
    Hopper's mma.m8n8k4: fused multiply-adds from a zero, then c. HALVES: two chains of two in an instruction, whose result is
    rounded to float16.

What is missing in a last block is packed as 0·-0, which changes nothing: a tree's missing leaf adds -0, a chain's too.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.directed import has_feature
from tcsim.codegen.vector_ops import F32, I32, LANES, Emitted, Variable
from tcsim.kernels.fast.round import (
    CHAIN,
    CHAIN_NEGATIVE,
    FIELD,
    HALF_TREE,
    HALF_TREE_FLUSHING,
    HALVES,
    TREE,
    TREE_FLUSHING,
    through_half,
)

ROWS = 4
_SIGN, _LEAST, _INFINITY = -(1 << 31), 1 << 23, 0x7F800000
LEAST_HALF = (127 - 14) << 23


def flushed_sum(x: Emitted, least: int = _LEAST) -> Emitted:
    """Numbers below the least normal one as zeros of their sign."""
    pattern = x.bits_as(I32)
    return (pattern & 0x7FFFFFFF).compare("u<", least).where(pattern & _SIGN, pattern).bits_as(F32)


def to_half(x: Emitted) -> Emitted:
    """x rounded to float16, ties to even, infinite from 65520 on: by the processor, or 1.5·2^23 of its last places are added and taken off."""
    if has_feature("f16c"):
        return through_half(x)
    pattern = x.bits_as(I32)
    small = (pattern & 0x7FFFFFFF).compare("u<", (127 + 17) << 23)
    field = (pattern & FIELD).call("smax", LEAST_HALF)
    magic = (field + ((13 << 23) | (1 << 22))).bits_as(F32)
    rounded = ((x + magic) - magic).bits_as(I32)
    rounded = small.where(rounded, pattern)
    sign = pattern & _SIGN
    magnitude = rounded & 0x7FFFFFFF
    over = magnitude.compare("u>=", (127 + 16) << 23)
    nan = magnitude.compare("u>", _INFINITY)
    return nan.where(pattern, over.where(sign | _INFINITY, magnitude | sign)).bits_as(F32)


class _Block:
    """Emits what a block of `length` products does to c."""

    def __init__(self, b: ir.IRBuilder, kind: int, length: int) -> None:
        self.b, self.kind, self.length = b, kind, length

    def after(self, left: list[Emitted], right: list[Emitted], c: Emitted) -> Emitted:
        zero = ops.constant(self.b, ir.VectorType(F32, LANES), 0.0 if self.kind == CHAIN else -0.0)
        if self.kind == HALVES:
            for i in range(0, self.length, 2):
                c = c + self._chain(left[i : i + 2], right[i : i + 2], zero)
            return to_half(c)
        if self.kind in (CHAIN, CHAIN_NEGATIVE):
            return c + self._chain(left, right, zero)
        level = [self._result(x * y) for x, y in zip(left, right, strict=True)]
        while len(level) > 1:
            level = [self._result(x + y) for x, y in zip(level[::2], level[1::2], strict=True)]
        return self._result(c + level[0])

    def _result(self, x: Emitted) -> Emitted:
        """What the unit makes of float32's result."""
        if self.kind in (HALF_TREE, HALF_TREE_FLUSHING):
            x = to_half(x)
        if self.kind in (TREE_FLUSHING, HALF_TREE_FLUSHING):
            return flushed_sum(x, _LEAST if self.kind == TREE_FLUSHING else LEAST_HALF)
        return x

    def _chain(self, left: list[Emitted], right: list[Emitted], total: Emitted) -> Emitted:
        for x, y in zip(left, right, strict=True):
            total = x.call("fma", y, total)
        return total


def ieee_strip(b: ir.IRBuilder, kind: int, length: int, panel: int, arg: dict[str, Any], v: dict[str, Emitted]) -> None:
    """All rows of a strip against one panel of columns: c is updated in place."""
    if kind == TREE_FLUSHING:
        with b.if_else(v["fields"].compare("!=", 0).v) as (calm, flushing):
            with calm:
                _rows(b, TREE, length, panel, arg, v)
            with flushing:
                _rows(b, kind, length, panel, arg, v)
    else:
        _rows(b, kind, length, panel, arg, v)


def _rows(b: ir.IRBuilder, kind: int, length: int, panel: int, arg: dict[str, Any], v: dict[str, Emitted]) -> None:
    whole = v["height"] & -ROWS
    with ops.loop(b, whole, ROWS) as i:
        _tile(b, kind, length, panel, ROWS, i, arg, v)
    with ops.loop(b, v["height"], 1, whole) as i:
        _tile(b, kind, length, panel, 1, i, arg, v)


def _tile(
    b: ir.IRBuilder, kind: int, length: int, panel: int, rows: int, i: Emitted, arg: dict[str, Any], v: dict[str, Emitted]
) -> None:
    columns = range(0, panel, LANES)
    places = [(i + r) * v["ldc"] + col for r in range(rows) for col in columns]
    c = [Variable(b, ops.emit_load(b, arg["c"], place, LANES)) for place in places]
    block = _Block(b, kind, length)
    with ops.loop(b, v["depth"], length) as k:
        right = [[ops.emit_load(b, arg["bm"], (k + t) * panel + col, LANES) for t in range(length)] for col in columns]
        for r in range(rows):
            left = [ops.emit_load(b, arg["a"], (i + r) * v["lda"] + k + t).spread(LANES) for t in range(length)]
            for n in range(len(columns)):
                at = c[r * len(columns) + n]
                at.set(block.after(left, right[n], at.get()))
    for place, x in zip(places, c, strict=True):
        ops.emit_store(b, x.get(), arg["c"], place)
