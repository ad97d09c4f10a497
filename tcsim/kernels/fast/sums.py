"""A schedule's sums of segments on the fast path, compiled by themselves: drivers find them by their address, 0 where there are none."""

from __future__ import annotations

from functools import cache

import numpy as np
from numba.core import types

from tcsim.codegen.jit import inline_ir, no_refcount, routine
from tcsim.codegen.parts import caller_of, function_address
from tcsim.codegen.scratch import address_of
from tcsim.codegen.vector_memory import (
    bits_of_float,
    float_of_bits,
    float_of_half,
    half_of_double,
    peek16,
    peek32,
    poke16,
    poke32,
)
from tcsim.kernels.fast.job import SUM16, SUM32, job_of
from tcsim.kernels.fast.pack import HAS_NAN

BEGIN, FOLD, STORE = range(3)


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
def folded(job, size, c, total):
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
def ended(job, t, i0, rows, j0, columns, pitch, total, bad, row_marks, column_marks, out):
    """Write the codes of a task's sums to an address; how many were left as `unresolved`."""
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
            place = t * job.out_batch + (i0 + i) * job.out_row + (j0 + j) * job.out_column
            if job.half:
                poke16(out + 2 * place, code)
            else:
                poke32(out + 4 * place, code)
    return left


@no_refcount
def begun(job, t, i0, rows, j0, columns, pitch, total):
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


@routine
def step_of_sums(what, given, where, kept, out, left):
    """BEGIN the sums of a task, FOLD a segment's results into them, or STORE them at an address; left[task] counts `unresolved` ones.

    where: (task, t, i0, rows, j0, columns, pitch); kept: (c, total, bad, row_marks, column_marks).
    """
    job = job_of(given)
    task, t, i0, rows, j0, columns, pitch = where
    c, total, bad, row_marks, column_marks = kept
    if what == BEGIN:
        begun(job, t, i0, rows, j0, columns, pitch, total)
    elif what == FOLD:
        folded(job, rows * pitch, c, total)
    else:
        if job.c and not job.c_first:
            add_c(job, t, i0, rows, j0, columns, pitch, total)
        left[task] = ended(job, t, i0, rows, j0, columns, pitch, total, bad, row_marks, column_marks, out)


def _line(kind):
    return types.Array(kind, 1, "C")


_LINE = _line(types.int64)
_KEPT = types.Tuple((*map(_line, (types.float32, types.float64, types.uint8)), _LINE, _LINE))  # type: ignore[attr-defined]
_STEP = types.int64, _LINE, types.UniTuple(types.int64, 7), _KEPT, types.int64, _LINE  # type: ignore[attr-defined]
_call_step = caller_of(_STEP)


@cache
def sums_address() -> int:
    """Where the steps of sums lie."""
    return function_address(step_of_sums, _STEP)


@inline_ir
def sum_up(sums, what, given, where, kept, out, left):
    """`step_of_sums` at its address."""
    _call_step(sums, (np.int64(what), given, where, kept, address_of(out), left))
