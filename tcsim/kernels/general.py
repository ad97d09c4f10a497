"""The general kernel: every unit and what-if, bit for bit, over tiles of the output.

A tile is walked along k in chunks. A chunk of both operands is decoded once (`panel`), then every row of the tile runs
its blocks over all columns of the tile (`blocks`, `scalar`). What a column carries from block to block is the rounded
value of the unit; `late` and `total` carry the additions outside it, of a late c and of the schedule.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from tcsim.kernels.blocks import (
    WIDE,
    draw,
    exponents,
    finish,
    group_exponents,
    group_sums,
    mark_zeros,
    quanta,
    special_add,
    special_product,
    start_exponents,
    start_sums,
    sums,
    wide_block,
    wide_groups,
    zero_blocks,
)
from tcsim.kernels.jit import default_threads, kernel, routine, run_tasks
from tcsim.kernels.memory import load, matrices, store
from tcsim.kernels.numbers import FINITE, SR, ZERO_E, decode, encode, round_float64, to_float64
from tcsim.kernels.panel import (
    INSTRUCTION_END,
    INSTRUCTION_START,
    SEGMENT_END,
    SEGMENT_START,
    block_scale,
    new_panel,
    pack,
    plan_chunk,
)
from tcsim.kernels.scalar import rounded, two_stage_row
from tcsim.kernels.spec import Grouped, Plain, Rounded, Staged, order_of, spec_of, sums_of
from tcsim.problem import Codes, Problem

ROWS, COLUMNS, CHUNK = 32, 64, 256


class Tiles(NamedTuple):
    """Which outputs: rows [row, row + rows) and columns [column, column + columns) of each batch, in tiles."""

    m: int
    n: int
    row: int
    rows: int
    column: int
    columns: int
    tile_rows: int
    tile_columns: int
    first_batch: int


@routine
def add_outside(x, y, precision, fmt):
    """x + y rounded to nearest-even in a format of `precision` bits whose values are float64.

    Exact in float64 or rounded twice without harm: 53 >= 2·precision + 2 wherever the format is narrower.
    """
    s = x + y
    if precision == 53:
        return s
    if precision == 24 and fmt.emax == 127:
        return np.float64(np.float32(s))
    sig, e, negative, special = round_float64(s, precision, fmt)
    return to_float64(sig, e, negative, special, precision)


@routine
def special_block(panel, r, p0, p1, j):
    """What NaN and infinite operands make of a block."""
    result = np.int64(FINITE)
    for p in range(p0, p1):
        result = special_add(result, special_product(panel.ma[r, p], panel.mb[p, j], panel.sa[r, p], panel.sb[p, j]))
    return result


@kernel
def run_tiles(first, last, a, b, c, d, scale_a, scale_b, spec, sums_, order, bounds, tiles, seed):
    """Tiles first … last - 1 of D = C + A·B."""
    capacity = max(CHUNK, spec.period)
    rows, width = tiles.tile_rows, tiles.tile_columns
    ks = np.empty(capacity, dtype=np.int64)
    starts = np.empty(capacity + spec.period // spec.block + 2, dtype=np.int64)
    events = np.empty(capacity + spec.period // spec.block + 2, dtype=np.int64)
    panel = new_panel(rows, width, capacity, capacity if spec.group > 1 else 1)
    state = np.empty((rows, 4, width), dtype=np.int64)  # sig, e, negative, special
    late, total = np.empty((rows, width)), np.empty((rows, width))
    work = np.empty((6, width), dtype=np.int64)  # top, low, lsb, q, flag, sum
    random = np.zeros(width, dtype=np.uint64)
    tree = np.empty((spec.block, 4), dtype=np.int64)
    across = -(-tiles.columns // width)
    per_batch = across * -(-tiles.rows // rows)
    for task in range(first, last):
        t = tiles.first_batch + task // per_batch
        i0 = tiles.row + task % per_batch // across * rows
        j0 = tiles.column + task % across * width
        ni, nj = min(rows, tiles.row + tiles.rows - i0), min(width, tiles.column + tiles.columns - j0)
        for r in range(ni):
            begin_tile(spec, sums_, c, t, i0 + r, j0, nj, r, state, late, total)
        k, segment, step = bounds[0], 0, 0
        while segment < bounds.size - 1:
            positions, blocks, k, segment = plan_chunk(spec, order, bounds, k, segment, ks, starts, events)
            special_a = pack(a, t, i0, ni, False, ks, positions, scale_a, spec, 0, panel.sa, panel.ea, panel.ma)
            special_b = pack(b, t, j0, nj, True, ks, positions, scale_b, spec, 1, panel.sb, panel.eb, panel.mb)
            if spec.group > 1:
                pack_groups(spec, scale_a, scale_b, t, i0, j0, ni, nj, ks, positions, panel)
            check = special_a or special_b
            zero_blocks(panel, ni, nj, blocks, starts)
            for r in range(ni):
                element = (t * tiles.m + i0 + r) * tiles.n + j0
                run_row(spec, sums_, panel, r, nj, blocks, starts, events, check, state[r], late[r],
                        total[r], work, random, tree, seed, element, step)  # fmt: skip
            step += blocks
        for r in range(ni):
            end_tile(spec, sums_, c, d, t, i0 + r, j0, nj, r, state, total)


@routine
def begin_tile(spec, sums_, c, t, i, j0, nj, r, state, late, total):
    """Load c into the place where it enters: the chain, the late sum or the schedule's sum."""
    out = spec.out
    for j in range(nj):
        x = (np.int64(0), np.int64(ZERO_E), np.int64(0), np.int64(FINITE))
        if c.address != 0:
            sig, e, negative, special = decode(load(c, t, i, j0 + j), out, out.emin, out.mantissa + 1)
            if spec.flush and sig != 0 and abs(sig) >> out.mantissa == 0 and sums_.precision == 0:
                sig, e, negative = np.int64(0), np.int64(ZERO_E), np.int64(0)
            x = (sig, e, negative, special)
        state[r, 0, j], state[r, 1, j], state[r, 2, j], state[r, 3, j] = x
        late[r, j] = to_float64(x[0], x[1], x[2], x[3], out.mantissa + 1)
        total[r, j] = late[r, j] if sums_.c_first else 0.0


