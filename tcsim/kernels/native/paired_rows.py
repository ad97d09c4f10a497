"""The blocks of paired sums in float64 lanes, a row against the columns of a panel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, noalias
from tcsim.codegen.memory import ahead
from tcsim.codegen.scalar_ops import wide_vectors
from tcsim.kernels.general.numbers import bits_of_float64, float64_of_bits

FLOOR, PAIRS, COMPLEMENT = 0, 1, 2
COLUMNS = 128
EXPONENT, SIGN = 0x7FF << 52, -1 << 63


@inline
def inverse_power(x):
    """1/x for a power of two."""
    return float64_of_bits((np.int64(2046) << 52) - bits_of_float64(x))


@inline
def place_of(c, top, least, late):
    """The grid of a block: `top` is that of its products."""
    return max(top, max(float64_of_bits(bits_of_float64(c) & EXPONENT), least) * late)


@inline
def rounded_to_float(s, least):
    """s rounded to float32, +0 where its magnitude is at most `least`."""
    return np.float64(np.float32(0.0 if abs(s) <= least else s))


@inline
def complemented(term):
    """A term in units of the grid, c's sign being plus: truncated, and one less where it is negative, also a zero.

    A negative number moved away from zero by the least there is passes no integer, and its floor is that one.
    """
    bits = bits_of_float64(term)
    return np.floor(float64_of_bits(bits - (bits >> 63)))


@inline
def pair_on_grid(product, other, place, inverse):
    """Two products floored to a multiple of `place` and added, then floored to the grid whose inverse is given."""
    up = inverse_power(place)
    return np.floor((np.floor(product * up) + np.floor(other * up)) * (place * inverse))


class PairedSides(NamedTuple):
    """Pointers to a row of a and the columns of b, [product, column] of a pitch, in the order of products, and to `power_a`, `power_b`:
    2^(the exponent that a factor brings), 0 for a zero."""

    a: Any
    power_a: Any
    b: Any
    power_b: Any
    pitch: Any  # int64


@inline
def with_grid(zero, edge, c, place, inverse, total):
    """c and the products that are on its grid already."""
    lost = (abs(c) < place) & (place > edge)
    return rounded_to_float((total + (0.0 if lost else np.floor(c * inverse))) * place, zero)


@noalias
def run_fours(zero, down, late, least, edge, a, power_a, rows, depth, b, power_b, pitch, first, last, width, c):
    """c[i, j] = c[i, j] and products first … last - 1, four by four: two pairs, floored; rows of a are `depth` apart."""
    wide_vectors()
    for p in range(first, last, 4):
        for i in range(rows):
            q, line = i * depth + p, i * width
            x0, x1, x2, x3 = a[q], a[q + 1], a[q + 2], a[q + 3]
            e0, e1, e2, e3 = power_a[q] * down, power_a[q + 1] * down, power_a[q + 2] * down, power_a[q + 3] * down
            for j in range(width):
                j0 = p * pitch + j
                j1, j2, j3 = j0 + pitch, j0 + 2 * pitch, j0 + 3 * pitch
                one, other = max(e0 * power_b[j0], e1 * power_b[j1]), max(e2 * power_b[j2], e3 * power_b[j3])
                place = place_of(c[line + j], max(one, other), least, late)
                inverse = inverse_power(place)
                total = pair_on_grid(x0 * b[j0], x1 * b[j1], one, inverse)
                total += pair_on_grid(x2 * b[j2], x3 * b[j3], other, inverse)
                c[line + j] = with_grid(zero, edge, c[line + j], place, inverse, total)


@inline
def begin_sum(cut, late, least, edge, c, top):
    """The grid of a block and its inverse, c's sign on both where a sum is in one's complement, and c on it."""
    none = (top == 0.0) & (c == 0.0) & (cut == COMPLEMENT)
    place = 0.0 if none else place_of(c, top, least, late)
    sign = bits_of_float64(c) & (SIGN if cut == COMPLEMENT else 0)
    lost = (abs(c) < place) & (place > edge) & (cut != COMPLEMENT)
    inverse = inverse_power(place)
    total = 0.0 if lost else np.floor(float64_of_bits(bits_of_float64(c) ^ sign) * inverse)
    return float64_of_bits(bits_of_float64(place) ^ sign), float64_of_bits(bits_of_float64(inverse) ^ sign), total


@inline
def with_two(cut, zero, late, least, edge, c, left, right, top):
    """c and two products, which align at `top`; the cut, in one's complement or of pairs, is a constant."""
    if cut == COMPLEMENT:
        place, inverse, total = begin_sum(COMPLEMENT, late, least, 0.0, c, top)
        total += complemented(left * inverse) + complemented(right * inverse)
        return rounded_to_float(total * place, zero)
    place = place_of(c, top, least, late)
    inverse = inverse_power(place)
    return with_grid(zero, edge, c, place, inverse, pair_on_grid(left, right, top, inverse))


@inline
def lines_of_twos(cut, zero, down, late, least, edge, a, power_a, rows, depth, b, power_b, pitch, first, last, width, c):
    for p in range(first, last, 2):
        for i in range(rows):
            q, line = i * depth + p, i * width
            x, y, power_x, power_y = a[q], a[q + 1], power_a[q] * down, power_a[q + 1] * down
            for j in range(width):
                one, other = p * pitch + j, p * pitch + pitch + j
                top = max(power_x * power_b[one], power_y * power_b[other])
                c[line + j] = with_two(cut, zero, late, least, edge, c[line + j], x * b[one], y * b[other], top)


