"""Aligned sums in float64 lanes: what-ifs of any alignment, fraction, output and rounding whose terms float64 holds.

A tile walks k in chunks: operands are decoded once to float64 values and exponents, then each row runs its blocks over the columns
(`double_rows`), rounded by `double_round`. One product at a time added exactly to c is a sum of two, whose error is known exactly,
and so computed for float32 and float64 operands too. Outputs that leave what is proved there are marked, and computed by the
general kernel: those of rows and columns with NaN or infinities, overflows, terms too far apart for exact sums.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from tcsim.codegen.beside import called_beside, compiled_beside
from tcsim.codegen.jit import kernel_uncounted, routine, variant
from tcsim.codegen.memory import ahead, at, load_code, matrices, store_code
from tcsim.codegen.scratch import release, room, room_table, zeros
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.numbers import (
    FINITE,
    ZERO_E,
    bits_of_float64,
    decode_number,
    encode_number,
    round_float64,
    to_float64,
)
from tcsim.kernels.general.panel import (
    INSTRUCTION_END,
    INSTRUCTION_START,
    plan_chunk,
)
from tcsim.kernels.general.run import Tiles, end_output, write_boxes
from tcsim.kernels.general.spec import order_of, spec_of, sums_of
from tcsim.kernels.general.tables import sides_of
from tcsim.kernels.left import boxes_of
from tcsim.kernels.native import double_rows as rows
from tcsim.kernels.native.double_groups import mark_groups
from tcsim.kernels.native.double_kinds import SumKind
from tcsim.kernels.native.double_plan import double_spec
from tcsim.kernels.native.double_round import MAGNITUDE
from tcsim.kernels.native.double_sides import Sides, decode_plain_side, decode_side, exponents_of, mark_zero_blocks
from tcsim.kernels.native.double_walks import TO_HALF, lanes_address, lanes_are_kept, walk_lanes
from tcsim.problem import Codes, Problem
from tcsim.tasks import default_threads, run_tasks

ROWS, COLUMNS, CHUNK, LANES = 128, 128, 128, 16


@routine
def end_plain_output(spec, d, t, i, j, value):
    """Write the code of a chain's value, a number that the output holds: nothing is rounded."""
    bits, out = bits_of_float64(value), spec.out
    size = bits & MAGNITUDE
    e = (size >> 52) - 1023
    place = max(e, out.emin)
    significand = (size & ((np.int64(1) << 52) - 1) | (np.int64(1) << 52)) >> min(52 - out.mantissa + place - e, np.int64(63))
    significand = significand if size != 0 else np.int64(0)
    minus = np.int64(1) if bits < 0 and (size != 0 or spec.ieee_zero) else np.int64(0)
    store_code(d, t, i, j, encode_number(significand, place, minus, np.int64(FINITE), out, spec.nan))


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
        if kind != FINITE or (value != 0.0 and not 2.0**-900 <= abs(value) <= 2.0**900):
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


class LanesWalk(NamedTuple):
    """What walks the rows: its address, and whether a product may leave float64's normal numbers."""

    address: int
    far: int


