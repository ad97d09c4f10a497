"""The driver of the fast path: blocks of outputs as tasks, k in packed chunks, schedules folded in as their segments end.

A task owns up to `rows` x `columns` outputs of one batch element and walks all of k, so no partial result leaves it and
the bits do not depend on how tasks are shared out. Per chunk of k it packs its rows of a and columns of b, then runs
64-column panels (and 16-column ones for what is left) over sub-chunks that stay in the first-level cache.

Outputs that the fast arithmetic does not hold are written as `unresolved`, a NaN pattern no unit returns, and counted; the
caller has them computed elsewhere. A NaN operand decides its row or column at once.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tcsim.codegen.jit import inline, inline_ir, kernel, variant
from tcsim.codegen.vector_memory import bits_of_float, float_of_bits, float_of_half, half_of_double, peek16, peek32
from tcsim.codegen.vector_ops import LANES
from tcsim.kernels.fast.pack import ALONE, BELOW, BESIDE, HAS_NAN, SPECIAL, make_contiguous, unpack_rows
from tcsim.kernels.fast.round import STICKY
from tcsim.kernels.fast.tile import PANEL, VECTORS, strip

NO_SUM, SUM16, SUM32, SUM64 = range(4)
_INFINITE = np.uint32(STICKY)  # float16 accumulator, see simd_round


class FastJob(NamedTuple):
    """A problem as numbers. Steps of a, b and c are bytes, those of the result elements."""

    m: int
    n: int
    k: int
    rows: int
    columns: int
    chunk: int
    sub: int
    block: int
    a: int
    a_batch: int
    a_row: int
    a_k: int
    a_item: int
    b: int
    b_batch: int
    b_k: int
    b_column: int
    b_item: int
    c: int
    c_batch: int
    c_row: int
    c_column: int
    out_batch: int
    out_row: int
    out_column: int
    half: int
    sum: int
    c_first: int
    nan: int
    unresolved: int
    c_least: int
    c_most: int
    bits: int  # of an exponent code
    signed_zero: int


@inline
def c_code(job, t, i, j):
    address = job.c + t * job.c_batch + i * job.c_row + j * job.c_column
    return peek16(address) if job.half else peek32(address)


@inline
def c_double(job, code):
    """The value of a code of c."""
    if not job.half:
        return np.float64(float_of_bits(np.uint32(code)))
    if code & 0x7C00 == 0x7C00:
        infinite = -np.inf if code & 0x8000 else np.inf
        return np.nan if code & 0x3FF else infinite
    return np.float64(float_of_half(code))


@inline
def start_c(job, t, i0, rows, j0, columns, pitch, c, bad):
    """Fill the accumulators from c; what the fast arithmetic cannot hold becomes 0 and is marked."""
    for i in range(rows):
        for j in range(columns):
            at = i * pitch + j
            code = c_code(job, t, i0 + i, j0 + j)
            if job.half:
                magnitude = code & 0x7FFF
                if magnitude > 0x7C00:
                    bad[at] = HAS_NAN
                elif magnitude == 0x7C00:
                    c[at] = float_of_bits(_INFINITE | np.uint32((code & 0x8000) << 16))
                else:
                    c[at] = float_of_half(code)
            else:
                magnitude = code & 0x7FFFFFFF
                if magnitude > 0x7F800000:
                    bad[at] = HAS_NAN
                elif magnitude > job.c_most or 0 < magnitude < job.c_least:
                    bad[at] = SPECIAL
                else:
                    c[at] = float_of_bits(np.uint32(code))


@inline
def rounded_sum(job, x):
    """x, the float64 sum of two numbers of the sum format, rounded to it. Rounding twice to float32 does no harm here."""
    if job.sum == SUM32:
        return np.float64(np.float32(x))
    if job.sum == SUM16 and np.isfinite(x):
        code = half_of_double(x)
        return c_double(job, code)
    return x


@inline
def fold(job, size, c, total):
    """Add a segment's results to the sums; the accumulators start over."""
    for at in range(size):
        part = np.float64(c[at])
        if job.half and abs(part) >= 65536.0:
            part = part * np.inf
        total[at] = rounded_sum(job, total[at] + part)
        c[at] = np.float32(0)


@inline
def result_code(job, at, c, total):
    """The code of an accumulator, or of a sum rounded to the output; zeros are +0 unless the unit keeps their sign."""
    if job.sum != NO_SUM:
        x = total[at]
        if np.isnan(x):
            return np.int64(job.nan)
        code = half_of_double(x) if job.half else np.int64(bits_of_float(np.float32(x)))
    else:
        code = half_of_double(np.float64(c[at])) if job.half else np.int64(bits_of_float(c[at]))
    magnitude = code & (np.int64(0x7FFF) if job.half else np.int64(0x7FFFFFFF))
    return code if magnitude or job.signed_zero else np.int64(0)


