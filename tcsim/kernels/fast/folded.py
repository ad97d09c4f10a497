"""Exact groups with block scales (NVFP4, MXFP4): a block as one exact float32 sum where numbers prove it, else group by group.

A group of 16 products is summed exactly, multiplied by its two scales and aligned by their exponents alone. Elements come
with their scales multiplied in (`scales`), so a product is a' b', and a group's sum is exact in float32 (`folded_plan`).

The block as one sum
    Let all nonzero a' of the row's block be multiples of 2^la, the largest exponent of their scales ha + 1, their norm (the
    root of the sum of squares) Na·2^la, b' likewise, l = la + lb, h = ha + hb, e the exponent of c.
    1. Every partial sum of products, in any order, is a multiple of 2^l and at most Na Nb 2^l (Cauchy and Schwarz). With
       Na Nb <= 2^24 it is an integer of 24 bits times 2^l, so float32 finds S, the sum of all, without rounding.
       Squares of norms are what is compared.
    2. A group with a nonzero product has the exponent eg = sa + sb <= h + 2. Elements are at least half their scale, or 2^-d of
       that half where their format has smaller ones, and the exponent of a scale that is subnormal, of M fraction bits, is raised
       by M at most: 2^(h - D) <= Na Nb 2^l with D = 2M + da + db. The group is cut at 2^(emax - F): not at all for emax = e if
       e - F <= l, nor for emax = eg if Na Nb <= 2^(F - 2 - D).
    3. c is not cut for emax = e as F >= 23, nor for emax = eg if c is a multiple of 2^(h + 2 - F): 0, or large enough, or
       with that many zeros at its end.
    So the unit's result is c + S rounded once, which is one float32 addition in the unit's rounding. No product, no cut: then
    low and high are set so that all three hold.
Group by group
    emax from the exponents of groups that have a nonzero product (their masks meet), each group's exact sum and c times
    2^(F - emax) truncated to 64-bit integers, added, rounded once. Sums beyond float32's exponents leave a mark in `bad`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.directed import vectors_held
from tcsim.codegen.vector_ops import F32, I1, I8, I32, I64, LANES, Emitted, Variable
from tcsim.kernels.fast.round import FIELD, PAR_COUNT, Par

ROWS = 4  # of a tile, against all columns of a panel
LOW, HIGH, NORM, PANELS, GROUPS = range(5)  # places of a block's numbers: `GROUPS` and on are its groups'
GROUP = LANES  # products of a group
OFFSET = 64  # of a biased scale exponent


class Folded:
    """Emits the blocks of a strip: `width` columns, 64 or 16."""

    def __init__(self, b: ir.IRBuilder, width: int, arg: dict[str, Any], v: dict[str, Emitted]) -> None:
        self.b, self.width, self.arg, self.v = b, width, arg, v
        self.vectors = width // LANES
        # vectors of columns summed together: sums fill half of the registers
        self.abreast = max(vectors_held() // (2 * ROWS), 1)
        self.par = [ops.emit_load(b, arg["par"], p) for p in range(PAR_COUNT)]

    def number(self, which: Par) -> Emitted:
        return self.par[which].cast(I32, "trunc").spread(LANES)

    def tile(self, i: Emitted, rows: int) -> None:
        """`rows` rows from i on, through all blocks."""
        slot = Variable(self.b, Emitted(self.b, I64(0)))
        with ops.loop(self.b, self.v["depth"], self.par[Par.BLOCK]) as k:
            stop = (k + self.par[Par.BLOCK]).call("smin", self.v["depth"])
            self.block(i, rows, k, stop, slot.get())
            slot.set(slot.get() + self.v["fields"])

    def block(self, i: Emitted, rows: int, k: Emitted, stop: Emitted, slot: Emitted) -> None:
        b, arg, v = self.b, self.arg, self.v
        members = [(r, col * LANES) for r in range(rows) for col in range(self.vectors)]
        c = [ops.emit_load(b, arg["c"], (i + r) * v["ldc"] + col, LANES) for r, col in members]
        failed = Variable(b, Emitted(b, I1(0)))
        with b.if_then(self.doubtful(i, rows, slot, c).v, likely=False):
            failed.set(self.unproved(i, rows, slot, c))
        unproved = failed.get()
        with b.if_else(unproved.v, likely=False) as (slow, fast):
            with slow, ops.loop(b, i + rows, 1, i) as row:
                one_by_one = ops.function(b.module, f"tcsim_groups_{self.width}", self._arguments(), self.row_of_block)
                b.call(one_by_one, self._passed(row, k, stop, slot))
            with fast:
                for first in range(0, self.vectors, self.abreast):
                    self.proved(i, rows, range(first, min(first + self.abreast, self.vectors)), k, stop)

    def proved(self, i: Emitted, rows: int, columns: range, k: Emitted, stop: Emitted) -> None:
        """The exact sums of products k … stop of some vectors of columns, added to c."""
        b, arg, v = self.b, self.arg, self.v
        zero = ops.constant(b, ir.VectorType(F32, LANES), 0.0)
        total = {(r, col): Variable(b, zero) for r in range(rows) for col in columns}

        def add(k: Emitted) -> None:
            right = {col: ops.emit_load(b, arg["bm"], k * self.width + col * LANES, LANES) for col in columns}
            for r in range(rows):
                left = ops.emit_load(b, arg["a"], (i + r) * v["lda"] + k).spread(LANES)
                for col in columns:
                    total[r, col].set(left.call("fma", right[col], total[r, col].get()))

        ops.each(b, k, stop, add)
        for (r, col), s in total.items():
            place = (i + r) * v["ldc"] + col * LANES
            ops.emit_store(b, ops.emit_load(b, arg["c"], place, LANES) + s.get(), arg["c"], place)

    def doubtful(self, i: Emitted, rows: int, slot: Emitted, c: list[Emitted]) -> Emitted:
        """Whether the three conditions fail for the numbers of the panel, which bound those of its columns."""
        b, arg, v = self.b, self.arg, self.v
        panel = [ops.emit_load(b, arg["sb"], (slot + PANELS) * self.width + n) for n in (LOW, HIGH, NORM)]
        f, most = (self.par[p].cast(I32, "trunc") for p in (Par.UNSCALE, Par.MOST))
        f, fails = f >> 23, None
        for r in range(rows):
            low, high, norm = (ops.emit_load(b, arg["sa"], (i + r) * v["lsa"] + slot + n) for n in (LOW, HIGH, NORM))
            short = (norm.bits_as(F32) * panel[NORM].bits_as(F32)).bits_as(I32).compare(">", most)
            too_large = (low + panel[LOW] + f + 128).call("smax", 0).call("smin", 255) << 23
            too_small = (((high + panel[HIGH] + 152 - f).call("smax", 0).call("smin", 255) << 23).call("smax", 1)) - 1
            magnitudes = [x.bits_as(I32) & 0x7FFFFFFF for x in c[r * self.vectors : (r + 1) * self.vectors]]
            largest, smallest = magnitudes[0], magnitudes[0] - 1
            for magnitude in magnitudes[1:]:
                largest, smallest = largest.call("umax", magnitude), smallest.call("umin", magnitude - 1)
            beyond = b.or_(largest.compare("u>=", too_large).v, smallest.compare("u<", too_small).v)
            fail = b.or_(short.v, Emitted(b, beyond).any().v)
            fails = fail if fails is None else b.or_(fails, fail)
        return Emitted(b, fails)

    def unproved(self, i: Emitted, rows: int, slot: Emitted, c: list[Emitted]) -> Emitted:
        """Whether the three conditions fail for some output."""
        b, arg, v = self.b, self.arg, self.v
        numbers = (LOW, HIGH, NORM)
        right = [
            [ops.emit_load(b, arg["sb"], (slot + n) * self.width + col * LANES, LANES) for n in numbers]
            for col in range(self.vectors)
        ]
        fails, most = [], self.number(Par.MOST).bits_as(F32)
        for r in range(rows):
            left = [ops.emit_load(b, arg["sa"], (i + r) * v["lsa"] + slot + n).spread(LANES) for n in numbers]
            for col in range(self.vectors):
                low, high = left[LOW] + right[col][LOW], left[HIGH] + right[col][HIGH]
                pattern = c[r * self.vectors + col].bits_as(I32)
                e = (pattern << 1) >> 24
                norm = left[NORM].bits_as(F32) * right[col][NORM].bits_as(F32)
                short = norm.bits_as(I32).compare(">", most.bits_as(I32))
                cut = e.compare(">", low + (self.number(Par.UNSCALE) >> 23) + 127)
                nonzero, last = e.compare("!=", 0), Emitted(b, b.ashr(last_place(pattern).v, pattern.like(23).v))
                cut_c = last.compare("<", high + 129 - (self.number(Par.UNSCALE) >> 23))
                fails.append(b.or_(b.or_(short.v, cut.v), b.and_(nonzero.v, cut_c.v)))
        while len(fails) > 1:
            fails = [b.or_(x, y) for x, y in zip(fails[::2], fails[1::2], strict=True)]
        return Emitted(b, fails[0]).any()

    # group by group: a function of its own, one row against the panel

    def _arguments(self) -> dict[str, ir.Type]:
        pointers = {"a": F32, "bm": F32, "c": F32, "bad": I8, "sa": I32, "sb": I32, "par": I64}
        return {name: kind.as_pointer() for name, kind in pointers.items()} | {"depth": I64}

    def _passed(self, row: Emitted, k: Emitted, stop: Emitted, slot: Emitted) -> list[ir.Value]:
        at = {"a": row * self.v["lda"] + k, "bm": k * self.width, "c": row * self.v["ldc"], "bad": row * self.v["ldc"],
              "sa": row * self.v["lsa"] + slot, "sb": slot * self.width}  # fmt: skip
        moved = [self.b.gep(self.arg[name], [place.v]) for name, place in at.items()]
        return [*moved, self.arg["par"], (stop - k).v]

    def row_of_block(self, b: ir.IRBuilder, **arg: Any) -> None:
        """Group by group."""
        number, depth = spread_numbers(b, arg["par"]), Emitted(b, arg["depth"])
        for col in range(0, self.width, LANES):
            c = ops.emit_load(b, arg["c"], col, LANES)
            emax = Variable(b, c.bits_as(I32) & FIELD)
            with ops.loop(b, depth, GROUP) as k:
                g = (k >> 4) + GROUPS
                mine, other = (
                    ops.emit_load(b, arg["sa"], g).spread(LANES),
                    ops.emit_load(b, arg["sb"], g * self.width + col, LANES),
                )
                meet = ((mine & other) & 0xFFFF).compare("!=", 0)
                field = ((mine >> 16) + (other >> 16) - 1) << 23
                emax.set(emax.get().call("smax", meet.where(field, 0)))
            s = (number(Par.SCALE) - emax.get()).bits_as(F32)
            total = Variable(b, (c * s).cast(I64, "fptosi"))
            with ops.loop(b, depth, GROUP) as k:
                group = Variable(b, ops.constant(b, ir.VectorType(F32, LANES), 0.0))

                def add(k: Emitted, group: Variable = group, col: int = col) -> None:
                    left = ops.emit_load(b, arg["a"], k).spread(LANES)
                    group.set(left.call("fma", ops.emit_load(b, arg["bm"], k * self.width + col, LANES), group.get()))

                ops.each(b, k, (k + GROUP).call("smin", depth), add)
                total.set(total.get() + (group.get() * s).cast(I64, "fptosi"))
            store_rounded(b, arg, col, total.get().cast(F32, "sitofp"), emax.get(), number)


def spread_numbers(b: ir.IRBuilder, par: Any) -> Callable[[Par], Emitted]:
    """A unit's numbers, in every lane."""
    loaded = [ops.emit_load(b, par, p).cast(I32, "trunc") for p in range(PAR_COUNT)]
    return lambda which: loaded[which].spread(LANES)


