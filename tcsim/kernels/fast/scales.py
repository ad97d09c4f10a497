"""Block scales on the fast path: their codes become exponents beside the packed operands, or are multiplied into them.

SHIFTED
    One scale for every product of a block: the block is an unscaled one whose exponents move by that of the two scales.
    Per line and block: the scale's exponent, where float32 has its own.
FOLDED
    Groups of 16 products that are summed exactly (`folded`). Elements are multiplied by their scale, exactly; per line and
    block of an operand: low and high, its nonzero scaled elements being multiples of 2^low, and 2^(high + 1) the exponent of
    the largest scale of a nonzero element; their squared norm over 4^low or a little more, a float32; for a panel of b, the
    least low and the largest of the other two among its columns; then for each group its scale's exponent (biased, upper
    half) and which of its 16 elements are not zero.

A scale that is NaN makes its line NaN. One beyond 2^LIMIT or below 2^-LIMIT marks the line, to be computed elsewhere, unless
all elements that it scales are zero: quantisers give such blocks any scale.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.jit import inline, inline_ir
from tcsim.codegen.vector_memory import peek8
from tcsim.codegen.vector_ops import F32, I16, I32, I64, LANES, Emitted, Variable
from tcsim.fp.codes import decode
from tcsim.fp.formats import Format
from tcsim.kernels.fast.folded import GROUP, GROUPS, HIGH, LOW, NORM, PANELS
from tcsim.kernels.fast.pack import HAS_NAN, SPECIAL
from tcsim.kernels.fast.round import FIELD
from tcsim.kernels.fast.tile import PANEL, SHIFTED

LIMIT = 40
OFFSET = 64  # of a biased scale exponent
_NONE, _UNSEEN = 1000, 0x7FFFFFFF
FAR, _NAN = 0x7F800000, 0x7FC00000  # in the table: a scale beyond the limit, or NaN


@lru_cache(maxsize=16)
def scale_table(fmt: Format) -> np.ndarray[Any, Any]:
    """The float32 pattern of every code of a scale format of at most 8 bits, FAR and _NAN for what is not multiplied."""
    values = decode(np.arange(1 << fmt.width, dtype=np.uint8), fmt).astype(np.float64)
    table = np.full(256, FAR, np.int64)
    for code, x in enumerate(values):
        if np.isnan(x):
            table[code] = _NAN
        elif x == 0 or 2.0**-LIMIT <= x < 2.0 ** (LIMIT + 1):
            table[code] = int(np.float32(x).view(np.uint32))
    return table


@inline
def all_zero(values, first, step, count):
    """Whether `count` packed values are zero."""
    found = False
    for i in range(count):
        found |= values[first + i * step] != 0
    return not found


@inline
def look_up(address, step, entries, width, scale_block, k0, table, found, at, stride):
    """Write the patterns of a line's scales from k0 on, one for each `width` products, to found[at + s·stride]; their largest."""
    scale, most = k0 // scale_block, np.int64(0)
    if scale_block == width:
        for i in range(entries):
            pattern = table[peek8(address + (scale + i) * step)]
            found[at + i * stride] = pattern
            most = max(most, pattern)
        return most
    used, s = k0 - scale * scale_block, np.int64(0)
    while s < entries:
        pattern = table[peek8(address + scale * step)]
        most = max(most, pattern)
        while used < scale_block and s < entries:
            found[at + s * stride] = pattern
            used += width
            s += 1
        used, scale = used - scale_block, scale + 1
    return most


@inline
def mark_scales(width, depth, values, first, along, entries, found, at, stride, marks, line):
    """Mark a line for its NaN and far scales, which become 0: a far one where an element that it scales is not zero."""
    for s in range(entries):
        pattern = found[at + s * stride]
        if pattern < FAR:
            continue
        if pattern == _NAN:
            marks[line] |= SPECIAL | HAS_NAN
        elif not all_zero(values, first + s * width * along, along, min(width, depth - s * width)):
            marks[line] |= SPECIAL
        found[at + s * stride] = 0


