"""Block scales on the fast path: their codes become exponents beside the packed operands, or are multiplied into them.

SHIFTED
    One scale for every product of a block: the block is an unscaled one whose exponents move by that of the two scales.
    Per line and block: the scale's exponent, where float32 has its own.
FOLDED
    Groups of 16 products that are summed exactly (`folded`). Elements are multiplied by their scale, exactly; per line and
    block of an operand: low and high, its nonzero scaled elements being multiples of 2^low, the largest 2^high or more, and
    none below half its scale above 2^high; their norm over 2^low or a little more, a float32; then for each group its scale's
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
from tcsim.kernels.fast.folded import GROUP, GROUPS, HIGH, LOW, NORM
from tcsim.kernels.fast.pack import HAS_NAN, SPECIAL
from tcsim.kernels.fast.tile import PANEL, SHIFTED

LIMIT = 40
OFFSET = 64  # of a biased scale exponent
_NAN, _NONE = 1 << 20, 1000
_FIELDS = 3  # of a code in the table: pattern of its float32 value, exponent, place of its last set bit


@lru_cache(maxsize=16)
def scale_table(fmt: Format) -> np.ndarray[Any, Any]:
    """The _FIELDS of every code of a scale format of at most 8 bits, flat."""
    values = decode(np.arange(1 << fmt.width, dtype=np.uint8), fmt).astype(np.float64)
    table = np.zeros((256, _FIELDS), np.int64)
    for code, x in enumerate(values):
        if np.isnan(x):
            table[code, 1] = _NAN
            continue
        mantissa, exponent = np.frexp(x)
        whole = int(mantissa * 2**53)
        table[code, 1] = fmt.emin if x == 0 else max(int(exponent) - 1, fmt.emin)
        table[code, 2] = 0 if x == 0 else (whole & -whole).bit_length() - 54 + int(exponent)
        table[code, 0] = int(np.float32(x).view(np.uint32)) if abs(table[code, 1]) <= LIMIT else 0
    return table.reshape(-1)


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
    """The scales of a line of an operand from k0 on, one for each `width` products: a column of (pattern, exponent, last place).

    `found` holds three planes; entry s of plane p lies at p·len/3 + at + s·stride. `values` from `first` on, `along` apart,
    are the line's packed elements.
    """
    plane, scale = found.size // 3, k0 // scale_block
    used, place = k0 - scale * scale_block, at
    e, pattern, last, ready = np.int64(0), np.int64(0), np.int64(0), False
    for s in range(entries):
        if used >= scale_block:
            used, scale, ready = used - scale_block, scale + 1, False
        if not ready:
            code = 3 * peek8(address + scale * step)
            e, pattern, last, ready = table[code + 1], table[code], table[code + 2], True
            if e > LIMIT or e < -LIMIT:
                if e == _NAN:
                    marks[line] |= SPECIAL | HAS_NAN
                elif not all_zero(values, first + s * width * along, along, min(scale_block - used, depth - s * width)):
                    marks[line] |= SPECIAL
                e, pattern, last = np.int64(0), np.int64(0), np.int64(0)
        found[place], found[plane + place], found[2 * plane + place] = pattern, e, last
        place += stride
        used += width


class _Numbers:
    """Low and high of a block as it is seen group by group."""

    def __init__(self, b: ir.IRBuilder, lanes: int) -> None:
        kind = ir.VectorType(I32, lanes) if lanes else I32
        self.low, self.high = Variable(b, ops.constant(b, kind, _NONE)), Variable(b, ops.constant(b, kind, -_NONE))
        self.squares = Variable(b, ops.constant(b, ir.VectorType(F32, LANES), 0.0))  # lane by lane

    def norm(self, squares: Emitted) -> Emitted:
        """The pattern of the norm over 2^low from the sum of squares; both may be a little too large, never too small."""
        low = self.low.get()
        unscale = low.compare("==", _NONE).where(low.like(0), (low * -1 + 127) << 23).bits_as(F32)
        return ((squares * (1 + 2.0**-12)).call("sqrt") * unscale * (1 + 2.0**-12)).bits_as(I32)

    def see(self, mask: Emitted, top: Emitted, bits: Emitted, exponent: Emitted, last: Emitted) -> None:
        """A group: which elements are not zero, the largest pattern, all set bits of its elements as integers."""
        none = mask.compare("==", 0)
        low = bits.call("cttz", flags=(False,)) + last
        high = ((top >> 23) - 127).call("smax", exponent - 1)
        self.low.set(self.low.get().call("smin", none.where(low.like(_NONE), low)))
        self.high.set(self.high.get().call("smax", none.where(high.like(-_NONE), high)))


def _together(v: Emitted, how: str) -> Emitted:
    """The lanes of a vector reduced to one by umax, or, sum."""
    count = LANES
    while count > 1:
        count //= 2
        x, y = v.lanes(list(range(count))), v.lanes(list(range(count, 2 * count)))
        v = {"umax": lambda x, y: x.call("umax", y), "or": lambda x, y: x | y, "sum": lambda x, y: x + y}[how](x, y)
    return Emitted(v.b, v.b.extract_element(v.v, I32(0)))


def _fold(b: ir.IRBuilder, rows: bool, wide: bool, **arg: Any) -> None:
    n = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    unit = ((n["unit"] + 127) << 23).cast(I32, "trunc").bits_as(F32)
    loops = _fold_row if rows else _fold_columns
    with ops.loop(b, n["lines"], 1 if rows else LANES) as line:
        block = Variable(b, Emitted(b, I64(0)))
        with ops.loop(b, n["depth"], n["block"]) as k:
            loops(b, arg, n, unit, line, block.get() * n["fields"], k, PANEL if wide else LANES)
            block.set(block.get() + 1)


def _fold_row(
    b: ir.IRBuilder, arg: dict[str, Any], n: dict[str, Emitted], unit: Emitted, row: Emitted, slot: Emitted, k: Emitted, _: int
) -> None:
    """One block of one row of a."""
    seen, to = _Numbers(b, 0), row * n["slots"] + slot
    group = Variable(b, to + GROUPS)
    with ops.loop(b, (k + n["block"]).call("smin", n["depth"]), GROUP, k) as at:
        s = row * n["entries"] + (at >> 4)
        factor, exponent, last = (ops.emit_load(b, arg["found"], n["plane"] * i + s) for i in range(3))
        v = ops.emit_load(b, arg["values"], row * n["pitch"] + at, LANES)
        x = v * factor.bits_as(F32)
        ops.emit_store(b, x, arg["values"], row * n["pitch"] + at)
        seen.squares.set(x.call("fma", x, seen.squares.get()))
        pattern = x.bits_as(I32) & 0x7FFFFFFF
        mask = Emitted(b, b.bitcast(pattern.compare("!=", 0).v, I16)).cast(I32, "zext")
        bits = _together((v * unit).cast(I32, "fptosi"), "or")
        seen.see(mask, _together(pattern, "umax"), bits, exponent, last - n["unit"].cast(I32, "trunc"))
        ops.emit_store(b, ((exponent + OFFSET) << 16) | mask, arg["to"], group.get())
        group.set(group.get() + 1)
    ops.emit_store(b, seen.low.get(), arg["to"], to + LOW)
    ops.emit_store(b, seen.high.get(), arg["to"], to + HIGH)
    ops.emit_store(b, seen.norm(_together(seen.squares.get(), "sum")), arg["to"], to + NORM)


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
        factor, exponent, last = (ops.emit_load(b, arg["found"], n["plane"] * i + s, LANES) for i in range(3))
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
_NUMBERS = ("lines", "depth", "pitch", "block", "fields", "entries", "slots", "plane", "unit")


@intrinsic(prefer_literal=True)
def fold(typingctx, rows, width, arrays, starts, numbers):
    """Multiply the scales into packed rows of a (rows=1) or a panel of b `width` columns wide, and write their blocks' numbers.

    arrays: (values, found, to), `starts` their offsets; numbers: int64, as in _NUMBERS; `unit`: elements times 2^unit are integers.
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

    `found` holds, for a and for b, the three planes that `scale_line` writes.
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
    planes = found[0].size // 3, found[1].size // 3
    if scaling == SHIFTED:
        for i in range(planes[0]):
            sa[i] = found[0][planes[0] + i] << 23
        for i in range(planes[1]):
            sb[i] = found[1][planes[1] + i] << 23
        return
    fold(
        1,
        PANEL,
        (a, found[0], sa),
        (0, 0, 0),
        (rows, depth, pitch, job.block, job.fields, entries, slots, planes[0], job.unit_a),
    )
    at = 0
    while at < columns:
        starts = (at * job.chunk, at * entries, at * slots)
        if columns - at >= PANEL:
            numbers = (np.int64(PANEL), depth, pitch, job.block, job.fields, entries, slots, planes[1], job.unit_b)
            fold(0, PANEL, (b, found[1], sb), starts, numbers)
            at += PANEL
        else:
            numbers = (np.int64(LANES), depth, pitch, job.block, job.fields, entries, slots, planes[1], job.unit_b)
            fold(0, LANES, (b, found[1], sb), starts, numbers)
            at += LANES
