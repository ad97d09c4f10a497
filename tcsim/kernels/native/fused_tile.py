"""Fused chains with flushes in registers: a few rows of a against strips of sixteen columns of b, through all of k."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.vector_ops import F32, I32, I64, LANES, Emitted, Variable, emit_load, emit_store

ROWS, STRIPS = 8, 4  # of the tiles of many rows of one strip, and of one row of many strips
_MAGNITUDE, _SIGN, _LEAST_NORMAL = 0x7FFFFFFF, 0x80000000, 0x00800000
_INFINITE = 0x7F800000
_SHAPES = ((ROWS, 1), (1, STRIPS), (1, 1))
_NAMES = ("depth", "pitch", "blocks", "lanes", "wide")


@intrinsic
def run_fused_tile(
    typingctx: Any, shape: Any, left: Any, right: Any, starts: Any, c: Any, out: Any, edge: Any,
    depth: Any, pitch: Any, blocks: Any, lanes: Any, wide: Any,
) -> Any:  # fmt: skip
    """out[i, j] = c[i, j] and the products of a[i, q] and b[q, j] in blocks from starts[t] on, each of `lanes` chains in turn.

    shape: 0 of ROWS rows and one strip, 1 of one row and STRIPS strips, 2 of one of each. Rows of a have `depth` products, lines
    of b are `pitch` apart, rows of c and out `wide`. edge[i, j]: 0 where a step gave the least normal number or the output is NaN; before it,
    in edge[0], whether any is.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        floats = F32.as_pointer()
        arguments = {
            "left": floats,
            "right": floats,
            "starts": I64.as_pointer(),
            "c": floats,
            "out": floats,
            "edge": I32.as_pointer(),
        }
        bodies = [(i, _body(rows, strips)) for i, (rows, strips) in enumerate(_SHAPES)]
        ops.choose(builder, args[0], "tcsim_fused_tile", bodies, {**arguments, **dict.fromkeys(_NAMES, I64)}, args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, left, right, starts, c, out, edge, *[types.int64] * len(_NAMES)), codegen


def _above(s: Emitted) -> Emitted:
    """How far a magnitude is above the least normal number, in units of its last place; negative below it."""
    return (s.bits_as(I32) & _MAGNITUDE) - _LEAST_NORMAL


def _flushed(s: Emitted) -> Emitted:
    bits = s.bits_as(I32)
    return _above(s).compare("<", 0).where(bits & _SIGN, bits).bits_as(F32)


def _body(rows: int, strips: int) -> Any:
    """A tile of so many rows and strips."""
    places = [(i, s) for i in range(rows) for s in range(strips)]
    zero, most = ir.Constant(ir.VectorType(F32, LANES), [0.0] * LANES), ir.Constant(ir.VectorType(I32, LANES), [-1] * LANES)

    def body(b: ir.IRBuilder, left: Any, right: Any, starts: Any, c: Any, out: Any, edge: Any, **given: Any) -> None:
        depth, pitch, blocks, lanes, wide = (Emitted(b, given[name]) for name in _NAMES)
        sums = [Variable(b, Emitted(b, zero)) for _ in places]
        near = [Variable(b, Emitted(b, most)) for _ in places]

        def from_c(place: tuple[int, int]) -> Emitted:
            return _flushed(emit_load(b, c, wide * place[0] + place[1] * LANES, LANES, align=4))

        def steps(first: Emitted, last: Emitted, apart: Emitted | int) -> None:
            with ops.loop(b, last, apart, first) as q:
                lines = [emit_load(b, right, q * pitch + s * LANES, LANES, align=4) for s in range(strips)]
                factors = [emit_load(b, left, depth * i + q, align=4).spread(LANES) for i in range(rows)]
                for (i, s), total, kept in zip(places, sums, near, strict=True):
                    found = factors[i].call("fma", lines[s], total.get())
                    kept.set(kept.get().call("umin", _above(found)))
                    total.set(_flushed(found))

        def at(t: Emitted) -> Emitted:
            return emit_load(b, starts, t, align=8)

        start = Emitted(b, I64(0))
        with b.if_else(lanes.compare("==", 1).v) as (chain, several):
            with chain:
                for place, total in zip(places, sums, strict=True):
                    total.set(from_c(place))
                steps(at(start), at(blocks), 1)
            with several:
                ends, blocks_ = (
                    [Variable(b, from_c(place)) for place in places],
                    [Variable(b, Emitted(b, zero)) for _ in places],
                )
                with ops.loop(b, blocks) as t:
                    with ops.loop(b, lanes) as lane:
                        for total in sums:
                            total.set(Emitted(b, zero))
                        steps(at(t) + lane, at(t + 1), lanes)
                        first = lane.compare("==", 0).spread(LANES)
                        for total, block in zip(sums, blocks_, strict=True):
                            block.set(first.where(total.get(), _flushed(block.get() + total.get())))
                    for block, end in zip(blocks_, ends, strict=True):
                        end.set(_flushed(end.get() + block.get()))
                for total, end in zip(sums, ends, strict=True):
                    total.set(end.get())
        odd = []
        for n, ((i, s), total, kept) in enumerate(zip(places, sums, near, strict=True)):
            emit_store(b, total.get(), out, wide * i + s * LANES)
            of_nan = (total.get().bits_as(I32) & _MAGNITUDE).compare(">", _INFINITE)
            found = of_nan.where(Emitted(b, zero).bits_as(I32), kept.get())
            emit_store(b, found, edge, 1 + n * LANES)
            odd.append(found.compare("==", 0))
        emit_store(b, ops.Abreast(odd).any().cast(I32, "zext"), edge, 0)

    return body
