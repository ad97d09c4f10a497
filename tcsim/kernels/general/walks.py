"""The walk of a row through its blocks, for each kind of arithmetic, and the additions outside the unit."""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import from_dtype, types

from tcsim.codegen.jit import inline, no_refcount, noalias, variant
from tcsim.codegen.memory import record_type
from tcsim.codegen.parts import caller_of, function_address
from tcsim.kernels.general.any_width import any_width_groups, any_width_stages, overflowing_products
from tcsim.kernels.general.blocks import (
    finish_block,
    group_sums,
    groups,
    largest_exponents,
    least_places,
    limbs_block,
    limbs_groups,
    mark_zeros,
    quanta,
    start_block,
    start_sums,
    sums,
)
from tcsim.kernels.general.cuts import round_c, round_groups, round_products
from tcsim.kernels.general.numbers import (
    FINITE,
    bits_of_float64,
    float64_of_bits,
    round_float64,
    to_float64,
)
from tcsim.kernels.general.panel import (
    INSTRUCTION_END,
    INSTRUCTION_START,
    SEGMENT_END,
    SEGMENT_START,
    Panel,
)
from tcsim.kernels.general.rounded import in_vectors, rounded_column, rounded_row
from tcsim.kernels.general.row import WIDE, Row, add_specials, draw_row_words, flush_row, start_over
from tcsim.kernels.general.spec import Kind, PlanSums, Spec
from tcsim.kernels.general.two_stage import two_stage_row
from tcsim.kernels.general.two_terms import add_late_c, add_product, keep_c


@inline
def add_outside(x, y, precision, fmt):
    """x + y rounded once to nearest-even in a format of `precision` bits; x and y are float64 and may be wider than it.

    TwoSum (Knuth) gives s + e = x + y exactly; s is then cut toward zero and made odd if anything was cut, which rounds to
    51 bits or fewer as the exact sum does. Sums below float64's normal numbers are exact, and an s without a finite
    successor is far beyond a narrower format.
    """
    s = x + y
    if precision == 53:
        return s
    z = s - x
    e = (x - (s - z)) + (y - z)
    bits = bits_of_float64(s)
    beyond = ((bits ^ bits_of_float64(e)) >> 63) & 1  # 1: the exact sum is nearer to zero than s
    s = float64_of_bits((bits - beyond) | 1) if (e != 0) & (abs(s) < np.inf) else s
    if precision == 24 and fmt.emax == 127:
        return np.float64(np.float32(s))
    sig, place, negative, special = round_float64(s, precision, fmt)
    return to_float64(sig, place, negative, special, precision)


@no_refcount
def plain_block(spec, panel, r, p0, p1, block, columns, width, row, word, tree, seed, elements, step):
    """Terms are products."""
    start_block(spec, panel, r, block, width, row)
    largest_exponents(panel, r, p0, p1, 1, width, row.top)
    least_places(spec, panel, r, p0, p1, width, row.lsb)
    wide = quanta(spec, width, row)
    if spec.any_cut:
        round_c(spec, width, row, seed, elements, step + block)
        round_products(spec, panel, r, p0, p1, width, row, seed, elements, step + block)
    else:
        start_sums(spec, width, row)
        sums(spec, panel, r, p0, p1, 1, width, row.q, row.total)
    if spec.ieee_zero:
        mark_zeros(panel, r, p0, p1, columns, row)
    if wide:
        for j in range(columns):
            if row.flag[j] == WIDE and row.special[j] == FINITE:
                top = max(row.top[j], row.floor[j])
                x = limbs_block(spec, panel, r, p0, p1, j, row.sig[j], row.e[j], top, row.lsb[j],
                               row.random[word * row.width + j], seed, elements[j], step + block)  # fmt: skip
                row.sig[j], row.e[j], row.negative[j], row.special[j] = x
    finish_block(spec, width, row, word)


@no_refcount
def single_block(spec, panel, r, p0, p1, block, columns, width, row, word, tree, seed, elements, step):
    """One product, added to c exactly."""
    if add_product(spec, panel, r, p0, width, row, word):
        for j in range(columns):
            if row.flag[j] == WIDE and row.special[j] == FINITE:
                place = panel.ea[r, p0] + panel.eb[p0, j]
                top, lsb = max(row.e[j], place), min(row.e[j] - spec.out.mantissa, place - spec.weight)
                x = limbs_block(spec, panel, r, p0, p1, j, row.sig[j], row.e[j], top, lsb,
                               row.random[word * row.width + j], seed, elements[j], step + block)  # fmt: skip
                row.sig[j], row.e[j], row.negative[j], row.special[j] = x


