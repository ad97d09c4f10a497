"""The fast path: which problems it holds, how they are cut into tasks, and what it leaves to the general kernel.

`fast.plan` says which units it holds. The arithmetic is told in `fast.tile` and `fast.round`, packing in `fast.pack`, the
walk along k in `fast.drive`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np

from tcsim.codegen.vector_ops import LANES
from tcsim.fp.formats import Format
from tcsim.gates import asked_of, first
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast import exact as simd_exact
from tcsim.kernels.fast.drive import fast_driver
from tcsim.kernels.fast.folded import GROUP
from tcsim.kernels.fast.infinities import decide
from tcsim.kernels.fast.order import in_order
from tcsim.kernels.fast.pack import decoding
from tcsim.kernels.fast.plan import EXACT, GATES, fast_plan
from tcsim.kernels.fast.ranges import least_c, operand_exponents
from tcsim.kernels.fast.record import A_OFFSET, B_OFFSET, Exponents, FastPlan
from tcsim.kernels.fast.results import NO_SUM, SUM16, SUM32, SUM64, FastJob
from tcsim.kernels.fast.round import PARITY, STAGED, TREE, Par
from tcsim.kernels.fast.scales import LIMIT, scale_table
from tcsim.kernels.fast.special import TO_HALF
from tcsim.kernels.fast.strips import strips_of
from tcsim.kernels.fast.thin_drive import flat_job, is_flat, multiply_flat, thin_form
from tcsim.kernels.fast.tile import FOLDED, PAIRED, PAIRS, PANEL, WIDE
from tcsim.problem import Codes, Problem
from tcsim.tasks import default_threads, run_tasks

_WORK = 1 << 16  # operands packed at a time by a task: a quarter of a megabyte, which caches keep beside all else
_START = 1 << 20  # multiply-adds that take as long as handing a run of tasks to another thread: 40 to 80 microseconds
_RUN = 1 << 23  # those of a run that is handed over without loss
_PACKED, _FLAT = 8, 3  # multiply-adds that take as long as packing an operand, and as one of a flat product
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


def effort(problem: Problem, flat: bool) -> int:
    """About how many multiply-adds of a large product take as long as this problem."""
    batch, m, n, k = problem.shape
    return batch * (_FLAT * m * n * k if flat else m * n * k + _PACKED * (m * k + k * n))


def fed(effort: int, threads: int) -> int:
    """How many threads work of this size feeds, at most those asked for: n of them take effort / n + n * _START, least at its root."""
    return max(min(threads, isqrt(effort // _START)), 1)


def runs_of(effort: int, threads: int) -> int:
    """In how many runs of tasks they do it: several for each, so that a slow thread does not hold up all, where that costs nothing."""
    return min(max(effort // _RUN, threads), 8 * threads)


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


def _job(problem: Problem, within: Exponents | None, out: Codes, threads: int) -> FastJob:
    arrays = (problem.a.codes, problem.b.codes, problem.c, problem.scale_a, problem.scale_b)
    a, b, c, scale_a, scale_b = (0 if x is None else x.__array_interface__["data"][0] for x in arrays)
    if _transposed(problem):
        a, b, scale_a, scale_b = b, a, scale_b, scale_a
    steps = tuple((0, 0, 0) if x is None else x.strides for x in arrays)
    items = (problem.a.codes.itemsize, problem.b.codes.itemsize, out.dtype.itemsize)
    plan = (_SUMS[problem.plan.sum], int(problem.plan.c_first))
    numbers = _layout(problem.unit, within, problem.shape, steps, items, plan, _transposed(problem), threads)
    return FastJob(a, b, c, scale_a, scale_b, *numbers)


@lru_cache(maxsize=256)
def _layout(
    unit: Unit,
    within: Exponents | None,
    shape: tuple[int, int, int, int],
    steps: tuple[tuple[int, ...], ...],
    items: tuple[int, int, int],
    plan: tuple[int, int],
    transposed: bool,
    threads: int,
) -> tuple[int, ...]:
    """The numbers of a job after the addresses: they take longer to find than a small product."""
    how = fast_plan(unit, within)
    assert how is not None
    batch, m, n, k = shape
    (at, ai, ak), (bt, bk, bj), (ct, ci, cj), (sat, sai, sak), (sbt, sbk, sbj) = steps
    (item_a, item_b, out_item), scales = items, [(sat, sai, sak), (sbt, sbj, sbk)]
    ot, oi, oj = m * n, n, 1
    units = [f.mantissa_bits - f.emin for f in (unit.a_operand, unit.b_operand)]
    if transposed:
        m, n, ci, cj, oi, oj = n, m, cj, ci, oj, oi
        item_a, item_b, (at, ai, ak), (bt, bk, bj) = item_b, item_a, (bt, bj, bk), (at, ak, ai)
        scales.reverse()
        units.reverse()
    block, folded, half = how.width if how.kind >= TREE else unit.block_size, how.scaling == FOLDED, out_item == 2
    rows, columns = _tasks(batch, m, n, threads, 512 if folded else 256)
    high, pitch = -(-rows // 4) * 4, -(-columns // LANES) * LANES
    period = unit.instruction_k if how.late else block
    chunk = max(min(_WORK // (high + pitch), -(-k // period) * period) // period * period, period)
    sub = period if how.late else max(64 // block, 1) * block
    unresolved = _UNRESOLVED16 if half else _UNRESOLVED32
    return (
        m, n, k, rows, columns, chunk, sub, block, at, ai, ak, item_a, bt, bk, bj, item_b, ct, ci, cj, ot, oi, oj,
        int(half), *plan, unit.nan, unresolved if unresolved != unit.nan else unresolved ^ 1, how.c_least, how.c_most,
        16 if how.words else 8, int(unit.zero_sign == "ieee"), *scales[0], *scales[1], max(unit.scale_block, 1),
        GROUP if folded else block, how.fields, period, int(how.late), int(how.kind >= TREE),
        int(how.kind in (STAGED, PARITY)), float_pattern(how.flushed), float_pattern(how.calm), *units,
        0 if unit.scale_format is None else max(unit.scale_format.emin, -LIMIT),
    )  # fmt: skip


def float_pattern(x: float) -> int:
    """The pattern of a float32."""
    return int(np.float32(x).view(np.uint32))


@lru_cache(maxsize=256)
def _numbers(stored: Format, fmt: Format, offset: int, words: bool) -> np.ndarray[Any, Any]:
    return decoding(stored, fmt, offset, words)


def taken_in_order(how: FastPlan, problem: Problem) -> tuple[FastPlan, Problem]:
    """What computes a problem of a unit with an order of k: a kernel that walks so, or k put in that order beforehand.

    WIDE walks groups of neighbours, in ascending order alone.
    """
    unit = problem.unit
    if unit.k_order is None:
        return how, problem
    paired = how.late and how.width != WIDE and (unit.k_order, unit.block_size, unit.instruction_k) == (PAIRS, 16, 32)
    if paired and not np.any(np.diff(problem.plan.bounds) % len(PAIRS)):
        return how._replace(scaling=PAIRED), problem
    return how, in_order(problem)


def _sides(problem: Problem) -> tuple[tuple[Format, Format], tuple[Format, Format]]:
    """(stored, the unit's) formats of the operand whose lines are rows of a job, and of the other."""
    unit = problem.unit
    a, b = (problem.a.stored, unit.a_operand), (problem.b.stored, unit.b_operand)
    return (b, a) if _transposed(problem) else (a, b)


def _multiply_flat(
    how: FastPlan, problem: Problem, job: FastJob, par: Any, out: Codes, threads: int
) -> tuple[FastJob, Any] | None:
    """What `thin_drive` writes of a flat problem, and the outputs of each task that it leaves; None where it is not for it."""
    (row, a), (line, b) = _sides(problem)
    batch = problem.shape[0]
    found = thin_form(a, b, line) if is_flat(how, job.m, job.n, batch * job.n * job.k) else None
    if found is None:
        return None
    work = effort(problem, True)
    threads = fed(work, threads)
    flat, bounds = flat_job(found[0], job, batch, threads), np.ascontiguousarray(problem.plan.bounds, dtype=np.int64)
    shared = (threads, runs_of(work, threads))
    left = multiply_flat(how, *found, flat, _numbers(row, a, A_OFFSET, True), par, bounds, shared, out)
    return None if left is None else (flat, left)


def _plan_of(problem: Problem) -> tuple[FastPlan, Exponents | None]:
    """The plan of a problem's unit; where that takes wide codes, of narrow ones, and for which exponents, if operands and c allow."""
    how = fast_plan(problem.unit)
    assert how is not None
    if not how.words or how.width == EXACT:
        return how, None
    (_, a), (line, b) = _sides(problem)
    batch, (m, n), k = problem.shape[0], sorted(problem.shape[1:3]), problem.shape[3]
    if is_flat(how, m, n, batch * n * k) and thin_form(a, b, line) is not None:  # to look at all of b takes longer
        return how, None
    within = operand_exponents(problem)
    narrow = None if within is None else fast_plan(problem.unit, within)
    if narrow is None or narrow.words:
        return how, None
    if problem.unit.out_format.width == 16:  # any c fits
        return narrow, within
    least, most = least_c(problem)
    return (narrow, within) if narrow.c_least <= least and most <= narrow.c_most else (how, None)


def multiply_fast(problem: Problem, out: Codes, threads: int | None, general_tile: Callable[..., None]) -> None:
    """Write the codes of a supported problem into `out`, C-contiguous (batch, m, n).

    What the fast arithmetic does not hold is computed by ``general_tile(problem, out, t, i0, i1, j0, j1)``.
    """
    how, within = _plan_of(problem)
    whole, (how, problem) = problem, taken_in_order(how, problem)
    asked, size = threads or default_threads(), effort(problem, False)
    threads = fed(size, asked)
    job = _job(problem, within, out, threads)
    par = how.par.copy()
    par[simd_exact.ExactPar.SEED if how.width == EXACT else Par.SEED] = (
        problem.seed + 2**63
    ) % 2**64 - 2**63  # as a signed integer
    flat = _multiply_flat(how, problem, job, par, out, asked)
    if flat is not None:
        job, left = flat
        if left.any():
            _unresolved(whole, out, job, np.flatnonzero(left), threads, general_tile)
        return
    numbers_a = _numbers(problem.a.stored, problem.unit.a_operand, A_OFFSET, how.words)
    numbers_b = _numbers(problem.b.stored, problem.unit.b_operand, B_OFFSET, how.words)
    if _transposed(problem):
        numbers_a, numbers_b = numbers_b, numbers_a
    tasks = problem.shape[0] * -(-job.m // job.rows) * -(-job.n // job.columns)
    left = np.zeros(tasks, dtype=np.int64)
    bounds = np.ascontiguousarray(problem.plan.bounds, dtype=np.int64)
    table = scale_table(problem.unit.scale_format) if problem.unit.scale_format is not None else np.zeros(0, np.int64)
    sums = int(job.sum != NO_SUM)
    numbers, runs = (job.numbers(), par, numbers_a, numbers_b, bounds), runs_of(size, threads)
    if how.width == EXACT:
        tiles, work = simd_exact.exact_tiles_of(how.kind, int(how.words)), simd_exact.exact_driver(sums)
        run_tasks(work, tasks, threads, *tiles, *numbers, out.reshape(-1), left, runs=runs)
    else:
        strips = strips_of(how.kind, how.width, int(how.words), job.half, how.scaling)
        work = fast_driver(int(how.kind >= TREE), int(how.words), job.half, how.scaling, sums)
        run_tasks(work, tasks, threads, *strips, *numbers, table, out.reshape(-1), left, runs=runs)
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