def store_rounded(
    b: ir.IRBuilder, arg: dict[str, Any], col: int, total: Emitted, emax: Emitted, number: Callable[[Par], Emitted]
) -> None:
    """c = the rounded sums in units of 2^(emax - F); a mark where emax is beyond float32's reach."""
    ops.emit_store(b, total * (emax - number(Par.UNSCALE)).bits_as(F32), arg["c"], col)
    low, high = number(Par.LOW) << 23, number(Par.HIGH) << 23
    bad = b.or_((emax - 1).compare("u<", low - 1).v, emax.compare("u>", high).v)
    bad = b.and_(bad, emax.compare("!=", 0).v)
    marks = ops.emit_load(b, arg["bad"], col, LANES)
    ops.emit_store(b, marks | Emitted(b, bad).cast(I8, "zext"), arg["bad"], col)


def last_place(pattern: Emitted) -> Emitted:
    """The exponent field, in place, of the last set bit of nonzero normal float32 numbers; negative where float32 has none so small."""
    significand = (pattern & 0x7FFFFF) | 0x800000
    lowest: Emitted = (significand & (significand * -1)).cast(F32, "sitofp").bits_as(I32)
    return lowest - (150 << 23) + (pattern & FIELD)


def folded_strip(made: Folded) -> None:
    """All rows of a strip against one panel: c and bad are updated in place."""
    b, v = made.b, made.v
    whole = v["height"] & -ROWS
    with ops.loop(b, whole, ROWS) as i:
        made.tile(i, ROWS)
    with ops.loop(b, v["height"], 1, whole) as i:
        made.tile(i, 1)
