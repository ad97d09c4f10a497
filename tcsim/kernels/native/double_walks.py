"""The walk of a row of `double` through the blocks of a chunk, for each kind of sum: random words, late c, sums outside the unit.

Plain problems have none of these, and a walk of their own, as what is not there need not be compiled.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import from_dtype, types

from tcsim.codegen.jit import no_refcount, noalias, variant
from tcsim.codegen.memory import ahead, record_type
from tcsim.codegen.parts import caller_of, function_address, is_kept
from tcsim.codegen.scalar_ops import use_rounding
from tcsim.codegen.vector_ops import DOWN, NEAREST
from tcsim.kernels.general.cuts import C_OPERATION
from tcsim.kernels.general.panel import INSTRUCTION_END, INSTRUCTION_START, SEGMENT_END, SEGMENT_START
from tcsim.kernels.general.spec import PlanSums, Spec
from tcsim.kernels.general.walks import add_outside
from tcsim.kernels.native import double_rows as rows
from tcsim.kernels.native import double_terms as terms
from tcsim.kernels.native.double_exact import block_of_exact_sums
from tcsim.kernels.native.double_groups import block_of_groups
from tcsim.kernels.native.double_kinds import SumKind
from tcsim.kernels.native.double_plan import DoubleSpec
from tcsim.kernels.native.double_rows import WORD_GROUPS
from tcsim.kernels.native.double_sides import Sides
from tcsim.kernels.native.double_single import UNSHIFTED, WORDS, add_wide_by_words, block_of_one
from tcsim.kernels.native.double_stages import block_in_stages
from tcsim.kernels.native.double_tree import block_of_operations
from tcsim.kernels.native.double_words import draw_lane_words, draw_words_of_groups

TO_HALF = 2 * SEGMENT_END  # an event: results become float16


@no_refcount
def draw_words_of_blocks(spec, unit, blocks, starts, block, seed, element, group, width, row):
    """The random words of the next four blocks."""
    if unit.cut == rows.RANDOM:
        last = np.int64(C_OPERATION + 1 - (-spec.block // spec.group))
        draw_lane_words(seed, element, group, np.int64(C_OPERATION), last, width, row.width, rows.NUMBER, row.term_words)
    if unit.draws:
        mark = UNSHIFTED if unit.way == WORDS and unit.wide else np.int64(0)
        draw_lane_words(seed, element, group, np.int64(0), np.int64(1), width, row.width, mark, row.words)


@no_refcount
def blocks_by_words(unit, sides, r, width, blocks, row, seed, element, step):
    """All blocks of a chunk, of a product each, whose sums are rounded by words, as many at a time as there is room for words."""
    block = np.int64(0)
    while block < blocks:
        word = (step + block) % (4 * WORD_GROUPS)
        if word == 0 or block == 0:
            group = (step + block - word) >> 2
            draw_words_of_groups(seed, element, group, np.int64(WORD_GROUPS), width, row.width, UNSHIFTED, row.words)
        many = min(4 * WORD_GROUPS - word, blocks - block)
        add_wide_by_words(unit, sides, r, block, many, word, width, row)
        block += many


@no_refcount
def draw_words_of_operations(spec, unit, blocks, starts, block, seed, element, group, width, row):
    """The same for units that round every operation: sums come after as many products as a block has."""
    if unit.draws or unit.product_draws:
        first = spec.block
        for i in range(block, min(block + 4, blocks)):
            first = min(first, starts[i + 1] - starts[i])
        first, last = np.int64(0) if unit.product_draws else first, 2 * spec.block if unit.draws else spec.block
        place = ahead(row.term_words, 4 * first * row.width)
        draw_lane_words(seed, element, group, first, last, width, row.width, np.int64(0), place)


def double_rows_of(block_of, draw, plain, ones):
    """The walk of a row through the blocks of a chunk, each by `block_of`; `plain` as in `double_tiles_of`; `draw` is None where none is.

    ones: whether blocks are one product.
    """
    draws = draw is not None

    @noalias
    @variant(block_of.py_func.__name__, "plain" if plain else "any", draws, ones)
    def run_double_row(spec, unit, sums_, sides, r, width, blocks, starts, events, row, total, seed, element, step):
        """All blocks of a chunk for one row."""
        moved = unit.machine != NEAREST
        if moved:
            use_rounding(unit.machine)
        near_c = unit.late_way != rows.UNCUT and unit.kept.kept <= 24  # in any rounding of the processor's
        by_words = plain and draws and ones and unit.way == WORDS and unit.wide
        if by_words:
            blocks_by_words(unit, sides, r, width, blocks, row, seed, element, step)
        for block in range(np.int64(0) if by_words else blocks):
            event, p0 = events[block], starts[block]
            word = (step + block) & 3
            if not plain:
                if event & SEGMENT_START and sums_.precision != 0:
                    for j in range(width):
                        row.c[j] = 0.0
                if event & INSTRUCTION_START and spec.after:
                    rows.put_aside(width, -0.0 if spec.after_negative else 0.0, row.c, row.late)
            if draws and (word == 0 or block == 0):
                draw(spec, unit, blocks, starts, block, seed, element, (step + block) >> 2, width, row)
            block_of(spec, unit, sides, r, block, p0, starts[block + 1] - p0, word, width, row)
            if not plain:
                late, ended = event & INSTRUCTION_END and spec.after, event & SEGMENT_END and sums_.precision != 0
                if late and near_c:
                    rows.add_kept_anywhere(unit.kept, unit.late_way, unit.machine == DOWN, row.late, width, row.c)
                rest = (late and not near_c) or ended or event & TO_HALF
                if moved and rest:
                    use_rounding(np.int64(NEAREST))
                if late and not near_c:
                    rows.add_kept(unit.kept, unit.late_way, row.late, width, row.c)
                if event & TO_HALF:
                    rows.round_to_half(unit.half_sign, width, row.c)
                if ended:
                    for j in range(width):
                        total[j] = add_outside(total[j], row.c[j], sums_.precision, sums_.layout)
                if moved and rest:
                    use_rounding(unit.machine)
        if moved:
            use_rounding(np.int64(NEAREST))

    return run_double_row


# The blocks of a kind for units that draw no words, for all, and how words are drawn.
BLOCKS = {
    **{
        kind: (terms.block_of_terms(False, kind), terms.block_of_terms(True, kind), draw_words_of_blocks) for kind in terms.SUMS
    },
    SumKind.ONE_PRODUCT: (block_of_one(False), block_of_one(True), draw_words_of_blocks),
    SumKind.LONG_PRODUCTS: (block_of_exact_sums, block_of_exact_sums, draw_words_of_blocks),
    SumKind.GROUPS: (block_of_groups, block_of_groups, draw_words_of_blocks),
    SumKind.STAGES: (block_in_stages(False), block_in_stages(True), draw_words_of_blocks),
    SumKind.OPERATIONS: (block_of_operations, block_of_operations, draw_words_of_operations),
}


_DOUBLES, _LONGS, _SHORTS = (types.CPointer(kind) for kind in (types.float64, types.int64, types.int32))
_SIDES = (_DOUBLES, _SHORTS, _LONGS) * 2 + (types.int64,) * 2 + (_DOUBLES,) * 2 + (_SHORTS,) * 4
_ROW = (_DOUBLES, _DOUBLES, _LONGS, _LONGS, _SHORTS, _SHORTS, _SHORTS, _DOUBLES, _DOUBLES, _DOUBLES, _LONGS, _LONGS, _DOUBLES)
_BLOCKS = types.Array(types.int64, 1, "C")
LANES_WALK = (
    *(from_dtype(record_type(kind)) for kind in (Spec, DoubleSpec, PlanSums)),
    types.NamedTuple(_SIDES, Sides), types.int64, types.int64, types.int64, _BLOCKS, _BLOCKS,
    types.NamedTuple((*_ROW, *(types.int64,) * 3), rows.DoubleRow), _DOUBLES, types.uint64, types.int64, types.int64,
)  # fmt: skip
walk_lanes = caller_of(LANES_WALK)


def _walk_of(kind: SumKind, plain: bool, draws: bool) -> Any:
    """The walk of a kind of sums, for problems that are plain or any, that draw words or do not."""
    quiet, drawing, draw = BLOCKS[kind]
    return double_rows_of(drawing if draws else quiet, draw if draws else None, plain, kind is SumKind.ONE_PRODUCT)


@cache
def lanes_address(kind: SumKind, plain: bool, draws: bool) -> int:
    """Where a walk lies."""
    return function_address(_walk_of(kind, plain, draws), LANES_WALK)


def lanes_are_kept(kind: SumKind, plain: bool, draws: bool) -> bool:
    """Whether a walk was compiled before."""
    return is_kept(_walk_of(kind, plain, draws), LANES_WALK)