class _Numbers:
    """Low, high and squares of a block as it is seen group by group; lanes are columns, or elements of one row (lanes=0)."""

    def __init__(self, b: ir.IRBuilder, lanes: int) -> None:
        kind = ir.VectorType(I32, lanes) if lanes else I32
        self.low, self.high = Variable(b, ops.constant(b, kind, _NONE)), Variable(b, ops.constant(b, kind, -_NONE))
        self.squares = Variable(b, ops.constant(b, ir.VectorType(F32, LANES), 0.0))  # lane by lane

    def norm(self, squares: Emitted) -> Emitted:
        """The pattern of the squared norm in units of 2^low, a little too large, never too small."""
        low = self.low.get()
        unscale = low.compare("==", _NONE).where(low.like(0), (low * -1 + 127) << 23).bits_as(F32)
        return (squares * (1 + 2.0**-12) * unscale * unscale).bits_as(I32)

    def see(self, mask: Emitted, exponent: Emitted, last: Emitted) -> None:
        """A group: which elements are not zero, exponent and last place of its scale times the elements'."""
        none = mask.compare("==", 0)
        self.low.set(self.low.get().call("smin", none.where(last.like(_NONE), last)))
        self.high.set(self.high.get().call("smax", none.where(last.like(-_NONE), exponent - 1)))


def _together(v: Emitted, how: str) -> Emitted:
    """The lanes of a vector reduced to one by umax, umin, smax, smin or sum."""
    count = LANES
    while count > 1:
        count //= 2
        x, y = v.lanes(list(range(count))), v.lanes(list(range(count, 2 * count)))
        v = x + y if how == "sum" else x.call(how, y)
    return Emitted(v.b, v.b.extract_element(v.v, I32(0)))


def _fold(b: ir.IRBuilder, rows: bool, wide: bool, **arg: Any) -> None:
    n = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    loops = _fold_row if rows else _fold_columns
    with ops.loop(b, n["lines"], 1 if rows else LANES) as line:
        number = Variable(b, Emitted(b, I64(0)))
        with ops.loop(b, n["depth"], n["block"]) as k:
            loops(b, arg, n, line, number.get() * n["fields"], k, PANEL if wide else LANES)
            number.set(number.get() + 1)
    if not rows:
        width = PANEL if wide else LANES
        blocks = (n["depth"] + n["block"] - 1).cast(I32, "trunc")
        count = Emitted(b, b.udiv(blocks.v, n["block"].cast(I32, "trunc").v)).cast(I64, "zext")
        with ops.loop(b, count) as block:
            _panel(b, arg["to"], block * n["fields"] * width, width)


def _panel(b: ir.IRBuilder, to: Any, at: Emitted, width: int) -> None:
    """What holds for a block of all columns of a panel: the least low, the largest high and norm."""
    for place, how in ((LOW, "smin"), (HIGH, "smax"), (NORM, "umax")):
        found = ops.emit_load(b, to, at + place * width, LANES)
        for column in range(LANES, width, LANES):
            found = found.call(how, ops.emit_load(b, to, at + (place * width + column), LANES))
        ops.emit_store(b, _together(found, how), to, at + (PANELS * width + place))


def _places(pattern: Emitted, n: dict[str, Emitted]) -> tuple[Emitted, Emitted]:
    """Exponent (at least `least`) of scales, and a place below which no scaled element has a bit; of a zero, anything."""
    exponent = (pattern >> 23) - 127
    last = ((pattern & 0x7FFFFF) | 0x800000).call("cttz", flags=(False,)) + exponent - 23
    return exponent.call("smax", n["least"].cast(I32, "trunc")), last - n["unit"].cast(I32, "trunc")


