"""What a task carries from block to block and what becomes of it: c on its way in, a schedule's sums, a late c, results.

Outputs that the fast arithmetic does not hold are marked in `bad` and written as `unresolved`, a NaN pattern no unit returns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tcsim.codegen.jit import inline
from tcsim.codegen.vector_memory import bits_of_float, float_of_bits, float_of_half, half_of_double, peek16, peek32
from tcsim.kernels.fast.pack import HAS_NAN, SPECIAL
from tcsim.kernels.fast.round import STICKY

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
    scale_a: int
    scale_a_batch: int
    scale_a_row: int
    scale_a_k: int
    scale_b: int
    scale_b_batch: int
    scale_b_column: int
    scale_b_k: int
    scale_block: int
    scale_width: int  # products of a scale as packed: a block, or a group
    fields: int  # numbers of a block (`scales`)
    period: int  # products of an instruction where c is added late, of a block elsewhere
    late: int  # c is added after each instruction
    ieee: int  # operations are the machine's own: infinities and NaN too
    staged: int  # a c of -0 is left to others
    least: float  # operands below this are flushed
    unit_a: int  # elements times 2^unit are integers, FOLDED
    unit_b: int


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
                elif magnitude == 0x7C00 and (job.ieee or job.late):
                    bad[at] = SPECIAL
                elif magnitude == 0x7C00:
                    c[at] = float_of_bits(_INFINITE | np.uint32((code & 0x8000) << 16))
                else:
                    c[at] = float_of_half(code)
            else:
                magnitude = code & 0x7FFFFFFF
                if magnitude > 0x7F800000:
                    bad[at] = HAS_NAN
                elif magnitude > job.c_most or 0 < magnitude < job.c_least or (job.staged and magnitude != code == 0x80000000):
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
def fold_segment(job, size, c, total):
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
        if np.isnan(c[at]):
            return np.int64(job.nan)
        code = half_of_double(np.float64(c[at])) if job.half else np.int64(bits_of_float(c[at]))
    magnitude = code & (np.int64(0x7FFF) if job.half else np.int64(0x7FFFFFFF))
    return code if magnitude or job.signed_zero else np.int64(0)


@inline
def store(job, t, i0, rows, j0, columns, pitch, c, total, bad, row_marks, column_marks, out):
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
