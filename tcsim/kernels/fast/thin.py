"""The arithmetic of flat problems: one row of a against many columns of b, whose codes are read where they lie.

Where a has few rows, every element of b is used as often, and packing it first costs more than the products do. The sums
are `tile`'s, only what they are made of is found on the way:

values
    Codes of up to 5 exponent bits, moved to float16's fields, are converted by the processor; the power of two by which
    the biases differ goes into a. Codes of bfloat16 are the upper halves of float32 patterns.
exponents
    With x' = max(|x|, least normal) as a code and the exponent ea of a moved to where codes have theirs, the largest of
    x' + ea over a block's products that are not zero has the block's exponent in its field: fractions do not carry.
    Where the largest of |x| + ea reaches the largest ea and the least normal it is that number: what |x| below the least normal
    adds up to, zero included, is less, and so is what x' adds up to there. Other panels are looked at again, product by product.
    Where a is zero neither it nor x counts: both are masked. Codes of 16 bits are added 32 at a time, as unsigned numbers that
    cannot overflow (`thin_form`).

Infinities and NaN of b raise the processor's invalid flag when products become integers; the driver asks for it and leaves such
problems to others. A chain's accumulators stay in memory while a few blocks of k are walked: b is read line by line.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.vector_ops import F32, I8, I16, I32, I64, LANES, LINE, Abreast, Emitted, Variable, singly
from tcsim.kernels.fast.round import Par
from tcsim.kernels.fast.tile import PANEL, Range, Tile

HALVES, BRAIN, FLOATS, BYTES = range(4)  # how b lies: float16's fields, bfloat16's, float32's; bytes, which become halves
VECTORS_OF_ROW = PANEL // LANES


class FlatRow:
    """Emits the walk of one row against a panel of 64 columns."""

    def __init__(self, b: ir.IRBuilder, form: int, tile: Tile, arg: dict[str, Any], v: dict[str, Emitted]) -> None:
        self.b, self.form, self.tile, self.arg, self.v = b, form, tile, arg, v
        self.item = 4 if form == FLOATS else 2
        self.kind, self.lanes = (I32, LANES) if form == FLOATS else (I16, 2 * LANES)
        self.shift = {BRAIN: 7, FLOATS: 23}.get(form, 10)
        self.least = v["least"].cast(self.kind, "trunc").spread(self.lanes)

    def address(self, k: Emitted, j: Emitted) -> Emitted:
        """Where the code of column j lies in line k."""
        return self.v["source"] + k * self.v["step"] + j * self.item

    def codes(self, k: Emitted, j: Emitted, place: int, kind: ir.Type, count: int) -> Emitted:
        """`count` codes of line k from column j + place on."""
        address = self.address(k, j + place)
        return ops.emit_load(self.b, self.b.inttoptr(address.v, kind.as_pointer()), 0, count)

    def value(self, k: Emitted, j: Emitted, vector: int) -> Emitted:
        """16 values as float32."""
        if self.form == FLOATS:
            return self.codes(k, j, vector * LANES, F32, LANES)
        codes = self.codes(k, j, vector * LANES, I16, LANES)
        if self.form == BRAIN:
            return (codes.cast(I32, "zext") << 16).bits_as(F32)
        return codes.bits_as(ir.HalfType()).cast(F32, "fpext")

    def tops(self, j: Emitted, k: Emitted, stop: Emitted) -> list[Emitted]:
        """The exponent of each vector's block before c is looked at, as a field of float32 in place."""
        found, most = self._largest_sums(j, k, stop)
        lowest = found[0].get()
        for top in found[1:]:
            lowest = lowest.call("umin", top.get())
        with self.b.if_then(lowest.compare("u<", most + self.least).any().v, likely=False):
            for place, top in zip(range(0, PANEL, self.lanes), found, strict=True):
                top.set(self._largest_product(j + place, k, stop))
        fields = [top.get() >> self.shift for top in found]
        if self.form != FLOATS:
            halves = (list(range(LANES)), list(range(LANES, 2 * LANES)))
            fields = [field.lanes(half).cast(I32, "zext") for field in fields for half in halves]
        return [self.in_place(field) for field in fields]

    def _zero(self) -> Variable:
        return Variable(self.b, ops.constant(self.b, ir.VectorType(self.kind, self.lanes), 0))

    def _of_a(self, name: str, k: Emitted) -> Emitted:
        return ops.emit_load(self.b, self.arg[name], k).spread(LANES).bits_as(self.kind, self.lanes)

    def _largest_sums(self, j: Emitted, k: Emitted, stop: Emitted) -> tuple[list[Variable], Emitted]:
        """The largest |x| + ea of each column, whatever x, and the largest ea."""
        places = range(0, PANEL, self.lanes)
        found, most = [self._zero() for _ in places], self._zero()

        def see(k: Emitted) -> None:
            mine, mask = self._of_a("ea", k), self._of_a("mask", k)
            most.set(most.get().call("umax", mine))
            for place in range(0, PANEL * self.item, LINE):  # of the next panel, which is on another line for every k
                ops.emit_prefetch(self.b, self.address(k, j + PANEL) + place, 3)
            for place, top in zip(places, found, strict=True):
                codes = self.codes(k, j, place, self.kind, self.lanes)
                top.set(top.get().call("umax", (codes & mask) + mine))

        ops.each(self.b, k, stop, see)
        return found, most.get()

    def _largest_product(self, j: Emitted, k: Emitted, stop: Emitted) -> Emitted:
        """The largest x' + ea of a vector of columns over the products that are not zero."""
        top = self._zero()
        with ops.loop(self.b, stop, 1, k) as line:
            x = self.codes(line, j, 0, self.kind, self.lanes) & self._of_a("mask", line)
            sums = x.call("umax", self.least) + self._of_a("ea", line)
            top.set(x.compare("!=", 0).where(top.get().call("umax", sums), top.get()))
        return top.get()

    def in_place(self, field: Emitted) -> Emitted:
        """A sum of exponent fields as that of float32, 0 being no product; as `Tile.exponents` has it."""
        tile = self.tile
        code, floor = field + self.v["rebase"].cast(I32, "trunc"), tile.number(Par.FLOOR)
        if tile.code == I16:
            raised = code.call("smax", tile.number(Par.LEAST)).call("smin", tile.number(Par.HIGH) + 1)
            return field.compare("!=", 0).where(raised, floor) << 23
        return field.compare("!=", 0).where(code, 0).call("smax", floor) << 23

    def moved(self, j: Emitted, k: Emitted, tops: list[Emitted]) -> tuple[list[Emitted], list[Emitted]]:
        """The exponents moved by the scales of a block, and by how much, if any."""
        return tops, []

    def products(
        self, j: Emitted, vectors: range, s: list[Emitted], k: Emitted, stop: Emitted, start: list[Emitted]
    ) -> list[Emitted]:
        """start plus the truncated products k … stop of some vectors, as `Tile.products` has them."""
        totals = [Variable(self.b, x) for x in start]

        def add(k: Emitted) -> None:
            factor = ops.emit_load(self.b, self.arg["a"], k).spread(LANES)
            for i, total, scale in zip(vectors, totals, s, strict=True):
                x = self.value(k, j, i) * factor * scale
                total.set(total.get() + x.cast(I32, "fptosi"))

        ops.each(self.b, k, stop, add)
        return [total.get() for total in totals]

    def panel(self, j: Emitted) -> None:
        """Accumulators j … j + 63 through `depth` products."""
        b, tile, v = self.b, self.tile, self.v
        vectors = range(VECTORS_OF_ROW)
        c = [Variable(b, ops.emit_load(b, self.arg["c"], j + i * LANES, LANES)) for i in vectors]
        seen = [Range(tile) for _ in vectors] if tile.code == I16 or tile.aware else []
        with ops.loop(b, v["depth"], tile.par[Par.BLOCK]) as k:
            stop = (k + tile.par[Par.BLOCK]).call("smin", v["depth"])
            tops, shifts = self.moved(j, k, self.tops(j, k, stop))
            for first in range(0, VECTORS_OF_ROW, tile.abreast):
                group = range(first, first + tile.abreast)
                before = Abreast([c[i].get() for i in group])
                emax = tile.with_c(Abreast([tops[i] for i in group]), before)
                moved = Abreast([shifts[i] for i in group]) if shifts else None
                after = tile.block(partial(self.products, j, group), emax, before, k, stop, None, moved)
                for i, x, e in zip(group, singly(after), singly(emax), strict=True):
                    c[i].set(x)
                    if seen:
                        seen[i].see(e)
        for i in vectors:
            ops.emit_store(b, c[i].get(), self.arg["c"], j + i * LANES)
            if seen:
                old = ops.emit_load(b, self.arg["bad"], j + i * LANES, LANES)
                ops.emit_store(b, old | seen[i].bad().cast(I8, "zext"), self.arg["bad"], j + i * LANES)


