"""A row of a tile of the general kernel: what its columns carry from block to block, and what every kind of block needs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, noalias, routine
from tcsim.fp.compiled.philox import random_word, words
from tcsim.kernels.general.numbers import FINITE, MINUS_INF, NAN, PLUS_INF, ZERO_E
from tcsim.kernels.general.panel import HAS_SPECIAL

WIDE, DONE = 1, 2  # flags of a column: its sum needs limbs; its result is already there


class Row(NamedTuple):
    """A row of the tile, pointers to its columns: what it carries from block to block, and room for a block's passes."""

    sig: Any
    e: Any
    negative: Any
    special: Any
    c_sig: Any  # a c that is added later
    c_e: Any
    c_negative: Any
    c_special: Any
    top: Any  # the largest exponent
    lsb: Any  # the least place of a nonzero term
    floor: Any  # the exponent that the block has at least
    q: Any  # terms are cut at 2^q
    flag: Any
    total: Any
    lost: Any  # bits that were cut off, where that matters
    random: Any  # [4·width]: the words of four blocks
    term_word: Any  # the words of a term, where each is rounded stochastically
    term_sig: Any  # [terms·width], as are those below: groups of products, or rounded products and their sums
    term_e: Any
    term_negative: Any
    term_special: Any
    width: int


@no_refcount
def start_over(width, row, negative):
    """A sum that starts from zero, or with `negative` from -0, to which a zero of either sign adds as if it were first."""
    for j in range(width):
        row.sig[j], row.e[j], row.negative[j], row.special[j] = 0, ZERO_E, negative, FINITE


@no_refcount
def flush_row(spec, width, row):
    """Subnormal results are zeros of their sign."""
    for j in range(width):
        small = abs(row.sig[j]) >> spec.out.mantissa == 0
        row.sig[j] = np.int64(0) if small else row.sig[j]
        row.e[j] = np.int64(ZERO_E) if small else row.e[j]


@inline
def special_product(a, b, a_sig, b_sig):
    """NaN, infinity or FINITE from the marks (special + 4·negative) of two factors."""
    x, y = a & 3, b & 3
    if x == FINITE and y == FINITE:
        return np.int64(FINITE)
    if x == NAN or y == NAN or (x == FINITE and a_sig == 0) or (y == FINITE and b_sig == 0):
        return np.int64(NAN)
    return np.int64(MINUS_INF if (a >> 2) != (b >> 2) else PLUS_INF)


@inline
def special_add(x, y):
    """The special value of a sum: opposite infinities and NaN give NaN."""
    both = x if x == y else np.int64(NAN)
    one = x if y == FINITE else both
    return y if x == FINITE else one


@routine
def add_specials(panel, r, p0, p1, block, width, special):
    """What NaN and infinite operands of a block make of its columns."""
    if panel.za[r, block] & HAS_SPECIAL == 0:
        found = np.int64(0)
        for j in range(width):
            found |= panel.zb[block, j]
        if found & HAS_SPECIAL == 0:
            return
    for p in range(p0, p1):
        a, sig = panel.ma[r, p], panel.sa[r, p]
        for j in range(width):
            special[j] = special_add(special[j], special_product(a, panel.mb[p, j], sig, panel.sb[p, j]))


@routine
def all_negative_zero(panel, r, p0, p1, j):
    """Whether every product of the block is -0."""
    for p in range(p0, p1):
        if panel.sa[r, p] != 0 and panel.sb[p, j] != 0:
            return False
        if (panel.ma[r, p] >> 2) == (panel.mb[p, j] >> 2):
            return False
    return True


@noalias
def draw_words(seed, elements, step, operation, width, random):
    """The random word of each column for one operation of a block."""
    for j in range(width):
        random[j] = random_word(np.uint64(seed), np.uint64(elements[j]), np.uint64(step), np.uint64(operation))


@noalias
def draw_row_words(seed, elements, group, operation, width, random, pitch):
    """The random words of each column for the block roundings 4·group … 4·group + 3."""
    for j in range(width):
        w0, w1, w2, w3 = words(np.uint64(seed), np.uint64(elements[j]), np.uint64(group), np.uint64(operation))
        random[j], random[pitch + j], random[2 * pitch + j], random[3 * pitch + j] = w0, w1, w2, w3
