"""The general kernel: every unit and what-if, bit for bit, over tiles of the output.

A tile is walked along k in chunks. A chunk of both operands is decoded once (`panel`), then every row of the tile runs
its blocks over all columns of the tile (`blocks`, `two_terms`, `two_stage`, `rounded`; `any_width` where 64 bits do not hold them). What a column carries from block to block is the rounded
value of the unit; `total` carries the schedule's additions outside it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.codegen.beside import compiled_beside
from tcsim.codegen.jit import inline, inline_ir, kernel_uncounted, routine
from tcsim.codegen.memory import (
    Matrices,
    TableSide,
    as_row,
    at,
    in_a_row,
    load_code,
    matrices_at,
    records_of,
    store_code,
)
from tcsim.codegen.scratch import release, room, room_table, zeros
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels.general import dots
from tcsim.kernels.general.dots import multiply_columns, multiply_scales, new_factors
from tcsim.kernels.general.numbers import (
    FINITE,
    ZERO_E,
    decode_number,
    encode_number,
    layout,
    round_float64,
    to_float64,
)
from tcsim.kernels.general.panel import (
    COLUMNS_OF_A,
    COLUMNS_OF_B,
    ROWS_OF_A,
    decode_lines,
    mark_blocks,
    new_panel,
    pack_groups,
    plan_chunk,
)
from tcsim.kernels.general.row import Row, start_over
from tcsim.kernels.general.spec import PlanSums, Spec, order_of, plan_sums, spec_of_layouts
from tcsim.kernels.general.tables import tables_of
from tcsim.kernels.general.walks import add_outside, walk_address, walk_row
from tcsim.kernels.left import Boxes
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Plan
from tcsim.tasks import default_threads, run_tasks

Places: TypeAlias = npt.NDArray[np.int64]
ROWS, COLUMNS, CHUNK, LANES = 64, 64, 128, 8
FEW = 3  # columns of which no vectors are made


class Tiles(NamedTuple):
    """How the outputs of a batch of m x n matrices are cut."""

    m: int
    n: int
    rows: int  # of a tile, at most
    columns: int
    dots: int = 0  # 1: every column has a row of a of its own


_ARRAYS = ("a", "b", "c", "d", "scale_a", "scale_b")
_D, _TILES = (n * len(Matrices._fields) for n in (_ARRAYS.index("d"), len(_ARRAYS)))
_SEED = _TILES + len(Tiles._fields)
_spec_of, _sums_of = records_of(Spec), records_of(PlanSums)


@kernel_uncounted
def run_tiles(first, last, walk, spec_row, sums_row, order, bounds, table_a, table_b, numbers, boxes, places):
    """Boxes first … last - 1 of D = C + A·B, no larger than a tile, each with the random words of its element's place in a batch.
    `walk` is the address of what runs a row, `numbers` as `_Cut` has them."""
    spec, sums_ = _spec_of(spec_row), _sums_of(sums_row)
    a, b = TableSide(matrices_at(numbers, 0), table_a), TableSide(matrices_at(numbers, 1), table_b)
    c, d, scale_a, scale_b = (
        matrices_at(numbers, 2), matrices_at(numbers, 3), matrices_at(numbers, 4), matrices_at(numbers, 5)
    )  # fmt: skip
    tiles = Tiles(numbers[_TILES], numbers[_TILES + 1], numbers[_TILES + 2], numbers[_TILES + 3], numbers[_TILES + 4])
    seed = np.uint64(numbers[_SEED])
    capacity = max(min(max(CHUNK, spec.period), bounds[bounds.size - 1]), np.int64(1))
    rows, width = tiles.rows, lanes_of(tiles.columns)
    ks = room(capacity, np.int64)
    starts = room(capacity + spec.period // spec.block + 2, np.int64)
    events = room(capacity + spec.period // spec.block + 2, np.int64)
    panel = new_panel(rows, width, capacity, capacity if spec.group > 1 else 1)
    left = new_factors(width, capacity if tiles.dots else np.int64(0))
    codes = room(max(capacity, rows, width), np.int64)
    values, total = room(4 * rows * width, np.int64), room_table(rows, width, np.float64)
    scratch, random = zeros((11 + 4 * spec.block) * width, np.int64), zeros(5 * width, np.uint64)
    tree, elements = room_table(spec.block, 4, np.int64), room(width, np.int64)
    filled = np.int64(-1)
    for box in range(first, last):
        t, i0, j0 = boxes[box, 0], boxes[box, 1], boxes[box, 3]
        ni, nj = boxes[box, 2] - i0, boxes[box, 4] - j0
        lanes = lanes_of(nj)
        if nj != filled:
            panel.sb[:, nj:], panel.eb[:, nj:], panel.mb[:, nj:] = 0, ZERO_E, 0
            filled = nj
        for r in range(ni):
            begin_tile(spec, sums_, c, t, i0 + r, j0, nj, row_of(values, scratch, random, r, width, spec.block), total[r])
        k, segment, step = bounds[0], np.int64(0), np.int64(0)
        while segment < bounds.size - 1:
            positions, blocks, k, segment = plan_chunk(spec, order, bounds, k, segment, ks, starts, events)
            in_b = decode_lines(b, t, j0, nj, COLUMNS_OF_B, ks, positions, scale_b, spec, codes, panel.sb, panel.eb, panel.mb)
            if tiles.dots:
                in_a = decode_lines(
                    a, t, j0, nj, COLUMNS_OF_A, ks, positions, scale_a, spec, codes, left.sig, left.e, left.mark
                )
                multiply_columns(left, positions, nj, panel)
                if spec.group > 1:
                    multiply_scales(spec, scale_a, scale_b, t, j0, nj, ks, blocks, starts, panel)
            else:
                in_a = decode_lines(a, t, i0, ni, ROWS_OF_A, ks, positions, scale_a, spec, codes, panel.sa, panel.ea, panel.ma)
                if spec.group > 1:
                    pack_groups(spec, scale_a, scale_b, t, i0, j0, ni, nj, ks, blocks, starts, panel)
            mark_blocks(panel, ni, lanes, blocks, starts)
            for r in range(ni):
                place_outputs(places, t, tiles, i0 + r, j0, lanes, elements)
                row = row_of(values, scratch, random, r, width, spec.block)
                walk_row(walk, (spec, sums_, panel, r, nj, lanes, blocks, starts, events, in_a | in_b, row, total[r],
                                tree, seed, elements, step))  # fmt: skip
            step += blocks
        for r in range(ni):
            end_tile(spec, sums_, c, d, t, i0 + r, j0, nj, row_of(values, scratch, random, r, width, spec.block), total[r])
    release(panel)
    release(left)
    release((ks, starts, events, codes, values, total, scratch, random, tree, elements))


@inline
def place_outputs(places, at, tiles, i, j0, lanes, elements):
    """The numbers of a row's outputs, by which random words are theirs."""
    for j in range(lanes):
        elements[j] = places[min(j0 + j, places.size - 1)] if tiles.dots else (places[at] * tiles.m + i) * tiles.n + j0 + j


