"""Units that round every product and every addition, in float64 lanes: a balanced tree of the products, then c.

A product is exact in float64, the sum of two numbers of the output is a float64 and an error, and each is rounded as a sum is.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, noalias, variant
from tcsim.codegen.memory import ahead
from tcsim.codegen.scalar_ops import use_rounding, wide_vectors
from tcsim.codegen.vector_ops import NEAREST
from tcsim.kernels.general.numbers import bits_of_float64
from tcsim.kernels.native.double_round import (
    drawn_pattern,
    near_pattern,
    numbers_of,
    round_double,
    round_lifted,
    rounded_pattern,
    settled,
    settled_pattern,
    sum_and_error,
)
from tcsim.kernels.native.double_rows import LIFTED, MACHINE, RANDOM

EXACT, CHECKED = 8, 9  # products that are numbers of the output; that are, but for its range
NEAR, BELOW, DRAWN = 10, 11, 12  # sums of two: the processor's own to nearest, or rounding down, or truncating, rounded on


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
    elif way == LIFTED:
        for j in range(width):
            s, e = sum_and_error(left[j], right[j])
            sums[j] = round_lifted(how, s, e, words[j])
    else:
        for j in range(width):
            s, e = sum_and_error(left[j], right[j])
            sums[j] = settled(s, round_double(how, s, e, 0.0, words[j]), how, False)


@noalias
def copy_line(source, width, to):
    wide_vectors()
    for j in range(width):
        to[j] = source[j]


@inline
def near_sum(how, x, y):
    """x + y to nearest, of numbers of as many bits as results keep: what float64's own rounding lacks is far from every tie."""
    return settled_pattern(near_pattern(x + y, how), how, False)


@inline
def odd_pair(x, y):
    """x + y rounded to odd, with the processor rounding down: a zero, which is even, comes from the sum rounded up."""
    down, up = x + y, -(-x - y)
    return down if bits_of_float64(down) & 1 != 0 else up


@inline
def below_sum(how, x, y):
    """x + y rounded in any way, with the processor rounding down."""
    return settled_pattern(rounded_pattern(odd_pair(x, y), 0.0, how), how, False)


@inline
def drawn_sum(how, x, y, word):
    """x + y by a random word, the processor truncating, as `double_single.add_product_by_words` rounds."""
    raised = bits_of_float64(x + y) + (word >> (32 - how.drop))
    return settled_pattern(raised & ~how.ones, how, (raised & how.ones) == how.ones)


@inline
def product_of(how, way, x, y):
    """x·y rounded, of a product that float64 holds."""
    if way == EXACT:
        return x * y
    if way == CHECKED:
        return settled_pattern(bits_of_float64(x * y), how, False)
    return settled_pattern(rounded_pattern(x * y, 0.0, how), how, False)


@inline
def sum_of(how, way, x, y, word):
    """x + y rounded in one of the short ways."""
    if way == NEAR:
        return near_sum(how, x, y)
    return below_sum(how, x, y) if way == BELOW else drawn_sum(how, x, y, word)


@inline
def lines_of_two(products, sums, one, way, x, b, pitch, width, words, lines, c):
    """c + (x0·y0 + x1·y1), every operation rounded, of all columns; `one` and `way` are constants."""
    for j in range(width):
        w0, w1 = (words[j + 2 * lines], words[j + 3 * lines]) if way == DRAWN else (np.int64(0), np.int64(0))
        both = sum_of(sums, way, product_of(products, one, x[0], b[j]), product_of(products, one, x[1], b[j + pitch]), w0)
        c[j] = sum_of(sums, way, both, c[j], w1)


@inline
def lines_of_four(products, sums, one, way, x, b, pitch, width, words, lines, c):
    """c + ((x0·y0 + x1·y1) + (x2·y2 + x3·y3)) in the same way."""
    none = np.int64(0)
    for j in range(width):
        w0, w1 = (words[j + 4 * lines], words[j + 5 * lines]) if way == DRAWN else (none, none)
        w2, w3 = (words[j + 6 * lines], words[j + 7 * lines]) if way == DRAWN else (none, none)
        left, right = product_of(products, one, x[0], b[j]), product_of(products, one, x[1], b[j + pitch])
        low = sum_of(sums, way, left, right, w0)
        left, right = product_of(products, one, x[2], b[j + 2 * pitch]), product_of(products, one, x[3], b[j + 3 * pitch])
        high = sum_of(sums, way, left, right, w1)
        c[j] = sum_of(sums, way, sum_of(sums, way, low, high, w2), c[j], w3)


def tree_in_one_pass(lines, size, way):
    """A whole block of a size, its sums rounded in one of the short ways, in one pass."""

    @noalias
    @variant(size, way)
    def tree_in_one_pass(products, sums, one, a, b, pitch, width, words, word_pitch, c):
        wide_vectors()
        products, sums, x = numbers_of(products), numbers_of(sums), (a[0], a[1], a[size - 2], a[size - 1])
        if one == EXACT:
            lines(products, sums, EXACT, way, x, b, pitch, width, words, word_pitch, c)
        elif one == CHECKED:
            lines(products, sums, CHECKED, way, x, b, pitch, width, words, word_pitch, c)
        else:
            lines(products, sums, MACHINE, way, x, b, pitch, width, words, word_pitch, c)

    return tree_in_one_pass


two_near, two_below, two_drawn = (tree_in_one_pass(lines_of_two, 2, way) for way in (NEAR, BELOW, DRAWN))
four_near, four_below, four_drawn = (tree_in_one_pass(lines_of_four, 4, way) for way in (NEAR, BELOW, DRAWN))


@no_refcount
def block_of_operations(spec, unit, sides, r, block, p0, steps, word, width, row):
    """One block: lines of a level stand side by side, behind them those of the next. What draws no words has those of `row.words`, zeros."""
    if unit.quick and (steps == 2 or steps == 4) and not (unit.longer and unit.quick == NEAR and row.given and block == 0):
        a, b, drawn = (
            ahead(sides.a, r * sides.deep + p0),
            ahead(sides.b, p0 * sides.wide),
            ahead(row.term_words, word * row.width),
        )
        lines, one, ways = 4 * row.width, unit.product_way, unit.quick
        if steps == 2 and ways == NEAR:
            two_near(unit.product, unit.how, one, a, b, sides.wide, width, drawn, lines, row.c)
        elif steps == 2 and ways == BELOW:
            two_below(unit.product, unit.how, one, a, b, sides.wide, width, drawn, lines, row.c)
        elif steps == 2:
            two_drawn(unit.product, unit.how, one, a, b, sides.wide, width, drawn, lines, row.c)
        elif ways == NEAR:
            four_near(unit.product, unit.how, one, a, b, sides.wide, width, drawn, lines, row.c)
        elif ways == BELOW:
            four_below(unit.product, unit.how, one, a, b, sides.wide, width, drawn, lines, row.c)
        else:
            four_drawn(unit.product, unit.how, one, a, b, sides.wide, width, drawn, lines, row.c)
        return
    if unit.machine != NEAREST:
        use_rounding(np.int64(NEAREST))
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
    if unit.machine != NEAREST:
        use_rounding(unit.machine)