@cache
def double_tiles_of(plain: bool, grouped: bool) -> Any:
    """The kernel that decodes operands and hands their rows to a walk. A plain problem has no scales, no late c, no instructions inside
    instructions and no sums outside of them: its kernel compiles in two thirds of the time.
    """

    def run_double_tiles(first, last, walk, a, b, c, d, scale_a, scale_b, spec, unit, sums_, order, bounds, tiles, seed, left):
        """Tiles first … last - 1 of D = C + A·B; left[t, i, j] is 1 where an output is for others to compute."""
        deep = max(CHUNK, spec.period)
        high, wide = tiles.rows, -(-tiles.columns // LANES) * LANES
        ks, codes = room(deep, np.int64), room(max(deep, high, wide), np.int64)
        starts, events = room(2 * deep + 2, np.int64), room(2 * deep + 2, np.int64)
        sig_a, e_a, mark_a = (
            room_table(high, deep, np.int64),
            room_table(high, deep, np.int64),
            room_table(high, deep, np.int64),
        )
        sig_b, e_b, mark_b = (
            room_table(deep, wide, np.int64),
            room_table(deep, wide, np.int64),
            room_table(deep, wide, np.int64),
        )
        fa, ea, za = zeros(high * deep, np.float64), zeros(high * deep, np.int32), zeros(high * deep, np.int64)
        fb, eb, zb = zeros(deep * wide, np.float64), zeros(deep * wide, np.int32), zeros(deep * wide, np.int64)
        values, bad, total = zeros(high * wide, np.float64), zeros(high * wide, np.int64), zeros(high * wide, np.float64)
        late, scale, sums = zeros(wide, np.float64), zeros(wide, np.float64), zeros(wide, np.float64)
        words = zeros(4 * rows.WORD_GROUPS * wide, np.int64)
        top, least, other, marks = zeros(wide, np.int32), zeros(wide, np.int32), zeros(wide, np.int32), zeros(wide, np.int64)
        random = unit.cut == rows.RANDOM or unit.draws or unit.product_draws
        numbers = room(wide * (2 * min(spec.block, 64) + 16), np.float64)
        terms = room(4 * wide * (1 + 2 * spec.block) if random else np.int64(8 * wide), np.int64)
        ga, gb, ha, hb, sa, sb = fa, fb, ea, eb, ea, eb
        if grouped:
            ga, gb, ha, hb = (
                room(high * deep, np.float64),
                room(deep * wide, np.float64),
                room(high * deep, np.int32),
                room(deep * wide, np.int32),
            )
            sa, sb = room(high * deep, np.int32), room(deep * wide, np.int32)
        other_sums = zeros(wide, np.float64)
        bad_rows, bad_columns = room(high, np.int64), room(wide, np.int64)
        across = -(-tiles.n // tiles.columns)
        per_batch = across * -(-tiles.m // high)
        for task in range(first, last):
            t, i0, j0 = task // per_batch, task % per_batch // across * high, task % across * tiles.columns
            ni, nj = min(high, tiles.m - i0), min(tiles.columns, tiles.n - j0)
            width = -(-nj // LANES) * LANES
            bad_rows[:], bad_columns[:], fb[:], eb[:] = 0, 0, 0.0, np.int32(ZERO_E)
            for r in range(ni):
                begin_row(spec, sums_, c, t, i0 + r, j0, nj, width, values, bad, total, r * wide)
            k, segment, step = bounds[0], np.int64(0), np.int64(0)
            while segment < bounds.size - 1:
                positions, blocks, k, segment = plan_chunk(spec, order, bounds, k, segment, ks, starts, events)
                if plain:
                    decode_plain_side(
                        a, t, i0, ni, np.int64(0), ks, positions, spec, codes, sig_a, e_a, mark_a, deep, fa, ea, bad_rows
                    )
                    decode_plain_side(
                        b, t, j0, nj, np.int64(1), ks, positions, spec, codes, sig_b, e_b, mark_b, wide, fb, eb, bad_columns
                    )
                else:
                    if unit.halves:
                        mark_halves(unit.halves, blocks, events)
                    decode_side(
                        a,
                        t,
                        i0,
                        ni,
                        np.int64(0),
                        ks,
                        positions,
                        scale_a,
                        spec,
                        codes,
                        sig_a,
                        e_a,
                        mark_a,
                        deep,
                        fa,
                        ea,
                        bad_rows,
                    )
                    decode_side(
                        b,
                        t,
                        j0,
                        nj,
                        np.int64(1),
                        ks,
                        positions,
                        scale_b,
                        spec,
                        codes,
                        sig_b,
                        e_b,
                        mark_b,
                        wide,
                        fb,
                        eb,
                        bad_columns,
                    )
                sides = Sides(
                    at(fa, 0), at(ea, 0), at(za, 0), at(fb, 0), at(eb, 0), at(zb, 0), deep, wide,
                    at(ga, 0), at(gb, 0), at(ha, 0), at(hb, 0), at(sa, 0), at(sb, 0),
                )  # fmt: skip  # here: they live on
                if grouped:
                    forms = unit.a_emin, unit.a_mantissa
                    mark_groups(spec, scale_a, np.int64(0), t, i0, ni, ks, blocks, starts, forms, fa, deep, ga, ha, za, sa)
                    forms = unit.b_emin, unit.b_mantissa
                    mark_groups(spec, scale_b, np.int64(1), t, j0, nj, ks, blocks, starts, forms, fb, wide, gb, hb, zb, sb)
                elif unit.floored:
                    mark_zero_blocks(sides, ni, width, blocks, starts)
                low_b, high_b = np.int64(0), np.int64(0)
                if walk.far:
                    low_b, high_b = exponents_of(sides.eb, positions, nj, wide)
                for r in range(ni):
                    near = 1
                    if walk.far:
                        low, most = exponents_of(ahead(sides.ea, r * deep), np.int64(1), positions, np.int64(0))
                        near = int(low + low_b > -800 and most + high_b < 800)
                    row = rows.DoubleRow(
                        at(values, r * wide), at(late, 0), at(bad, r * wide), at(marks, 0), at(top, 0), at(other, 0), at(least, 0),
                        at(scale, 0), at(sums, 0), at(other_sums, 0), at(words, 0), at(terms, 0), at(numbers, 0), wide, near, int(step == 0),
                    )  # fmt: skip
                    element = (t * tiles.m + i0 + r) * tiles.n + j0
                    walk_lanes(walk.address, (
                        spec, unit, sums_, sides, r, width, blocks, starts, events, row, at(total, r * wide), seed, element, step,
                    ))  # fmt: skip
                step += blocks
            for r in range(ni):
                for j in range(nj):
                    value, outside = values[r * wide + j], total[r * wide + j]
                    here = abs(value) < np.inf and abs(outside) < np.inf
                    if here and bad[r * wide + j] | bad_rows[r] | bad_columns[j] == 0:
                        if plain:
                            end_plain_output(spec, d, t, i0 + r, j0 + j, value)
                        else:
                            x = round_float64(value, spec.out.mantissa + 1, spec.out)
                            end_output(spec, sums_, c, d, t, i0 + r, j0 + j, x, outside)
                    else:
                        left[t, i0 + r, j0 + j] = 1

        release((ks, codes, starts, events, sig_a, e_a, mark_a, sig_b, e_b, mark_b, bad_rows, bad_columns))
        release((fa, ea, za, fb, eb, zb, values, bad, total, late, scale))
        release((sums, words, top, least, other, marks, numbers, terms, other_sums))
        if grouped:
            release((ga, gb, ha, hb, sa, sb))

    return kernel_uncounted(variant(plain, grouped)(run_double_tiles))


def _walk_at(walk: tuple[SumKind, bool, bool], made_of: tuple[bool, bool], arguments: tuple[Any, ...]) -> int:
    """Where a walk lies; it and its driver, which is given such arguments, are compiled side by side, the longer of them here."""
    driver = double_tiles_of(*made_of)
    if driver.signatures:
        return lanes_address(*walk)
    if walk[0] in (SumKind.TOLD_TERMS, SumKind.OPERATIONS):
        with compiled_beside(double_tiles_of, made_of, arguments):
            return lanes_address(*walk)
    types = tuple(map(numba.typeof, arguments))
    with called_beside(lanes_address, walk, not driver._cache.is_kept(types, driver.targetctx) and not lanes_are_kept(*walk)):
        driver.compile(types)
    return lanes_address(*walk)


def write_in_lanes(problem: Problem, out: Codes, threads: int | None, outer: Unit | None = None) -> Codes:
    """Write D's codes into `out`, (batch, m, n); 1 where an output is for others to compute. `outer` as in `double_spec`."""
    batch, m, n, _ = problem.shape
    count = threads or default_threads()
    unit, spec = problem.unit, spec_of(problem)[1].copy()
    kind, numbers = double_spec(unit, outer)
    if outer is not None:
        spec["period"] = outer.instruction_k
    parts = 4 * count if count > 1 else 1  # each decodes columns of b anew
    high = max(1, min(ROWS, m, -(-batch * m * -(-n // COLUMNS) // parts)))
    tiles = Tiles(m, n, high, min(COLUMNS, n))
    left = np.zeros(out.shape, np.uint8)
    plain = problem.plan.sum is None and outer is None and unit.scale is None and unit.c_enters == "aligned"
    draws = bool(numbers["cut"] == rows.RANDOM or numbers["draws"] or numbers["product_draws"]) or not plain
    far = bool(numbers["wide"]) and kind in (SumKind.ONE_PRODUCT, SumKind.LONG_PRODUCTS)
    driver = plain, kind is SumKind.GROUPS
    walk = LanesWalk(0, int(far))
    given = (
        *sides_of(problem, problem.a.codes, problem.b.codes), matrices(problem.c), matrices(out), matrices(problem.scale_a), matrices(problem.scale_b), spec, numbers,
        sums_of(problem), order_of(outer or unit), problem.plan.bounds, tiles, np.uint64(problem.seed), left,
    )  # fmt: skip
    walk = walk._replace(address=_walk_at((kind, plain, draws), driver, (0, 0, walk, *given)))
    run_tasks(double_tiles_of(*driver), batch * -(-m // high) * -(-n // COLUMNS), threads, walk, *given)
    return left


def multiply_double(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    left = write_in_lanes(problem, out, threads)
    write_boxes(problem, out, boxes_of(left), threads)