def _fold_row(
    b: ir.IRBuilder, arg: dict[str, Any], n: dict[str, Emitted], row: Emitted, slot: Emitted, k: Emitted, width: int
) -> None:
    """One block of one row of a."""
    seen, to = _Numbers(b, 0), row * n["slots"] + slot
    group = Variable(b, to + GROUPS)
    with ops.loop(b, (k + n["block"]).call("smin", n["depth"]), GROUP, k) as at:
        factor = ops.emit_load(b, arg["found"], row * n["entries"] + (at >> 4))
        exponent, last = _places(factor, n)
        x = ops.emit_load(b, arg["values"], row * n["pitch"] + at, LANES) * factor.bits_as(F32)
        ops.emit_store(b, x, arg["values"], row * n["pitch"] + at)
        seen.squares.set(x.call("fma", x, seen.squares.get()))
        some = (x.bits_as(I32) & 0x7FFFFFFF).compare("!=", 0)
        mask = Emitted(b, b.bitcast(some.v, I16)).cast(I32, "zext")
        seen.see(mask, exponent, last)
        ops.emit_store(b, ((exponent + OFFSET) << 16) | mask, arg["to"], group.get())
        group.set(group.get() + 1)
    ops.emit_store(b, seen.low.get(), arg["to"], to + LOW)
    ops.emit_store(b, seen.high.get(), arg["to"], to + HIGH)
    ops.emit_store(b, seen.norm(_together(seen.squares.get(), "sum")), arg["to"], to + NORM)


def _fold_columns(
    b: ir.IRBuilder, arg: dict[str, Any], n: dict[str, Emitted], column: Emitted, slot: Emitted, k: Emitted, width: int
) -> None:
    """One block of 16 columns of a panel of b."""
    seen, to = _Numbers(b, LANES), slot * width + column
    group = Variable(b, to + GROUPS * width)
    stop = (k + n["block"]).call("smin", n["depth"])
    with ops.loop(b, stop, GROUP, k) as at:
        factor = ops.emit_load(b, arg["found"], (at >> 4) * width + column, LANES)
        exponent, last = _places(factor, n)
        mask, bit = Variable(b, ops.constant(b, ir.VectorType(I32, LANES), 0)), Variable(b, Emitted(b, I32(1)))

        def scaled(k: Emitted, factor: Emitted = factor, mask: Variable = mask, bit: Variable = bit) -> None:
            place = k * width + column
            x = ops.emit_load(b, arg["values"], place, LANES) * factor.bits_as(F32)
            ops.emit_store(b, x, arg["values"], place)
            seen.squares.set(x.call("fma", x, seen.squares.get()))
            some = (x.bits_as(I32) & 0x7FFFFFFF).compare("!=", 0)
            mask.set(mask.get() | some.where(bit.get().spread(LANES), 0))
            bit.set(bit.get() << 1)

        ops.each(b, at, (at + GROUP).call("smin", stop), scaled)
        seen.see(mask.get(), exponent, last)
        ops.emit_store(b, ((exponent + OFFSET) << 16) | mask.get(), arg["to"], group.get())
        group.set(group.get() + width)
    ops.emit_store(b, seen.low.get(), arg["to"], to + LOW * width)
    ops.emit_store(b, seen.high.get(), arg["to"], to + HIGH * width)
    ops.emit_store(b, seen.norm(seen.squares.get()), arg["to"], to + NORM * width)


_POINTERS = {"values": F32, "found": I32, "to": I32}
_NUMBERS = ("lines", "depth", "pitch", "block", "fields", "entries", "slots", "least", "unit")


@intrinsic(prefer_literal=True)
def fold(typingctx, rows, width, arrays, starts, numbers):
    """Multiply the scales into packed rows of a (rows=1) or a panel of b `width` columns wide, and write their blocks' numbers.

    arrays: (values, found, to), `starts` their offsets; numbers: int64, as in _NUMBERS; `least`: exponents of scales count as that at least; `unit`: elements times 2^unit are integers.
    """
    is_rows, wide = bool(rows.literal_value), width.literal_value == PANEL
    arguments = {name: kind.as_pointer() for name, kind in _POINTERS.items()} | dict.fromkeys(_NUMBERS, I64)

    def body(b: ir.IRBuilder, **arg: Any) -> None:
        _fold(b, is_rows, wide, **arg)

    def codegen(context, builder, signature, args):
        emitted = ops.function(builder.module, f"tcsim_fold_{int(is_rows)}_{int(wide)}", arguments, body)
        kinds = signature.args[2].types
        found = [builder.extract_value(args[2], i) for i in range(len(kinds))]
        data = [context.make_array(kind)(context, builder, x).data for kind, x in zip(kinds, found, strict=True)]
        moved = [builder.gep(p, [builder.extract_value(args[3], i)]) for i, p in enumerate(data)]
        builder.call(emitted, [*moved, *(builder.extract_value(args[4], i) for i in range(len(_NUMBERS)))])
        return context.get_dummy_value()

    return types.void(rows, width, arrays, starts, numbers), codegen