def _copy(b: ir.IRBuilder, **arg: Any) -> None:
    """Lines of b side by side, a line of the cache at a time; the codes behind them are asked for."""
    v = {name: Emitted(b, arg[name]) for name in _COPY}
    with ops.loop(b, v["lines"]) as k, ops.loop(b, v["bytes"], LINE) as j:
        source = v["source"] + k * v["step"] + j
        ops.emit_prefetch(b, source + v["bytes"], 2)
        codes = ops.emit_load(b, b.inttoptr(source.v, I8.as_pointer()), 0, LINE)
        ops.emit_store(b, codes, b.inttoptr(arg["target"], I8.as_pointer()), k * v["bytes"] + j)


_COPY = ("target", "source", "step", "lines", "bytes")


@intrinsic
def copy_lines(typingctx, numbers):
    """Lines of `bytes`, a multiple of 64, to lines that lie side by side. numbers: `_COPY`."""
    arguments = dict.fromkeys(_COPY, I64)

    def codegen(context, builder, signature, args):
        values = [builder.extract_value(args[0], i) for i in range(len(_COPY))]
        builder.call(ops.function(builder.module, "tcsim_copy_lines", arguments, _copy), values)
        return context.get_dummy_value()

    return types.void(numbers), codegen


def _widen(b: ir.IRBuilder, **arg: Any) -> None:
    """Codes of up to 8 bits in float16's fields, 32 at a time; the largest magnitudes on the way."""
    v = {name: Emitted(b, arg[name]) for name in _WIDEN}
    lanes = 2 * LANES

    def word(name: str) -> Emitted:
        return v[name].cast(I16, "trunc").spread(lanes)

    left, right, kept, magnitude = (word(name) for name in ("left", "right", "kept", "magnitude"))
    top = Variable(b, left.like(0))
    with ops.loop(b, v["lines"]) as k, ops.loop(b, v["columns"], lanes) as j:
        address = v["source"] + k * v["step"] + j
        codes = ops.emit_load(b, b.inttoptr(address.v, I8.as_pointer()), 0, lanes).cast(I16, "zext")
        top.set(top.get().call("umax", codes & magnitude))
        moved = Emitted(b, b.ashr((codes << left).v, right.v)) & kept
        ops.emit_store(b, moved, b.inttoptr(arg["target"], I16.as_pointer()), k * v["columns"] + j)
    special = top.get().compare("u>", word("largest")).any().cast(I64, "zext")
    ops.emit_store(b, ops.emit_load(b, arg["report"], 0) | special, arg["report"], 0)


_WIDEN = ("target", "source", "step", "lines", "columns", "left", "right", "kept", "magnitude", "largest")


@intrinsic
def widen_codes8(typingctx, report, numbers):
    """Lines of bytes to contiguous lines of 16-bit words; report[0] is set where a magnitude is beyond `largest`. numbers: `_WIDEN`."""
    arguments = {"report": I64.as_pointer()} | dict.fromkeys(_WIDEN, I64)

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        values = [builder.extract_value(args[1], i) for i in range(len(_WIDEN))]
        builder.call(ops.function(builder.module, "tcsim_widen", arguments, _widen), [data, *values])
        return context.get_dummy_value()

    return types.void(report, numbers), codegen