@routine
def end_tile(spec, sums_, c, d, t, i, j0, nj, r, state, total):
    """Write the codes: the chain's values, or the schedule's sums with a last c, rounded to the output."""
    out = spec.out
    for j in range(nj):
        sig, e, negative, special = state[r, 0, j], state[r, 1, j], state[r, 2, j], state[r, 3, j]
        if sums_.precision != 0:
            x = total[r, j]
            if c.address != 0 and not sums_.c_first:
                cs, ce, cn, ck = decode(load(c, t, i, j0 + j), out, out.emin, out.mantissa + 1)
                x = add_outside(x, to_float64(cs, ce, cn, ck, out.mantissa + 1), sums_.precision, sums_.layout)
            sig, e, negative, special = round_float64(x, out.mantissa + 1, out)
            if spec.flush and sig != 0 and abs(sig) >> out.mantissa == 0:
                sig = np.int64(0)
        if special == FINITE and sig == 0 and not spec.ieee_zero:
            negative = np.int64(0)
        store(d, t, i, j0 + j, encode(sig, e, negative, special, out, spec.nan))


@routine
def pack_groups(spec, scale_a, scale_b, t, i0, j0, ni, nj, ks, positions, panel):
    """Significand and exponent of the scales, at every position (a group reads those of its first)."""
    for p in range(positions):
        s = ks[p] // spec.scale_block
        for r in range(ni):
            panel.ga[r, p, 0], panel.ga[r, p, 1], _ = block_scale(scale_a, t, i0 + r, s, spec)
        for j in range(nj):
            panel.gb[p, j, 0], panel.gb[p, j, 1], _ = block_scale(scale_b, t, s, j0 + j, spec)


@routine
def run_row(spec, sums_, panel, r, width, blocks, starts, events, check, state, late, total, work, random,
            tree, seed, element, step):  # fmt: skip
    """All blocks of a chunk for one row of the tile."""
    out = spec.out
    for block in range(blocks):
        event, p0, p1 = events[block], starts[block], starts[block + 1]
        if (event & SEGMENT_START and sums_.precision != 0) or (event & INSTRUCTION_START and spec.after):
            negative = 1 if spec.after and spec.ieee_zero else 0
            for j in range(width):
                state[0, j], state[1, j], state[2, j], state[3, j] = 0, ZERO_E, negative, FINITE
            if event & SEGMENT_START and sums_.precision != 0:
                late[:width] = 0.0
        if check:
            for j in range(width):
                state[3, j] = special_add(state[3, j], special_block(panel, r, p0, p1, j))
        if spec.mode == SR:
            draw(seed, element, step + block, width, random)
        run_block(spec, panel, r, p0, p1, block, width, state, work, random, tree, seed, element, step)
        if event & INSTRUCTION_END and spec.after:
            for j in range(width):
                x = to_float64(state[0, j], state[1, j], state[2, j], state[3, j], out.mantissa + 1)
                late[j] = add_outside(late[j], x, out.mantissa + 1, out)
                state[0, j], state[1, j], state[2, j], state[3, j] = round_float64(late[j], out.mantissa + 1, out)
        if event & SEGMENT_END and sums_.precision != 0:
            for j in range(width):
                x = to_float64(state[0, j], state[1, j], state[2, j], state[3, j], out.mantissa + 1)
                total[j] = add_outside(total[j], x, sums_.precision, sums_.layout)


