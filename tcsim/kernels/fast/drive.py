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

from tcsim.codegen.jit import kernel_uncounted, variant
from tcsim.codegen.scalar_ops import use_rounding
from tcsim.codegen.scratch import clear_all, copy_all, release, room, zeros
from tcsim.codegen.vector_ops import LANES, NEAREST
from tcsim.kernels.fast.chunk import (
    chunk_end,
    fill_columns,
    fill_ones,
    flush_columns,
    flush_rows,
    multiply_packed,
    pack_marked_columns,
    pack_marked_rows,
    spare_bytes,
)
from tcsim.kernels.fast.flush import flush
from tcsim.kernels.fast.ieee import LEAST_HALF
from tcsim.kernels.fast.job import job_of
from tcsim.kernels.fast.late import add_late
from tcsim.kernels.fast.results import held_rounding, start, store
from tcsim.kernels.fast.round import Par
from tcsim.kernels.fast.scales import add_scales, pack_scales
from tcsim.kernels.fast.strips import call_strip
from tcsim.kernels.fast.sums import FOLD, sum_up
from tcsim.kernels.fast.tile import FOLDED, PAIRED, PANEL, SHIFTED, VECTORS


@cache
def fast_driver(ieee: int, words: int, half: int, scaling: int, dots: int) -> Any:
    """The compiled driver of all strips (`strips`) that do the machine's own operations or not, have a size of codes and of results and a use
    of scales.

    dots: of one row, every column of b having a row of a of its own, `a_row` further. Both are packed alike and multiplied, and strips
    walk a row of ones over the products.
    """
    code, per_lane = (np.uint16, 2) if words else (np.uint8, 4)
    values_only, scaled = scaling == FOLDED or ieee, scaling in (SHIFTED, FOLDED)
    clear = int(scaling != PAIRED)

    def work(first, last, strip_wide, strip_narrow, sums, given, par, numbers_a, numbers_b, bounds, table, out, left):
        """Tasks first … last, by strips at two addresses and sums at a third, or none; left[task] counts outputs written as `unresolved`."""
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
        kept = c, total, bad, row_marks, column_marks
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
            where = task, t, i0, rows, j0, columns, pitch
            start(half, sums, job, given, where, kept, out, left)
            if ieee and job.least > 0:
                flush(c, 0, (np.int64(1), np.int64(0), high * pitch, np.int64(LEAST_HALF if half else 1 << 23)))
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
                    pack_marked_columns(job, b_side, b, columns, depth, scratch, column_marks, values_only)
                    if ieee:
                        smallest = flush_columns(job, b[0], columns, depth)
                    if dots:
                        a_side = (job.a + k0 * job.a_k + j0 * job.a_row, job.a_k, job.a_row, job.a_item)
                        pack_marked_columns(job, a_side, other, columns, depth, scratch, column_marks, values_only)
                        if scaled:
                            add_scales(job, j0, columns, k0, depth, entries, other[0], b[0], found, sb, table, column_marks)
                        if ieee:
                            smallest = min(smallest, flush_columns(job, other[0], columns, depth))
                        use_rounding(mode)  # products of the machine's own operations are rounded as the strips round them
                        multiply_packed(job, columns, depth, b, other)
                        use_rounding(held)
                    else:
                        pack_marked_rows(job, t, i0, rows, columns, k0, depth, line, a, edge, scratch, row_marks, values_only)
                        if ieee:
                            smallest = min(smallest, flush_rows(job, a[0], rows, line, depth))
                    if ieee:
                        fields = np.int64(smallest >= job.calm)
                        fill_columns(job, b[0], columns, depth)
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
                        sum_up(sums, FOLD, given, where, kept, out, left)
            if job.late and not sums:
                copy_all(c, late)
            store(half, sums, job, given, where, kept, out, left)
            j0 += job.columns
            if j0 >= job.n:
                j0, i0 = np.int64(0), i0 + job.rows
            if i0 >= job.m:
                i0, t = np.int64(0), t + 1

        use_rounding(np.int64(NEAREST))
        if dots:
            release(other[:2])
        release((*a[:2], report, *b[:2], edge, *scratch, c, bad, total, row_marks, column_marks, sa, sb, *found, late))

    return kernel_uncounted(variant(ieee, words, half, scaling, dots)(work))
