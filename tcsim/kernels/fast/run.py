"""The fast path: which problems it holds, how they are cut into tasks, and what it leaves to the general kernel.

`fast.plan` says which units it holds. The arithmetic is told in `fast.tile` and `fast.round`, packing in `fast.pack`, the
walk along k in `simd_drive`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tcsim.codegen.jit import default_threads, run_tasks
from tcsim.codegen.vector_ops import LANES
from tcsim.fp.formats import Format
from tcsim.gates import asked_of, first
from tcsim.kernels.fast import exact as simd_exact
from tcsim.kernels.fast.drive import fast_driver
from tcsim.kernels.fast.folded import GROUP
from tcsim.kernels.fast.infinities import decide
from tcsim.kernels.fast.order import in_order
from tcsim.kernels.fast.pack import decoding
from tcsim.kernels.fast.plan import EXACT, GATES, fast_plan
from tcsim.kernels.fast.record import A_OFFSET, B_OFFSET, FastPlan
from tcsim.kernels.fast.results import NO_SUM, SUM16, SUM32, SUM64, FastJob
from tcsim.kernels.fast.round import PARITY, STAGED, TREE, Par
from tcsim.kernels.fast.scales import scale_table
from tcsim.kernels.fast.special import TO_HALF
from tcsim.kernels.fast.tile import FOLDED, PANEL
from tcsim.problem import Codes, Problem

_WORK = 200_000  # operands packed at a time by a task: about a megabyte
_FEED = 4 << 20  # multiply-adds that keep a thread busy for much longer than it takes to start
_PACKED = 8  # multiply-adds that take as long as packing an operand
_SHARE = 1 << 16  # outputs of a thread from which on it takes two tasks, so that a slow one does not hold up all
_UNRESOLVED32, _UNRESOLVED16 = 0x7FBADBAD, 0x7DAD
_SUMS = {None: NO_SUM, "float16": SUM16, "float32": SUM32, "float64": SUM64}


def fast_supports(problem: Problem) -> bool:
    """Whether the fast path computes this problem, by what its unit's record and its schedule say."""
    return first((*GATES, TO_HALF), asked_of(problem)) is not None


