"""Units that round every product and every addition, in float64 lanes: a balanced tree of the products, then c.

A product is exact in float64, the sum of two numbers of the output is a float64 and an error, and each is rounded as a sum is.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import no_refcount, noalias
from tcsim.codegen.memory import ahead
from tcsim.codegen.scalar_ops import wide_vectors
from tcsim.kernels.general.numbers import bits_of_float64
from tcsim.kernels.native.double_round import (
    drawn_pattern,
    numbers_of,
    round_double,
    rounded_pattern,
    settled,
    settled_pattern,
    sum_and_error,
)
from tcsim.kernels.native.double_rows import MACHINE, RANDOM

EXACT, CHECKED = 8, 9  # products that are numbers of the output; that are, but for its range


@noalias
def multiply_rounded(how, way, x, b, width, words, product):
    """The rounded products of x."""
    wide_vectors()
    how = numbers_of(how)
    if way == EXACT:
        for j in range(width):
            product[j] = x * b[j]
    elif way == CHECKED:
        for j in range(width):
            product[j] = settled_pattern(bits_of_float64(x * b[j]), how, False)
    elif way == MACHINE:
        for j in range(width):
            product[j] = settled_pattern(rounded_pattern(x * b[j], 0.0, how), how, False)
    else:
        for j in range(width):
            exact = x * b[j]
            product[j] = settled(exact, round_double(how, exact, 0.0, 0.0, words[j]), how, False)


@noalias
def add_two(how, way, left, right, width, words, sums):
    """The rounded sums of two lines; `sums` is neither of them."""
    wide_vectors()
    how = numbers_of(how)
    if way == MACHINE:
        for j in range(width):
            s, e = sum_and_error(left[j], right[j])
            sums[j] = settled_pattern(rounded_pattern(s, e, how), how, False)
    elif way == RANDOM:
        for j in range(width):
            s, e = sum_and_error(left[j], right[j])
            found, edge = drawn_pattern(s, e, 0.0, how, words[j])
            sums[j] = settled_pattern(found, how, edge)
    else:
        for j in range(width):
            s, e = sum_and_error(left[j], right[j])
            sums[j] = settled(s, round_double(how, s, e, 0.0, words[j]), how, False)


@noalias
def copy_line(source, width, to):
    wide_vectors()
    for j in range(width):
        to[j] = source[j]


@no_refcount
def block_of_operations(spec, unit, sides, r, block, p0, steps, word, width, row):
    """One block: lines of a level stand side by side, behind them those of the next. What draws no words has those of `row.words`, zeros."""
    high, many, operation, pitch = np.int64(0), steps, steps, 4 * row.width
    words = ahead(row.term_words, word * row.width)
    for i in range(steps):
        x, b = sides.a[r * sides.deep + p0 + i], ahead(sides.b, (p0 + i) * sides.wide)
        mine = ahead(words, i * pitch) if unit.product_draws else row.words
        multiply_rounded(unit.product, unit.product_way, x, b, width, mine, ahead(row.tree, i * row.width))
    while many > 1:
        to = high + many
        for i in range(many // 2):
            left, right = ahead(row.tree, (high + 2 * i) * row.width), ahead(row.tree, (high + 2 * i + 1) * row.width)
            mine, sums = ahead(words, operation * pitch) if unit.draws else row.words, ahead(row.tree, (to + i) * row.width)
            add_two(unit.how, unit.way, left, right, width, mine, sums)
            operation += 1
        if many % 2:
            copy_line(ahead(row.tree, (to - 1) * row.width), width, ahead(row.tree, (to + many // 2) * row.width))
        high, many = to, (many + 1) // 2
    mine = ahead(words, operation * pitch) if unit.draws else row.words
    add_two(unit.how, unit.way, ahead(row.tree, high * row.width), row.c, width, mine, row.total)
    copy_line(row.total, width, row.c)
