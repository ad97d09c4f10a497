"""The arithmetic of the fast path: a strip of outputs walked through the blocks of an aligned-sum unit, 16 lanes at once.

A lane is one output; 16 neighbouring columns make a vector, a tile is 2 rows x 64 columns, or 4 x 16 at edges.
Operands come packed (`fast.pack`): exact float32 values and one exponent code each, so chosen that the codes of a and b
add up to e + 127 where e = ea + eb, and that the sum stays below `FLOOR` where a factor is zero. For one block of L
products and the accumulator c:

1. E = max(FLOOR, largest code sum). Codes are bytes (or 16-bit words) and lane j of 32 bits holds those of column j in
   four vectors of the tile, so one vector operation serves 64 outputs, and a shift makes exponent fields of them.
   Then E = max(E, exponent field of c). The unit's min_exponent is a plain lower bound here (`fast.plan` says when it is), so
   it is part of FLOOR.
2. s = 2^(F - emax), made by subtracting exponent fields. c enters as truncate_to_int32(c·s).
3. Per k: acc += truncate_to_int32((a·b)·s). a·b is exact in float32 (at most 24 bits), s is a power of two, and the
   conversion *is* the truncation of the magnitude: four vector operations a product, no shifts, no signs.
4. S = acc + c; the new c = S·2^(emax - F), rounded as `fast.round` tells.

Where L products can pass 2^31 (`WIDE`), groups that cannot are added; where only c can push the sum over (`CARRY`), it is
added last. A block whose sum did pass 2^31 is finished again in 64 bits. Nothing else rounds: underflow of a·b or of a scaling by s
happens only below the last kept place, where truncation drops it anyway.

Exponents that do not fit (8-bit exponent fields reach further than float32 products) are told apart at each block and
leave a mark in `bad`; such outputs are recomputed elsewhere. Padding lanes and rows hold zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from llvmlite import ir

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.directed import vectors_held
from tcsim.codegen.vector_ops import F32, I8, I16, I32, I64, LANES, Abreast, Emitted, Variable, singly
from tcsim.kernels.fast import staged
from tcsim.kernels.fast.folded import Folded, folded_strip
from tcsim.kernels.fast.folded_products import FoldedProducts
from tcsim.kernels.fast.ieee import ieee_strip
from tcsim.kernels.fast.random import VectorDraws
from tcsim.kernels.fast.round import FIELD, PARITY, RANDOM, STAGED, TREE, Par, Rounding

PLAIN, CARRY, WIDE = range(3)
BY_PRODUCT = 4  # a width of its own: FOLDED where products align one by one (`folded_products`)
NO_SCALES, SHIFTED, FOLDED = range(3)  # see `scales`
PAIRED = 3  # no scales, k in the order PAIRS: a strip is one instruction, from a c of zero
PAIRS = tuple(k for half in range(2) for k in range(32) if k // 2 % 2 == half)  # two blocks of 16
PANEL = 64  # columns of a wide panel: one row of it is a tile
VECTORS = 4  # of a tile; rows of one that is 16 columns wide
ROWS = 2  # of a wide tile: while one row rounds its blocks, the other multiplies

STRIP_POINTERS = {"a": F32, "ea": I32, "bm": F32, "eb": I32, "c": F32, "bad": I8, "sa": I32, "sb": I32, "par": I64}
STRIP_NUMBERS = ("lda", "ldc", "height", "depth", "element", "row_step", "column_step", "step", "lsa", "fields")


# (scales, k, stop, sums before): sums after
Products = Callable[[list[Emitted], Emitted, Emitted, list[Emitted]], list[Emitted]]


class Terms(NamedTuple):
    """Where the factors of a group of vectors are: packed a and b, and (place in a, column in b) of each vector."""

    a: Any
    b: Any
    places: list[tuple[Emitted, int]]


class Tile:
    """Emits the code of one tile of `rows` x 16·`vectors` outputs; loads of the unit's numbers are shared by all tiles."""

    def __init__(
        self, b: ir.IRBuilder, par: Any, kind: int, width: int, words: bool, half: bool, panel: int, scaling: int
    ) -> None:
        self.b, self.kind, self.width, self.half, self.shifted = b, kind, width, half, scaling == SHIFTED
        self.step = PAIRED if scaling == PAIRED else 2 if kind == PARITY else 1
        self.staged = kind in (STAGED, PARITY)
        self.aware = self.shifted  # blocks without a nonzero product are told apart
        self.code = I16 if words else I8
        self.groups = VECTORS * self.code.width // 32
        self.wide = panel == PANEL
        # vectors summed together: their sums and scales fill half of the registers
        self.abreast = min(VECTORS, vectors_held() // 4)
        self.rows, self.vectors = (ROWS, VECTORS) if self.wide else (VECTORS, 1)
        self.rounding = Rounding(b, par, kind, half, goes_on=scaling != PAIRED)
        self.par, self.number, self.rounded = self.rounding.par, self.rounding.number, self.rounding.rounded

    # 1. exponents

    def exponents(self, ea: Any, eb: Any, row: Emitted, pitch: Emitted, k: Emitted, stop: Emitted) -> list[Emitted]:
        """The largest code sums of a block's products, several vectors' in one: `field` takes them apart."""
        words, lanes = self.code == I16, LANES * 32 // self.code.width
        floor = self.par[Par.NONE if self.aware else Par.FLOOR].cast(I8, "trunc")
        least = Emitted(self.b, I16(-(1 << 15))) if words else floor
        # the lines of ea and eb whose codes go together; in narrow tiles a line of ea has those of 2 or 4 rows
        lines = (
            [(r, g) for r in range(self.rows) for g in range(self.groups)]
            if self.wide
            else [(g, 0) for g in range(self.groups)]
        )
        tops = [Variable(self.b, least.spread(lanes)) for _ in lines]

        def raise_tops(k: Emitted) -> None:
            for (line, group), top in zip(lines, tops, strict=True):
                mine = ops.emit_load(self.b, ea, row + k + pitch * line).spread(LANES)
                other = ops.emit_load(self.b, eb, (k * self.groups + group) * LANES if self.wide else k * LANES, LANES)
                sums = mine.bits_as(self.code, lanes) + other.bits_as(self.code, lanes)
                top.set(top.get().call("smax" if words else "umax", sums))

        every_lane(self.b, k, stop, raise_tops, self.step)
        return [(self._in_range(top.get()) if words else top.get()).bits_as(I32, LANES) for top in tops]

    def field(self, packed: list[Emitted], vector: int) -> Emitted:
        """The codes of the tile's vector of this number, below 256, moved to where float32 has its exponent."""
        line, place = divmod(vector * self.code.width, 32)
        moved: Emitted = packed[line] << (23 - place) if place <= 23 else packed[line] >> (place - 23)
        return moved & FIELD

    def _in_range(self, top: Emitted) -> Emitted:
        """Word codes with zero products at FLOOR, and what is too small or too large at marks beside the range."""
        floor, least, high = (self.par[p].cast(I16, "trunc") for p in (Par.FLOOR, Par.LEAST, Par.HIGH))
        raised = top.call("smax", least).call("smin", high + 1)
        return top.compare(">", -4096).where(raised, floor)

    def shift(self, top: Emitted, shift: Emitted) -> tuple[Emitted, Emitted]:
        """The largest exponent moved by a block's scales, and by how much; both 0 where no product is nonzero."""
        some = top.compare(">", self.number(Par.NONE) << 23)
        return some.where(top + shift, 0), some.where(shift, 0)

    def with_c(self, top: Emitted, c: Emitted | None) -> Emitted:
        """emax of the block: the products' and c's, where it is not 0."""
        if c is None:
            return top
        pattern = c.bits_as(I32)
        field = pattern & FIELD
        if self.half:  # a subnormal c has the exponent of the smallest normal number
            field = (pattern & 0x7FFFFFFF).compare("!=", 0).where(field.call("smax", self.number(Par.C_LEAST)), 0)
        return top.call("smax", field)

    # 2., 3. the sum

    def products(self, terms: Terms, s: list[Emitted], k: Emitted, stop: Emitted, acc: list[Emitted]) -> list[Emitted]:
        """acc plus the truncated products k … stop, as `every_lane` takes them; LLVM loads what vectors have in common once."""
        totals = [Variable(self.b, x) for x in acc]

        def add(k: Emitted) -> None:
            for (row, column), scale, total in zip(terms.places, s, totals, strict=True):
                factor = ops.emit_load(self.b, terms.a, row + k).spread(LANES)
                x = ops.emit_load(self.b, terms.b, k * (LANES * self.vectors) + column, LANES) * factor * scale
                total.set(total.get() + x.cast(I32, "fptosi"))

        every_lane(self.b, k, stop, add, self.step)
        return [total.get() for total in totals]

    def wide_products(self, walk: Products, s: list[Emitted], k: Emitted, stop: Emitted, acc: list[Emitted]) -> list[Emitted]:
        """The same in 64 bits, from groups that 32 bits hold."""
        totals = [Variable(self.b, x.cast(I64, "sext")) for x in acc]
        zeros = [x.like(0) for x in acc]
        with ops.loop(self.b, stop, self.par[Par.GROUP], k) as first:
            last = (first + self.par[Par.GROUP]).call("smin", stop)
            for total, group in zip(totals, walk(s, first, last, zeros), strict=True):
                total.set(total.get() + group.cast(I64, "sext"))
        return [total.get() for total in totals]

    # a block of several vectors

    def block(
        self,
        walk: Products,
        emax: Emitted,
        c: Emitted | None,
        k: Emitted,
        stop: Emitted,
        random: Emitted | None,
        shifts: Emitted | None,
    ) -> Emitted:
        """c, None for 0, and the products k … stop that `walk` adds, rounded; `shifts`: how far their exponents are moved."""
        field = self.number(Par.SCALE) - emax
        start = emax.like(0) if c is None else (c * field.bits_as(F32)).cast(I32, "fptosi")
        if shifts is not None:  # products far below c's last place are multiplied by 0
            field = (field + shifts).call("smax", 0)
        scale = singly(field.bits_as(F32))
        if self.width == WIDE:
            return self.in_groups(walk, scale, k, stop, start, emax, random)
        total = Abreast(walk(scale, k, stop, singly(emax.like(0) if self.width == CARRY else start)))
        return self.carried(total, start, emax, random) if self.width == CARRY else self.rounded(total, emax, random)

    def in_groups(
        self, walk: Products, s: list[Emitted], k: Emitted, stop: Emitted, start: Emitted, emax: Emitted, random: Emitted | None
    ) -> Emitted:
        """The rounded sums of start and of groups of products that 32 bits hold; again in 64 bits where a sum does not fit."""
        totals = [Variable(self.b, x) for x in singly(start)]
        over = Variable(self.b, totals[0].get().like(0))
        with ops.loop(self.b, stop, self.par[Par.GROUP], k) as first:
            last = (first + self.par[Par.GROUP]).call("smin", stop)
            groups = walk(s, first, last, [x.get().like(0) for x in totals])
            for total, group in zip(totals, groups, strict=True):
                before, after = total.get(), total.get() + group
                over.set(over.get() | ((before ^ after) & (group ^ after)))
                total.set(after)
        results = [Variable(self.b, x) for x in singly(self.rounded(Abreast([x.get() for x in totals]), emax, random))]
        with self.b.if_then(over.get().compare("<", 0).any().v, likely=False):
            again = self.rounded(Abreast(self.wide_products(walk, s, k, stop, singly(start))), emax, random)
            for result, x in zip(results, singly(again), strict=True):
                result.set(x)
        return Abreast([x.get() for x in results])

    def two_stage_block(
        self, terms: Terms, tops: list[Abreast], c: Abreast, k: Emitted, stop: Emitted, seen: list[Range]
    ) -> Emitted:
        """The accumulators of a two-stage sum after products k … stop; `tops`: exponents of each part of the products."""
        parts, words = [], self.code == I16
        for start, top in enumerate(tops):
            s = (self.number(Par.SCALE) - top).bits_as(F32)
            parts += [Abreast(self.products(terms, singly(s), k + start, stop, singly(top.like(0)))), top]
        total, e = parts if len(tops) == 1 else staged.joined_stages(*parts)
        for range_, x, *fields in zip(seen, c.members, *(top.members for top in tops), strict=True) if words else ():
            for field in fields:
                range_.see(field)
            range_.see(fields[0].call("smax", fields[-1]).call("smax", x.bits_as(I32) & FIELD))
        return staged.with_c(self.rounding, total, e, c, len(tops) > 1, words)

    def carried(self, part: Emitted, start: Emitted, emax: Emitted, random: Emitted | None) -> Emitted:
        """The rounded sums of the products and c, which may pass 32 bits."""
        total = part + start
        results = [Variable(self.b, x) for x in singly(self.rounded(total, emax, random))]
        over = ((part ^ total) & (start ^ total)).compare("<", 0)
        with self.b.if_then(over.any().v, likely=False):
            again = self.rounded(part.cast(I64, "sext") + start.cast(I64, "sext"), emax, random)
            for result, x in zip(results, singly(again), strict=True):
                result.set(x)
        return Abreast([result.get() for result in results])


def every_lane(b: ir.IRBuilder, k: Emitted, stop: Emitted, body: Callable[[Emitted], None], step: int) -> None:
    """body of every `step`th number (1 or 2) from k below stop; PAIRED: of two of every four, stop being a multiple of 8 further."""
    if step == PAIRED:
        with ops.loop(b, stop, 8, k) as at:
            for u in (0, 1, 4, 5):
                body(at + u)
    elif step == 1:
        ops.each(b, k, stop, body)
    else:
        ops.each(b, Emitted(b, I64(0)), (stop - k + 1) >> 1, lambda i: body(k + (i << 1)))


class Range:
    """Whether every emax of a lane was zero or within what fits, for word codes."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        zero = ops.constant(tile.b, ir.VectorType(I32, LANES), 0)
        self.most, self.least = Variable(tile.b, zero), Variable(tile.b, zero | -1)

    def see(self, emax: Emitted) -> None:
        self.most.set(self.most.get().call("umax", emax))
        self.least.set(self.least.get().call("umin", emax - 1))

    def bad(self) -> Emitted:
        high, low = self.tile.number(Par.HIGH) << 23, self.tile.number(Par.LOW) << 23
        return Emitted(
            self.tile.b, self.tile.b.or_(self.most.get().compare("u>", high).v, self.least.get().compare("u<", low - 1).v)
        )


def emit_strip(b: ir.IRBuilder, kind: int, width: int, words: bool, half: bool, scaling: int, panel: int, **arg: Any) -> None:
    """All rows of a packed strip against one panel of columns: c is read, walked through `depth` products, written."""
    v = {name: Emitted(b, arg[name]) for name in STRIP_NUMBERS}
    if scaling == FOLDED:
        folded_strip((FoldedProducts if width == BY_PRODUCT else Folded)(b, panel, arg, v))
        return
    if kind >= TREE:
        ieee_strip(b, kind, width, panel, arg, v)
        return
    tile = Tile(b, arg["par"], kind, width, words, half, panel, scaling)
    whole = v["height"] & -tile.rows if tile.wide else v["height"]
    with ops.loop(b, whole, tile.rows) as i:
        _tile(b, tile, i, arg, v)
    if tile.wide:
        tile.rows = 1
        with ops.loop(b, v["height"], 1, whole) as i:
            _tile(b, tile, i, arg, v)


def _tile(b: ir.IRBuilder, tile: Tile, i: Emitted, arg: dict[str, Any], v: dict[str, Emitted]) -> None:
    """One tile at row i: its four vectors have places (row, vector) (0, 0) … (0, 3), or (0, 0) … (3, 0)."""
    places = [(r, col) for r in range(tile.rows) for col in range(tile.vectors)]
    at = [(i + r) * v["ldc"] + col * LANES for r, col in places]
    rows = [(i + r) * v["lda"] for r, _ in places]
    codes_row = i * v["lda"] if tile.wide else (i >> 2) * tile.groups * v["lda"]
    paired, zero = tile.step == PAIRED, ops.constant(b, ir.VectorType(F32, LANES), 0.0)
    c = [Variable(b, zero if paired else ops.emit_load(b, arg["c"], place, LANES)) for place in at]
    seen = [Range(tile) for _ in places] if tile.code == I16 or tile.aware else []
    draws = (
        VectorDraws(b, tile.par[Par.SEED], [elements(b, i + r, col, v) for r, col in places]) if tile.kind == RANDOM else None
    )
    step, slot, length = Variable(b, v["step"]), Variable(b, Emitted(b, I64(0))), tile.par[Par.BLOCK]

    def walk(k: Emitted, stop: Emitted, fresh: bool = False) -> None:
        """A block: products k … stop. fresh: all accumulators are 0."""
        parts = 2 if tile.kind == PARITY else 1
        found = [tile.exponents(arg["ea"], arg["eb"], codes_row, v["lda"], k + part, stop) for part in range(parts)]
        words: list[Emitted] = draws.words(step.get()) if draws else []
        for first in range(0, len(places), tile.abreast):
            group = range(first, first + tile.abreast)
            terms = Terms(arg["a"], arg["bm"], [(rows[p], places[p][1] * LANES) for p in group])
            before = None if fresh else Abreast([c[p].get() for p in group])
            fields = [[tile.field(x, p) for p in group] for x in found]
            if before is not None and tile.staged:
                tops = [Abreast(x) for x in fields]
                after = tile.two_stage_block(terms, tops, before, k, stop, [seen[p] for p in group if seen])
            else:
                top, moved = Abreast(fields[0]), None
                if tile.shifted:
                    scales = [_scales(b, tile, i + places[p][0], places[p][1], slot.get(), arg, v) for p in group]
                    top, moved = (Abreast(x) for x in zip(*map(tile.shift, fields[0], scales), strict=True))
                emax = tile.with_c(top, before)
                random = Abreast([words[p] for p in group]) if words else None
                after = tile.block(partial(tile.products, terms), emax, before, k, stop, random, moved)
                for p, e in zip(group, singly(emax) if seen else [], strict=False):
                    seen[p].see(e)
            for p, x in zip(group, singly(after), strict=True):
                c[p].set(x)
        slot.set(slot.get() + 1)
        step.set(step.get() + 1)

    if paired:  # blocks start at 0 and 2 and reach 32 further, a number that LLVM must not know: it would unroll and spill
        for first in (0, 2):
            walk(Emitted(b, I64(first)), (length << 1) + first, fresh=first == 0)
    else:
        with ops.loop(b, v["depth"], length) as k:
            walk(k, (k + length).call("smin", v["depth"]))
    for p, place in enumerate(at):
        ops.emit_store(b, c[p].get(), arg["c"], place)
        if seen:
            old = ops.emit_load(b, arg["bad"], place, LANES)
            ops.emit_store(b, old | seen[p].bad().cast(I8, "zext"), arg["bad"], place)


def _scales(
    b: ir.IRBuilder, tile: Tile, row: Emitted, vector: int, slot: Emitted, arg: dict[str, Any], v: dict[str, Emitted]
) -> Emitted:
    """How far a block's two scales move the exponents of a row and a vector of columns."""
    mine = ops.emit_load(b, arg["sa"], row * v["lsa"] + slot).spread(LANES)
    return mine + ops.emit_load(b, arg["sb"], (slot * tile.vectors + vector) * LANES, LANES)


def elements(b: ir.IRBuilder, row: Emitted, vector: int, v: dict[str, Emitted]) -> Emitted:
    """Places of 16 outputs in the whole result, in C order."""
    count = Emitted(b, ir.Constant(ir.VectorType(I64, LANES), [vector * LANES + j for j in range(LANES)]))
    return count * v["column_step"] + (v["element"] + row * v["row_step"])