def _transposed(problem: Problem) -> bool:
    """Whether rows of the result should fill the lanes: fewer padded ones then."""
    _, m, n, _ = problem.shape
    return -(-m // LANES) * LANES * n < -(-n // LANES) * LANES * m


def fed(problem: Problem, threads: int) -> int:
    """How many threads a problem feeds, at most those asked for: more would pack the same operands again and wait."""
    batch, m, n, k = problem.shape
    return max(min(threads, batch * (m * n * k + _PACKED * (m * k + k * n)) // _FEED), 1)


def _tasks(batch: int, m: int, n: int, threads: int, most: int) -> tuple[int, int]:
    """Rows and columns of a task, `most` at most: large enough to pay for packing, small enough to give every thread some."""
    rows, columns = min(m, most), min(-(-n // LANES) * LANES, most)
    outputs = batch * m * n // threads
    wanted = 1 if threads == 1 else threads if outputs < _SHARE else 2 * threads if outputs < 4 * _SHARE else 8 * threads
    while batch * -(-m // rows) * -(-n // columns) < wanted and (rows >= 16 or columns >= 2 * PANEL):
        if rows >= columns or columns < 2 * PANEL:
            rows = -(-rows // 8) * 4
        else:
            columns = -(-columns // (2 * PANEL)) * PANEL
    return rows, columns


def _job(problem: Problem, how: FastPlan, out: Codes, threads: int) -> FastJob:
    a, b, c = problem.a.codes, problem.b.codes, problem.c
    batch, m, n, k = problem.shape
    at, ai, ak = a.strides
    bt, bk, bj = b.strides
    ct, ci, cj = (0, 0, 0) if c is None else c.strides
    ot, oi, oj = m * n, n, 1
    if _transposed(problem):
        m, n, ci, cj, oi, oj = n, m, cj, ci, oj, oi
        a, b, (at, ai, ak), (bt, bk, bj) = b, a, (bt, bj, bk), (at, ak, ai)
    unit, block = problem.unit, how.width if how.kind >= TREE else problem.unit.block_size
    rows, columns = _tasks(batch, m, n, threads, 512 if how.scaling == FOLDED else 256)
    high, pitch = -(-rows // 4) * 4, -(-columns // LANES) * LANES
    period = unit.instruction_k if how.late else block
    chunk = max(min(_WORK // (high + pitch), -(-k // period) * period) // period * period, period)
    sub = period if how.late else max(64 // block, 1) * block
    half = out.dtype.itemsize == 2
    unresolved = _UNRESOLVED16 if half else _UNRESOLVED32
    address = 0 if c is None else c.__array_interface__["data"][0]
    scales = [_scales(problem.scale_a, False), _scales(problem.scale_b, True)]
    if _transposed(problem):
        scales.reverse()
    folded = how.scaling == FOLDED
    units = [f.mantissa_bits - f.emin for f in (unit.a_operand, unit.b_operand)]
    return FastJob(
        m, n, k, rows, columns, chunk, sub, block,
        a.__array_interface__["data"][0], at, ai, ak, a.itemsize, b.__array_interface__["data"][0], bt, bk, bj, b.itemsize,
        address, ct, ci, cj, ot, oi, oj, int(half), _SUMS[problem.plan.sum], int(problem.plan.c_first),
        unit.nan, unresolved if unresolved != unit.nan else unresolved ^ 1, how.c_least, how.c_most,
        16 if how.words else 8, int(unit.zero_sign == "ieee"),
        *scales[0], *scales[1], max(unit.scale_block, 1), GROUP if folded else block, how.fields, period,
        int(how.late), int(how.kind >= TREE), int(how.kind in (STAGED, PARITY)), how.flushed,
        *(reversed(units) if _transposed(problem) else units),
    )  # fmt: skip


def _scales(codes: Codes | None, columns: bool) -> tuple[int, int, int, int]:
    """Address of scales, and their steps in bytes: a batch element, a line (a row of a, a column of b), a scale along k."""
    if codes is None:
        return 0, 0, 0, 0
    t, i, j = codes.strides
    return (codes.__array_interface__["data"][0], t, *((j, i) if columns else (i, j)))


@lru_cache(maxsize=256)
def _numbers(stored: Format, fmt: Format, offset: int, words: bool) -> np.ndarray[Any, Any]:
    return decoding(stored, fmt, offset, words)


def multiply_fast(problem: Problem, out: Codes, threads: int | None, general_tile: Callable[..., None]) -> None:
    """Write the codes of a supported problem into `out`, C-contiguous (batch, m, n).

    What the fast arithmetic does not hold is computed by ``general_tile(problem, out, t, i0, i1, j0, j1)``.
    """
    how = fast_plan(problem.unit)
    assert how is not None
    whole, problem = problem, in_order(problem)
    threads = fed(problem, threads or default_threads())
    job = _job(problem, how, out, threads)
    par = how.par.copy()
    par[simd_exact.ExactPar.SEED if how.width == EXACT else Par.SEED] = np.uint64(problem.seed & (2**64 - 1)).astype(np.int64)
    numbers_a = _numbers(problem.a.stored, problem.unit.a_operand, A_OFFSET, how.words)
    numbers_b = _numbers(problem.b.stored, problem.unit.b_operand, B_OFFSET, how.words)
    if _transposed(problem):
        numbers_a, numbers_b = numbers_b, numbers_a
    tasks = problem.shape[0] * -(-job.m // job.rows) * -(-job.n // job.columns)
    left = np.zeros(tasks, dtype=np.int64)
    bounds = np.ascontiguousarray(problem.plan.bounds, dtype=np.int64)
    table = scale_table(problem.unit.scale_format) if problem.unit.scale_format is not None else np.zeros(0, np.int64)
    numbers = (job, par, numbers_a, numbers_b, bounds)
    if how.width == EXACT:
        run_tasks(simd_exact.exact_driver(how.kind, int(how.words)), tasks, threads, *numbers, out.reshape(-1), left)
    else:
        work = fast_driver(how.kind, how.width, int(how.words), job.half, how.scaling)
        run_tasks(work, tasks, threads, *numbers, table, out.reshape(-1), left)
    if left.any():
        _unresolved(whole, out, job, np.flatnonzero(left), threads, general_tile)


def _unresolved(
    problem: Problem, out: Codes, job: FastJob, tasks: Any, threads: int | None, general_tile: Callable[..., None]
) -> None:
    """Compute every output that was left as `unresolved`: infinities by their signs, the rest in few rectangles."""
    transposed = _transposed(problem)
    down, right = -(-job.m // job.rows), -(-job.n // job.columns)
    plain = problem.unit.scale is None and problem.unit.c_enters == "aligned" and problem.unit.arithmetic == "aligned"
    for t in np.unique(tasks // (down * right)) if plain else ():
        decide(problem, int(t), out[t], out[t] == job.unresolved)
    rectangles = []
    for task in tasks:
        t, i0, j0 = int(task) // (down * right), int(task) // right % down * job.rows, int(task) % right * job.columns
        whole = out[t].T if transposed else out[t]
        found = cover(whole[i0 : i0 + job.rows, j0 : j0 + job.columns] == job.unresolved)
        for i, i1, j, j1 in found:
            corner = (i0 + i, i0 + i1, j0 + j, j0 + j1)
            rectangles.append((t, *corner[2:], *corner[:2]) if transposed else (t, *corner))

    def work(first: int, last: int) -> None:
        for rectangle in rectangles[first:last]:
            general_tile(problem, out, *rectangle)

    run_tasks(work, len(rectangles), threads)


def cover(marked: np.ndarray[Any, Any]) -> list[tuple[int, int, int, int]]:
    """Disjoint rectangles (i0, i1, j0, j1) that hold every mark; a quarter of each is marked, or it is small."""
    rows, columns = np.flatnonzero(marked.any(axis=1)), np.flatnonzero(marked.any(axis=0))
    if not rows.size:
        return []
    i0, i1, j0, j1 = int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1
    area, box = (i1 - i0) * (j1 - j0), marked[i0:i1, j0:j1]
    if area <= 64 or 4 * np.count_nonzero(box) >= area:
        return [(i0, i1, j0, j1)]
    middle = (i1 - i0) // 2 if i1 - i0 >= j1 - j0 else (j1 - j0) // 2
    parts = (
        ((box[:middle], 0, 0), (box[middle:], middle, 0))
        if i1 - i0 >= j1 - j0
        else ((box[:, :middle], 0, 0), (box[:, middle:], 0, middle))
    )
    return [(i0 + di + a, i0 + di + b, j0 + dj + c, j0 + dj + d) for part, di, dj in parts for a, b, c, d in cover(part)]
