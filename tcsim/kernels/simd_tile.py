"""The arithmetic of the fast path: a strip of outputs walked through the blocks of an aligned-sum unit, 16 lanes at once.

A lane is one output; 16 neighbouring columns make a vector. Operands come packed (`simd_pack`): exact float32 values and
one exponent code each, so chosen that the codes of a and b add up to e + 127 where e = ea + eb, and that the sum stays
below `FLOOR` where a factor is zero. For one block of L products and the accumulator c:

1. E = max(FLOOR, largest code sum), 64 outputs a vector where codes are bytes; then E = max(E, exponent field of c).
   The unit's e_zero is a plain lower bound here (`simd.supports` says when it is), so it is part of FLOOR.
2. s = 2^(F - emax), made by subtracting exponent fields. c enters as truncate_to_int32(c·s).
3. Per k: acc += truncate_to_int32((a·b)·s). a·b is exact in float32 (at most 24 bits), s is a power of two, and the
   conversion *is* the truncation of the magnitude: four vector operations a product, no shifts, no signs.
4. S = acc + c; the new c = float32(S)·2^(emax - F). Converting S under the rounding mode "toward zero" normalises and
   truncates in one step, under "nearest" it rounds to nearest-even (`NATIVE`). Other roundings and fp16 outputs add to
   the magnitude of S below its last kept place, then cut it (`INTEGER`), stochastic ones a random word (`RANDOM`).

Where L products can pass 2^31 (`WIDE`), groups that cannot are added in 64 bits; where only c can push the sum over
(`CARRY`), a block that does so is finished again in 64 bits. Nothing else rounds: underflow of a·b or of a scaling by s
happens only below the last kept place, where truncation drops it anyway.

Exponents that do not fit (8-bit exponent fields reach further than float32 products) are told apart at each block and
leave a mark in `bad`; such outputs are recomputed elsewhere. Padding lanes and rows hold zeros.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim import philox
from tcsim.kernels import simd_ops as ops
from tcsim.kernels.simd_ops import F32, I8, I16, I32, I64, LANES, Value, Variable

NATIVE, INTEGER, RANDOM = range(3)
PLAIN, CARRY, WIDE = range(3)
PANEL = 64  # columns of a wide panel: one row of it is a tile
EDGE_ROWS = 4  # rows of a tile that is 16 columns wide


class Par(IntEnum):
    """The numbers of a unit that a tile reads, by place in an int64 array."""

    BLOCK = 0  # L
    GROUP = 1  # products that int32 holds, for WIDE
    SCALE = 2  # (254 + F) << 23
    UNSCALE = 3  # F << 23
    FLOOR = 4  # the least code of a block, e + 127
    LEAST = 5  # words: codes of nonzero products are raised to this
    HIGH = 6  # words: the largest code that fits
    LOW = 7  # words: the smallest nonzero one that fits
    MODE = 8  # llvm.set.rounding's number, for NATIVE
    MASK = 9  # bits of a float32 result that are kept, for NATIVE
    KEPT = 10  # significand bits that are kept, for INTEGER and RANDOM
    GRID = 11  # 127 + F + exponent of the output's smallest subnormal
    NEAREST = 12  # all ones: round to nearest, else toward zero
    EVEN = 13  # 1: ties to even, 0: ties away
    C_LEAST = 14  # the least exponent field of a nonzero c, in place
    LIMIT = 15  # pattern from which a result is infinite
    SEED = 16


PAR_COUNT = len(Par) + 1
_HUGE = (127 + 100) << 23  # what stands for infinity: no finite product reaches its last place
_SIGN = -(1 << 31)
_FIELD = 0x7F800000


class Tile:
    """Emits the code of one tile of `rows` x 16·`vectors` outputs; loads of the unit's numbers are shared by all tiles."""

    def __init__(self, b: ir.IRBuilder, par: Any, kind: int, width: int, words: bool, rows: int, vectors: int) -> None:
        self.b, self.kind, self.width, self.words, self.rows, self.vectors = b, kind, width, words, rows, vectors
        self.par = [ops.load(b, par, p) for p in range(PAR_COUNT - 1)]
        self.lanes: dict[tuple[int, int], Value] = {}

    def number(self, which: Par, bits: int = 32) -> Value:
        """One of the unit's numbers in 16 lanes of i32 or i64."""
        scalar = self.par[which] if bits == 64 else self.par[which].cast(I32, "trunc")
        return scalar.spread(LANES)

    # 1. exponents

    def exponents(self, ea: Any, eb: Any, row: Value, k: Value, stop: Value) -> list[Value]:
        """The largest code sum of a block, per vector of 16 columns, as an exponent field in place."""
        lanes, code = LANES * self.vectors, I16 if self.words else I8
        least = Value(self.b, code(-(1 << 15))) if self.words else self.par[Par.FLOOR].cast(I8, "trunc")
        top = Variable(self.b, least.spread(lanes))

        def raise_top(k: Value) -> None:
            sums = ops.load(self.b, eb, k * lanes, lanes) + ops.load(self.b, ea, row + k)
            top.set(top.get().call("smax" if self.words else "umax", sums))

        ops.each(self.b, k, stop, raise_top)
        codes = self._in_range(top.get()) if self.words else top.get()
        parts = [codes.lanes(list(range(LANES * v, LANES * (v + 1)))) for v in range(self.vectors)]
        return [p.cast(I32, "zext") << 23 for p in parts]

    def _in_range(self, top: Value) -> Value:
        """Word codes with zero products at FLOOR, and what is too small or too large at marks beside the range."""
        floor, least, high = (self.par[p].cast(I16, "trunc") for p in (Par.FLOOR, Par.LEAST, Par.HIGH))
        raised = top.call("smax", least).call("smin", high + 1)
        return top.compare(">", -4096).where(raised, top.like(floor))

    def with_c(self, top: Value, c: Value) -> Value:
        """emax of the block: the products' and c's."""
        pattern = c.bits_as(I32)
        field = pattern & _FIELD
        if self.kind != NATIVE:  # a subnormal c has the exponent of the smallest normal number
            field = (pattern << 1).compare("!=", 0).where(field.call("smax", self.number(Par.C_LEAST)), 0)
        return top.call("smax", field)

    # 2., 3. the sum

    def products(self, a: Any, bm: Any, row: Value, column: int, s: Value, k: Value, stop: Value, acc: Value) -> Value:
        """acc plus the truncated products k … stop."""
        total = Variable(self.b, acc)

        def add(k: Value) -> None:
            x = ops.load(self.b, bm, k * (LANES * self.vectors) + column, LANES)
            x = x * ops.load(self.b, a, row + k) * s
            total.set(total.get() + x.cast(I32, "fptosi"))

        ops.each(self.b, k, stop, add)
        return total.get()

    def wide_products(self, a: Any, bm: Any, row: Value, column: int, s: Value, k: Value, stop: Value, acc: Value) -> Value:
        """The same in 64 bits, from groups that 32 bits hold."""
        total = Variable(self.b, acc.cast(I64, "sext"))
        zero = ops.constant(self.b, acc.type, 0)
        with ops.loop(self.b, stop, self.par[Par.GROUP], k) as first:
            last = (first + self.par[Par.GROUP]).call("smin", stop)
            group = self.products(a, bm, row, column, s, first, last, zero)
            total.set(total.get() + group.cast(I64, "sext"))
        return total.get()

    # 4. rounding

    def rounded(self, total: Value, emax: Value, random: Value | None) -> Value:
        """float32 of total·2^(emax-F), rounded as the unit does; total in 32 or 64 bits."""
        unscale = (emax - self.number(Par.UNSCALE)).bits_as(F32)
        if self.kind == NATIVE:
            value = total.cast(F32, "sitofp") * unscale
            return (value.bits_as(I32) & self.number(Par.MASK)).bits_as(F32)
        sign = self._narrow(total >> (total.element.width - 32)) & _SIGN
        magnitude = self._cut(total.call("abs", flags=(False,)), emax, random)
        pattern = (magnitude.cast(F32, "uitofp") * unscale).bits_as(I32)
        infinite = pattern.compare(">=", self.number(Par.LIMIT))
        return (infinite.where(ops.constant(self.b, pattern.type, _HUGE), pattern) | sign).bits_as(F32)

    def _narrow(self, x: Value) -> Value:
        return x if x.element == I32 else x.cast(I32, "trunc")

    def _cut(self, magnitude: Value, emax: Value, random: Value | None) -> Value:
        """A magnitude rounded to the kept bits, or to the output's smallest subnormal where that is larger."""
        kind, width = magnitude.element, magnitude.element.width
        below = magnitude.like(width) - magnitude.call("ctlz", flags=(False,)) - self.number(Par.KEPT, width)
        grid = self.number(Par.GRID) - (emax >> 23)
        grid = grid if kind == I32 else grid.cast(I64, "sext")
        drop = below.call("smax", grid).call("smax", 0).call("smin", width - 1)
        if random is not None:
            word = random >> 1 if kind == I32 else random.cast(I64, "zext") << 31
            magnitude = magnitude + (word >> (magnitude.like(width - 1) - drop))
        else:
            half = (magnitude.like(1) << drop) >> 1
            even = self.number(Par.EVEN, width)
            nearest = half - even + ((magnitude >> drop) & even)
            magnitude = magnitude + drop.compare("==", 0).where(magnitude.like(0), nearest & self.number(Par.NEAREST, width))
        return (magnitude >> drop) << drop

    # a block, and a strip

    def block(self, a: Any, bm: Any, row: Value, column: int, emax: Value, c: Value, k: Value, stop: Value, random: Value | None) -> Value:
        """The accumulator after products k … stop."""
        s = (self.number(Par.SCALE) - emax).bits_as(F32)
        start = (c * s).cast(I32, "fptosi")
        if self.width == WIDE:
            return self.rounded(self.wide_products(a, bm, row, column, s, k, stop, start), emax, random)
        if self.width == PLAIN:
            return self.rounded(self.products(a, bm, row, column, s, k, stop, start), emax, random)
        part = self.products(a, bm, row, column, s, k, stop, start.like(0))
        total = part + start
        result = Variable(self.b, self.rounded(total, emax, random))
        over = ((part ^ total) & (start ^ total)).compare("<", 0)
        with self.b.if_then(over.any().v, likely=False):
            result.set(self.rounded(part.cast(I64, "sext") + start.cast(I64, "sext"), emax, random))
        return result.get()


