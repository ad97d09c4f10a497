"""Block scales on the fast path: their codes become exponents beside the packed operands, or are multiplied into them.

SHIFTED
    One scale for every product of a block: the block is an unscaled one whose exponents move by that of the two scales.
    Per line and block: the scale's exponent, where float32 has its own.
FOLDED
    Blocks that are summed exactly (`folded`): elements are multiplied by their scale (`folding`).

A scale that is NaN makes its line NaN. One beyond 2^LIMIT or below 2^-LIMIT marks the line, to be computed elsewhere, unless
all elements that it scales are zero: quantisers give such blocks any scale.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tcsim.codegen.jit import inline, inline_ir
from tcsim.codegen.vector_memory import peek8
from tcsim.codegen.vector_ops import LANES
from tcsim.fp.codes import decode
from tcsim.fp.formats import Format
from tcsim.kernels.fast.folding import fold
from tcsim.kernels.fast.pack import HAS_NAN, SPECIAL
from tcsim.kernels.fast.round import FIELD
from tcsim.kernels.fast.tile import PANEL, SHIFTED

LIMIT = 40
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
    of_a, of_b = (job.own, job.unit_a, job.top_a, job.base_a), (job.own, job.unit_b, job.top_b, job.base_b)
    alike = depth, pitch, job.block, job.fields, entries, slots, job.scale_least
    fold(1, PANEL, (a, found[0], sa), (0, 0, 0), (rows, *alike, *of_a))
    at = 0
    while at < columns:
        starts = (at * job.chunk, at * entries, at * slots)
        if columns - at >= PANEL:
            fold(0, PANEL, (b, found[1], sb), starts, (np.int64(PANEL), *alike, *of_b))
            at += PANEL
        else:
            fold(0, LANES, (b, found[1], sb), starts, (np.int64(LANES), *alike, *of_b))
            at += LANES
