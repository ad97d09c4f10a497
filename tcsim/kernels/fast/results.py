"""What a task carries from block to block and what becomes of it: c on its way in, results; a schedule's sums are in `sums`.

Outputs that the fast arithmetic does not hold are marked in `bad` and written as `unresolved`, a NaN pattern no unit returns.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline_ir, no_refcount
from tcsim.codegen.scratch import clear_all
from tcsim.codegen.vector_ops import NEAREST
from tcsim.kernels.fast.store import load_c, store_rows
from tcsim.kernels.fast.sums import BEGIN, STORE, sum_up


@no_refcount
def held_rounding(mode, sums):
    """The rounding that is set for all tasks: the unit's where nothing but its walks rounds, else to nearest.

    Packing is exact or has a margin; rounding up or down makes signs of zeros that it does not expect.
    """
    return mode if mode <= NEAREST and sums == 0 else np.int64(NEAREST)


@inline_ir
def store(half, sums, job, given, where, kept, out, left):
    """Write the codes of a task; left[task]: how many were left as `unresolved`."""
    if sums:
        sum_up(sums, STORE, given, where, kept, out, left)
    else:
        task, t, i0, rows, j0, columns, pitch = where
        c, _, bad, row_marks, column_marks = kept
        first = t * job.out_batch + i0 * job.out_row + j0 * job.out_column
        arrays = (c, bad, row_marks, column_marks, left[task:], out)
        codes = (job.nan, job.unresolved, job.signed_zero)
        store_rows(half, arrays, (first, rows, columns, pitch, job.out_row, job.out_column, *codes))


@inline_ir
def start(half, sums, job, given, where, kept, out, left):
    """Accumulators, sums and marks at the start of a task; `where` and `kept` as sums have them."""
    _, t, i0, rows, j0, columns, pitch = where
    c, _, bad, _, _ = kept
    clear_all(c)
    clear_all(bad)
    if sums:
        sum_up(sums, BEGIN, given, where, kept, out, left)
    elif job.c:
        source = job.c + t * job.c_batch + i0 * job.c_row + j0 * job.c_column
        held = (job.c_least, job.c_most, job.ieee | job.late, job.staged)
        load_c(half, (c, bad), (source, job.c_row, job.c_column, rows, columns, pitch, *held))
