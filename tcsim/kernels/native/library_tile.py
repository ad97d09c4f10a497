"""The library's tiles in registers: 4, 2 or 1 rows of a against a panel of 32 (float32), 16 (float64) or 64 (int8) columns of b."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.directed import vectors_held
from tcsim.codegen.vector_ops import F32, F64, I16, I32, I64, Emitted, Variable
from tcsim.kernels.native.library_units import DOUBLE, INTEGER, SINGLE

ROWS = (4, 2, 1)
LANES_OF = {DOUBLE: 8, SINGLE: 16, INTEGER: 16}
_VECTORS = {DOUBLE: 2, SINGLE: 2, INTEGER: 4}
WIDTHS = tuple(LANES_OF[kind] * _VECTORS[kind] for kind in (DOUBLE, SINGLE, INTEGER))
SIZES = (8, 4, 4)  # bytes of an element as a tile reads it: for int8, two neighbours along k as int16
NUMBERS: dict[int, type[Any]] = {DOUBLE: np.float64, SINGLE: np.float32, INTEGER: np.int32}
_TYPES = {DOUBLE: F64, SINGLE: F32, INTEGER: I32}
_NAMES = ("a", "bm", "c", "lda", "ldb", "ldc", "depth", "mode")


@intrinsic(prefer_literal=True)
def library_tile(typingctx, kind, rows, numbers):
    """c[rows, width] += A·B over `depth` elements in ascending order. numbers: `_NAMES`, addresses, pitches in elements, elements, mode."""
    chosen = kind.literal_value

    def codegen(context, builder, signature, args):
        values = [builder.extract_value(args[2], i) for i in range(len(_NAMES))]
        bodies = [(count, partial(_tile, kind=chosen, rows=count)) for count in ROWS]
        ops.choose(builder, args[1], f"tcsim_library_{chosen}", bodies, dict.fromkeys(_NAMES, I64), values)
        return context.get_dummy_value()

    return types.void(kind, types.int64, numbers), codegen


def _tile(b: ir.IRBuilder, kind: int, rows: int, **arg: Any) -> None:
    vectors = _VECTORS[kind]
    v = {name: Emitted(b, arg[name]) for name in _NAMES}
    a, bm, c = (b.inttoptr(arg[name], _TYPES[kind].as_pointer()) for name in ("a", "bm", "c"))
    directed = b.icmp_signed("!=", arg["mode"], I64(ops.NEAREST))
    if kind != INTEGER:
        with b.if_then(directed):
            ops.set_rounding(b, v["mode"].cast(I32, "trunc"))
    abreast = max(vectors_held() // (2 * rows), 1)  # vectors of columns: sums fill half of the registers
    for first in range(0, vectors, abreast):
        _columns(b, kind, rows, range(first, min(first + abreast, vectors)), (a, bm, c), v)
    if kind != INTEGER:
        with b.if_then(directed):
            ops.set_rounding(b, Emitted(b, I32(ops.NEAREST)))


def _columns(
    b: ir.IRBuilder, kind: int, rows: int, columns: range, matrices: tuple[Any, Any, Any], v: dict[str, Emitted]
) -> None:
    """c += A·B of some vectors of columns."""
    (a, bm, c), lanes = matrices, LANES_OF[kind]
    at = {(r, n): v["ldc"] * r + n * lanes for r in range(rows) for n in columns}
    total = {member: Variable(b, ops.emit_load(b, c, place, lanes)) for member, place in at.items()}

    def add(k: Emitted) -> None:
        right = {n: ops.emit_load(b, bm, k * v["ldb"] + n * lanes, lanes) for n in columns}
        for r in range(rows):
            left = ops.emit_load(b, a, k + v["lda"] * r).spread(lanes)
            for n in columns:
                x = total[r, n]
                x.set(x.get() + pair_product(left, right[n]) if kind == INTEGER else left.call("fma", right[n], x.get()))

    ops.each(b, Emitted(b, I64(0)), v["depth"], add)
    for member, place in at.items():
        ops.emit_store(b, total[member].get(), c, place)


def pair_product(x: Emitted, y: Emitted) -> Emitted:
    """x0·y0 + x1·y1 for the two int16 in each lane; LLVM has one instruction for it."""
    wide = x.bits_as(I16, 32).cast(I32, "sext") * y.bits_as(I16, 32).cast(I32, "sext")
    return wide.lanes(list(range(0, 32, 2))) + wide.lanes(list(range(1, 32, 2)))