@noalias
def run_twos(cut, zero, down, late, least, edge, a, power_a, rows, depth, b, power_b, pitch, first, last, width, c):
    """c[i, j] = c[i, j] and products first … last - 1, two by two, in one's complement or as floored pairs; rows of a are `depth` apart."""
    wide_vectors()
    if cut == COMPLEMENT:
        lines_of_twos(
            COMPLEMENT, zero, down, late, least, edge, a, power_a, rows, depth, b, power_b, pitch, first, last, width, c
        )
    else:
        lines_of_twos(PAIRS, zero, down, late, least, edge, a, power_a, rows, depth, b, power_b, pitch, first, last, width, c)


@inline
def with_product(cut, zero, late, least, edge, c, product, top):
    """c and one product, which aligns at `top`; the cut is a constant."""
    place, inverse, total = begin_sum(cut, late, least, edge, c, top)
    term = product * inverse
    total += complemented(term) if cut == COMPLEMENT else np.floor(term)
    return rounded_to_float(total * place, zero)


@noalias
def run_ones(cut, zero, down, late, least, edge, a, power_a, b, power_b, pitch, first, last, width, c):
    """c[j] = c[j] and products first … last - 1, one by one."""
    wide_vectors()
    for p in range(first, last):
        x, power, at = a[p], power_a[p] * down, p * pitch
        if cut == COMPLEMENT:
            for j in range(width):
                c[j] = with_product(COMPLEMENT, zero, late, least, edge, c[j], x * b[at + j], power * power_b[at + j])
        else:
            for j in range(width):
                c[j] = with_product(FLOOR, zero, late, least, edge, c[j], x * b[at + j], power * power_b[at + j])


@noalias
def run_any(cut, zero, down, late, least, edge, a, power_a, b, power_b, pitch, first, last, width, c, place, inverse, total):
    """c[j] = c[j] and products first … last - 1, cut in any way."""
    wide_vectors()
    for j in range(width):
        place[j] = 0.0
    for p in range(first, last):
        x = power_a[p] * down
        for j in range(width):
            place[j] = max(place[j], x * power_b[p * pitch + j])
    for j in range(width):
        place[j], inverse[j], total[j] = begin_sum(cut, late, least, edge, c[j], place[j])
    step = 2 if cut == PAIRS else 1
    for p in range(first, last, step):
        x, power_x = a[p], power_a[p] * down
        if cut == COMPLEMENT:
            for j in range(width):
                total[j] += complemented(x * b[p * pitch + j] * inverse[j])
        elif cut == FLOOR or p + 1 == last:
            for j in range(width):
                total[j] += np.floor(x * b[p * pitch + j] * inverse[j])
        else:
            y, power_y = a[p + 1], power_a[p + 1] * down
            for j in range(width):
                one, other = p * pitch + j, p * pitch + pitch + j
                top = max(power_x * power_b[one], power_y * power_b[other])
                total[j] += pair_on_grid(x * b[one], y * b[other], top, inverse[j])
    for j in range(width):
        c[j] = rounded_to_float(total[j] * place[j], zero)


@inline
def after_alike(starts, t, stop):
    """The first block after t that has another length."""
    size, last = starts[t + 1] - starts[t], t + 1
    while last < stop and starts[last + 1] - starts[last] == size:
        last += 1
    return last


@no_refcount
def run_paired_blocks(rules, sides, rows, depth, starts, t, stop, lines, width):
    """lines[i, j] = lines[i, j] and the products of blocks t … stop - 1, i of `rows` rows of a that are `depth` apart; three times as much
    room is behind COLUMNS of them. The next block to run.

    No place at all is a grid of 0, of which every number is a multiple 0. Factors are finite; what is not so in c gives
    anything, but nothing finite.
    """
    cut, zero, down, late, least, edge = rules
    a, power_a, b, power_b, pitch = sides
    first, size = starts[t], starts[t + 1] - starts[t]
    last = after_alike(starts, t, stop)
    if cut != FLOOR and size == 2:
        run_twos(
            cut, zero, down, late, least, edge, a, power_a, rows, depth, b, power_b, pitch, first, starts[last], width, lines
        )
        return last
    if cut == PAIRS and size == 4:
        run_fours(zero, down, late, least, edge, a, power_a, rows, depth, b, power_b, pitch, first, starts[last], width, lines)
        return last
    if size > 1:
        last = t + 1
    place, inverse, total = (
        ahead(lines, np.int64(COLUMNS)),
        ahead(lines, np.int64(2 * COLUMNS)),
        ahead(lines, np.int64(3 * COLUMNS)),
    )
    for i in range(rows):
        row, power, c = ahead(a, i * depth), ahead(power_a, i * depth), ahead(lines, i * width)
        if size == 1:
            run_ones(cut, zero, down, late, least, edge, row, power, b, power_b, pitch, first, starts[last], width, c)
            continue
        run_any(
            cut, zero, down, late, least, edge, row, power, b, power_b, pitch, first, starts[last], width, c, place, inverse, total,
        )  # fmt: skip
    return last
