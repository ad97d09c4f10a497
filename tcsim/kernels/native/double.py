"""Aligned sums in float64 lanes: what-ifs of any alignment, fraction, output and rounding whose terms float64 holds.

A tile walks k in chunks: operands are decoded once to float64 values and exponents, then each row runs its blocks over the columns
(`double_rows`), rounded by `double_round`. One product at a time added exactly to c is a sum of two, whose error is known exactly,
and so computed for float32 and float64 operands too. Outputs that leave what is proved there are marked, and computed by the
general kernel: those of rows and columns with NaN or infinities, overflows, terms too far apart for exact sums.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba.extending import overload

from tcsim.codegen.jit import default_threads, kernel, no_refcount, noalias, routine, run_tasks, variant
from tcsim.codegen.memory import ahead, at, load_code, matrices
from tcsim.codegen.scalar_ops import use_rounding
from tcsim.codegen.scratch import room, zeros
from tcsim.codegen.vector_ops import NEAREST
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast.run import cover
from tcsim.kernels.general.cuts import C_OPERATION
from tcsim.kernels.general.numbers import FINITE, ZERO_E, decode_number, round_float64, to_float64
from tcsim.kernels.general.panel import (
    INSTRUCTION_END,
    INSTRUCTION_START,
    SEGMENT_END,
    SEGMENT_START,
    plan_chunk,
)
from tcsim.kernels.general.run import Tiles, end_output, run_part
from tcsim.kernels.general.spec import order_of, spec_of, sums_of
from tcsim.kernels.general.walks import add_outside
from tcsim.kernels.native import double_rows as rows
from tcsim.kernels.native.double_exact import block_of_exact_sums
from tcsim.kernels.native.double_groups import block_of_groups, mark_groups
from tcsim.kernels.native.double_plan import Groups, LongProducts, ManyTerms, OneProduct, Operations, Stages, double_spec
from tcsim.kernels.native.double_sides import Sides, decode_side, exponents_of, mark_zero_blocks
from tcsim.kernels.native.double_single import block_of_one
from tcsim.kernels.native.double_stages import block_in_stages
from tcsim.kernels.native.double_tree import block_of_operations
from tcsim.problem import Codes, Problem

ROWS, COLUMNS, CHUNK, LANES = 128, 128, 128, 16
SHALLOW = 8  # products of a block up to which all of its random words stay near for as many columns
TO_HALF = 2 * SEGMENT_END  # an event: results become float16


@no_refcount
def draw_words_of_blocks(spec, unit, blocks, starts, block, seed, element, group, width, row):
    """The random words of the next four blocks."""
    if unit.cut == rows.RANDOM:
        last = np.int64(C_OPERATION + 1 - (-spec.block // spec.group))
        rows.draw_lane_words(seed, element, group, np.int64(C_OPERATION), last, width, row.width, row.term_words)
    if unit.draws:
        rows.draw_lane_words(seed, element, group, np.int64(0), np.int64(1), width, row.width, row.words)


@no_refcount
def draw_words_of_operations(spec, unit, blocks, starts, block, seed, element, group, width, row):
    """The same for units that round every operation: sums come after as many products as a block has."""
    if unit.draws or unit.product_draws:
        first = spec.block
        for i in range(block, min(block + 4, blocks)):
            first = min(first, starts[i + 1] - starts[i])
        first, last = np.int64(0) if unit.product_draws else first, 2 * spec.block if unit.draws else spec.block
        place = ahead(row.term_words, 4 * first * row.width)
        rows.draw_lane_words(seed, element, group, first, last, width, row.width, place)


def double_rows_of(block_of, draw):
    """The walk of a row through the blocks of a chunk, each by `block_of`."""

    @noalias
    @variant(block_of.py_func.__name__)
    def run_double_row(spec, unit, sums_, sides, r, width, blocks, starts, events, row, total, seed, element, step):
        """All blocks of a chunk for one row."""
        moved = unit.machine != NEAREST
        if moved:
            use_rounding(unit.machine)
        for block in range(blocks):
            event, p0 = events[block], starts[block]
            if event & SEGMENT_START and sums_.precision != 0:
                for j in range(width):
                    row.c[j] = 0.0
            if event & INSTRUCTION_START and spec.after:
                rows.put_aside(width, -0.0 if spec.after_negative else 0.0, row.c, row.late)
            word = (step + block) & 3
            if word == 0 or block == 0:
                draw(spec, unit, blocks, starts, block, seed, element, (step + block) >> 2, width, row)
            block_of(spec, unit, sides, r, block, p0, starts[block + 1] - p0, word, width, row)
            late, ended = event & INSTRUCTION_END and spec.after, event & SEGMENT_END and sums_.precision != 0
            if moved and (late or ended):
                use_rounding(np.int64(NEAREST))
            if late:
                rows.add_kept(unit.kept, unit.late_way, row.late, width, row.c)
            if event & TO_HALF:
                rows.round_to_half(unit.half_sign, width, row.c)
            if ended:
                for j in range(width):
                    total[j] = add_outside(total[j], row.c[j], sums_.precision, sums_.layout)
            if moved and (late or ended):
                use_rounding(unit.machine)
        if moved:
            use_rounding(np.int64(NEAREST))

    return run_double_row


WALKS = {
    ManyTerms: double_rows_of(rows.block_of_terms, draw_words_of_blocks),
    OneProduct: double_rows_of(block_of_one, draw_words_of_blocks),
    LongProducts: double_rows_of(block_of_exact_sums, draw_words_of_blocks),
    Groups: double_rows_of(block_of_groups, draw_words_of_blocks),
    Stages: double_rows_of(block_in_stages, draw_words_of_blocks),
    Operations: double_rows_of(block_of_operations, draw_words_of_operations),
}


def run_double_row(kind, *arguments):
    """All blocks of a chunk for one row, by the rows that the type of `kind` names."""


@overload(run_double_row)
def _run_double_row(kind, spec, unit, sums_, sides, r, width, blocks, starts, events, row, total, seed, element, step):
    walk = WALKS[kind.instance_class]

    def run(kind, spec, unit, sums_, sides, r, width, blocks, starts, events, row, total, seed, element, step):
        walk(spec, unit, sums_, sides, r, width, blocks, starts, events, row, total, seed, element, step)

    return run


@routine
def begin_row(spec, sums_, c, t, i, j0, nj, width, values, bad, total, first):
    """Load c into the place where it enters: the chain or the schedule's sum; one that is no number is marked."""
    for j in range(width):
        values[first + j], total[first + j], bad[first + j] = 0.0, 0.0, 0
    if c.address == 0:
        return
    for j in range(nj):
        x, place, minus, kind = decode_number(load_code(c, t, i, j0 + j), spec.out, spec.out.emin, spec.out.mantissa + 1)
        if spec.flush and kind == FINITE and abs(x) >> spec.out.mantissa == 0 and sums_.precision == 0:
            x, minus = np.int64(0), np.int64(0)
        value = to_float64(x, place, minus, np.int64(FINITE), spec.out.mantissa + 1)
        if kind != FINITE:
            bad[first + j] = 1
        elif sums_.precision == 0:
            values[first + j] = value
        elif sums_.c_first:
            total[first + j] = value