class Range:
    """Whether every emax of a lane was zero or within what fits, for word codes."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        zero = ops.constant(tile.b, ir.VectorType(I32, LANES), 0)
        self.most, self.least = Variable(tile.b, zero), Variable(tile.b, zero | -1)

    def see(self, emax: Value) -> None:
        self.most.set(self.most.get().call("umax", emax))
        self.least.set(self.least.get().call("umin", emax - 1))

    def bad(self) -> Value:
        high, low = self.tile.number(Par.HIGH) << 23, self.tile.number(Par.LOW) << 23
        return Value(self.tile.b, self.tile.b.or_(self.most.get().compare("u>", high).v, self.least.get().compare("u<", low - 1).v))


class Draws:
    """The random words of 16 outputs, four steps at a time: Philox4x32-10 with even and odd lanes in 64-bit halves."""

    def __init__(self, tile: Tile, element: Value) -> None:
        self.b, self.seed = tile.b, tile.par[Par.SEED]
        self.elements = [element.lanes(list(range(half, LANES, 2))) for half in (0, 1)]
        self.slots = [Variable(self.b, ops.constant(self.b, ir.VectorType(I32, LANES), 0)) for _ in range(4)]
        self.group = Variable(self.b, Value(self.b, I64(-1)))

    def word(self, step: Value) -> Value:
        """The words of one step, in ascending order of steps; four are drawn at a time."""
        group = step >> 2
        with self.b.if_then(group.compare("!=", self.group.get()).v):
            self.draw(group)
            self.group.set(group)
        words = [slot.get() for slot in self.slots]
        odd, high = (step & 1).compare("!=", 0), (step & 2).compare("!=", 0)
        return high.where(odd.where(words[3], words[2]), odd.where(words[1], words[0]))

    def draw(self, group: Value) -> None:
        """Draw the four words of steps 4·group … 4·group + 3."""
        halves = [self._rounds(element, group) for element in self.elements]
        for slot, even, odd in zip(self.slots, *halves, strict=True):
            slot.set(((even & 0xFFFFFFFF) | (odd << 32)).bits_as(I32, LANES))

    def _rounds(self, element: Value, group: Value) -> list[Value]:
        """Ten rounds on 8 lanes; the high half of a lane is meaningless except after a multiplication."""
        k0, k1 = self.seed & 0xFFFFFFFF, self.seed >> 32
        c0, c1, c2, c3 = element, element >> 32, element.like(group), element.like(0)
        for _ in range(philox.ROUNDS):
            p0, p1 = (c0 & 0xFFFFFFFF) * philox.M0, (c2 & 0xFFFFFFFF) * philox.M1
            c0, c1, c2, c3 = (p1 >> 32) ^ (c1 ^ k0), p1, (p0 >> 32) ^ (c3 ^ k1), p0
            k0, k1 = (k0 + philox.W0) & 0xFFFFFFFF, (k1 + philox.W1) & 0xFFFFFFFF
        return [c0, c1, c2, c3]


def _strip(b: ir.IRBuilder, kind: int, width: int, words: bool, rows: int, vectors: int, **arg: Any) -> None:
    """All rows of a packed strip against one panel of columns: c is read, walked through `depth` products, written."""
    v = {name: Value(b, arg[name]) for name in ("lda", "ldc", "height", "depth", "element", "row_step", "column_step", "step")}
    tile = Tile(b, arg["par"], kind, width, words, rows, vectors)
    if kind == NATIVE:
        ops.set_rounding(b, tile.par[Par.MODE].cast(I32, "trunc"))
    with ops.loop(b, v["height"], rows) as i:
        _tile(b, tile, i, arg, v)
    if kind == NATIVE:
        ops.set_rounding(b, Value(b, I32(ops.NEAREST)))


def _tile(b: ir.IRBuilder, tile: Tile, i: Value, arg: dict[str, Any], v: dict[str, Value]) -> None:
    places = [(r, col) for r in range(tile.rows) for col in range(tile.vectors)]
    at = {(r, col): (i + r) * v["ldc"] + col * LANES for r, col in places}
    c = {p: Variable(b, ops.load(b, arg["c"], at[p], LANES)) for p in places}
    seen = {p: Range(tile) for p in places} if tile.words else {}
    draws = {p: Draws(tile, _elements(b, i + p[0], p[1], v)) for p in places} if tile.kind == RANDOM else {}
    step = Variable(b, v["step"])
    with ops.loop(b, v["depth"], tile.par[Par.BLOCK]) as k:
        stop = (k + tile.par[Par.BLOCK]).call("smin", v["depth"])
        rows = [(i + r) * v["lda"] for r in range(tile.rows)]
        tops = [tile.exponents(arg["ea"], arg["eb"], row, k, stop) for row in rows]
        for r, col in places:
            emax = tile.with_c(tops[r][col], c[r, col].get())
            if tile.words:
                seen[r, col].see(emax)
            random = draws[r, col].word(step.get()) if draws else None
            c[r, col].set(tile.block(arg["a"], arg["bm"], rows[r], col * LANES, emax, c[r, col].get(), k, stop, random))
        step.set(step.get() + 1)
    for p in places:
        ops.store(b, c[p].get(), arg["c"], at[p])
        if tile.words:
            old = ops.load(b, arg["bad"], at[p], LANES)
            ops.store(b, old | seen[p].bad().cast(I8, "zext"), arg["bad"], at[p])


def _elements(b: ir.IRBuilder, row: Value, vector: int, v: dict[str, Value]) -> Value:
    """Places of 16 outputs in the whole result, in C order."""
    count = Value(b, ir.Constant(ir.VectorType(I64, LANES), [vector * LANES + j for j in range(LANES)]))
    return count * v["column_step"] + (v["element"] + row * v["row_step"])


def _arguments(words: bool) -> dict[str, ir.Type]:
    code = I16 if words else I8
    pointers = {"a": F32, "ea": code, "bm": F32, "eb": code, "c": F32, "bad": I8, "par": I64}
    numbers = ("lda", "ldc", "height", "depth", "element", "row_step", "column_step", "step")
    return {name: kind.as_pointer() for name, kind in pointers.items()} | dict.fromkeys(numbers, I64)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def strip(typingctx, panel, kind, width, arrays, numbers):  # type: ignore[no-untyped-def]
    """Walk the rows of a strip against one panel of `panel` columns (64 or 16); c and bad are updated in place.

    arrays: (a, ea, b, eb, c, bad, par) flat and C-contiguous; ea and eb of uint8 or int16 codes.
    numbers: int64 offsets into the first six, then lda, ldc, height, depth, element, row_step, column_step, step.
    """
    columns, kind_number, width_number = panel.literal_value, kind.literal_value, width.literal_value
    words = arrays.types[1].dtype == types.int16
    vectors = columns // LANES
    rows = 1 if columns == PANEL else EDGE_ROWS

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        def body(b: ir.IRBuilder, **arg: Any) -> None:
            _strip(b, kind_number, width_number, words, rows, vectors, **arg)

        name = f"tcsim_strip_{columns}_{kind_number}_{width_number}_{'words' if words else 'bytes'}"
        emitted = ops.function(builder.module, name, _arguments(words), body)
        kinds = signature.args[3].types
        found = [builder.extract_value(args[3], i) for i in range(len(kinds))]
        pointers = [context.make_array(kinds[i])(context, builder, found[i]).data for i in range(len(kinds))]
        values = [builder.extract_value(args[4], i) for i in range(len(signature.args[4]))]
        moved = [builder.gep(p, [offset]) for p, offset in zip(pointers[:6], values[:6], strict=True)]
        builder.call(emitted, [*moved, pointers[6], *values[6:]])
        return context.get_dummy_value()

    return types.void(panel, kind, width, arrays, numbers), codegen
