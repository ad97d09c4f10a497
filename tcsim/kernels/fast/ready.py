"""What the fast path finds once for all problems of one layout: how they are cut into tasks, and the call of their driver.

It takes longer to find than a small product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.codegen.beside import compiled_beside
from tcsim.codegen.vector_ops import LANES
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast import exact as simd_exact
from tcsim.kernels.fast.drive import fast_driver
from tcsim.kernels.fast.folded import GROUP
from tcsim.kernels.fast.job import NO_SUM, SUM16, SUM32, SUM64, FastJob
from tcsim.kernels.fast.pack import BELOW, VALUES, decoding
from tcsim.kernels.fast.packing import packing_of
from tcsim.kernels.fast.plan import EXACT, fast_plan
from tcsim.kernels.fast.record import A_OFFSET, B_OFFSET, Exponents, FastPlan
from tcsim.kernels.fast.round import PARITY, RANDOM, STAGED, TREE, TREE_FLUSHING, Par
from tcsim.kernels.fast.scales import LIMIT, scale_table
from tcsim.kernels.fast.special import one_sum_plan
from tcsim.kernels.fast.strips import strips_of
from tcsim.kernels.fast.sums import sums_address
from tcsim.kernels.fast.tile import BY_PRODUCT, FOLDED, PANEL, SHIFTED
from tcsim.problem import Codes, Problem
from tcsim.tasks import run_tasks

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = tuple[int, int, int, int]  # batch, m, n, k
_WORK = 1 << 16  # operands packed at a time by a task: a quarter of a megabyte, which caches keep beside all else
_START = 1 << 18  # multiply-adds that take as long as handing a run of tasks to another thread: 15 microseconds
_RUN = 1 << 23  # those of a run that is handed over without loss
# Multiply-adds that take as long as packing an operand, and as one of a flat product: 3 alone, 2 where threads share what memory gives.
_PACKED, _FLAT = 8, 2
_SHARE = 1 << 16  # outputs of a thread from which on it takes two tasks, so that a slow one does not hold up all
_UNRESOLVED32, _UNRESOLVED16 = 0x7FBADBAD, 0x7DAD
_SUMS = {None: NO_SUM, "float16": SUM16, "float32": SUM32, "float64": SUM64}


def transposed(shape: Shape, lanes: int = LANES) -> bool:
    """Whether rows of the result should fill the lanes: fewer padded ones then."""
    _, m, n, _ = shape
    return -(-m // lanes) * lanes * n < -(-n // lanes) * lanes * m


def effort(shape: Shape, flat: bool) -> int:
    """About how many multiply-adds of a large product take as long as this problem's."""
    batch, m, n, k = shape
    return batch * (_FLAT * m * n * k if flat else m * n * k + _PACKED * (m * k + k * n))