@inline
def shifts(exponents, patterns):
    """Exponents of powers of two, in place; 0 for what is none."""
    for i in range(exponents.size):
        exponents[i] = (patterns[i] & np.int32(FIELD)) - np.int32(127 << 23) if patterns[i] else np.int32(0)


@inline
def add_shifts(exponents, patterns):
    """The same, added to others."""
    for i in range(exponents.size):
        if patterns[i]:
            exponents[i] += (patterns[i] & np.int32(FIELD)) - np.int32(127 << 23)


@inline_ir
def column_scales(job, side, columns, entries, k0, depth, values, found, table, marks):
    """The patterns of the scales of columns, packed by panel as `values` are. side: address of the first, steps from column to column and along k."""
    address, across, along = side
    count = -(-depth // job.scale_width)
    for j in range(columns):
        wide = columns - j // PANEL * PANEL >= PANEL
        width = np.int64(PANEL) if wide else np.int64(LANES)
        first, lane = j // width * width, j % width
        at = first * entries + lane
        most = look_up(address + j * across, along, count, job.scale_width, job.scale_block, k0, table, found, at, width)
        if most >= FAR:
            mark_scales(job.scale_width, depth, values, first * job.chunk + lane, width, count, found, at, width, marks, j)


@inline_ir
def add_scales(job, j0, columns, k0, depth, entries, a, b, found, sb, table, marks):
    """Scales of columns that have a row of a of their own, all in sb: exponents of powers of two."""
    side = (job.scale_a + j0 * job.scale_a_row, job.scale_a_row, job.scale_a_k)
    column_scales(job, side, columns, entries, k0, depth, a, found[0], table, marks)
    side = (job.scale_b + j0 * job.scale_b_column, job.scale_b_column, job.scale_b_k)
    column_scales(job, side, columns, entries, k0, depth, b, found[1], table, marks)
    shifts(sb, found[1])
    add_shifts(sb, found[0])


@inline_ir
def pack_scales(
    scaling,
    job,
    t,
    i0,
    rows,
    j0,
    columns,
    k0,
    depth,
    pitch,
    slots,
    entries,
    a,
    b,
    found,
    sa,
    sb,
    table,
    row_marks,
    column_marks,
):
    """The scales of a chunk as the tiles read them, sa by row and sb by panel; where FOLDED, a and b are multiplied by them.

    `found` holds, for a and for b, the patterns that `look_up` writes.
    """
    count = -(-depth // job.scale_width)
    origin = job.scale_a + t * job.scale_a_batch + i0 * job.scale_a_row
    for i in range(rows):
        most = look_up(origin + i * job.scale_a_row, job.scale_a_k, count, job.scale_width, job.scale_block, k0, table,
                       found[0], i * entries, np.int64(1))  # fmt: skip
        if most >= FAR:
            mark_scales(
                job.scale_width, depth, a, i * pitch, np.int64(1), count, found[0], i * entries, np.int64(1), row_marks, i
            )
    side = (job.scale_b + t * job.scale_b_batch + j0 * job.scale_b_column, job.scale_b_column, job.scale_b_k)
    column_scales(job, side, columns, entries, k0, depth, b, found[1], table, column_marks)
    if scaling == SHIFTED:
        shifts(sa, found[0])
        shifts(sb, found[1])
        return
    fold(
        1,
        PANEL,
        (a, found[0], sa),
        (0, 0, 0),
        (rows, depth, pitch, job.block, job.fields, entries, slots, job.scale_least, job.unit_a),
    )
    at = 0
    while at < columns:
        starts = (at * job.chunk, at * entries, at * slots)
        if columns - at >= PANEL:
            numbers = (np.int64(PANEL), depth, pitch, job.block, job.fields, entries, slots, job.scale_least, job.unit_b)
            fold(0, PANEL, (b, found[1], sb), starts, numbers)
            at += PANEL
        else:
            numbers = (np.int64(LANES), depth, pitch, job.block, job.fields, entries, slots, job.scale_least, job.unit_b)
            fold(0, LANES, (b, found[1], sb), starts, numbers)
            at += LANES
