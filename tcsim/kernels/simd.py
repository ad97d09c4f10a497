"""The fast path: which units it holds, the numbers its kernels read, and how a problem is cut into tasks.

The arithmetic is told in `simd_tile` and `simd_round`, packing in `simd_pack`, the walk along k in `simd_drive`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import floor
from typing import Any, NamedTuple

import numpy as np

from tcsim.formats import FORMATS, Format
from tcsim.kernels import simd_exact
from tcsim.kernels.infinities import decide
from tcsim.kernels.jit import default_threads, run_tasks
from tcsim.kernels.simd_drive import NO_SUM, SUM16, SUM32, SUM64, Job, driver
from tcsim.kernels.simd_exact import exact_par
from tcsim.kernels.simd_ops import LANES
from tcsim.kernels.simd_pack import decoding
from tcsim.kernels.simd_round import AWAY, HALF, INTEGER, MASKED, NATIVE, PAR_COUNT, RANDOM, Par
from tcsim.kernels.simd_tile import CARRY, PANEL, PLAIN, WIDE
from tcsim.problem import Codes, Problem
from tcsim.units import Unit

EXACT = 3  # a width of its own: sums in float64
A_OFFSET, B_OFFSET = 63, 64  # exponent codes: e + offset; together e + 127
MOST_BLOCK = 1024
_WORK = 200_000  # operands packed at a time by a task: about a megabyte
_REDO32, _REDO16 = 0x7FBADBAD, 0x7DAD
_SUMS = {None: NO_SUM, "float16": SUM16, "float32": SUM32, "float64": SUM64}


class Plan(NamedTuple):
    """What the kernels need to know of a unit."""

    kind: int
    width: int
    words: bool
    par: np.ndarray[Any, Any]
    c_least: int
    c_most: int


def _operand(fmt: Format) -> bool:
    """Whether values of the format are float32 values with room for an exact product."""
    return (
        not fmt.integer
        and fmt.zero
        and fmt.mantissa_bits <= 11
        and fmt.emin >= -126
        and fmt.emax <= 127
        and abs(fmt.bias) <= 127
    )


def _most(fmt: Format) -> float:
    """The largest significand of the format."""
    return fmt.max_finite / 2.0**fmt.emax


@lru_cache(maxsize=256)
def plan(unit: Unit) -> Plan | None:
    """How the fast path runs a unit, or None where it does not hold it."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    if not (_operand(a) and _operand(b) and unit.block_size <= MOST_BLOCK):
        return None
    if unit.align_rounding == "exact":
        return _exact_plan(unit)
    plain = (
        unit.arithmetic == "aligned"
        and unit.align_rounding == "rz"
        and unit.rounding in ("rz", "rne", "rna", "sr")
        and (unit.group_size, unit.scale, unit.k_order, unit.c_enters) == (1, None, None, "aligned")
        and (unit.subnormals, unit.zero_sign) == ("keep", "positive")
        and out in (FORMATS["float32"], FORMATS["float16"])
    )
    f = unit.fraction_bits
    if not plain or f is None or not 2 <= f <= 29:
        return None
    return _plan(unit, f)


def _exact_plan(unit: Unit) -> Plan | None:
    par = exact_par(unit)
    if par is None:
        return None
    ranged = max(unit.a_operand.exponent_bits, unit.b_operand.exponent_bits) > 5
    least, most = (1, 254) if ranged else (27, 227)
    return Plan(simd_exact.RANDOM if unit.rounding == "sr" else simd_exact.NEAREST, EXACT, ranged, par, least << 23, most << 23)