def fed(effort: int, threads: int) -> int:
    """How many threads work of this size feeds, at most those asked for: n of them take effort / n + n * _START, least at its root."""
    return max(min(threads, isqrt(effort // _START)), 1)


def runs_of(effort: int, threads: int) -> int:
    """In how many runs of tasks they do it: several for each, so that a slow thread does not hold up all, where that costs nothing."""
    return min(max(effort // _RUN, threads), 8 * threads)


def tasks_of(batch: int, m: int, n: int, threads: int, most: int) -> tuple[int, int]:
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


class LaidOut(NamedTuple):
    """All of a problem but addresses, seed and numbers: what follows from it takes longer to find than a small product."""

    unit: Unit
    within: Exponents | None
    scaling: int  # of the plan, as `taken_in_order` has it
    stored: tuple[Format, Format]
    shape: Shape
    steps: tuple[tuple[int, ...], ...]  # strides of a, b, c and their scales, in bytes
    plan: tuple[str | None, bool]
    bounds: bytes
    threads: int  # that are asked for
    dots: bool = False  # every column of b has a row of a of its own


def sides(unit: Unit, stored: tuple[Format, Format], shape: Shape) -> tuple[tuple[Format, Format], tuple[Format, Format]]:
    """(stored, the unit's) formats of the operand whose lines are rows of a job, and of the other."""
    a, b = (stored[0], unit.a_operand), (stored[1], unit.b_operand)
    return (b, a) if transposed(shape) else (a, b)


def dots_fit(how: FastPlan, shape: Shape) -> bool:
    """Whether a problem is many single outputs, whose factors a plan's driver multiplies as it packs them."""
    batch, m, n, _ = shape
    walked = how.width != EXACT and how.kind <= TREE_FLUSHING and how.scaling != FOLDED
    return m == n == 1 < batch and walked


def layout_of(problem: Problem, how: FastPlan, within: Exponents | None, threads: int) -> LaidOut:
    """A problem's layout; of many single outputs, that of one row of them."""
    arrays = (problem.a.codes, problem.b.codes, problem.c, problem.scale_a, problem.scale_b)
    steps = tuple((0, 0, 0) if x is None else x.strides for x in arrays)
    plan, stored, shape = problem.plan, (problem.a.stored, problem.b.stored), problem.shape
    dots = dots_fit(how, shape)
    if dots:
        (at, _, ak), (bt, bk, _), (ct, _, _), (sat, _, sak), (sbt, sbk, _) = steps
        steps = (0, at, ak), (0, bk, bt), (0, 0, ct), (0, sat, sak), (0, sbk, sbt)
        shape = 1, 1, shape[0], shape[3]
    return LaidOut(
        problem.unit, within, how.scaling, stored, shape, steps, (plan.sum, plan.c_first), plan.bounds.tobytes(), threads, dots
    )  # fmt: skip


def half_of(unit: Unit) -> int:
    """1 for results of two bytes."""
    return int(np.dtype(unit.out_format.storage).itemsize == 2)


def _job(layout: LaidOut, how: FastPlan) -> FastJob:
    """The job of a layout, its addresses 0, that of what packs its codes too."""
    unit, turned, (batch, m, n, k) = layout.unit, transposed(layout.shape), layout.shape
    threads = fed(effort(layout.shape, False), layout.threads)
    (at, ai, ak), (bt, bk, bj), (ct, ci, cj), (sat, sai, sak), (sbt, sbk, sbj) = layout.steps
    item_a, item_b = (np.dtype(f.storage).itemsize for f in layout.stored)
    scales = [(sat, sai, sak), (sbt, sbj, sbk)]
    ot, oi, oj = m * n, n, 1
    own, operands = how.width == BY_PRODUCT, [unit.a_operand, unit.b_operand]
    if turned:
        m, n, ci, cj, oi, oj = n, m, cj, ci, oj, oi
        item_a, item_b, (at, ai, ak), (bt, bk, bj) = item_b, item_a, (bt, bj, bk), (at, ak, ai)
        scales.reverse()
        operands.reverse()
    block, folded, half = how.width if how.kind >= TREE else unit.block_size, how.scaling == FOLDED, half_of(unit)
    rows, columns = tasks_of(batch, m, n, threads, 512 if folded else 256)
    high, pitch = -(-rows // 4) * 4, -(-columns // LANES) * LANES
    period = unit.instruction_k if how.late else block
    chunk = max(min(_WORK // (high + pitch), -(-k // period) * period) // period * period, period)
    sub = period if how.late else max(64 // block, 1) * block
    unresolved = _UNRESOLVED16 if half else _UNRESOLVED32
    numbers = (
        m, n, k, rows, columns, chunk, sub, block, at, ai, ak, item_a, bt, bk, bj, item_b, ct, ci, cj, ot, oi, oj,
        half, _SUMS[layout.plan[0]], int(layout.plan[1]), unit.nan, unresolved if unresolved != unit.nan else unresolved ^ 1, how.c_least, how.c_most,
        16 if how.words else 8, int(unit.zero_sign == "ieee"), *scales[0], *scales[1], max(unit.scale_block, 1),
        GROUP if folded else block, how.fields, period, int(how.late), int(how.kind >= TREE),
        int(how.kind in (STAGED, PARITY)), float_pattern(how.flushed), float_pattern(how.calm), int(own), *(f.mantissa_bits - f.emin for f in operands),
        *(f.emax if own else 0 for f in operands), *(f.emin if own else 0 for f in operands),
        0 if unit.scale_format is None else max(unit.scale_format.emin, -LIMIT), 0,
    )  # fmt: skip
    return FastJob(0, 0, 0, 0, 0, *numbers)


def float_pattern(x: float) -> int:
    """The pattern of a float32."""
    return int(np.float32(x).view(np.uint32))


@lru_cache(maxsize=256)
def codes_read(stored: Format, fmt: Format, offset: int, words: bool) -> np.ndarray[Any, Any]:
    return decoding(stored, fmt, offset, words)


@dataclass(frozen=True, eq=False)
class Ready:
    """A call of the compiled driver for every problem of a layout: all but addresses, seed and results."""

    layout: LaidOut
    how: FastPlan
    job: FastJob
    seed_at: int
    operands: tuple[Any, ...]
    tasks: int
    threads: int
    runs: int

    @cached_property
    def compiled(self) -> tuple[Callable[..., None], tuple[int, ...], Array]:
        """The driver, the addresses that it calls, and the job as kernels read it: found when a problem is not flat."""
        layout, how, line = self.layout, self.how, np.zeros(0, np.int64)
        made, made_of = _driver_of(layout, how)
        given = (line, self.seeded(0), *self.operands, np.zeros(0, layout.unit.out_format.storage), line)
        with compiled_beside(made, made_of, (0, 0, 0, 0, 0, *given), how.kind == RANDOM):
            packing, walks = _packing_of(layout, how), _walks_of(layout, how)
        return made if made_of is None else made(*made_of), walks, self.job._replace(packing=packing).numbers()

    def of_operands(self, a: int, b: int) -> tuple[int, ...]:
        """The addresses of a and b, alone, as the job has them."""
        return (b, a) if transposed(self.layout.shape) else (a, b)

    def at(self, problem: Problem) -> tuple[int, ...]:
        """The addresses of a problem's arrays, as the job has them."""
        arrays = (problem.a.codes, problem.b.codes, problem.c, problem.scale_a, problem.scale_b)
        a, b, c, scale_a, scale_b = (0 if x is None else x.__array_interface__["data"][0] for x in arrays)
        return (b, a, c, scale_b, scale_a) if transposed(self.layout.shape) else (a, b, c, scale_a, scale_b)

    def seeded(self, seed: int) -> Array:
        par = self.how.par.copy()
        par[self.seed_at] = (seed + 2**63) % 2**64 - 2**63  # as a signed integer
        return par

    def write(self, addresses: tuple[int, ...], seed: int, out: Codes) -> Array:
        """Write the codes of a result that lie together; how many of each task are left as `unresolved`."""
        work, walks, numbers = self.compiled
        numbers, left = numbers.copy(), np.zeros(self.tasks, dtype=np.int64)
        numbers[: len(addresses)] = addresses
        given = (*walks, numbers, self.seeded(seed), *self.operands, out, left)
        run_tasks(work, self.tasks, self.threads, *given, runs=self.runs)
        return left


def _driver_of(layout: LaidOut, how: FastPlan) -> tuple[Any, tuple[int, ...] | None]:
    """A layout's driver, or what makes it and of what."""
    if how.width == EXACT:
        return simd_exact.run_exact, None
    ieee, half = int(how.kind >= TREE), half_of(layout.unit)
    return fast_driver, (ieee, int(how.words), half, how.scaling, int(layout.dots))


def _walks_of(layout: LaidOut, how: FastPlan) -> tuple[int, ...]:
    """Addresses of what a layout's driver calls: walks, and sums, 0 where the schedule has none."""
    sums = 0 if layout.plan[0] is None else sums_address()
    if how.width == EXACT:
        return *simd_exact.exact_tiles_of(how.kind, int(how.words)), sums
    return *strips_of(how.kind, how.width, int(how.words), half_of(layout.unit), how.scaling), sums


def _packing_of(layout: LaidOut, how: FastPlan) -> int:
    """The address of what packs a layout's codes."""
    values = how.width == EXACT or how.kind >= TREE or how.scaling == FOLDED
    sizes = tuple(np.dtype(f.storage).itemsize for f in layout.stored)
    return packing_of(sizes, 16 if how.words and how.width != EXACT else 8, VALUES if values else BELOW)


@lru_cache(maxsize=512)
def ready(layout: LaidOut) -> Ready:
    """What computes the problems of a layout."""
    plan = fast_plan(layout.unit, layout.within)
    assert plan is not None
    if layout.scaling == FOLDED and plan.scaling == SHIFTED:
        plan = one_sum_plan(layout.unit)
        assert plan is not None
    how = plan._replace(scaling=layout.scaling)
    a, b = sides(layout.unit, layout.stored, layout.shape)
    scale = layout.unit.scale_format
    (offset_a, offset_b) = (B_OFFSET, A_OFFSET) if transposed(layout.shape) else (A_OFFSET, B_OFFSET)
    bounds, size = np.frombuffer(layout.bounds, np.int64).copy(), effort(layout.shape, False)
    operands: tuple[Any, ...] = (codes_read(*a, offset_a, how.words), codes_read(*b, offset_b, how.words), bounds)
    if how.width != EXACT:
        operands += (np.zeros(0, np.int64) if scale is None else scale_table(scale),)
    job = _job(layout, how)
    tasks = layout.shape[0] * -(-job.m // job.rows) * -(-job.n // job.columns)
    seed_at = simd_exact.ExactPar.SEED if how.width == EXACT else Par.SEED
    threads = fed(size, layout.threads)
    return Ready(layout, how, job, seed_at, operands, tasks, threads, runs_of(size, threads))
