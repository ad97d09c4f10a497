"""Squares of codes turned over in registers: lines along k become lines of columns."""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.vector_ops import I32, I64, Emitted

_PIECE = 16  # bytes of a register that its shuffles reach; four of them are a register
_NUMBERS = ("target", "line", "source", "column")
_AHEAD = 2  # squares further along k that are asked for: lines so far apart are more streams than a processor fetches by itself


def square(item: int) -> int:
    """Lines and columns of a square of codes of `item` bytes: a register holds a line of it."""
    return 4 * _PIECE // item


def _shuffled(b: ir.IRBuilder, x: Emitted, y: Emitted, bits: int, places: list[int]) -> Emitted:
    kind = ir.IntType(bits)
    x, y = (z.bits_as(kind, 512 // bits) for z in (x, y))
    return Emitted(b, b.shuffle_vector(x.v, y.v, ir.Constant(ir.VectorType(I32, len(places)), places)))


def _in_turns(b: ir.IRBuilder, x: Emitted, y: Emitted, bits: int) -> list[Emitted]:
    """Elements of x and y by turns, the lower halves of their pieces, then the upper ones."""
    count, each = 512 // bits, 8 * _PIECE // bits
    return [
        _shuffled(b, x, y, bits, [place for piece in range(0, count, each) for i in range(half, half + each // 2)
                                  for place in (piece + i, count + piece + i)])
        for half in (0, each // 2)
    ]  # fmt: skip


def _pieces(b: ir.IRBuilder, x: Emitted, y: Emitted, first: tuple[int, int]) -> Emitted:
    """Two pieces of x and the same two of y."""
    return _shuffled(b, x, y, 64, [base + 2 * piece + i for base in (0, 8) for piece in first for i in (0, 1)])


def turned(b: ir.IRBuilder, rows: list[Emitted], item: int) -> list[Emitted]:
    """The columns of a square whose rows are registers.

    The rows of each quarter are merged by turns, those of even place with their neighbours, until a piece of a register holds
    one place of all of them: places come in the order of their bits reversed. Then quarters exchange pieces.
    """
    each = _PIECE // item
    quarters, places = [], list(range(each))
    for start in range(0, len(rows), each):
        found, places, width = rows[start : start + each], list(range(each)), 8 * item
        while width < 8 * _PIECE:
            pairs = [_in_turns(b, x, y, width) for x, y in zip(found[::2], found[1::2], strict=True)]
            found = [low for low, _ in pairs] + [high for _, high in pairs]
            width *= 2
        quarters.append(found)
    bits = each.bit_length() - 1
    columns: dict[int, Emitted] = {}
    for place in places:
        w, x, y, z = (quarter[place] for quarter in quarters)
        first = int(f"{place:0{bits}b}"[::-1], 2)
        for half in (0, 1):
            low, high = _pieces(b, w, x, (2 * half, 2 * half + 1)), _pieces(b, y, z, (2 * half, 2 * half + 1))
            columns[(2 * half) * each + first] = _pieces(b, low, high, (0, 2))
            columns[(2 * half + 1) * each + first] = _pieces(b, low, high, (1, 3))
    return [columns[i] for i in range(4 * each)]


def _turn(b: ir.IRBuilder, item: int, **arg: Any) -> None:
    v = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    kind = ir.IntType(8 * item)

    def line(name: str, step: str, i: int) -> Any:
        return b.inttoptr((v[name] + v[step] * i).v, kind.as_pointer())

    count = square(item)
    rows = [ops.emit_load(b, line("source", "column", i), 0, count) for i in range(count)]
    for i in range(count):
        ops.emit_prefetch(b, v["source"] + v["column"] * i + _AHEAD * count * item, 2)
    for i, found in enumerate(turned(b, rows, item)):
        ops.emit_store(b, found.bits_as(kind, count), line("target", "line", i), 0)


@intrinsic(prefer_literal=True)
def turn_square(typingctx, item, numbers):
    """The code of line i and column j, at source + i·item + j·column, to target + i·line + j·item, in a `square`. numbers: int64, as in _NUMBERS."""
    size = item.literal_value

    def codegen(context, builder, signature, args):
        values = [builder.extract_value(args[1], i) for i in range(len(_NUMBERS))]
        body = partial(_turn, item=size)
        builder.call(ops.function(builder.module, f"tcsim_turn_{size}", dict.fromkeys(_NUMBERS, I64), body), values)
        return context.get_dummy_value()

    return types.void(item, numbers), codegen
