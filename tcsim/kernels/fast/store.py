"""c to accumulators and these to codes, 16 at a time; what the fast arithmetic does not hold is marked."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.parts import data_of
from tcsim.codegen.vector_ops import F32, I8, I16, I32, I64, LANES, Emitted, Variable
from tcsim.kernels.fast.pack import HAS_NAN, SPECIAL
from tcsim.kernels.fast.round import STICKY

_MAGNITUDE, _INFINITY, _SIGN = 0x7FFFFFFF, 0x7F800000, 1 << 31
_LOADED = ("source", "row_step", "column_step", "rows", "columns", "pitch", "least", "most", "infinite", "staged")
_STORED = ("first", "rows", "columns", "pitch", "out_row", "out_column", "nan", "unresolved", "signed_zero")
_LOAD_POINTERS = {"c": I32, "bad": I8}
_STORE_POINTERS = {"c": I32, "bad": I8, "row_marks": I64, "column_marks": I64, "left": I64}


def _finite(codes: Emitted, infinite: Emitted) -> tuple[Emitted, Emitted]:
    """The float32 patterns of float16 codes, and which are left to others: infinities, where `infinite` says so."""
    magnitude, sign = codes & 0x7FFF, (codes & 0x8000) << 16
    value = ((magnitude << 13).bits_as(F32) * 2.0**112).bits_as(I32)
    top = magnitude.compare("==", 0x7C00)
    return top.where(value.like(STICKY), value) | sign, Emitted(codes.b, codes.b.and_(top.v, infinite.v))


def _load_c(b: ir.IRBuilder, half: bool, c: Any, bad: Any, **arg: Any) -> None:
    n = {name: Emitted(b, arg[name]) for name in _LOADED}
    item, limits = I16 if half else I32, [n[x].call("smax", -1).call("smin", _MAGNITUDE) for x in ("least", "most")]
    least, most = (x.cast(I32, "trunc").spread(LANES) for x in limits)
    infinite, staged = (n[x].compare("!=", 0).spread(LANES) for x in ("infinite", "staged"))
    line = ir.VectorType(item, LANES)
    slot = cgutils.alloca_once(b, line)
    lanes = b.bitcast(slot, item.as_pointer())
    with ops.loop(b, n["rows"], small=True) as i, ops.loop(b, n["columns"], LANES, small=True) as j:
        b.store(ir.Constant(line, None), slot)
        source = n["source"] + i * n["row_step"] + j * n["column_step"]
        with ops.loop(b, (n["columns"] - j).call("smin", LANES), small=True) as lane:
            pointer = b.inttoptr((source + lane * n["column_step"]).v, item.as_pointer())
            ops.emit_store(b, ops.emit_load(b, pointer, 0), lanes, lane)
        found = Emitted(b, b.load(slot))
        if half:
            codes = found.cast(I32, "zext")
            nan = (codes & 0x7FFF).compare(">", 0x7C00)
            pattern, other = _finite(codes, infinite)
        else:
            pattern, magnitude = found, found & _MAGNITUDE
            nan = magnitude.compare(">", _INFINITY)
            small = b.and_(magnitude.compare("!=", 0).v, magnitude.compare("<", least).v)
            zero = b.and_(staged.v, found.compare("==", _SIGN).v)
            other = Emitted(b, b.or_(b.or_(magnitude.compare(">", most).v, small), zero))
        marks = nan.where(pattern.like(HAS_NAN), other.where(pattern.like(SPECIAL), 0))
        at = i * n["pitch"] + j
        ops.emit_store(b, marks.compare("==", 0).where(pattern, 0), c, at)
        ops.emit_store(b, marks.cast(I8, "trunc"), bad, at)


@intrinsic(prefer_literal=True)
def load_c(typingctx, half, arrays, numbers):
    """Fill accumulators from the codes of c; what the fast arithmetic cannot hold becomes 0 and is marked.

    arrays: (c, bad). numbers: int64 (source, row_step, column_step, rows, columns, pitch, least, most, infinite, staged): an address and
    bytes; a magnitude but 0 outside least … most is marked, in float16 an infinity where `infinite`, else a -0 where `staged`.
    """
    return types.void(half, arrays, numbers), _calling("load_c", _load_c, bool(half.literal_value), _LOAD_POINTERS, _LOADED)


def _half(pattern: Emitted, magnitude: Emitted) -> Emitted:
    """Codes of float16 values, and of infinity for what is 2^16 or more."""
    small = (magnitude.bits_as(F32) * 2.0**24).cast(I32, "fptosi")  # subnormal: as a count of the least one
    code = magnitude.compare("<", 113 << 23).where(small, (magnitude >> 13) - (112 << 10))
    code = magnitude.compare(">=", (127 + 16) << 23).where(code.like(0x7C00), code)
    return code | ((pattern >> 16) & 0x8000)


def _store(b: ir.IRBuilder, half: bool, **arg: Any) -> None:
    n = {name: Emitted(b, arg[name]) for name in _STORED}
    with b.if_else(_some_marked(b, arg, n).v, likely=False) as (some, none):
        with some:
            _store_task(b, half, True, arg, n)
        with none:
            _store_task(b, half, False, arg, n)


def _some_marked(b: ir.IRBuilder, arg: dict[str, Any], n: dict[str, Emitted]) -> Emitted:
    """Whether there is a mark in a task at all."""
    one, many = Variable(b, Emitted(b, I64(0))), Variable(b, ops.constant(b, ir.VectorType(I64, LANES), 0))
    with ops.loop(b, n["rows"], small=True) as i:
        one.set(one.get() | ops.emit_load(b, arg["row_marks"], i))
    with ops.loop(b, n["columns"], LANES, small=True) as j:
        many.set(many.get() | ops.emit_load(b, arg["column_marks"], j, LANES))
    own = Variable(b, ops.constant(b, ir.VectorType(I8, LANES), 0))
    with ops.loop(b, n["rows"] * n["pitch"], LANES, small=True) as at:
        own.set(own.get() | ops.emit_load(b, arg["bad"], at, LANES))
    lines = b.or_(one.get().compare("!=", 0).v, many.get().compare("!=", 0).any().v)
    return Emitted(b, b.or_(lines, own.get().compare("!=", 0).any().v))


def _store_task(b: ir.IRBuilder, half: bool, marked: bool, arg: dict[str, Any], n: dict[str, Emitted]) -> None:
    """All rows of a task, where some output may be marked or none is."""
    nan, unresolved = (n[name].cast(I32, "trunc").spread(LANES) for name in ("nan", "unresolved"))
    signed, out = n["signed_zero"].compare("!=", 0).spread(LANES), arg["out"]
    along = n["out_column"].compare("==", 1)
    count, item = Variable(b, Emitted(b, I64(0))), I16 if half else I32
    slot = cgutils.alloca_once(b, ir.VectorType(item, LANES))
    lanes = b.bitcast(slot, item.as_pointer())
    number = Emitted(b, ir.Constant(ir.VectorType(I64, LANES), list(range(LANES))))

    def codes(i: Emitted, j: Emitted, remaining: Emitted) -> Emitted:
        """The codes of 16 outputs of a row; those that are left are counted."""
        at = i * n["pitch"] + j
        pattern = ops.emit_load(b, arg["c"], at, LANES)
        magnitude = pattern & _MAGNITUDE
        code = _half(pattern, magnitude) if half else pattern
        kept = Emitted(b, b.or_(magnitude.compare("!=", 0).v, signed.v))
        code = magnitude.compare(">", _INFINITY).where(nan, kept.where(code, 0))
        if marked:
            mine = ops.emit_load(b, arg["row_marks"], i).cast(I32, "trunc").spread(LANES)
            theirs = ops.emit_load(b, arg["column_marks"], j, LANES).cast(I32, "trunc")
            marks = ops.emit_load(b, arg["bad"], at, LANES).cast(I32, "zext") | mine | theirs
            known = (marks & HAS_NAN).compare("!=", 0)
            code = marks.compare("==", 0).where(code, known.where(nan, unresolved))
            open_ = b.and_(b.and_(marks.compare("!=", 0).v, b.not_(known.v)), number.compare("<", remaining).v)
            count.set(count.get() + Emitted(b, b.bitcast(open_, I16)).call("ctpop").cast(I64, "zext"))
        return code.cast(I16, "trunc") if half else code

    with ops.loop(b, n["columns"], LANES, small=True) as j:
        remaining, first = n["columns"] - j, n["first"] + j * n["out_column"]
        with b.if_else(b.and_(along.v, remaining.compare(">=", LANES).v), likely=True) as (whole, some):
            with whole, ops.loop(b, n["rows"], small=True) as i:
                ops.emit_store(b, codes(i, j, remaining), out, first + i * n["out_row"])
            with some, ops.loop(b, n["rows"], small=True) as i:
                b.store(codes(i, j, remaining).v, slot)
                with ops.loop(b, remaining.call("smin", LANES), small=True) as lane:
                    target = first + i * n["out_row"] + lane * n["out_column"]
                    ops.emit_store(b, ops.emit_load(b, lanes, lane), out, target)
    ops.emit_store(b, count.get(), arg["left"], 0)


@intrinsic(prefer_literal=True)
def store_rows(typingctx, half, arrays, numbers):
    """Write the codes of float32 accumulators, in float16 those of exact values: zeros are +0 unless signed_zero, NaN is `nan`.

    arrays: (c, bad, row_marks, column_marks, left, out); outputs marked HAS_NAN are written as `nan`, others that are marked as
    `unresolved`, and left[0] tells how many. numbers: int64 (first, rows, columns, pitch, out_row, out_column, nan, unresolved, signed_zero):
    rows of c are `pitch` apart, padded to a multiple of 16 as the marks of columns are, those of out `out_row` apart, from place `first` on.
    """
    to_half = bool(half.literal_value)
    pointers = {**_STORE_POINTERS, "out": I16 if to_half else I32}
    return types.void(half, arrays, numbers), _calling("store", _store, to_half, pointers, _STORED)


def _calling(name: str, body: Any, half: bool, pointers: dict[str, ir.Type], numbers: tuple[str, ...]) -> Any:
    """What emits the call of a function made of `body`: of a tuple of arrays and a tuple of integers."""
    arguments = {key: kind.as_pointer() for key, kind in pointers.items()} | dict.fromkeys(numbers, I64)

    def filled(b: ir.IRBuilder, **arg: Any) -> None:
        body(b, half, **arg)

    def codegen(context, builder, signature, args):
        emitted = ops.function(builder.module, f"tcsim_{name}_{int(half)}", arguments, filled)
        data = data_of(context, builder, signature.args[1], args[1])
        data = [builder.bitcast(x, kind) for x, kind in zip(data, arguments.values(), strict=False)]
        values = [builder.extract_value(args[2], i) for i in range(len(numbers))]
        values = [builder.zext(x, I64) if x.type.width < 64 else x for x in values]
        builder.call(emitted, [*data, *values])
        return context.get_dummy_value()

    return codegen