@no_refcount
def grouped_block(spec, panel, r, p0, p1, block, columns, width, row, word, tree, seed, elements, step):
    """Terms are exact groups of products."""
    start_block(spec, panel, r, block, width, row)
    groups(spec, panel, r, p0, p1, width, row)
    wide = quanta(spec, width, row)
    if spec.any_cut:
        round_c(spec, width, row, seed, elements, step + block)
        round_groups(spec, -(-(p1 - p0) // spec.group), width, row, seed, elements, step + block)
    else:
        start_sums(spec, width, row)
        group_sums(spec, -(-(p1 - p0) // spec.group), width, row)
    if spec.ieee_zero:
        mark_zeros(panel, r, p0, p1, columns, row)
    if wide:
        for j in range(columns):
            if row.flag[j] == WIDE and row.special[j] == FINITE:
                top = max(row.top[j], row.floor[j])
                x = limbs_groups(spec, panel, r, p0, p1, j, row.sig[j], row.e[j], top, row.lsb[j],
                                row.random[word * row.width + j], seed, elements[j], step + block)  # fmt: skip
                row.sig[j], row.e[j], row.negative[j], row.special[j] = x
    finish_block(spec, width, row, word)


@no_refcount
def any_width_grouped_block(spec, panel, r, p0, p1, block, columns, width, row, word, tree, seed, elements, step):
    """Exact groups of any width, one output at a time."""
    for j in range(columns):
        if row.special[j] == FINITE:
            c = (row.sig[j], row.e[j], row.negative[j])
            x = any_width_groups(
                spec, panel, r, p0, p1, j, c, row.random[word * row.width + j], seed, elements[j], step + block
            )
            row.sig[j], row.e[j], row.negative[j], row.special[j] = x
    if spec.flush_results:
        flush_row(spec, width, row)


@no_refcount
def any_width_two_stage_block(spec, panel, r, p0, p1, block, columns, width, row, word, tree, seed, elements, step):
    """CDNA3 with numbers of any width, one output at a time."""
    for j in range(columns):
        overflowing_products(spec, panel, r, p0, p1, j, row.special)
        if row.special[j] == FINITE:
            c = (row.sig[j], row.e[j], row.negative[j])
            x = any_width_stages(spec, panel, r, p0, p1, j, c, row.random[word * row.width + j])
            row.sig[j], row.e[j], row.negative[j], row.special[j] = x


@no_refcount
def walk_two_stage(spec, panel, r, p0, p1, block, columns, width, row, word, tree, seed, elements, step):
    """CDNA3."""
    two_stage_row(spec, panel, r, p0, p1, width, columns, row, word)


@no_refcount
def walk_rounded(spec, panel, r, p0, p1, block, columns, width, row, word, tree, seed, elements, step):
    """Every operation rounded."""
    if in_vectors(spec, panel, r, block, columns):
        rounded_row(spec, panel, r, p0, p1, width, row, seed, elements, step + block)
        return
    for j in range(columns):
        c = (row.sig[j], row.e[j], row.negative[j], row.special[j])
        x = rounded_column(spec, panel, r, p0, p1, j, c, tree, seed, elements[j], step + block)
        row.sig[j], row.e[j], row.negative[j], row.special[j] = x


def rows_of(block_of):
    """The walk of a row through the blocks of a chunk, each by `block_of`."""

    @noalias
    @variant(block_of.py_func.__name__)
    def run_row(spec, sums_, panel, r, columns, width, blocks, starts, events, check, row, total, tree, seed, elements,
                step):  # fmt: skip
        """All blocks of a chunk for one row of the tile: `columns` columns, and a few more that fill vectors."""
        out = spec.out
        for block in range(blocks):
            event, p0, p1 = events[block], starts[block], starts[block + 1]
            if event & SEGMENT_START and sums_.precision != 0:
                start_over(width, row, 0)
            if event & INSTRUCTION_START and spec.after:
                keep_c(width, row)
                start_over(width, row, spec.after_negative)
            if check:
                add_specials(panel, r, p0, p1, block, width, row.special)
            word = (step + block) & 3
            if spec.draws and (word == 0 or block == 0):
                draw_row_words(seed, elements, (step + block) >> 2, 0, width, row.random, row.width)
            block_of(spec, panel, r, p0, p1, block, columns, width, row, word, tree, seed, elements, step)
            if event & INSTRUCTION_END and spec.after:
                add_late_c(spec, width, row)
            if event & SEGMENT_END and sums_.precision != 0:
                for j in range(width):
                    x = to_float64(row.sig[j], row.e[j], row.negative[j], row.special[j], out.mantissa + 1)
                    total[j] = add_outside(total[j], x, sums_.precision, sums_.layout)

    return run_row


BLOCKS = {
    Kind.PLAIN: plain_block,
    Kind.SINGLE: single_block,
    Kind.GROUPED: grouped_block,
    Kind.ANY_WIDTH_GROUPED: any_width_grouped_block,
    Kind.TWO_STAGES: walk_two_stage,
    Kind.ANY_WIDTH_STAGES: any_width_two_stage_block,
    Kind.ROUNDED: walk_rounded,
}
_POINTER, _LINE, _TABLE = types.CPointer(types.int64), types.Array(types.int64, 1, "C"), types.Array(types.int64, 2, "C")
_RANDOM = ("random", "term_word")
_ROW = (*(types.CPointer(types.uint64) if name in _RANDOM else _POINTER for name in Row._fields[:-1]), types.int64)
WALK = (
    *(from_dtype(record_type(kind)) for kind in (Spec, PlanSums)),
    types.NamedUniTuple(_TABLE, len(Panel._fields), Panel), types.int64, types.int64, types.int64, types.int64, _LINE, _LINE, types.int64,
    types.NamedTuple(_ROW, Row), types.Array(types.float64, 1, "C"), _TABLE, types.uint64, _LINE, types.int64,
)  # fmt: skip
walk_row = caller_of(WALK)


@cache
def walk_address(kind: Kind) -> int:
    """Where the walk of a kind of sums lies."""
    return function_address(rows_of(BLOCKS[kind]), WALK)