def _plan(unit: Unit, f: int) -> Plan | None:
    """Exponent codes, the floor of emax, and the width of sums; None where a number would not fit."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    lowest, half = a.emin + b.emin, out.width == 16
    floor_e = unit.min_exponent
    if floor_e is not None and floor_e > max(out.emin, lowest):
        return None  # a floor that only some blocks have
    single = max(a.emax + A_OFFSET, b.emax + B_OFFSET)
    base = max(single + 1, -1 if floor_e is None else floor_e + 127)
    floor_code = -1 if floor_e is None else floor_e + 127
    words = not (
        min(a.emin + A_OFFSET, b.emin + B_OFFSET) > 0 and a.emax + b.emax + 127 <= 255 and base <= max(lowest + 127, floor_code)
    )
    low, high = f + 2, 252 - unit.block_size.bit_length()
    numbers = {Par.FLOOR: base, Par.HIGH: high, Par.LOW: low, Par.LEAST: low - 1}
    if words:
        floored = floor_code >= low
        numbers |= {Par.FLOOR: floor_code, Par.LEAST: floor_code} if floored else {Par.FLOOR: 0}
    if max(numbers[Par.FLOOR], numbers[Par.LEAST] if words else 0) > high:
        return None
    product = floor(_most(a) * _most(b) * 2.0**f)
    group = (2**31 - 1) // product
    if group < 1:
        return None
    spare = 2**31 - 1 - unit.block_size * product
    width = WIDE if spare < 0 else PLAIN if spare >= 2 ** (f + 1) else CARRY
    kind = _kind(unit)
    smallest = min(lowest, out.emin) if floor_e is None else max(floor_e, min(lowest, out.emin))
    smallest = max(smallest, low - 127) if words else smallest
    if half and out.emin - (unit.kept_bits - 1) - (smallest - f) > 31:
        return None  # a fixed last place too far above the terms
    c_least = (1 << 23) if words else base << 23
    return Plan(kind, width, words, _par(unit, f, numbers, group), c_least, 0x7F7FFFFF if words else (127 + 100) << 23)


def _kind(unit: Unit) -> int:
    """How a block's sum is rounded; see `simd_round`."""
    half, short = unit.out_format.width == 16, unit.kept_bits < 24
    if unit.rounding == "sr":
        return RANDOM
    if half:
        return HALF if unit.rounding == "rne" and unit.kept_bits == 11 else INTEGER
    if unit.rounding == "rna":
        return AWAY
    if unit.rounding == "rne" and short:
        return INTEGER
    return MASKED if short else NATIVE


def _par(unit: Unit, f: int, numbers: dict[Par, int], group: int) -> np.ndarray[Any, Any]:
    half = unit.out_format.width == 16
    values = numbers | {
        Par.BLOCK: unit.block_size,
        Par.GROUP: group,
        Par.SCALE: (254 + f) << 23,
        Par.UNSCALE: f << 23,
        Par.MODE: int(half or unit.rounding == "rne"),
        Par.MASK: -(1 << (24 - unit.kept_bits)) if not half else -1,
        Par.KEPT: unit.kept_bits,
        Par.GRID: 127 + f + unit.out_format.emin - (unit.kept_bits - 1) if half else 0,
        Par.ONE: 0 if unit.rounding == "rz" else 1,
        Par.EVEN: 1 if unit.rounding == "rne" else 0,
        Par.C_LEAST: (unit.out_format.emin + 127) << 23 if half else 0,
    }
    par = np.zeros(PAR_COUNT, dtype=np.int64)
    for place, value in values.items():
        par[place] = value
    return par


def supports(problem: Problem) -> bool:
    """Whether the fast path computes this problem, by what its unit's record and its schedule say."""
    if min(problem.shape) < 1 or plan(problem.unit) is None:
        return False
    halves = problem.plan.sum == "float16" and problem.unit.out_format.width != 16
    return not halves and all(_stored(operand.stored) for operand in (problem.a, problem.b))


def _stored(fmt: Format) -> bool:
    return fmt == FORMATS["float64"] or (
        not fmt.integer and fmt.zero and fmt.mantissa_bits + fmt.padding <= 23 and abs(fmt.bias) <= 127
    )


def _turned(problem: Problem) -> bool:
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


