"""A chunk of both operands packed for the fast path: rows of a and columns of b, or columns of both that are multiplied with each other.

Lines with NaN or infinities are marked, operands that a unit flushes are zeros, a last block is whole where the strips want that.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline_ir, no_refcount, noalias
from tcsim.codegen.scratch import zeros
from tcsim.codegen.vector_ops import LANES
from tcsim.kernels.fast.contiguous import make_contiguous
from tcsim.kernels.fast.flush import flush
from tcsim.kernels.fast.pack import ALONE, BELOW, BESIDE, VALUES, unpack_rows
from tcsim.kernels.fast.tile import PANEL, VECTORS


@no_refcount
def chunk_end(job, bounds, segment, k0):
    """Where a chunk from k0 on ends: at k, or where a block of a segment ends."""
    end = k0 + job.chunk
    if end >= job.k:
        return job.k
    while bounds[segment + 1] <= end:
        segment += 1
    return bounds[segment] + (end - bounds[segment]) // job.period * job.period


@inline_ir
def pack_a(job, arrays, edge, spare, t, i0, rows, columns, k0, depth, pitch, values_only):
    """Rows of a, with codes for 64-column panels; and for 16-column ones in `edge`, those of neighbouring rows together."""
    origin, groups = job.a + t * job.a_batch + i0 * job.a_row + k0 * job.a_k, VECTORS * job.bits // 32
    for i in range(0, rows, LANES):
        count = min(np.int64(LANES), rows - i)
        source, row_step = make_contiguous(
            job.packing, spare, job.a_item, origin + i * job.a_row, job.a_row, count, job.a_k, depth
        )
        numbers = (source, depth, row_step, count, pitch, pitch)
        if values_only:
            unpack_rows(job.packing, VALUES, arrays, min(job.a_item, 4), i * pitch, np.int64(0), numbers)
        else:
            if columns >= PANEL:
                unpack_rows(job.packing, ALONE, arrays, min(job.a_item, 4), i * pitch, i * pitch, numbers)
            if columns % PANEL:
                beside = (arrays[0], edge, arrays[2], arrays[3])
                unpack_rows(job.packing, BELOW, beside, min(job.a_item, 4), i * pitch, i // VECTORS * groups * pitch, numbers)


@inline_ir
def pack_b(job, side, arrays, spare, columns, depth, values_only):
    """Columns of b in panels, 64 wide, then 16 wide; a panel from column j on lies at j·chunk.

    side: address of the first code, steps along k and from column to column in bytes, and bytes of a code.
    """
    address, along, across, size = side
    j, codes, groups = np.int64(0), np.int64(0), VECTORS * job.bits // 32
    while j < columns:
        wide = columns - j >= PANEL
        width = np.int64(PANEL) if wide else np.int64(LANES)
        count = min(width, columns - j)
        source, row_step = make_contiguous(job.packing, spare, size, address + j * across, along, depth, across, count)
        item, lines = min(size, 4), depth
        if count == width and row_step == width * item:  # lines without gaps are one
            count, lines = count * depth, np.int64(1)
        if values_only:
            numbers = (source, count, row_step, lines, width, np.int64(0))
            unpack_rows(job.packing, VALUES, arrays, item, j * job.chunk, np.int64(0), numbers)
        elif wide:
            numbers = (source, count, row_step, lines, width, groups * LANES)
            unpack_rows(job.packing, BESIDE, arrays, item, j * job.chunk, codes, numbers)
        else:
            numbers = (source, count, row_step, lines, width, np.int64(LANES))
            unpack_rows(job.packing, ALONE, arrays, item, j * job.chunk, codes, numbers)
        j, codes = j + width, codes + groups * LANES * job.chunk


@noalias
def multiply_values(values, others, first, last):
    for i in range(first, last):
        values[i] *= others[i]


@noalias
def add_codes(codes, others, first, last):
    for i in range(first, last):
        codes[i] += others[i]


@no_refcount
def multiply_packed(job, columns, depth, b, other):
    """b times other, both packed as `pack_b` does: products, which float32 holds or the sum cuts off, and the codes of their exponents.

    Where only values were packed, codes mean nothing.
    """
    per_lane, groups, j, codes = 32 // job.bits, VECTORS * job.bits // 32, np.int64(0), np.int64(0)
    while j < columns:
        wide = columns - j >= PANEL
        width, lanes = (np.int64(PANEL), groups * LANES) if wide else (np.int64(LANES), np.int64(LANES))
        multiply_values(b[0], other[0], j * job.chunk, j * job.chunk + depth * width)
        add_codes(b[1], other[1], per_lane * codes, per_lane * (codes + depth * lanes))
        j, codes = j + width, codes + groups * LANES * job.chunk


@inline_ir
def mark_specials(job, arrays, spare, item, address, across, count, along, depth, marks, values_only):
    """Find the lines (rows of a, columns of b) of a chunk that hold NaN or infinities; `arrays` are scratch."""
    report, zero = arrays[3], np.int64(0)
    for i in range(count):
        report[0] = 0
        source, _ = make_contiguous(job.packing, spare, item, address + i * across, across, np.int64(1), along, depth)
        numbers = (source, depth, zero, np.int64(1), zero, zero)
        if values_only:
            unpack_rows(job.packing, VALUES, arrays, min(item, 4), zero, zero, numbers)
        else:  # codes too, which are nobody's: another function would be compiled for this alone
            unpack_rows(job.packing, ALONE, arrays, min(item, 4), zero, zero, numbers)
        marks[i] |= report[0]


@inline_ir
def spare_bytes(job):
    """Room for codes that are lined up: 16 rows of a, or a panel of either operand, of a chunk."""
    return zeros(min(job.columns, PANEL) * max(job.a_item, job.b_item) * job.chunk + LANES, np.uint8)


@inline_ir
def pack_marked_columns(job, side, arrays, columns, depth, scratch, marks, values_only):
    """Pack columns (values, codes, Decoding, report); those with specials are marked, and report[1] is set."""
    report = arrays[3]
    report[0] = 0
    pack_b(job, side, arrays, scratch[2], columns, depth, values_only)
    if report[0]:
        report[1] = 1
        spare = (scratch[0], scratch[1], arrays[2], report)
        mark_specials(job, spare, scratch[2], side[3], side[0], side[2], columns, side[1], depth, marks, values_only)


@inline_ir
def pack_marked_rows(job, t, i0, rows, columns, k0, depth, pitch, arrays, edge, scratch, marks, values_only):
    """The same for rows of a."""
    report = arrays[3]
    report[0] = 0
    pack_a(job, arrays, edge, scratch[2], t, i0, rows, columns, k0, depth, pitch, values_only)
    if report[0]:
        report[1] = 1
        source = job.a + t * job.a_batch + i0 * job.a_row + k0 * job.a_k
        spare = (scratch[0], scratch[1], arrays[2], report)
        mark_specials(job, spare, scratch[2], job.a_item, source, job.a_row, rows, job.a_k, depth, marks, values_only)


@noalias
def fill_ones(values):
    for i in range(len(values)):
        values[i] = np.float32(1)


@noalias
def fill_block(values, first, last):
    """-0 for the factors that a last block lacks."""
    for i in range(first, last):
        values[i] = np.float32(-0.0)


@no_refcount
def flush_rows(job, values, rows, pitch, depth):
    """Flush operands below job.least in packed rows of a; the least pattern that is left, no more than job.calm."""
    if job.least == 0:
        return np.int64(job.calm)
    return min(np.int64(job.calm), flush(values, 0, (rows, pitch, depth, job.least)))


@no_refcount
def flush_columns(job, values, columns, depth):
    """The same in packed columns."""
    smallest, j = np.int64(job.calm), np.int64(0)
    while j < columns and job.least > 0:
        width = np.int64(PANEL) if columns - j >= PANEL else np.int64(LANES)
        smallest = min(smallest, flush(values, j * job.chunk, (np.int64(1), np.int64(0), depth * width, job.least)))
        j += width
    return smallest


@no_refcount
def fill_columns(job, values, columns, depth):
    """A whole last block of packed columns."""
    whole, j = -(-depth // job.block) * job.block, np.int64(0)
    while j < columns:
        width = np.int64(PANEL) if columns - j >= PANEL else np.int64(LANES)
        fill_block(values, j * job.chunk + depth * width, j * job.chunk + whole * width)
        j += width