def run_block(spec, *arguments):
    """One block of one row, by the arithmetic that the type of `spec` names: Numba picks the function below."""


@overload(run_block)
def _run_block(spec, panel, r, p0, p1, block, width, state, work, random, tree, seed, element, step):
    return {Plain: plain_block, Grouped: grouped_block, Staged: staged_block, Rounded: rounded_block}[spec.instance_class]


def plain_block(spec, panel, r, p0, p1, block, width, state, work, random, tree, seed, element, step):
    """Terms are products."""
    top, low, lsb, q, flag, total = work[0], work[1], work[2], work[3], work[4], work[5]
    start_exponents(spec, width, state[0], state[1], top, low, lsb)
    exponents(spec, panel, r, p0, p1, 1, block, width, top, low, lsb)
    wide = quanta(spec, width, top, low, lsb, q, flag)
    start_sums(spec, width, state[0], state[1], q, total)
    sums(spec, panel, r, p0, p1, 1, width, q, total)
    mark_zeros(spec, panel, r, p0, p1, width, state, top, flag)
    if wide:
        for j in range(width):
            if flag[j] == WIDE and state[3, j] == FINITE:
                x = wide_block(spec, panel, r, p0, p1, j, state[0, j], state[1, j], top[j], low[j], lsb[j], random[j])
                state[0, j], state[1, j], state[2, j], state[3, j] = x
    finish(spec, total, q, random, width, flag, state)


def grouped_block(spec, panel, r, p0, p1, block, width, state, work, random, tree, seed, element, step):
    """Terms are exact groups of products."""
    top, low, lsb, q, flag, total = work[0], work[1], work[2], work[3], work[4], work[5]
    start_exponents(spec, width, state[0], state[1], top, low, lsb)
    group_exponents(spec, panel, r, p0, p1, width, top, low, lsb)
    wide = quanta(spec, width, top, low, lsb, q, flag)
    start_sums(spec, width, state[0], state[1], q, total)
    group_sums(spec, panel, r, p0, p1, width, q, total)
    mark_zeros(spec, panel, r, p0, p1, width, state, top, flag)
    if wide:
        for j in range(width):
            if flag[j] == WIDE and state[3, j] == FINITE:
                x = wide_groups(spec, panel, r, p0, p1, j, state[0, j], state[1, j], top[j], low[j], lsb[j], random[j])
                state[0, j], state[1, j], state[2, j], state[3, j] = x
    finish(spec, total, q, random, width, flag, state)


def staged_block(spec, panel, r, p0, p1, block, width, state, work, random, tree, seed, element, step):
    """CDNA3."""
    two_stage_row(spec, panel, r, p0, p1, block, width, state, work, random)


def rounded_block(spec, panel, r, p0, p1, block, width, state, work, random, tree, seed, element, step):
    """Every operation rounded."""
    for j in range(width):
        c = (state[0, j], state[1, j], state[2, j], state[3, j])
        x = rounded(spec, panel, r, p0, p1, j, c, tree, seed, element + j, step + block)
        state[0, j], state[1, j], state[2, j], state[3, j] = x


def run(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    batch, m, n, _ = problem.shape
    count = threads or default_threads()
    across = -(-n // COLUMNS)
    high = max(1, min(ROWS, m, -(-batch * m * across // (4 * count))))
    _run(problem, out, threads, batch, Tiles(m, n, 0, m, 0, n, high, min(COLUMNS, n), 0))


def run_part(problem: Problem, out: Codes, t: int, i0: int, i1: int, j0: int, j1: int) -> None:
    """Write only rows i0 … i1 - 1 and columns j0 … j1 - 1 of batch element t, on the calling thread."""
    _, m, n, _ = problem.shape
    rows, columns = i1 - i0, j1 - j0
    _run(problem, out, 1, 1, Tiles(m, n, i0, rows, j0, columns, min(ROWS, rows), min(COLUMNS, columns), t))


def _run(problem: Problem, out: Codes, threads: int | None, batches: int, tiles: Tiles) -> None:
    tasks = batches * -(-tiles.rows // tiles.tile_rows) * -(-tiles.columns // tiles.tile_columns)
    run_tasks(
        run_tiles, tasks, threads, matrices(problem.a.codes), matrices(problem.b.codes), matrices(problem.c), matrices(out),
        matrices(problem.scale_a), matrices(problem.scale_b), spec_of(problem), sums_of(problem), order_of(problem.unit),
        problem.plan.bounds, tiles, np.uint64(problem.seed),
    )  # fmt: skip
