"""What a task carries from block to block and what becomes of it: c on its way in, a schedule's sums, a late c, results.

Outputs that the fast arithmetic does not hold are marked in `bad` and written as `unresolved`, a NaN pattern no unit returns.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

from tcsim.codegen.jit import inline_ir, no_refcount
from tcsim.codegen.scratch import clear_all
from tcsim.codegen.vector_memory import bits_of_float, float_of_bits, float_of_half, half_of_double, peek16, peek32
from tcsim.codegen.vector_ops import NEAREST
from tcsim.kernels.fast.pack import HAS_NAN
from tcsim.kernels.fast.store import load_c, store_rows

NO_SUM, SUM16, SUM32, SUM64 = range(4)


class FastJob(NamedTuple):
    """A problem as numbers. Steps of a, b and c are bytes, those of the result elements."""

    a: int
    b: int
    c: int
    scale_a: int
    scale_b: int
    m: int
    n: int
    k: int
    rows: int
    columns: int
    chunk: int
    sub: int
    block: int
    a_batch: int
    a_row: int
    a_k: int
    a_item: int
    b_batch: int
    b_k: int
    b_column: int
    b_item: int
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
    scale_a_batch: int
    scale_a_row: int
    scale_a_k: int
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
    least: int  # operands with a smaller pattern are flushed
    calm: int  # where none has a smaller one, nothing else is
    unit_a: int  # elements times 2^unit are integers, FOLDED
    unit_b: int
    scale_least: int  # least exponent of a scale
    packing: int  # address of `packing`'s table

    def numbers(self) -> np.ndarray[Any, Any]:
        """The same as an array, which kernels read as a record (`job_of`): an address where calls would pass as many numbers."""
        return np.frombuffer(bytearray(_PACK(*self)), np.int64)


_PACK = Struct(f"{len(FastJob._fields)}q").pack
_JOB = from_dtype(np.dtype([(name, np.int64) for name in FastJob._fields]))


@intrinsic
def job_of(typingctx: Any, numbers: Any) -> Any:
    """The FastJob whose numbers an array holds."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.bitcast(data, context.get_value_type(_JOB))

    return _JOB(numbers), codegen


@no_refcount
def held_rounding(mode, sums):
    """The rounding that is set for all tasks: the unit's where nothing but its walks rounds, else to nearest.

    Packing is exact or has a margin; rounding up or down makes signs of zeros that it does not expect.
    """
    return mode if mode <= NEAREST and not sums else np.int64(NEAREST)


@no_refcount
def c_code(job, t, i, j):
    address = job.c + t * job.c_batch + i * job.c_row + j * job.c_column
    return peek16(address) if job.half else peek32(address)


@no_refcount
def c_double(job, code):
    """The value of a code of c."""
    if not job.half:
        return np.float64(float_of_bits(np.uint32(code)))
    if code & 0x7C00 == 0x7C00:
        infinite = -np.inf if code & 0x8000 else np.inf
        return np.nan if code & 0x3FF else infinite
    return np.float64(float_of_half(code))


@no_refcount
def rounded_sum(job, x):
    """x, the float64 sum of two numbers of the sum format, rounded to it. Rounding twice to float32 does no harm here."""
    if job.sum == SUM32:
        return np.float64(np.float32(x))
    if job.sum == SUM16 and np.isfinite(x):
        code = half_of_double(x)
        return c_double(job, code)
    return x


@no_refcount
def fold_segment(job, size, c, total):
    """Add a segment's results to the sums; the accumulators start over."""
    for at in range(size):
        part = np.float64(c[at])
        if job.half and abs(part) >= 65536.0:
            part = part * np.inf
        total[at] = rounded_sum(job, total[at] + part)
        c[at] = np.float32(0)


@no_refcount
def sum_code(job, x):
    """The code of a sum rounded to the output; zeros are +0 unless the unit keeps their sign."""
    if np.isnan(x):
        return np.int64(job.nan)
    code = half_of_double(x) if job.half else np.int64(bits_of_float(np.float32(x)))
    magnitude = code & (np.int64(0x7FFF) if job.half else np.int64(0x7FFFFFFF))
    return code if magnitude or job.signed_zero else np.int64(0)


@no_refcount
def store_sums(job, t, i0, rows, j0, columns, pitch, total, bad, row_marks, column_marks, out):
    """Write the codes of a task's sums; how many were left as `unresolved`."""
    left = 0
    for i in range(rows):
        for j in range(columns):
            at = i * pitch + j
            mark = bad[at] | row_marks[i] | column_marks[j]
            code = np.int64(0)
            if mark == 0:
                code = sum_code(job, total[at])
            elif mark & HAS_NAN:
                code = np.int64(job.nan)
            else:
                code = np.int64(job.unresolved)
                left += 1
            out[t * job.out_batch + (i0 + i) * job.out_row + (j0 + j) * job.out_column] = code
    return left


@inline_ir
def store(half, sums, job, task, t, i0, rows, j0, columns, pitch, c, total, bad, row_marks, column_marks, out, left):
    """Write the codes of a task; left[task]: how many were left as `unresolved`."""
    if sums:
        if job.c and not job.c_first:
            add_c(job, t, i0, rows, j0, columns, pitch, total)
        left[task] = store_sums(job, t, i0, rows, j0, columns, pitch, total, bad, row_marks, column_marks, out)
    else:
        first = t * job.out_batch + i0 * job.out_row + j0 * job.out_column
        arrays = (c, bad, row_marks, column_marks, left[task:], out)
        codes = (job.nan, job.unresolved, job.signed_zero)
        store_rows(half, arrays, (first, rows, columns, pitch, job.out_row, job.out_column, *codes))


@inline_ir
def start(half, sums, job, t, i0, rows, j0, columns, pitch, c, bad, total):
    """Accumulators, sums and marks at the start of a task."""
    clear_all(c)
    clear_all(bad)
    if sums:
        begin_sums(job, t, i0, rows, j0, columns, pitch, total)
    elif job.c:
        source = job.c + t * job.c_batch + i0 * job.c_row + j0 * job.c_column
        held = (job.c_least, job.c_most, job.ieee | job.late, job.staged)
        load_c(half, (c, bad), (source, job.c_row, job.c_column, rows, columns, pitch, *held))


@no_refcount
def begin_sums(job, t, i0, rows, j0, columns, pitch, total):
    """Sums at the start of a task: -0 + c is c, a zero's sign included."""
    total[:] = -0.0 if job.c and job.c_first else 0.0
    if job.c and job.c_first:
        add_c(job, t, i0, rows, j0, columns, pitch, total)


@no_refcount
def add_c(job, t, i0, rows, j0, columns, pitch, total):
    """Add c to the sums; exact where they are zero."""
    for i in range(rows):
        for j in range(columns):
            at = i * pitch + j
            total[at] = rounded_sum(job, total[at] + c_double(job, c_code(job, t, i0 + i, j0 + j)))