@inline
def store_results(job, t, i0, rows, j0, columns, pitch, c, total, bad, row_marks, column_marks, out):
    """Write the codes of a task; how many were left as `unresolved`."""
    left = 0
    for i in range(rows):
        for j in range(columns):
            at = i * pitch + j
            mark = bad[at] | row_marks[i] | column_marks[j]
            code = np.int64(0)
            if mark == 0:
                code = result_code(job, at, c, total)
            elif mark & HAS_NAN:
                code = np.int64(job.nan)
            else:
                code = np.int64(job.unresolved)
                left += 1
            out[t * job.out_batch + (i0 + i) * job.out_row + (j0 + j) * job.out_column] = code
    return left


@inline_ir
def pack_a(job, arrays, edge, spare, t, i0, rows, columns, k0, depth, pitch):
    """Rows of a, with codes for 64-column panels; and for 16-column ones in `edge`, those of neighbouring rows together."""
    origin, groups = job.a + t * job.a_batch + i0 * job.a_row + k0 * job.a_k, VECTORS * job.bits // 32
    for i in range(0, rows, LANES):
        count = min(np.int64(LANES), rows - i)
        source, row_step = make_contiguous(spare, job.a_item, origin + i * job.a_row, job.a_row, count, job.a_k, depth)
        numbers = (source, depth, row_step, count, pitch, pitch)
        if columns >= PANEL:
            unpack_rows(ALONE, arrays, min(job.a_item, 4), i * pitch, i * pitch, numbers)
        if columns % PANEL:
            beside = (arrays[0], edge, arrays[2], arrays[3])
            unpack_rows(BELOW, beside, min(job.a_item, 4), i * pitch, i // VECTORS * groups * pitch, numbers)


@inline_ir
def pack_b(job, arrays, spare, t, j0, columns, k0, depth):
    """Columns of b in panels, 64 wide, then 16 wide; a panel from column j on lies at j·chunk."""
    j, codes, groups = np.int64(0), np.int64(0), VECTORS * job.bits // 32
    while j < columns:
        wide = columns - j >= PANEL
        width = np.int64(PANEL) if wide else np.int64(LANES)
        count = min(width, columns - j)
        origin = job.b + t * job.b_batch + k0 * job.b_k + (j0 + j) * job.b_column
        source, row_step = make_contiguous(spare, job.b_item, origin, job.b_k, depth, job.b_column, count)
        if wide:
            numbers = (source, count, row_step, depth, width, groups * LANES)
            unpack_rows(BESIDE, arrays, min(job.b_item, 4), j * job.chunk, codes, numbers)
        else:
            numbers = (source, count, row_step, depth, width, np.int64(LANES))
            unpack_rows(ALONE, arrays, min(job.b_item, 4), j * job.chunk, codes, numbers)
        j, codes = j + width, codes + groups * LANES * job.chunk


@inline_ir
def mark_specials(arrays, spare, item, address, across, count, along, depth, marks):
    """Find the lines (rows of a, columns of b) of a chunk that hold NaN or infinities; `arrays` are scratch."""
    report, zero = arrays[3], np.int64(0)
    for i in range(count):
        report[0] = 0
        source, _ = make_contiguous(spare, item, address + i * across, across, np.int64(1), along, depth)
        unpack_rows(ALONE, arrays, min(item, 4), zero, zero, (source, depth, zero, np.int64(1), zero, zero))
        marks[i] |= report[0]


@inline_ir
def spare_bytes(job):
    """Room for codes that are lined up: 16 rows of a, or a panel of b, of a chunk."""
    return np.zeros(max(LANES * job.a_item, min(job.columns, PANEL) * job.b_item) * job.chunk + LANES, np.uint8)


@inline
def chunk_end(job, bounds, segment, k0):
    """Where a chunk from k0 on ends: at k, or where a block of a segment ends."""
    end = k0 + job.chunk
    if end >= job.k:
        return job.k
    while bounds[segment + 1] <= end:
        segment += 1
    return bounds[segment] + (end - bounds[segment]) // job.block * job.block


@inline
def pack_chunk(job, t, i0, rows, j0, columns, k0, depth, pitch, a, edge, b, scratch, row_marks, column_marks):
    """Pack a chunk of both operands, each (values, codes, Decoding, report); lines with specials are marked."""
    a[3][0] = 0
    pack_a(job, a, edge, scratch[2], t, i0, rows, columns, k0, depth, pitch)
    if a[3][0]:
        source = job.a + t * job.a_batch + i0 * job.a_row + k0 * job.a_k
        spare = (scratch[0], scratch[1], a[2], a[3])
        mark_specials(spare, scratch[2], job.a_item, source, job.a_row, rows, job.a_k, depth, row_marks)
    b[3][0] = 0
    pack_b(job, b, scratch[2], t, j0, columns, k0, depth)
    if b[3][0]:
        source = job.b + t * job.b_batch + k0 * job.b_k + j0 * job.b_column
        spare = (scratch[0], scratch[1], b[2], b[3])
        mark_specials(spare, scratch[2], job.b_item, source, job.b_column, columns, job.b_k, depth, column_marks)


@inline
def start(job, t, i0, rows, j0, columns, pitch, c, bad, total):
    """Accumulators, sums and marks at the start of a task."""
    c[:], bad[:] = 0, 0
    total[:] = -0.0 if job.c and job.c_first else 0.0  # -0 + c is c, a zero's sign included
    if job.c and job.sum == NO_SUM:
        start_c(job, t, i0, rows, j0, columns, pitch, c, bad)
    elif job.c and job.c_first:
        add_c(job, t, i0, rows, j0, columns, pitch, total)


@inline
def add_c(job, t, i0, rows, j0, columns, pitch, total):
    """Add c to the sums; exact where they are zero."""
    for i in range(rows):
        for j in range(columns):
            at = i * pitch + j
            total[at] = rounded_sum(job, total[at] + c_double(job, c_code(job, t, i0 + i, j0 + j)))


@inline
def lines(count, kind):
    """Zeros that start with a cache line: a vector across two of them loads at half speed."""
    found = np.zeros(count + 64, kind)
    size = found.itemsize
    return found[-found.ctypes.data % 64 // size :][:count]


@cache
def fast_driver(kind: int, width: int, words: int, half: int) -> Any:
    """The compiled driver for a kind of rounding (simd_round) and a width of sums (simd_tile)."""
    code, per_lane = (np.uint16, 2) if words else (np.uint8, 4)

    def work(first, last, job, par, numbers_a, numbers_b, bounds, out, left):
        """Tasks first … last; left[task] counts outputs written as `unresolved`."""
        down, right = -(-job.m // job.rows), -(-job.n // job.columns)
        high = -(-min(job.rows, job.m) // VECTORS) * VECTORS
        pitch = -(-min(job.columns, job.n) // LANES) * LANES
        line, groups, report = -(-job.chunk // LANES) * LANES, VECTORS * job.bits // 32, np.zeros(1, np.int64)
        panels = pitch // PANEL + pitch % PANEL // LANES + 4
        a = (lines(high * line, np.float32), lines(per_lane * high * line, code), numbers_a, report)
        b = (
            lines(pitch * job.chunk, np.float32),
            lines(per_lane * panels * groups * LANES * job.chunk, code),
            numbers_b,
            report,
        )
        edge = lines(per_lane * high // VECTORS * line * groups if job.n % PANEL else 0, code)
        scratch = (np.zeros(line, np.float32), np.zeros(per_lane * line, code), spare_bytes(job))
        c, bad = lines(high * pitch, np.float32), np.zeros(high * pitch, np.uint8)
        total = np.zeros(high * pitch if job.sum != NO_SUM else 0, np.float64)
        row_marks, column_marks = np.zeros(high, np.int64), np.zeros(pitch, np.int64)
        for task in range(first, last):
            t, i0, j0 = task // (down * right), task // right % down * job.rows, task % right * job.columns
            rows, columns = min(job.rows, job.m - i0), min(job.columns, job.n - j0)
            start(job, t, i0, rows, j0, columns, pitch, c, bad, total)
            row_marks[:], column_marks[:] = 0, 0
            element = t * job.out_batch + i0 * job.out_row + j0 * job.out_column
            segment, k0, k, k1, step = 0, np.int64(0), np.int64(0), np.int64(0), np.int64(0)
            while k < job.k:
                if k == k1:
                    k0, k1 = k, chunk_end(job, bounds, segment, k)
                    pack_chunk(job, t, i0, rows, j0, columns, k0, k1 - k0, line, a, edge, b, scratch, row_marks, column_marks)
                stop = min(bounds[segment + 1], k1)
                j, panel = np.int64(0), np.int64(0)
                while j < columns:
                    wide = columns - j >= PANEL
                    for p in range(k - k0, stop - k0, job.sub):
                        depth, place = min(job.sub, stop - k0 - p), element + j * job.out_column
                        now, codes = step + (p + k0 - k) // job.block, panel * groups * LANES * job.chunk
                        if wide:
                            strip(PANEL, kind, width, words, half, (a[0], a[1], b[0], b[1], c, bad, par),
                                  (p, p, j * job.chunk + p * PANEL, codes + p * groups * LANES, j, j, line, pitch, rows, depth,
                                   place, job.out_row, job.out_column, now))  # fmt: skip
                        else:
                            strip(LANES, kind, width, words, half, (a[0], edge, b[0], b[1], c, bad, par),
                                  (p, p, j * job.chunk + p * LANES, codes + p * LANES, j, j, line, pitch, rows, depth,
                                   place, job.out_row, job.out_column, now))  # fmt: skip
                    j, panel = j + (PANEL if wide else LANES), panel + 1
                step += -(-(stop - k) // job.block)
                k = stop
                if stop == bounds[segment + 1]:
                    segment += 1
                    if job.sum != NO_SUM:
                        fold(job, rows * pitch, c, total)
            if job.sum != NO_SUM and job.c and not job.c_first:
                add_c(job, t, i0, rows, j0, columns, pitch, total)
            left[task] = store_results(job, t, i0, rows, j0, columns, pitch, c, total, bad, row_marks, column_marks, out)

    return kernel(variant(kind, width, words, half)(work))
