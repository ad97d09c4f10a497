"""Batches of single outputs, side by side: the columns of one tile, each with a row of a of its own.

Where a product of two significands fits in a word, the factors of every column are multiplied when they are decoded. The blocks then
find a panel of products, times a row of ones, and run over many outputs at a time as they run over the columns of a matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.codegen.jit import inline_ir, noalias, routine
from tcsim.codegen.scratch import zeros_table
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.numbers import FINITE, NAN, PLUS_INF
from tcsim.kernels.general.panel import block_scale
from tcsim.kernels.general.row import special_product
from tcsim.kernels.general.spec import WINDOW, widths
from tcsim.problem import Codes


class Factors(NamedTuple):
    """The rows of a of a chunk, put into columns: arrays [position, column] as those of a panel's b."""

    sig: Any
    e: Any
    mark: Any


@inline_ir
def new_factors(columns, capacity):
    """Room, which whoever asks gives back, for `capacity` positions."""
    return Factors(
        zeros_table(capacity, columns, np.int64),
        zeros_table(capacity, columns, np.int64),
        zeros_table(capacity, columns, np.int64),
    )


@noalias
def multiply_columns(left, positions, columns, panel):
    """The panel's columns times the factors, its row of a made of ones."""
    for p in range(positions):
        for j in range(columns):
            a, b = left.mark[p, j], panel.mb[p, j]
            special = special_product(a, b, left.sig[p, j], panel.sb[p, j])
            kept = FINITE if special == FINITE else NAN if special == NAN else PLUS_INF
            panel.mb[p, j] = kept + ((a ^ b) & 4)
            panel.sb[p, j] *= left.sig[p, j]
            panel.eb[p, j] += left.e[p, j]
        panel.sa[0, p], panel.ea[0, p], panel.ma[0, p] = 1, 0, FINITE


@routine
def multiply_scales(spec, scale_a, scale_b, t, first, columns, ks, blocks, starts, panel):
    """The products of the two scales of every column, at the first position of every group, beside a scale of one."""
    for block in range(blocks):
        for p in range(starts[block], starts[block + 1], spec.group):
            s = ks[p] // spec.scale_block
            panel.ga[0, p], panel.ha[0, p] = 1, 0
            for j in range(columns):
                x, e, _ = block_scale(scale_a, t, s, first + j, spec)
                y, f, _ = block_scale(scale_b, t, s, first + j, spec)
                panel.gb[p, j], panel.hb[p, j] = x * y, e + f


def single_outputs(shape: tuple[int, int, int, int]) -> bool:
    """Whether a problem of (batch, m, n, k) is many single outputs."""
    batch, m, n, _ = shape
    return m == n == 1 < batch


def in_words(unit: Unit) -> bool:
    """Whether a unit's products, of factors and of scales, fit in a word."""
    scales = 0 if unit.scale_format is None or unit.group_size == 1 else 2 * unit.scale_format.precision
    return max(widths(unit).product, scales) <= WINDOW


def along_columns(arrays: tuple[Codes | None, ...]) -> tuple[Codes | None, ...]:
    """Views of a, b, c, d and the scales of single outputs, (batch, 1 or k, 1 or k), with the batch along the columns."""
    return tuple(None if x is None else x.reshape(x.shape[0], -1).T[None] for x in arrays)
