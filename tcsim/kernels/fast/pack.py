"""Packing for the fast path: codes become exact float32 values and exponent codes, 16 at a time.

A magnitude of a format with M fraction bits, shifted left by 23 - M, is a float32 pattern whose exponent field is off by the
difference of the two biases, which is added. A subnormal is first made the fraction of 2^(1 - bias), which is then subtracted:
multiplying it by a power of two would do too, but processors take a hundred cycles for a subnormal factor. Exponent codes are
max(floor(log2 |x|), emin) of the *unit's* format plus an offset (63 for a, 64 for b), and `zero` for a zero, so that a
sum of two codes is e + 127 or unmistakably small. NaN and infinities are reported; what is packed for them means
nothing, for their rows and columns are computed elsewhere.

Codes go into 32-bit lanes as `fast.tile` reads them: the code of one vector in every field of its lanes, or those of 2
or 4 neighbouring vectors side by side. Operands that are not contiguous along a row are first lined up (`contiguous`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.directed import has_feature, looked_up
from tcsim.codegen.parts import data_of, emit_call
from tcsim.codegen.vector_ops import F32, I8, I16, I32, I64, LANES, Emitted, Variable
from tcsim.fp.formats import Format, format_named

SPECIAL, HAS_NAN = 1, 2  # bits of what packing reports
# Whose codes share lanes: nobody's, those of vectors side by side, of vectors below each other; or there are values only.
ALONE, BESIDE, BELOW, VALUES = range(4)
_SIZES = 5  # places of a table for codes of 1, 2, 4 and 8 bytes, each at half of their number
LINED_UP, PLACES = 8 * _SIZES, 9 * _SIZES  # the place of `contiguous`'s functions, and how many there are in all
_HALF_INFINITY = 0x7C00
WORD_ZERO = -8192  # the code of a zero where codes are 16 bits wide


class Decoding(NamedTuple):
    """How codes of `stored` become values of `fmt`: the integers that `unpack` reads, in this order."""

    magnitude: int
    sign: int
    sign_shift: int
    shift: int
    rebias: int  # 127 - bias, in place
    largest: int  # largest finite magnitude
    infinity: int  # magnitude of infinity, or the largest finite one
    nan: int  # a code that is NaN besides those beyond `largest`, or -1
    least: int  # emin + 127
    offset: int  # exponent field to code
    zero: int  # code of a zero
    field: int  # bits of a code, as a mask
    half: int  # codes are float16's, or bytes that are float16's but for a shift and a power of two
    up: int  # that shift
    scale: int  # and that power, as a float32


def unpack_place(width: int, way: int) -> int:
    """Where in a table the functions are that unpack with codes of so many bits in this way."""
    return (4 * int(width == 16) + way) * _SIZES


def call_packed(
    b: ir.IRBuilder, table: ir.Value, first: int, item: ir.Value, arguments: dict[str, ir.Type], values: list[ir.Value]
) -> None:
    """Call the function for codes of `item` bytes whose address is in a table, from place `first` on."""
    place = (Emitted(b, item) >> 1) + first
    address = ops.emit_load(b, b.inttoptr(table, I64.as_pointer()), place)
    emit_call(b, address.v, arguments, values)


def decoding(stored: Format, fmt: Format, offset: int, words: bool) -> np.ndarray[Any, Any]:
    """The Decoding of an operand as an int64 array. Codes of float64 are first converted to float32, exactly."""
    wide = stored.width == 64
    width, mantissa, bias = (32, 23, 127) if wide else (stored.width, stored.mantissa_bits + stored.padding, stored.bias)
    sign = 1 << (width - 1) if stored.signed else 0
    infinity = 0x7F800000 if wide else stored.inf_code
    largest = 0x7F7FFFFF if wide else stored.max_code
    rebias = (127 - bias) << 23
    magnitude = (1 << (width - 1 if stored.signed else width)) - 1
    nan = sign if stored.nan == "negative-zero" else -1
    short = width <= 8 and mantissa <= 10 and largest << 10 - mantissa < _HALF_INFINITY and abs(15 - bias) < 64
    return np.array(
        Decoding(magnitude, sign, 32 - width, 23 - mantissa, rebias, largest, largest if infinity is None else infinity, nan,
                 fmt.emin + 127, offset - 127, WORD_ZERO if words else 0, 0xFFFF if words else 0xFF, int(short or stored == format_named("float16")), 10 - mantissa if short else 0, (127 + 15 - bias) << 23 if short else 0),
        dtype=np.int64,
    )  # fmt: skip


class _Unpack:
    """Emits the decoding of 16 codes; holds the numbers of a Decoding in registers."""

    def __init__(self, b: ir.IRBuilder, numbers: Any) -> None:
        self.b = b
        values = [ops.emit_load(b, numbers, i).cast(I32, "trunc").spread(LANES) for i in range(len(Decoding._fields))]
        self.n: Any = Decoding(*values)  # type: ignore[arg-type]
        vector = ir.VectorType(I32, LANES)
        self.top, self.odd = Variable(b, ops.constant(b, vector, 0)), Variable(b, ops.constant(b, vector, -1))

    def unpack(self, codes: Emitted) -> tuple[Emitted, Emitted]:
        """Values (as patterns) and exponent codes, in the low bits, of 16 codes; `report` later tells whether some were special."""
        if codes.element != I32:
            codes = codes.cast(I32, "zext")
        n = self.n
        magnitude = codes & n.magnitude
        self.top.set(self.top.get().call("umax", magnitude))
        self.odd.set(self.odd.get().call("umin", codes ^ n.nan))
        pattern = (magnitude << n.shift) + n.rebias
        least = n.rebias + (1 << 23)
        fraction = ((pattern + (1 << 23)).bits_as(F32) - least.bits_as(F32)).bits_as(I32)
        pattern = pattern.compare("u<", least).where(fraction, pattern)
        exponent = pattern.compare("==", 0).where(n.zero, (pattern >> 23).call("smax", n.least) + n.offset)
        return pattern | ((codes & n.sign) << n.sign_shift), exponent

    def coded(self, pattern: Emitted) -> Emitted:
        """The exponent codes of values."""
        doubled = pattern << 1
        return doubled.compare("==", 0).where(self.n.zero, (doubled >> 24).call("smax", self.n.least) + self.n.offset)

    def table(self) -> tuple[Emitted, Emitted]:
        """Whether codes have 4 bits at most and none of them is special, and then the values of all 16."""
        n = self.n
        few = (n.magnitude | n.sign).compare("u<", LANES) & n.nan.compare("==", -1) & n.largest.compare("==", n.magnitude)
        table, _ = self.unpack(Emitted(self.b, ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))))
        for seen, start in ((self.top, 0), (self.odd, -1)):
            seen.set(seen.get().like(start))
        return Emitted(self.b, self.b.extract_element(few.v, I32(0))), table

    def report(self) -> Emitted:
        """SPECIAL and HAS_NAN, as an i64, for all codes unpacked so far."""
        n = self.n
        top, odd = self.top.get(), self.odd.get().compare("==", 0).any()
        special = top.compare("u>", n.largest).any()
        nan = Emitted(self.b, self.b.or_(top.compare("u>", n.infinity).any().v, odd.v))
        return (nan.cast(I64, "zext") * (SPECIAL | HAS_NAN)) | (special.cast(I64, "zext") * SPECIAL)


class _UnpackHalf(_Unpack):
    """The same for float16, which the processor converts; `top` has magnitudes of float32, times 2."""

    def unpack(self, codes: Emitted) -> tuple[Emitted, Emitted]:
        pattern = codes.bits_as(ir.HalfType()).cast(F32, "fpext").bits_as(I32)
        self.top.set(self.top.get().call("umax", pattern << 1))
        return pattern, self.coded(pattern)

    def report(self) -> Emitted:
        top = self.top.get()
        special, nan = (top.compare(how, 0xFF << 24).any().cast(I64, "zext") for how in ("u>=", "u>"))
        return (special * SPECIAL) | (nan * HAS_NAN)


class _UnpackBytes(_Unpack):
    """The same for bytes that are float16 but for a shift and a power of two; all but values and exponents is looked at in 16 bits."""

    def __init__(self, b: ir.IRBuilder, numbers: Any) -> None:
        super().__init__(b, numbers)
        self.short: Any = Decoding(*(x.cast(I16, "trunc") for x in self.n))
        vector = ir.VectorType(I16, LANES)
        self.top, self.odd = Variable(b, ops.constant(b, vector, 0)), Variable(b, ops.constant(b, vector, -1))

    def unpack(self, codes: Emitted) -> tuple[Emitted, Emitted]:
        n, codes = self.short, codes.cast(I16, "zext")
        magnitude = codes & n.magnitude
        self.top.set(self.top.get().call("umax", magnitude))
        self.odd.set(self.odd.get().call("umin", codes ^ n.nan))
        half = (magnitude << n.up) | ((codes & n.sign) << (n.sign_shift - 16))
        pattern = (half.bits_as(ir.HalfType()).cast(F32, "fpext") * self.n.scale.bits_as(F32)).bits_as(I32)
        return pattern, self.coded(pattern)

    def report(self) -> Emitted:
        self.top, self.odd = (Variable(self.b, x.get().cast(I32, "zext")) for x in (self.top, self.odd))
        return super().report()


def _side_by_side(codes: list[Emitted], field: Emitted) -> Emitted:
    """Codes of several vectors in the fields of one."""
    joined = codes[0] & field
    for place, code in enumerate(codes[1:], 1):
        joined = joined | ((code & field) << (place * 32 // len(codes)))
    return joined


def _in_every_field(code: Emitted, width: int) -> Emitted:
    fields = 32 // width
    narrow = code.bits_as(ir.IntType(width), LANES * fields)
    return narrow.lanes([i // fields * fields for i in range(LANES * fields)]).bits_as(I32, LANES)


_HALVES = {I8: _UnpackBytes, I16: _UnpackHalf}


def emit_unpack(b: ir.IRBuilder, item: ir.Type, width: int, way: int, **arg: Any) -> None:
    """Rows of `count` contiguous codes, rows `row_step` bytes apart; codes of ALONE, BESIDE or BELOW vectors together."""
    v = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    decoder = _Unpack(b, arg["numbers"])
    if way == VALUES and item == I8:
        few, table = decoder.table()
        with b.if_then(few.v):
            _look_up_rows(b, table, v, arg["values"])
            b.ret_void()
    if item in _HALVES and has_feature("f16c"):
        half = ops.emit_load(b, arg["numbers"], Decoding._fields.index("half"))
        with b.if_then(half.compare("!=", 0).v):
            _decode_rows(b, _HALVES[item](b, arg["numbers"]), item, width, way, arg, v)
            b.ret_void()
    _decode_rows(b, decoder, item, width, way, arg, v)


def _decode_rows(
    b: ir.IRBuilder, decoder: _Unpack, item: ir.Type, width: int, way: int, arg: dict[str, Any], v: dict[str, Emitted]
) -> None:
    together = 1 if way in (ALONE, VALUES) else 32 // width
    down, right = (together, 1) if way == BELOW else (1, together)
    with ops.loop(b, v["rows"], down, small=True) as r:
        rows = [(r + t).call("smin", v["rows"] - 1) for t in range(down)]
        lines = [(v["source"] + row * v["row_step"], (r + t) * v["pitch"]) for t, row in enumerate(rows)]
        code_row = r * v["code_pitch"] if way != BELOW else (r >> (down.bit_length() - 1)) * v["code_pitch"]

        with ops.loop(b, v["count"], LANES * right, small=True) as i:
            found = []
            for source, place in lines:
                for t in range(right):
                    at = i + t * LANES
                    codes = _codes(b, item, source + at * (item.width // 8), v["count"] - at)
                    values, code = decoder.unpack(codes)
                    ops.emit_store(b, values, arg["values"], place + at)
                    found.append(code)
            if way != VALUES:
                joined = _side_by_side(found, decoder.n.field) if together > 1 else _in_every_field(found[0], width)
                ops.emit_store(b, joined, arg["codes"], code_row + (i >> (right.bit_length() - 1)))
    ops.emit_store(b, ops.emit_load(b, arg["report"], 0) | decoder.report(), arg["report"], 0)


def _look_up_rows(b: ir.IRBuilder, table: Emitted, v: dict[str, Emitted], values: Any) -> None:
    """The values of codes of 4 bits."""
    with ops.loop(b, v["rows"], small=True) as r, ops.loop(b, v["count"], LANES, small=True) as i:
        codes = _codes(b, I8, v["source"] + r * v["row_step"] + i, v["count"] - i).cast(I32, "zext") & (LANES - 1)
        ops.emit_store(b, looked_up(table, codes), values, r * v["pitch"] + i)


def _codes(b: ir.IRBuilder, item: ir.Type, address: Emitted, count: Emitted) -> Emitted:
    """16 codes from an address on; where there are fewer, those and zeros."""
    line = ir.VectorType(item, LANES)
    if has_feature("avx512bw") and has_feature("avx512vl"):  # one instruction there, a branch for every lane elsewhere
        return _some_lanes(b, line, address, count)
    spare = cgutils.alloca_once(b, line)
    whole, some = b.basic_block, b.append_basic_block("some")
    ready = b.append_basic_block("ready")
    pointer = b.inttoptr(address.v, line.as_pointer())
    likely = b.cbranch(count.compare(">=", LANES).v, ready, some)
    likely.set_weights([99, 1])
    b.position_at_end(some)
    b.store(ir.Constant(line, None), spare)
    first = b.bitcast(spare, item.as_pointer())
    arguments = {"source": item.as_pointer(), "count": I64, "target": item.as_pointer()}
    copy = ops.function(b.module, f"tcsim_some_{item.width}", arguments, _copy)
    b.call(copy, [b.bitcast(pointer, item.as_pointer()), count.v, first])
    b.branch(ready)
    b.position_at_end(ready)
    chosen = b.phi(line.as_pointer())
    chosen.add_incoming(pointer, whole)
    chosen.add_incoming(spare, some)
    return Emitted(b, b.load(chosen, align=1))


def _some_lanes(b: ir.IRBuilder, line: ir.VectorType, address: Emitted, count: Emitted) -> Emitted:
    """`line` from an address on; its first `count` lanes are read, others 0."""
    numbers = Emitted(b, ir.Constant(ir.VectorType(I32, LANES), list(range(LANES))))
    read = numbers.compare("<", count.call("smin", LANES).cast(I32, "trunc").spread(LANES))
    pointer = b.inttoptr(address.v, line.as_pointer())
    kind = ir.FunctionType(line, [pointer.type, I32, read.type, line])
    load = cgutils.get_or_insert_function(b.module, kind, f"llvm.masked.load.v{LANES}i{line.element.width}.p0")
    return Emitted(b, b.call(load, [pointer, I32(1), read.v, ir.Constant(line, None)]))


def _copy(b: ir.IRBuilder, source: Any, count: Any, target: Any) -> None:
    with ops.loop(b, Emitted(b, count), small=True) as i:
        ops.emit_store(b, ops.emit_load(b, source, i), target, i)


_POINTERS = {"values": I32, "codes": I32, "numbers": I64, "report": I64}
_NUMBERS = ("source", "count", "row_step", "rows", "pitch", "code_pitch")
UNPACK_ARGUMENTS = {name: kind.as_pointer() for name, kind in _POINTERS.items()} | dict.fromkeys(_NUMBERS, I64)
ITEMS = {1: I8, 2: I16, 4: I32}


@intrinsic(prefer_literal=True)
def unpack_rows(typingctx, table, way, arrays, item, at, code_at, numbers):
    """Unpack rows of contiguous codes: values to arrays[0][at:], exponent codes to arrays[1], from lane `code_at` on.

    table: address of `packing`'s. way: ALONE, VALUES (no codes are written), BESIDE (4 or 2 vectors that neighbour each other in a row share the lanes of
    their codes; count must be a multiple of so many) or BELOW (vectors of as many neighbouring rows). arrays: (float32 values, exponent codes, numbers
    of the Decoding, report); codes are uint8 or uint16, four or two to a lane; report[0] gathers SPECIAL and HAS_NAN.
    item: bytes of a code, 1, 2 or 4. numbers: int64 (source address, count, row_step in bytes, rows, pitch in elements,
    code_pitch in lanes).
    """
    first = unpack_place(arrays.types[1].dtype.bitwidth, way.literal_value)

    def codegen(context, builder, signature, args):
        data = data_of(context, builder, signature.args[2], args[2])
        data[0] = builder.bitcast(builder.gep(data[0], [args[4]]), I32.as_pointer())
        data[1] = builder.gep(builder.bitcast(data[1], I32.as_pointer()), [args[5]])
        values = [builder.extract_value(args[6], i) for i in range(len(_NUMBERS))]
        call_packed(builder, args[0], first, args[3], UNPACK_ARGUMENTS, [*data, *values])
        return context.get_dummy_value()

    return types.void(table, way, arrays, item, at, code_at, numbers), codegen