@inline
def lanes_of(columns):
    """Columns that are computed for so many."""
    return columns if columns < FEW else -(-columns // LANES) * LANES


@inline_ir
def row_of(values, scratch, random, r, width, terms):
    """Row r of a tile: four lines of its values, then the room that all rows share."""
    sig, term = 4 * r * width, terms * width
    return Row(
        at(values, sig), at(values, sig + width), at(values, sig + 2 * width), at(values, sig + 3 * width),
        at(scratch, 0), at(scratch, width), at(scratch, 2 * width), at(scratch, 3 * width), at(scratch, 4 * width), at(scratch, 5 * width),
        at(scratch, 6 * width), at(scratch, 7 * width), at(scratch, 8 * width), at(scratch, 9 * width), at(scratch, 10 * width), at(random, 0),
        at(random, 4 * width),
        at(scratch, 11 * width), at(scratch, 11 * width + term), at(scratch, 11 * width + 2 * term), at(scratch, 11 * width + 3 * term),
        width,
    )  # fmt: skip


@routine
def begin_tile(spec, sums_, c, t, i, j0, nj, row, total):
    """Load c into the place where it enters: the chain or the schedule's sum."""
    out = spec.out
    start_over(row.width, row, 0)
    total[:] = 0.0
    if c.address == 0:
        return
    for j in range(nj):
        x, place, minus, kind = decode_number(load_code(c, t, i, j0 + j), out, out.emin, out.mantissa + 1)
        if spec.flush and kind == FINITE and abs(x) >> out.mantissa == 0 and sums_.precision == 0:
            x, place, minus = np.int64(0), np.int64(ZERO_E), np.int64(0)
        row.sig[j], row.e[j], row.negative[j], row.special[j] = x, place, minus, kind
        if sums_.c_first:
            total[j] = to_float64(x, place, minus, kind, out.mantissa + 1)


@routine
def end_tile(spec, sums_, c, d, t, i, j0, nj, row, total):
    """Write the codes of a row."""
    for j in range(nj):
        x = (row.sig[j], row.e[j], row.negative[j], row.special[j])
        end_output(spec, sums_, c, d, t, i, j0 + j, x, total[j])


@routine
def end_output(spec, sums_, c, d, t, i, j, x, total):
    """Write a code: the chain's value x, or the schedule's sum with a last c, rounded to the output."""
    out = spec.out
    if sums_.precision != 0:
        if c.address != 0 and not sums_.c_first:
            cs, ce, cn, ck = decode_number(load_code(c, t, i, j), out, out.emin, out.mantissa + 1)
            total = add_outside(total, to_float64(cs, ce, cn, ck, out.mantissa + 1), sums_.precision, sums_.layout)
        x = round_float64(total, out.mantissa + 1, out)
        if spec.flush_results and abs(x[0]) >> out.mantissa == 0:
            x = (np.int64(0), x[1], x[2], x[3])
    minus = x[2] if x[0] != 0 or spec.ieee_zero else np.int64(0)
    store_code(d, t, i, j, encode_number(x[0], x[1], minus, x[3], out, spec.nan))


def multiply_general(problem: Problem, out: Codes, threads: int | None = None, places: Places | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n). With `places`, one for each element of the batch, random words are those of the
    elements that stand there in a batch of others.
    """
    if out.size:
        Arrays(problem, threads).write(problem.unit, out, problem.seed, places)


class _Cut(NamedTuple):
    """How outputs are cut, and what `run_tiles` is handed of the arrays: all but where D begins, and the seed."""

    boxes: Boxes
    numbers: npt.NDArray[np.int64]
    steps: tuple[int, ...]  # those of D


class Arrays:
    """The arrays of a problem as the kernel reads them, for every unit of its formats: many units may be asked the same question, and
    to find where its numbers lie takes longer than to multiply a few of them."""

    def __init__(self, problem: Problem, threads: int | None = None) -> None:
        self.problem, self.threads = problem, threads
        self._cuts: dict[bool, _Cut] = {}
        self._single, self._places = dots.single_outputs(problem.shape), np.arange(problem.shape[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return Arrays, (self.problem, self.threads)  # addresses are those of this process

    def write(self, unit: Unit, out: Codes, seed: int, places: Places | None = None) -> None:
        """Write what a unit answers into `out`, as `multiply_general`."""
        reading = reading_of(unit, self.problem.a, self.problem.b)
        along = self._single and reading.in_words
        cut = self._cuts.get(along)
        if cut is None or cut.steps != out.strides:
            cut = self._cuts[along] = self._cut(along, out)
        _run(unit, reading, self.problem.plan, cut, out, seed, self.threads, self._places if places is None else places)

    def _cut(self, along: bool, out: Codes) -> _Cut:
        """`along`: single outputs side by side."""
        batch, m, n, _ = self.problem.shape
        if along:
            return _cut_of(self.problem, out, Tiles(1, batch, 1, min(COLUMNS, batch), 1), _boxes((0, 0, 1, 0, batch), 1))
        count = self.threads or default_threads()
        high = max(1, min(ROWS, m, -(-batch * m * -(-n // COLUMNS) // (4 * count))))
        boxes = _boxes((0, 0, m, 0, n), high)
        if batch > 1:
            element = np.repeat(np.arange(batch), len(boxes))
            boxes = np.tile(boxes, (batch, 1))
            boxes[:, 0] = element
        return _cut_of(self.problem, out, Tiles(m, n, high, min(COLUMNS, n)), boxes)


def write_boxes(problem: Problem, out: Codes, boxes: Boxes, threads: int | None) -> None:
    """Write only the outputs of some boxes."""
    if not len(boxes):
        return
    batch, m, n, _ = problem.shape
    high, wide = (int((boxes[:, end] - boxes[:, end - 1]).max()) for end in (2, 4))
    if high > ROWS or wide > COLUMNS:
        boxes = np.concatenate([_boxes(box, ROWS) for box in boxes])
    cut = _cut_of(problem, out, Tiles(m, n, min(ROWS, high), min(COLUMNS, wide)), boxes)
    reading = reading_of(problem.unit, problem.a, problem.b)
    _run(problem.unit, reading, problem.plan, cut, out, problem.seed, threads, np.arange(batch))


def _boxes(box: Any, high: int) -> Boxes:
    """A box as tiles of at most so many rows, COLUMNS wide."""
    t, i0, i1, j0, j1 = box
    tiles = [(t, i, min(i + high, i1), j, min(j + COLUMNS, j1)) for i in range(i0, i1, high) for j in range(j0, j1, COLUMNS)]
    return np.array(tiles, np.int64)


def _cut_of(problem: Problem, out: Codes, tiles: Tiles, boxes: Boxes) -> _Cut:
    arrays = (problem.a.codes, problem.b.codes, problem.c, out, problem.scale_a, problem.scale_b)
    numbers = in_a_row(dots.along_columns(arrays) if tiles.dots else arrays)
    return _Cut(boxes, np.array([*numbers, *tiles, 0], np.int64), out.strides)


def _check_sums(unit: Unit, plan: Plan) -> None:
    """Refuse sums outside the unit of numbers that float64, in which they are added, does not hold."""
    out = unit.out_format
    if plan.sum is not None and (out.emax > 1023 or out.emin - out.mantissa_bits < -1074):
        raise ValueError(
            f"partial results in {out.name} (2^{out.emin - out.mantissa_bits} to 2^{out.emax + 1}) added outside the unit: "
            "the compiled kernels add numbers of float64; backend='reference' has no limit"
        )


class Reading(NamedTuple):
    """A unit as the kernel reads it, with the tables of its operands."""

    walk: int  # its address
    spec: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    tables: tuple[Any, Any]
    in_words: bool  # its products are no wider


def reading_of(unit: Unit, a: Operand, b: Operand) -> Reading:
    """That of these operands' formats and codes."""
    return _reading(unit, a.stored, a.codes.itemsize, b.stored, b.codes.itemsize)


@lru_cache(maxsize=256)
def _reading(unit: Unit, a: Format, a_bytes: int, b: Format, b_bytes: int) -> Reading:
    kind, spec = spec_of_layouts(unit, layout(a), layout(b))
    line, table = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
    with compiled_beside(run_tiles, None, (0, 0, 0, *[line] * 7, table, line)):
        walk = walk_address(kind)
    return Reading(walk, as_row(spec), order_of(unit), tables_of(unit, a, a_bytes, b, b_bytes), dots.in_words(unit))


@lru_cache(maxsize=64)
def _row_of_sums(sum_format: str | None, c_first: bool) -> npt.NDArray[np.int64]:
    return as_row(plan_sums(sum_format, c_first))


def _run(
    unit: Unit, reading: Reading, plan: Plan, cut: _Cut, out: Codes, seed: int, threads: int | None, places: Places
) -> None:
    _check_sums(unit, plan)
    numbers = cut.numbers.copy()
    numbers[_D] = out.__array_interface__["data"][0]
    numbers[_SEED] = (seed + 2**63) % 2**64 - 2**63  # as a signed integer
    run_tasks(
        run_tiles, len(cut.boxes), threads, reading.walk, reading.spec, _row_of_sums(plan.sum, plan.c_first), reading.order,
        plan.bounds, *reading.tables, numbers, cut.boxes, places,
    )  # fmt: skip
