"""Flat problems with block scales, from b's codes as they lie: whole blocks are scaled (MXFP8, 6 and 4 of k32), or groups (NVFP4, MXFP4).

Whole blocks are those of `thin`, their exponents moved. Exact groups go group by group: beside few rows of a, multiplying scales into
every element of b (`scales`) takes longer than the products. Elements are multiplied without them: a group of 16 is summed exactly in
float32, as it is with them (`special._folded_plan`), and multiplied by both scales once.

emax
    The largest exponent of the scales of a group that has a nonzero product, and c's. Patterns of products are or'ed: they say
    whether one is not zero, whatever their sum.
the sum
    A group and c times 2^(F - emax), truncated, are integers that float64 holds, and so is their sum (`exact_in_float64`); it is
    converted to float32 once, in the unit's rounding.
"""

from __future__ import annotations

from math import log2

from llvmlite import ir

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.vector_ops import F32, F64, I8, I32, LANES, Emitted, Variable
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast.folded import GROUP
from tcsim.kernels.fast.record import most_significand
from tcsim.kernels.fast.round import FIELD, Par
from tcsim.kernels.fast.thin import VECTORS_OF_ROW, FlatRow
from tcsim.kernels.fast.tile import PANEL


def exact_in_float64(unit: Unit) -> bool:
    """Whether float64 holds every sum of a block in units of its last place.

    A scale is below 4 times the power of two by which its group is aligned, subnormal ones included, and c below 2^(emax + 1).
    """
    a, b, f = unit.a_operand, unit.b_operand, unit.fraction_bits
    assert f is not None
    group = GROUP * most_significand(a) * most_significand(b) * 2.0 ** (a.emax + b.emax) * 4
    return f + log2(group * (unit.block_size // GROUP) + 2) <= 53


class ShiftedRow(FlatRow):
    """Emits the walk of one row whose blocks' exponents move by those of two scales, as `Tile.shift` has it; 0 stands for no product."""

    def in_place(self, field: Emitted) -> Emitted:
        return field.compare("!=", 0).where((field + self.v["rebase"].cast(I32, "trunc")) << 23, 0)

    def moved(self, j: Emitted, k: Emitted, tops: list[Emitted]) -> tuple[list[Emitted], list[Emitted]]:
        number = Emitted(self.b, self.b.udiv(k.v, self.tile.par[Par.BLOCK].v))
        mine = ops.emit_load(self.b, self.arg["sa"], number).spread(LANES)
        moved, shifts = [], []
        for i, top in enumerate(tops):
            shift = mine + ops.emit_load(self.b, self.arg["sb"], number * self.v["lsb"] + j + i * LANES, LANES)
            some = top.compare("!=", 0)
            moved.append(some.where(top + shift, 0))
            shifts.append(some.where(shift, 0))
        return moved, shifts


class FoldedRow(FlatRow):
    """Emits the walk of one row by groups. Nothing in it would raise the flag of an infinity or NaN of b: bytes alone are looked at for them."""

    def panel(self, j: Emitted) -> None:
        """Accumulators j … j + 63 through `depth` products."""
        b, tile, v = self.b, self.tile, self.v
        c = [Variable(b, ops.emit_load(b, self.arg["c"], j + i * LANES, LANES)) for i in range(VECTORS_OF_ROW)]
        bad = [Variable(b, ops.emit_load(b, self.arg["bad"], j + i * LANES, LANES)) for i in range(VECTORS_OF_ROW)]
        with ops.loop(b, v["depth"], tile.par[Par.BLOCK]) as k:
            stop = (k + tile.par[Par.BLOCK]).call("smin", v["depth"])
            for i, e in enumerate(self._groups(j, k, stop, [x.get() for x in c])):
                bad[i].set(bad[i].get() | self._beyond(e).cast(I8, "zext"))
                c[i].set(self._rounded(c[i].get(), e, stop - k, i))
        for i, (x, mark) in enumerate(zip(c, bad, strict=True)):
            ops.emit_store(b, x.get(), self.arg["c"], j + i * LANES)
            ops.emit_store(b, mark.get(), self.arg["bad"], j + i * LANES)

    def _groups(self, j: Emitted, k: Emitted, stop: Emitted, c: list[Emitted]) -> list[Emitted]:
        """Groups of products k … stop, scaled, to `groups`; the exponent of the block of each vector, as a field in place."""
        b, arg, v = self.b, self.arg, self.v
        emax = [Variable(b, x.bits_as(I32) & FIELD) for x in c]
        with ops.loop(b, stop, GROUP, k) as first:
            number = first >> (GROUP.bit_length() - 1)
            sums, some = self._group(j, first, (first + GROUP).call("smin", stop))
            mine = ops.emit_load(b, arg["sa"], number).spread(LANES)
            for i, (x, bits, e) in enumerate(zip(sums, some, emax, strict=True)):
                other = ops.emit_load(b, arg["sb"], number * v["lsb"] + j + i * LANES, LANES)
                scale = mine.bits_as(F32) * other.bits_as(F32)
                field = (self._exponent(mine) + self._exponent(other) + 127) << 23
                scaled = scale.bits_as(I32).compare("!=", 0)
                meet = (bits << 1).compare("!=", 0)
                e.set(e.get().call("smax", Emitted(b, b.and_(scaled.v, meet.v)).where(field, 0)))
                place = ((first - k) << 2) + i * LANES  # of groups of 64
                ops.emit_store(b, x * scale, arg["groups"], place)
        return [e.get() for e in emax]

    def _group(self, j: Emitted, first: Emitted, last: Emitted) -> tuple[list[Emitted], list[Emitted]]:
        """The sums of products first … last, which are exact, and the patterns of all of them or'ed."""
        zero = ops.constant(self.b, ir.VectorType(F32, LANES), 0.0)
        sums = [Variable(self.b, zero) for _ in range(VECTORS_OF_ROW)]
        some = [Variable(self.b, zero.bits_as(I32)) for _ in range(VECTORS_OF_ROW)]

        def add(k: Emitted) -> None:
            factor = ops.emit_load(self.b, self.arg["a"], k).spread(LANES)
            for i, (total, bits) in enumerate(zip(sums, some, strict=True)):
                x = self.value(k, j, i) * factor
                total.set(total.get() + x)
                bits.set(bits.get() | x.bits_as(I32))

        ops.each(self.b, first, last, add)
        return [x.get() for x in sums], [x.get() for x in some]

    def _exponent(self, pattern: Emitted) -> Emitted:
        """The exponent of scales, at least `scale_least`; of zeros, anything."""
        return ((pattern >> 23) - 127).call("smax", self.v["scale_least"].cast(I32, "trunc"))

    def _rounded(self, c: Emitted, emax: Emitted, depth: Emitted, vector: int) -> Emitted:
        """The accumulators after a block whose groups are in `groups`."""
        b, tile = self.b, self.tile
        up = (tile.number(Par.SCALE) - emax).bits_as(F32).cast(F64, "fpext")
        total = Variable(b, (c.cast(F64, "fpext") * up).call("trunc"))
        with ops.loop(b, (depth + (GROUP - 1)) >> (GROUP.bit_length() - 1)) as number:
            group = ops.emit_load(b, self.arg["groups"], number * PANEL + vector * LANES, LANES)
            total.set(total.get() + (group.cast(F64, "fpext") * up).call("trunc"))
        down = (emax - tile.number(Par.UNSCALE)).bits_as(F32)
        result: Emitted = total.get().cast(F32, "fptrunc") * down + 0.0  # no zero is negative
        return result

    def _beyond(self, emax: Emitted) -> Emitted:
        """Whether the exponent of a block with something in it does not fit float32's."""
        low, high = self.tile.number(Par.LOW) << 23, self.tile.number(Par.HIGH) << 23
        outside = self.b.or_((emax - 1).compare("u<", low - 1).v, emax.compare("u>", high).v)
        return Emitted(self.b, self.b.and_(outside, emax.compare("!=", 0).v))
