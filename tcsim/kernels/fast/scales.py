"""Block scales on the fast path: their codes become exponents beside the packed operands, or are multiplied into them.

SHIFTED
    One scale for every product of a block: the block is an unscaled one whose exponents move by that of the two scales.
    Per line and block: the scale's exponent, where float32 has its own.
FOLDED
    Groups of 16 products that are summed exactly (`folded`). Elements are multiplied by their scale, exactly; per line and
    block of an operand: low and high, its nonzero scaled elements being multiples of 2^low, the largest 2^high or more, and
    none below half its scale above 2^high; their squared norm over 4^low or a little more, a float32; for a panel of b, the least
    low and the largest of the other two among its columns; then for each group its scale's
    exponent (biased, upper half) and which of its 16 elements are not zero.

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
_FAR, _NAN = 0x7F800000, 0x7FC00000  # in the table: a scale beyond the limit, or NaN


@lru_cache(maxsize=16)
def scale_table(fmt: Format) -> np.ndarray[Any, Any]:
    """The float32 pattern of every code of a scale format of at most 8 bits, _FAR and _NAN for what is not multiplied."""
    values = decode(np.arange(1 << fmt.width, dtype=np.uint8), fmt).astype(np.float64)
    table = np.full(256, _FAR, np.int64)
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
def scale_line(
    address, step, entries, width, scale_block, k0, depth, table, values, first, along, found, at, stride, marks, line
):
    """The scales of a line of an operand from k0 on, one for each `width` products, as patterns found[at + s·stride].

    `values` from `first` on, `along` apart, are the line's packed elements.
    """
    scale = k0 // scale_block
    used, place, s = k0 - scale * scale_block, at, np.int64(0)
    while s < entries:
        pattern = table[peek8(address + scale * step)]
        if pattern >= _FAR:
            if pattern == _NAN:
                marks[line] |= SPECIAL | HAS_NAN
            elif not all_zero(values, first + s * width * along, along, min(scale_block - used, depth - s * width)):
                marks[line] |= SPECIAL
            pattern = np.int64(0)
        while used < scale_block and s < entries:
            found[place] = pattern
            place += stride
            used += width
            s += 1
        used, scale = used - scale_block, scale + 1


class _Numbers:
    """Low and high of a block as it is seen group by group."""

    def __init__(self, b: ir.IRBuilder, lanes: int) -> None:
        kind = ir.VectorType(I32, lanes) if lanes else I32
        self.low, self.high = Variable(b, ops.constant(b, kind, _NONE)), Variable(b, ops.constant(b, kind, -_NONE))
        self.squares = Variable(b, ops.constant(b, ir.VectorType(F32, LANES), 0.0))  # lane by lane

    def norm(self, squares: Emitted) -> Emitted:
        """The pattern of the squared norm in units of 2^low, a little too large, never too small."""
        low = self.low.get()
        unscale = low.compare("==", _NONE).where(low.like(0), (low * -1 + 127) << 23).bits_as(F32)
        return (squares * (1 + 2.0**-12) * unscale * unscale).bits_as(I32)

    def see(self, mask: Emitted, top: Emitted, bits: Emitted, exponent: Emitted, last: Emitted) -> None:
        """A group: which elements are not zero, the largest pattern, all set bits of its elements as integers."""
        none = mask.compare("==", 0)
        low = bits.call("cttz", flags=(False,)) + last
        high = ((top >> 23) - 127).call("smax", exponent - 1)
        self.low.set(self.low.get().call("smin", none.where(low.like(_NONE), low)))
        self.high.set(self.high.get().call("smax", none.where(high.like(-_NONE), high)))


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
    unit = ((n["unit"] + 127) << 23).cast(I32, "trunc").bits_as(F32)
    loops = _fold_row if rows else _fold_columns
    with ops.loop(b, n["lines"], 1 if rows else LANES) as line:
        number = Variable(b, Emitted(b, I64(0)))
        with ops.loop(b, n["depth"], n["block"]) as k:
            loops(b, arg, n, unit, line, number.get() * n["fields"], k, PANEL if wide else LANES)
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


def _places(pattern: Emitted, least: Emitted) -> tuple[Emitted, Emitted]:
    """Exponent (at least `least`) and place of the last set bit of scales; of a zero, numbers that nobody asks for."""
    exponent = (pattern >> 23) - 127
    last = ((pattern & 0x7FFFFF) | 0x800000).call("cttz", flags=(False,)) + exponent - 23
    return exponent.call("smax", least.cast(I32, "trunc")), last


def _fold_row(
    b: ir.IRBuilder,
    arg: dict[str, Any],
    n: dict[str, Emitted],
    unit: Emitted,
    row: Emitted,
    slot: Emitted,
    k: Emitted,
    width: int,
) -> None:
    """One block of one row of a: what is in every lane, put together at its end."""
    seen, to = _Numbers(b, 0), row * n["slots"] + slot
    group, deepest = Variable(b, to + GROUPS), Variable(b, Emitted(b, I32(-_NONE)))
    zero = ops.constant(b, ir.VectorType(I32, LANES), 0)
    top, low = Variable(b, zero), Variable(b, zero + _UNSEEN)
    with ops.loop(b, (k + n["block"]).call("smin", n["depth"]), GROUP, k) as at:
        s = row * n["entries"] + (at >> 4)
        factor = ops.emit_load(b, arg["found"], s)
        exponent = _places(factor, n["least"])[0]
        v = ops.emit_load(b, arg["values"], row * n["pitch"] + at, LANES)
        x = v * factor.bits_as(F32)
        ops.emit_store(b, x, arg["values"], row * n["pitch"] + at)
        seen.squares.set(x.call("fma", x, seen.squares.get()))
        pattern = x.bits_as(I32) & 0x7FFFFFFF
        some = pattern.compare("!=", 0)
        mask = Emitted(b, b.bitcast(some.v, I16)).cast(I32, "zext")
        top.set(top.get().call("umax", pattern))
        low.set(low.get().call("smin", some.where(_last_place(pattern), _UNSEEN)))
        deepest.set(deepest.get().call("smax", mask.compare("!=", 0).where(exponent - 1, -_NONE)))
        ops.emit_store(b, ((exponent + OFFSET) << 16) | mask, arg["to"], group.get())
        group.set(group.get() + 1)
    least, most = _together(low.get(), "smin"), _together(top.get(), "umax")
    none = most.compare("==", 0)
    seen.low.set(none.where(least.like(_NONE), Emitted(b, b.ashr(least.v, I32(23))) - 127))
    ops.emit_store(b, seen.low.get(), arg["to"], to + LOW)
    high = none.where(most.like(-_NONE), ((most >> 23) - 127).call("smax", deepest.get()))
    ops.emit_store(b, high, arg["to"], to + HIGH)
    ops.emit_store(b, seen.norm(_together(seen.squares.get(), "sum")), arg["to"], to + NORM)


def _last_place(pattern: Emitted) -> Emitted:
    """The exponent field, in place, of the last set bit of nonzero float32 magnitudes; negative where float32 has none so small."""
    significand = (pattern & 0x7FFFFF) | 0x800000
    lowest = (significand & (significand * -1)).cast(F32, "sitofp").bits_as(I32)
    return lowest - (150 << 23) + (pattern & FIELD)


def _fold_columns(
    b: ir.IRBuilder,
    arg: dict[str, Any],
    n: dict[str, Emitted],
    unit: Emitted,
    column: Emitted,
    slot: Emitted,
    k: Emitted,
    width: int,
) -> None:
    """One block of 16 columns of a panel of b."""
    seen, to = _Numbers(b, LANES), slot * width + column
    group = Variable(b, to + GROUPS * width)
    stop = (k + n["block"]).call("smin", n["depth"])
    zero = ops.constant(b, ir.VectorType(I32, LANES), 0)
    with ops.loop(b, stop, GROUP, k) as at:
        s = (at >> 4) * width + column
        factor = ops.emit_load(b, arg["found"], s, LANES)
        exponent, last = _places(factor, n["least"])
        top, bits, mask = (Variable(b, zero) for _ in range(3))
        bit = Variable(b, Emitted(b, I32(1)))
        with ops.loop(b, (at + GROUP).call("smin", stop), 1, at) as kk:
            place = kk * width + column
            v = ops.emit_load(b, arg["values"], place, LANES)
            x = v * factor.bits_as(F32)
            ops.emit_store(b, x, arg["values"], place)
            seen.squares.set(x.call("fma", x, seen.squares.get()))
            pattern = x.bits_as(I32) & 0x7FFFFFFF
            top.set(top.get().call("umax", pattern))
            bits.set(bits.get() | (v * unit).cast(I32, "fptosi"))
            mask.set(mask.get() | pattern.compare("!=", 0).where(bit.get().spread(LANES), 0))
            bit.set(bit.get() << 1)
        seen.see(mask.get(), top.get(), bits.get(), exponent, last - n["unit"].cast(I32, "trunc"))
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

    `found` holds, for a and for b, the patterns that `scale_line` writes.
    """
    count = -(-depth // job.scale_width)
    origin = job.scale_a + t * job.scale_a_batch + i0 * job.scale_a_row
    for i in range(rows):
        scale_line(origin + i * job.scale_a_row, job.scale_a_k, count, job.scale_width, job.scale_block, k0, depth, table,
                   a, i * pitch, np.int64(1), found[0], i * entries, np.int64(1), row_marks, i)  # fmt: skip
    origin = job.scale_b + t * job.scale_b_batch + j0 * job.scale_b_column
    for j in range(columns):
        wide = columns - j // PANEL * PANEL >= PANEL
        width = np.int64(PANEL) if wide else np.int64(LANES)
        first, lane = j // width * width, j % width
        scale_line(origin + j * job.scale_b_column, job.scale_b_k, count, job.scale_width, job.scale_block, k0, depth, table,
                   b, first * job.chunk + lane, width, found[1], first * entries + lane, width, column_marks, j)  # fmt: skip
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
