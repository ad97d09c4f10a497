"""Packing for the fast path: codes of any layout become exact float32 values and exponent codes, 16 at a time.

A magnitude of a format with M fraction bits, shifted left by 23 - M, is a float32 pattern whose value is off by the
difference of the two biases; one multiplication by 2^(127 - bias) repairs it, subnormals included. Exponent codes are
max(floor(log2 |x|), emin) of the *unit's* format plus an offset (63 for a, 64 for b), and `zero` for a zero, so that a
sum of two codes is e + 127 or unmistakably small. NaN and infinities are packed as zeros and reported.

Codes go into 32-bit lanes as `simd_tile` reads them: the code of one vector in every field of its lanes (`repeat`), or
those of 2 or 4 neighbouring vectors side by side.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.formats import Format
from tcsim.kernels import simd_ops as ops
from tcsim.kernels.simd_ops import F32, F64, I8, I16, I32, I64, LANES, Value, Variable

SPECIAL, HAS_NAN = 1, 2  # bits of what packing reports
WORD_ZERO = -8192  # the code of a zero where codes are 16 bits wide


class Decoding(NamedTuple):
    """How codes of `stored` become values of `fmt`: the integers that `unpack` reads, in this order."""

    magnitude: int
    sign: int
    sign_shift: int
    shift: int
    scale: int  # pattern of the float32 2^(127 - bias)
    largest: int  # largest finite magnitude
    infinity: int  # magnitude of infinity, or -1
    nan: int  # a code that is NaN besides those beyond `largest`, or -1
    least: int  # emin + 127
    offset: int  # exponent field to code
    zero: int  # code of a zero
    field: int  # bits of a code, as a mask


def decoding(stored: Format, fmt: Format, offset: int, words: bool) -> np.ndarray[Any, Any]:
    """The Decoding of an operand as an int64 array. Codes of float64 are first converted to float32, exactly."""
    wide = stored.width == 64
    width, mantissa, bias = (32, 23, 127) if wide else (stored.width, stored.mantissa_bits + stored.padding, stored.bias)
    sign = 1 << (width - 1) if stored.signed else 0
    infinity = 0x7F800000 if wide else stored.inf_code
    largest = 0x7F7FFFFF if wide else stored.max_code
    scale = (127 - bias + 127) << 23
    magnitude = (1 << (width - 1 if stored.signed else width)) - 1
    nan = sign if stored.nan == "negative-zero" else -1
    return np.array(
        Decoding(magnitude, sign, 32 - width, 23 - mantissa, scale, largest, -1 if infinity is None else infinity, nan,
                 fmt.emin + 127, offset - 127, WORD_ZERO if words else 0, 0xFFFF if words else 0xFF),
        dtype=np.int64,
    )  # fmt: skip


class _Unpack:
    """Emits the decoding of 16 codes; holds the numbers of a Decoding in registers."""

    def __init__(self, b: ir.IRBuilder, numbers: Any) -> None:
        self.b = b
        values = [ops.load(b, numbers, i).cast(I32, "trunc").spread(LANES) for i in range(len(Decoding._fields))]
        self.n = Decoding(*values)  # type: ignore[arg-type]
        self.seen = Variable(b, ops.constant(b, ir.VectorType(I32, LANES), 0))

    def unpack(self, codes: Value) -> tuple[Value, Value]:
        """Values (as patterns) and exponent codes of 16 codes; specials are remembered in `seen`."""
        if codes.element == I64:
            codes = codes.bits_as(F64).cast(F32, "fptrunc").bits_as(I32)
        elif codes.element != I32:
            codes = codes.cast(I32, "zext")
        n: Any = self.n
        magnitude = codes & n.magnitude
        special = Value(self.b, self.b.or_(magnitude.compare("u>", n.largest).v, codes.compare("==", n.nan).v))
        bits = magnitude.compare("!=", n.infinity).where(magnitude.like(SPECIAL | HAS_NAN), SPECIAL)
        self.seen.set(self.seen.get() | special.where(bits, 0))
        exact = (magnitude << n.shift).bits_as(F32) * n.scale.bits_as(F32)
        pattern = special.where(magnitude.like(0), exact.bits_as(I32))
        zero = pattern.compare("==", 0)
        exponent = zero.where(n.zero, (pattern >> 23).call("smax", n.least) + n.offset)
        return pattern | ((codes & n.sign) << n.sign_shift), exponent & n.field


class _Target:
    """Where unpacked vectors of one row go."""

    def __init__(self, b: ir.IRBuilder, arg: dict[str, Any], row: Value) -> None:
        self.b, self.arg = b, arg
        self.bits, self.halvings, self.place = (Value(b, arg[name]) for name in ("bits", "halvings", "place"))
        self.last = (Value(b, I64(1)) << self.halvings) - 1
        self.repeat = Value(b, arg["repeat"]).cast(I32, "trunc")
        self.values_row, self.codes_row = row * Value(b, arg["pitch"]), row * Value(b, arg["code_pitch"])

    def store(self, values: Value, codes: Value, first: Value) -> None:
        """Store 16 values at `first` of the row, and their codes beside those of the vectors that share their lanes."""
        ops.store(self.b, values, self.arg["values"], self.values_row + first)
        vector = first >> 4
        beside = vector & self.last
        at = self.codes_row + (vector >> self.halvings) * LANES
        place = (beside * self.bits + self.place).cast(I32, "trunc")
        placed = (codes * self.repeat) << place
        old = ops.load(self.b, self.arg["codes"], at, LANES)
        keep = place.compare("!=", 0).where(Value(self.b, I32(-1)), 0)
        ops.store(self.b, placed | (old & keep), self.arg["codes"], at)


def _unpack_rows(b: ir.IRBuilder, item: ir.Type, **arg: Any) -> None:
    """Rows of `count` codes `step` bytes apart, rows `row_step` bytes apart, to rows `pitch` elements apart."""
    v = {name: Value(b, arg[name]) for name in ("source", "step", "count", "row_step", "rows")}
    decoder = _Unpack(b, arg["numbers"])
    whole = v["count"] & -LANES
    together = v["step"].compare("==", item.width // 8)
    with ops.loop(b, v["rows"]) as r:
        first, target = v["source"] + r * v["row_step"], _Target(b, arg, r)
        with b.if_else(together.v) as (contiguous, strided):
            with contiguous, ops.loop(b, whole, LANES) as i:
                codes = ops.load(b, b.inttoptr((first + i * v["step"]).v, item.as_pointer()), 0, LANES)
                target.store(*decoder.unpack(codes), i)
            with strided, ops.loop(b, whole, LANES) as i:
                codes = _gather(b, item, first + i * v["step"], v["step"])
                target.store(*decoder.unpack(codes), i)
        with b.if_then(whole.compare("<", v["count"]).v):
            codes = _gather_some(b, item, first + whole * v["step"], v["step"], v["count"] - whole)
            target.store(*decoder.unpack(codes), whole)
    seen = Variable(b, ops.load(b, arg["report"], 0))
    for lane in range(LANES):
        found = Value(b, b.extract_element(decoder.seen.get().v, I32(lane)))
        seen.set(seen.get() | found.cast(I64, "zext"))
    ops.store(b, seen.get(), arg["report"], 0)


def _gather(b: ir.IRBuilder, item: ir.Type, first: Value, step: Value) -> Value:
    vector = ir.Constant(ir.VectorType(item, LANES), None)
    for lane in range(LANES):
        one = ops.load(b, b.inttoptr((first + step * lane).v, item.as_pointer()), 0)
        vector = b.insert_element(vector, one.v, I32(lane))
    return Value(b, vector)


def _gather_some(b: ir.IRBuilder, item: ir.Type, first: Value, step: Value, count: Value) -> Value:
    vector = Variable(b, ops.constant(b, ir.VectorType(item, LANES), 0))
    with ops.loop(b, count) as lane:
        one = ops.load(b, b.inttoptr((first + step * lane).v, item.as_pointer()), 0)
        vector.set(Value(b, b.insert_element(vector.get().v, one.v, lane.cast(I32, "trunc").v)))
    return vector.get()


_POINTERS = {"values": I32, "codes": I32, "numbers": I64, "report": I64}
_NUMBERS = ("source", "step", "count", "row_step", "rows", "pitch", "code_pitch", "bits", "repeat", "halvings", "place")
_ITEMS = ((1, I8), (2, I16), (4, I32), (8, I64))


@intrinsic
def unpack_rows(typingctx, arrays, item, at, code_at, numbers):
    """Unpack a matrix of codes into arrays[0][at:] (float32) and arrays[1][code_at:] (uint32 of exponent codes).

    arrays: (values, codes, numbers of the Decoding, report); report[0] gathers SPECIAL and HAS_NAN. item: bytes of a
    code. numbers: int64 (source address, step, count, row_step, rows, pitch, code_pitch, bits, repeat, halvings, place); steps in
    bytes, pitches in elements, a code of `bits` bits times `repeat`, 2^halvings vectors sharing their lanes;
    a `place` above 0 puts codes at that bit of lanes that others have begun.
    """
    arguments = {name: kind.as_pointer() for name, kind in _POINTERS.items()} | dict.fromkeys(_NUMBERS, I64)

    def codegen(context, builder, signature, args):
        kinds = signature.args[0].types
        found = [builder.extract_value(args[0], i) for i in range(len(kinds))]
        data = [context.make_array(kind)(context, builder, x).data for kind, x in zip(kinds, found, strict=True)]
        data[0] = builder.bitcast(builder.gep(data[0], [args[2]]), I32.as_pointer())
        data[1] = builder.gep(data[1], [args[3]])
        values = [builder.extract_value(args[4], i) for i in range(len(_NUMBERS))]
        done = builder.append_basic_block("unpacked")
        switch = builder.switch(args[1], done)
        for size, kind in _ITEMS:
            emitted = ops.function(builder.module, f"tcsim_unpack_{size}", arguments, partial(_unpack_rows, item=kind))
            block = builder.append_basic_block(f"unpack_{size}")
            switch.add_case(size, block)
            builder.position_at_end(block)
            builder.call(emitted, [*data, *values])
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(arrays, item, at, code_at, numbers), codegen
