"""The driver of the fast path: blocks of outputs as tasks, k in packed chunks, schedules folded in as their segments end.

A task owns up to `rows` x `columns` outputs of one batch element and walks all of k, so no partial result leaves it and
the bits do not depend on how tasks are shared out. Per chunk of k it packs its rows of a and columns of b, then runs
64-column panels (and 16-column ones for what is left) over sub-chunks that stay in the first-level cache.

Outputs that the fast arithmetic does not hold are marked and counted (`results`); the caller has them computed elsewhere. A NaN operand decides its row or column at once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tcsim.codegen.jit import inline_ir, kernel_uncounted, no_refcount, noalias, variant
from tcsim.codegen.scalar_ops import use_rounding
from tcsim.codegen.scratch import clear_all, copy_all, release, room, zeros
from tcsim.codegen.vector_ops import LANES, NEAREST
from tcsim.kernels.fast.contiguous import make_contiguous
from tcsim.kernels.fast.flush import flush
from tcsim.kernels.fast.late import add_late
from tcsim.kernels.fast.pack import ALONE, BELOW, BESIDE, VALUES, unpack_rows
from tcsim.kernels.fast.results import fold_segment, held_rounding, job_of, start, store
from tcsim.kernels.fast.round import Par
from tcsim.kernels.fast.scales import add_scales, pack_scales
from tcsim.kernels.fast.strips import call_strip
from tcsim.kernels.fast.tile import FOLDED, PAIRED, PANEL, SHIFTED, VECTORS


@inline_ir
def pack_a(job, arrays, edge, spare, t, i0, rows, columns, k0, depth, pitch, values_only):
    """Rows of a, with codes for 64-column panels; and for 16-column ones in `edge`, those of neighbouring rows together."""
    origin, groups = job.a + t * job.a_batch + i0 * job.a_row + k0 * job.a_k, VECTORS * job.bits // 32
    for i in range(0, rows, LANES):
        count = min(np.int64(LANES), rows - i)
        source, row_step = make_contiguous(spare, job.a_item, origin + i * job.a_row, job.a_row, count, job.a_k, depth)
        numbers = (source, depth, row_step, count, pitch, pitch)
        if values_only:
            unpack_rows(VALUES, arrays, min(job.a_item, 4), i * pitch, np.int64(0), numbers)
        else:
            if columns >= PANEL:
                unpack_rows(ALONE, arrays, min(job.a_item, 4), i * pitch, i * pitch, numbers)
            if columns % PANEL:
                beside = (arrays[0], edge, arrays[2], arrays[3])
                unpack_rows(BELOW, beside, min(job.a_item, 4), i * pitch, i // VECTORS * groups * pitch, numbers)


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
        source, row_step = make_contiguous(spare, size, address + j * across, along, depth, across, count)
        item, lines = min(size, 4), depth
        if count == width and row_step == width * item:  # lines without gaps are one
            count, lines = count * depth, np.int64(1)
        if values_only:
            unpack_rows(VALUES, arrays, item, j * job.chunk, np.int64(0), (source, count, row_step, lines, width, np.int64(0)))
        elif wide:
            numbers = (source, count, row_step, lines, width, groups * LANES)
            unpack_rows(BESIDE, arrays, item, j * job.chunk, codes, numbers)
        else:
            numbers = (source, count, row_step, lines, width, np.int64(LANES))
            unpack_rows(ALONE, arrays, item, j * job.chunk, codes, numbers)
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
    """b times other, both packed as `pack_b` does: products, which float32 holds or the sum cuts off, and the codes of their exponents."""
    per_lane, groups, j, codes = 32 // job.bits, VECTORS * job.bits // 32, np.int64(0), np.int64(0)
    while j < columns:
        wide = columns - j >= PANEL
        width, lanes = (np.int64(PANEL), groups * LANES) if wide else (np.int64(LANES), np.int64(LANES))
        multiply_values(b[0], other[0], j * job.chunk, j * job.chunk + depth * width)
        add_codes(b[1], other[1], per_lane * codes, per_lane * (codes + depth * lanes))
        j, codes = j + width, codes + groups * LANES * job.chunk


@inline_ir
def mark_specials(arrays, spare, item, address, across, count, along, depth, marks, values_only):
    """Find the lines (rows of a, columns of b) of a chunk that hold NaN or infinities; `arrays` are scratch."""
    report, zero = arrays[3], np.int64(0)
    for i in range(count):
        report[0] = 0
        source, _ = make_contiguous(spare, item, address + i * across, across, np.int64(1), along, depth)
        numbers = (source, depth, zero, np.int64(1), zero, zero)
        if values_only:
            unpack_rows(VALUES, arrays, min(item, 4), zero, zero, numbers)
        else:  # codes too, which are nobody's: another function would be compiled for this alone
            unpack_rows(ALONE, arrays, min(item, 4), zero, zero, numbers)
        marks[i] |= report[0]


@inline_ir
def spare_bytes(job):
    """Room for codes that are lined up: 16 rows of a, or a panel of either operand, of a chunk."""
    return zeros(min(job.columns, PANEL) * max(job.a_item, job.b_item) * job.chunk + LANES, np.uint8)


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
def pack_columns(job, side, arrays, columns, depth, scratch, marks, values_only):
    """Pack columns (values, codes, Decoding, report); those with specials are marked, and report[1] is set."""
    report = arrays[3]
    report[0] = 0
    pack_b(job, side, arrays, scratch[2], columns, depth, values_only)
    if report[0]:
        report[1] = 1
        spare = (scratch[0], scratch[1], arrays[2], report)
        mark_specials(spare, scratch[2], side[3], side[0], side[2], columns, side[1], depth, marks, values_only)


@inline_ir
def pack_lines(job, t, i0, rows, columns, k0, depth, pitch, arrays, edge, scratch, marks, values_only):
    """The same for rows of a."""
    report = arrays[3]
    report[0] = 0
    pack_a(job, arrays, edge, scratch[2], t, i0, rows, columns, k0, depth, pitch, values_only)
    if report[0]:
        report[1] = 1
        source = job.a + t * job.a_batch + i0 * job.a_row + k0 * job.a_k
        spare = (scratch[0], scratch[1], arrays[2], report)
        mark_specials(spare, scratch[2], job.a_item, source, job.a_row, rows, job.a_k, depth, marks, values_only)


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
def settle_task(job, columns, depth, rows, pitch, a, b):
    """What operations of the machine's own want of packed operands: flushed ones, and a whole last block.

    Returns 1 where no operand that is left is below job.calm, 0 elsewhere.
    """
    smallest = np.int64(job.calm)
    if job.least > 0:
        smallest = min(smallest, flush(a, 0, (rows, pitch, depth, job.least)))
    whole, j = -(-depth // job.block) * job.block, np.int64(0)
    while j < columns:
        width = np.int64(PANEL) if columns - j >= PANEL else np.int64(LANES)
        if job.least > 0:
            smallest = min(smallest, flush(b, j * job.chunk, (np.int64(1), np.int64(0), depth * width, job.least)))
        fill_block(b, j * job.chunk + depth * width, j * job.chunk + whole * width)
        j += width
    return np.int64(smallest >= job.calm)


@cache
def fast_driver(ieee: int, words: int, half: int, scaling: int, sums: int, dots: int = 0) -> Any:
    """The compiled driver of all strips (`strips`) that do the machine's own operations or not, have a size of codes and of results and a use
    of scales, and whether the schedule sums.

    dots: of one row, every column of b having a row of a of its own, `a_row` further. Both are packed alike and multiplied, and strips
    walk a row of ones over the products.
    """
    code, per_lane = (np.uint16, 2) if words else (np.uint8, 4)
    values_only, scaled = scaling == FOLDED or ieee, scaling in (SHIFTED, FOLDED)
    clear = int(scaling != PAIRED)

    def work(first, last, strip_wide, strip_narrow, given, par, numbers_a, numbers_b, bounds, table, out, left):
        """Tasks first … last, by strips at two addresses; left[task] counts outputs written as `unresolved`."""
        job = job_of(given)
        down, right = -(-job.m // job.rows), -(-job.n // job.columns)
        high = -(-min(job.rows, job.m) // VECTORS) * VECTORS
        pitch = -(-min(job.columns, job.n) // LANES) * LANES
        line, groups, report = -(-job.chunk // LANES) * LANES, VECTORS * job.bits // 32, zeros(2, np.int64)
        panels = pitch // PANEL + pitch % PANEL // LANES + 4
        a = (room(high * line, np.float32), room(per_lane * high * line, code), numbers_a, report)
        b = (
            room(pitch * job.chunk, np.float32),
            room(per_lane * panels * groups * LANES * job.chunk, code),
            numbers_b,
            report,
        )
        edge = room(per_lane * high // VECTORS * line * groups if job.n % PANEL else 0, code)
        if dots:
            other = (room(len(b[0]), np.float32), room(len(b[1]), code), numbers_a, report)
            fill_ones(a[0])
            clear_all(a[1])
            clear_all(edge)
        scratch = (zeros(line, np.float32), zeros(per_lane * line, code), spare_bytes(job))
        c, bad = zeros(high * pitch, np.float32), zeros(high * pitch, np.uint8)
        total = zeros(high * pitch if sums else 0, np.float64)
        row_marks, column_marks = zeros(high, np.int64), zeros(pitch, np.int64)
        slots, entries = job.chunk // job.block * job.fields, job.chunk // job.scale_width if scaled else np.int64(0)
        sa, sb = zeros(high * slots, np.int32), zeros(pitch * slots, np.int32)
        found = (zeros((pitch if dots else high) * entries, np.int32), zeros(pitch * entries, np.int32))
        late = zeros(high * pitch if job.late else 0, np.float32)
        mode = par[Par.MODE]
        held = held_rounding(mode, sums)
        use_rounding(held)
        blocks = job.sub // job.block
        t, i0, j0 = first // (down * right), first // right % down * job.rows, first % right * job.columns
        for task in range(first, last):
            rows, columns = min(job.rows, job.m - i0), min(job.columns, job.n - j0)
            start(half, sums, job, t, i0, rows, j0, columns, pitch, c, bad, total)
            if ieee and job.least > 0:
                flush(c, 0, (np.int64(1), np.int64(0), high * pitch, np.int64(1 << 23)))
            if job.late:
                copy_all(late, c)
                clear_all(c)
            if scaled or report[1]:
                clear_all(row_marks)
                clear_all(column_marks)
                report[1] = 0
            element = t * job.out_batch + i0 * job.out_row + j0 * job.out_column
            segment, k0, k, k1, step = 0, np.int64(0), np.int64(0), np.int64(0), np.int64(0)
            fields = job.fields
            while k < job.k:
                if k == k1:
                    k0, k1 = k, chunk_end(job, bounds, segment, k)
                    depth = k1 - k0
                    b_side = (job.b + t * job.b_batch + k0 * job.b_k + j0 * job.b_column, job.b_k, job.b_column, job.b_item)
                    pack_columns(job, b_side, b, columns, depth, scratch, column_marks, values_only)
                    if dots:
                        a_side = (job.a + k0 * job.a_k + j0 * job.a_row, job.a_k, job.a_row, job.a_item)
                        pack_columns(job, a_side, other, columns, depth, scratch, column_marks, values_only)
                        if scaled:
                            add_scales(job, j0, columns, k0, depth, entries, other[0], b[0], found, sb, table, column_marks)
                        multiply_packed(job, columns, depth, b, other)
                    else:
                        pack_lines(job, t, i0, rows, columns, k0, depth, line, a, edge, scratch, row_marks, values_only)
                    if ieee:
                        fields = settle_task(job, columns, depth, rows, line, a[0], b[0])
                    if scaled and not dots:
                        pack_scales(scaling, job, t, i0, rows, j0, columns, k0, depth, line, slots, entries, a[0], b[0], found,
                                    sa, sb, table, row_marks, column_marks)  # fmt: skip
                stop = min(bounds[segment + 1], k1)
                j, panel, first_block = np.int64(0), np.int64(0), (k - k0) // job.block if k > k0 else np.int64(0)
                if mode != held:
                    use_rounding(mode)
                while j < columns:
                    wide = columns - j >= PANEL
                    p, now, block = k - k0, step, first_block * job.fields
                    while p < stop - k0:
                        depth, place = min(job.sub, stop - k0 - p), element + j * job.out_column
                        codes = panel * groups * LANES * job.chunk
                        if wide:
                            call_strip(strip_wide, (a[0], a[1], b[0], b[1], c, bad, sa, sb, par),
                                       (p, p, j * job.chunk + p * PANEL, codes + p * groups * LANES, j, j, block, j * slots + block * PANEL,
                                        line, pitch, rows, depth, place, job.out_row, job.out_column, now, slots, fields))  # fmt: skip
                        else:
                            call_strip(strip_narrow, (a[0], edge, b[0], b[1], c, bad, sa, sb, par),
                                       (p, p, j * job.chunk + p * LANES, codes + p * LANES, j, j, block, j * slots + block * LANES,
                                        line, pitch, rows, depth, place, job.out_row, job.out_column, now, slots, fields))  # fmt: skip
                        if job.late:
                            use_rounding(np.int64(NEAREST))
                            add_late(half, clear, (late, c, bad), j, (rows, PANEL if wide else LANES, pitch))
                            use_rounding(mode)
                        p, now, block = p + job.sub, now + blocks, block + blocks * job.fields
                    j, panel = j + (PANEL if wide else LANES), panel + 1
                if mode != held:
                    use_rounding(held)
                if stop < job.k:
                    step += -(-(stop - k) // job.block)
                k = stop
                if stop == bounds[segment + 1]:
                    segment += 1
                    if sums:
                        if job.late:
                            copy_all(c, late)
                            clear_all(late)
                        fold_segment(job, rows * pitch, c, total)
            if job.late and not sums:
                copy_all(c, late)
            store(half, sums, job, task, t, i0, rows, j0, columns, pitch, c, total, bad, row_marks, column_marks, out, left)
            j0 += job.columns
            if j0 >= job.n:
                j0, i0 = np.int64(0), i0 + job.rows
            if i0 >= job.m:
                i0, t = np.int64(0), t + 1

        use_rounding(np.int64(NEAREST))
        if dots:
            release(other[:2])
        release((*a[:2], report, *b[:2], edge, *scratch, c, bad, total, row_marks, column_marks, sa, sb, *found, late))

    return kernel_uncounted(variant(ieee, words, half, scaling, sums, dots)(work))