@routine
def mark_halves(chain, blocks, events):
    """Instructions of `chain` blocks inside each, at whose end results are rounded to float16."""
    number = np.int64(0)
    for block in range(blocks):
        event, number = events[block], (np.int64(0) if events[block] & INSTRUCTION_START else number + 1)
        ended = event & INSTRUCTION_END
        first, last = number % chain == 0, ended or number % chain == chain - 1
        event |= (INSTRUCTION_START if first else 0) | (INSTRUCTION_END if last else 0) | (TO_HALF if ended else 0)
        events[block] = event


@kernel
def run_double_tiles(first, last, kind, a, b, c, d, scale_a, scale_b, spec, unit, sums_, order, bounds, tiles, seed, left):
    """Tiles first … last - 1 of D = C + A·B; left[t, i, j] is 1 where an output is for others to compute."""
    deep = max(CHUNK, spec.period)
    high, wide = tiles.tile_rows, -(-tiles.tile_columns // LANES) * LANES
    ks, codes = np.empty(deep, np.int64), np.empty(max(deep, high, wide), np.int64)
    starts, events = np.empty(2 * deep + 2, np.int64), np.empty(2 * deep + 2, np.int64)
    sig_a, e_a, mark_a = np.empty((high, deep), np.int64), np.empty((high, deep), np.int64), np.empty((high, deep), np.int64)
    sig_b, e_b, mark_b = np.empty((deep, wide), np.int64), np.empty((deep, wide), np.int64), np.empty((deep, wide), np.int64)
    fa, ea, za = zeros(high * deep, np.float64), zeros(high * deep, np.int32), zeros(high * deep, np.int64)
    fb, eb, zb = zeros(deep * wide, np.float64), zeros(deep * wide, np.int32), zeros(deep * wide, np.int64)
    values, bad, total = zeros(high * wide, np.float64), zeros(high * wide, np.int64), zeros(high * wide, np.float64)
    late, scale, sums = zeros(wide, np.float64), zeros(wide, np.float64), zeros(wide, np.float64)
    words = zeros(4 * wide, np.int64)
    top, least, other, marks = zeros(wide, np.int32), zeros(wide, np.int32), zeros(wide, np.int32), zeros(wide, np.int64)
    random = unit.cut == rows.RANDOM or unit.draws or unit.product_draws
    numbers = room(wide * (2 * min(spec.block, 64) + 16), np.float64)
    terms = room(4 * wide * (1 + 2 * spec.block) if random else np.int64(8 * wide), np.int64)
    scaled = np.int64(1) if spec.group > 1 else np.int64(0)
    ga, gb = room(scaled * high * deep + 1, np.float64), room(scaled * deep * wide + 1, np.float64)
    ha, hb = room(scaled * high * deep + 1, np.int32), room(scaled * deep * wide + 1, np.int32)
    sa, sb = room(scaled * high * deep + 1, np.int32), room(scaled * deep * wide + 1, np.int32)
    other_sums = zeros(wide, np.float64)
    bad_rows, bad_columns = np.empty(high, np.int64), np.empty(wide, np.int64)
    across = -(-tiles.columns // tiles.tile_columns)
    per_batch = across * -(-tiles.rows // high)
    for task in range(first, last):
        t, i0, j0 = task // per_batch, task % per_batch // across * high, task % across * tiles.tile_columns
        ni, nj = min(high, tiles.rows - i0), min(tiles.tile_columns, tiles.columns - j0)
        width = -(-nj // LANES) * LANES
        bad_rows[:], bad_columns[:], fb[:], eb[:] = 0, 0, 0.0, np.int32(ZERO_E)
        for r in range(ni):
            begin_row(spec, sums_, c, t, i0 + r, j0, nj, width, values, bad, total, r * wide)
        k, segment, step = bounds[0], np.int64(0), np.int64(0)
        while segment < bounds.size - 1:
            positions, blocks, k, segment = plan_chunk(spec, order, bounds, k, segment, ks, starts, events)
            if unit.halves:
                mark_halves(unit.halves, blocks, events)
            decode_side(a, t, i0, ni, False, ks, positions, scale_a, spec, codes, sig_a, e_a, mark_a, deep, fa, ea, bad_rows)
            decode_side(b, t, j0, nj, True, ks, positions, scale_b, spec, codes, sig_b, e_b, mark_b, wide, fb, eb, bad_columns)
            sides = Sides(
                at(fa, 0), at(ea, 0), at(za, 0), at(fb, 0), at(eb, 0), at(zb, 0), deep, wide,
                at(ga, 0), at(gb, 0), at(ha, 0), at(hb, 0), at(sa, 0), at(sb, 0),
            )  # fmt: skip  # here: they live on
            if scaled:
                mark_groups(
                    spec,
                    scale_a,
                    False,
                    t,
                    i0,
                    ni,
                    ks,
                    blocks,
                    starts,
                    (unit.a_emin, unit.a_mantissa),
                    fa,
                    deep,
                    ga,
                    ha,
                    za,
                    sa,
                )
                mark_groups(
                    spec, scale_b, True, t, j0, nj, ks, blocks, starts, (unit.b_emin, unit.b_mantissa), fb, wide, gb, hb, zb, sb
                )
            elif unit.floored:
                mark_zero_blocks(sides, ni, width, blocks, starts)
            low_b, high_b = exponents_of(sides.eb, positions, nj, wide) if unit.wide else (np.int64(0), np.int64(0))
            for r in range(ni):
                near = 1
                if unit.wide:
                    low, most = exponents_of(ahead(sides.ea, r * deep), np.int64(1), positions, np.int64(0))
                    near = int(low + low_b > -800 and most + high_b < 800)
                row = rows.DoubleRow(
                    at(values, r * wide), at(late, 0), at(bad, r * wide), at(marks, 0), at(top, 0), at(other, 0), at(least, 0),
                    at(scale, 0), at(sums, 0), at(other_sums, 0), at(words, 0), at(terms, 0), at(numbers, 0), wide, near,
                )  # fmt: skip
                run_double_row(kind, spec, unit, sums_, sides, r, width, blocks, starts, events, row, at(total, r * wide), seed,
                               (t * tiles.m + i0 + r) * tiles.n + j0, step)  # fmt: skip
            step += blocks
        for r in range(ni):
            for j in range(nj):
                value, outside = values[r * wide + j], total[r * wide + j]
                here = abs(value) < np.inf and abs(outside) < np.inf
                if here and bad[r * wide + j] | bad_rows[r] | bad_columns[j] == 0:
                    end_output(
                        spec, sums_, c, d, t, i0 + r, j0 + j, round_float64(value, spec.out.mantissa + 1, spec.out), outside
                    )
                else:
                    left[t, i0 + r, j0 + j] = 1


def write_in_lanes(problem: Problem, out: Codes, threads: int | None, outer: Unit | None = None) -> Codes:
    """Write D's codes into `out`, (batch, m, n); 1 where an output is for others to compute. `outer` as in `double_spec`."""
    batch, m, n, _ = problem.shape
    count = threads or default_threads()
    unit, spec = problem.unit, spec_of(problem)[1].copy()
    kind, numbers = double_spec(unit, outer)
    if outer is not None:
        spec["period"] = outer.instruction_k
    columns = COLUMNS // 2 if numbers["cut"] == rows.RANDOM and unit.block_size > SHALLOW else COLUMNS
    high = max(1, min(ROWS, m, -(-batch * m * -(-n // columns) // (4 * count))))
    tiles = Tiles(m, n, 0, m, 0, n, high, min(columns, n), 0)
    left = np.zeros(out.shape, np.uint8)
    run_tasks(
        run_double_tiles, batch * -(-m // high) * -(-n // columns), threads, kind, matrices(problem.a.codes), matrices(problem.b.codes),
        matrices(problem.c), matrices(out), matrices(problem.scale_a), matrices(problem.scale_b), spec, numbers,
        sums_of(problem), order_of(outer or unit), problem.plan.bounds, tiles, np.uint64(problem.seed), left,
    )  # fmt: skip
    return left


Part = Callable[[Problem, Codes, int, int, int, int, int], None]


def run_left(problem: Problem, out: Codes, left: Codes, threads: int | None, part: Part) -> None:
    """Compute the outputs that were left by `part`, given (problem, out, t, i0, i1, j0, j1)."""
    found = [(int(t), *corners) for t in np.flatnonzero(left.any(axis=(1, 2))) for corners in cover(left[t] != 0)]

    def work(first: int, last: int) -> None:
        for rectangle in found[first:last]:
            part(problem, out, *rectangle)

    run_tasks(work, len(found), threads)


def multiply_double(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    run_left(problem, out, write_in_lanes(problem, out, threads), threads, run_part)