def _job(problem: Problem, how: Plan, out: Codes, threads: int) -> Job:
    a, b, c = problem.a.codes, problem.b.codes, problem.c
    batch, m, n, k = problem.shape
    at, ai, ak = a.strides
    bt, bk, bj = b.strides
    ct, ci, cj = (0, 0, 0) if c is None else c.strides
    ot, oi, oj = m * n, n, 1
    if _turned(problem):
        m, n, ci, cj, oi, oj = n, m, cj, ci, oj, oi
        a, b, (at, ai, ak), (bt, bk, bj) = b, a, (bt, bj, bk), (at, ak, ai)
    unit, block = problem.unit, problem.unit.block_size
    rows, columns = _tasks(batch, m, n, threads)
    high, pitch = -(-rows // 4) * 4, -(-columns // LANES) * LANES
    chunk = max(min(_WORK // (high + pitch), -(-k // block) * block) // block * block, block)
    half = out.dtype.itemsize == 2
    redo = _REDO16 if half else _REDO32
    address = 0 if c is None else c.__array_interface__["data"][0]
    return Job(
        m, n, k, rows, columns, chunk, max(64 // block, 1) * block, block,
        a.__array_interface__["data"][0], at, ai, ak, a.itemsize, b.__array_interface__["data"][0], bt, bk, bj, b.itemsize,
        address, ct, ci, cj, ot, oi, oj, int(half), _SUMS[problem.plan.sum], int(problem.plan.c_first),
        unit.nan, redo if redo != unit.nan else redo ^ 1, how.c_least, how.c_most,
        16 if how.words else 8, int(unit.zero_sign == "ieee"),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _numbers(stored: Format, fmt: Format, offset: int, words: bool) -> np.ndarray[Any, Any]:
    return decoding(stored, fmt, offset, words)


def run(problem: Problem, out: Codes, threads: int | None, general_tile: Callable[..., None]) -> None:
    """Write the codes of a supported problem into `out`, C-contiguous (batch, m, n).

    What the fast arithmetic does not hold is computed by ``general_tile(problem, out, t, i0, i1, j0, j1)``.
    """
    how = plan(problem.unit)
    assert how is not None
    job = _job(problem, how, out, threads or default_threads())
    par = how.par.copy()
    par[simd_exact.Par.SEED if how.width == EXACT else Par.SEED] = np.uint64(problem.seed & (2**64 - 1)).astype(np.int64)
    numbers_a = _numbers(problem.a.stored, problem.unit.a_operand, A_OFFSET, how.words)
    numbers_b = _numbers(problem.b.stored, problem.unit.b_operand, B_OFFSET, how.words)
    if _turned(problem):
        numbers_a, numbers_b = numbers_b, numbers_a
    tasks = problem.shape[0] * -(-job.m // job.rows) * -(-job.n // job.columns)
    left = np.zeros(tasks, dtype=np.int64)
    bounds = np.ascontiguousarray(problem.plan.bounds, dtype=np.int64)
    work = (
        simd_exact.driver(how.kind, int(how.words))
        if how.width == EXACT
        else driver(how.kind, how.width, int(how.words), job.half)
    )
    run_tasks(work, tasks, threads, job, par, numbers_a, numbers_b, bounds, out.reshape(-1), left)
    if left.any():
        _redo(problem, out, job, np.flatnonzero(left), threads, general_tile)


def _redo(problem: Problem, out: Codes, job: Job, tasks: Any, threads: int | None, general_tile: Callable[..., None]) -> None:
    """Compute every output that was left as `redo`: infinities by their signs, the rest in few rectangles."""
    turned = _turned(problem)
    down, right = -(-job.m // job.rows), -(-job.n // job.columns)
    for t in np.unique(tasks // (down * right)):
        decide(problem, int(t), out[t], out[t] == job.redo)
    rectangles = []
    for task in tasks:
        t, i0, j0 = int(task) // (down * right), int(task) // right % down * job.rows, int(task) % right * job.columns
        whole = out[t].T if turned else out[t]
        found = cover(whole[i0 : i0 + job.rows, j0 : j0 + job.columns] == job.redo)
        for i, i1, j, j1 in found:
            corner = (i0 + i, i0 + i1, j0 + j, j0 + j1)
            rectangles.append((t, *corner[2:], *corner[:2]) if turned else (t, *corner))

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
