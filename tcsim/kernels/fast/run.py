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
from tcsim.kernels.fast.drive import NO_SUM, SUM16, SUM32, SUM64, FastJob, fast_driver
from tcsim.kernels.fast.infinities import decide
from tcsim.kernels.fast.pack import decoding
from tcsim.kernels.fast.plan import A_OFFSET, B_OFFSET, EXACT, EXACT_SUMS, GATE, FastPlan, fast_plan
from tcsim.kernels.fast.round import Par
from tcsim.kernels.fast.tile import PANEL
from tcsim.problem import Codes, Problem

_WORK = 200_000  # operands packed at a time by a task: about a megabyte
_UNRESOLVED32, _UNRESOLVED16 = 0x7FBADBAD, 0x7DAD
_SUMS = {None: NO_SUM, "float16": SUM16, "float32": SUM32, "float64": SUM64}


def fast_supports(problem: Problem) -> bool:
    """Whether the fast path computes this problem, by what its unit's record and its schedule say."""
    return first((GATE, EXACT_SUMS), asked_of(problem)) is not None


def _transposed(problem: Problem) -> bool:
    """Whether rows of the result should fill the lanes: fewer padded ones then."""
    _, m, n, _ = problem.shape
    return -(-m // LANES) * LANES * n < -(-n // LANES) * LANES * m


def _tasks(batch: int, m: int, n: int, threads: int) -> tuple[int, int]:
    """Rows and columns of a task: large enough to pay for packing, small enough to give every thread some."""
    rows, columns = min(m, 256), min(-(-n // LANES) * LANES, 256)
    wanted = 2 * threads if threads > 1 else 1
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
    unit, block = problem.unit, problem.unit.block_size
    rows, columns = _tasks(batch, m, n, threads)
    high, pitch = -(-rows // 4) * 4, -(-columns // LANES) * LANES
    chunk = max(min(_WORK // (high + pitch), -(-k // block) * block) // block * block, block)
    half = out.dtype.itemsize == 2
    unresolved = _UNRESOLVED16 if half else _UNRESOLVED32
    address = 0 if c is None else c.__array_interface__["data"][0]
    return FastJob(
        m, n, k, rows, columns, chunk, max(64 // block, 1) * block, block,
        a.__array_interface__["data"][0], at, ai, ak, a.itemsize, b.__array_interface__["data"][0], bt, bk, bj, b.itemsize,
        address, ct, ci, cj, ot, oi, oj, int(half), _SUMS[problem.plan.sum], int(problem.plan.c_first),
        unit.nan, unresolved if unresolved != unit.nan else unresolved ^ 1, how.c_least, how.c_most,
        16 if how.words else 8, int(unit.zero_sign == "ieee"),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _numbers(stored: Format, fmt: Format, offset: int, words: bool) -> np.ndarray[Any, Any]:
    return decoding(stored, fmt, offset, words)


def multiply_fast(problem: Problem, out: Codes, threads: int | None, general_tile: Callable[..., None]) -> None:
    """Write the codes of a supported problem into `out`, C-contiguous (batch, m, n).

    What the fast arithmetic does not hold is computed by ``general_tile(problem, out, t, i0, i1, j0, j1)``.
    """
    how = fast_plan(problem.unit)
    assert how is not None
    job = _job(problem, how, out, threads or default_threads())
    par = how.par.copy()
    par[simd_exact.ExactPar.SEED if how.width == EXACT else Par.SEED] = np.uint64(problem.seed & (2**64 - 1)).astype(np.int64)
    numbers_a = _numbers(problem.a.stored, problem.unit.a_operand, A_OFFSET, how.words)
    numbers_b = _numbers(problem.b.stored, problem.unit.b_operand, B_OFFSET, how.words)
    if _transposed(problem):
        numbers_a, numbers_b = numbers_b, numbers_a
    tasks = problem.shape[0] * -(-job.m // job.rows) * -(-job.n // job.columns)
    left = np.zeros(tasks, dtype=np.int64)
    bounds = np.ascontiguousarray(problem.plan.bounds, dtype=np.int64)
    work = (
        simd_exact.exact_driver(how.kind, int(how.words))
        if how.width == EXACT
        else fast_driver(how.kind, how.width, int(how.words), job.half)
    )
    run_tasks(work, tasks, threads, job, par, numbers_a, numbers_b, bounds, out.reshape(-1), left)
    if left.any():
        _unresolved(problem, out, job, np.flatnonzero(left), threads, general_tile)


def _unresolved(
    problem: Problem, out: Codes, job: FastJob, tasks: Any, threads: int | None, general_tile: Callable[..., None]
) -> None:
    """Compute every output that was left as `unresolved`: infinities by their signs, the rest in few rectangles."""
    transposed = _transposed(problem)
    down, right = -(-job.m // job.rows), -(-job.n // job.columns)
    for t in np.unique(tasks // (down * right)):
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
