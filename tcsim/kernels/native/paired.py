"""Paired sums (RDNA's matrix units) in float64, whose numbers hold every product and every sum on the grid exactly.

A grid is a power of two, so dividing by it is a multiplication, and its inverse an exponent turned around; what is cut to it is
an integer that a float64 holds; one conversion to float32 rounds the sum. Where a factor or c is not finite, the output is
walked again by itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tcsim.codegen.jit import default_threads, inline, kernel, noalias, routine, run_tasks
from tcsim.codegen.vector_memory import bits_of_float
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, Gate, floats, one_of, only, operands, schedules, up_to
from tcsim.hardware.choices import TERM_CUTS
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.numbers import bits_of_float64, float64_of_bits
from tcsim.kernels.general.spec import order_of
from tcsim.kernels.native.outside import LEAST, walked
from tcsim.problem import Codes, Problem

FLOOR, PAIRS, COMPLEMENT = 0, 1, 2
_CUTS = {"floor": FLOOR, "pairs": PAIRS, "complement": COMPLEMENT}

# The record itself holds widths, block sizes and formats to what float64 computes exactly.
GATE = Gate(
    "the kernel of paired sums",
    {
        **LABELS,
        **floats("a", "b"),
        "out": lambda unit: unit.out_format == FORMATS["float32"],
        **only(arithmetic="paired", rounding="rne", zero_sign="positive", nan_from="operand", align_rounding="rz"),
        **one_of("term_cut", *(cut for cut in TERM_CUTS if cut in _CUTS)),
        **one_of("subnormals", "keep", "flush"),
        **only(out_precision=None, operand_format=None, product_rounding="rne", parity_split=False, overflow="wrap", lanes=1),
        **only(c_enters="aligned", chain=1, chains=1, sum_format=None, group_size=1, scale=None, scale_block=0),
        **up_to("block_size", 256),
        **up_to("fraction_bits", 40),
        **up_to("late_fraction_bits", 40),
        **up_to("min_exponent", 500),
        **up_to("factor_nan", 1 << 32),
        **ANY_ORDER,
        **up_to("nan_code", 1 << 32),
    },
    {**schedules(*ANY_SUM), **operands(lambda asked, stored: not stored.integer, empty=True)},
)
_COLUMNS = 128
_QUIET = 1 << 22
_EXPONENT, _SIGN = 0x7FF << 52, -1 << 63


@inline
def inverse_power(x):
    """1/x for a power of two."""
    return float64_of_bits((np.int64(2046) << 52) - bits_of_float64(x))


@inline
def place_of(c, top, least, late):
    """The grid of a block: `top` is that of its products."""
    return max(top, max(float64_of_bits(bits_of_float64(c) & _EXPONENT), least) * late)


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


@noalias
def run_two(zero, down, late, a, power_a, b, power_b, i, p, c):
    """c[j] = c[j] and products p and p + 1 in one's complement, where zeros set no place."""
    x, y, power_x, power_y = a[i, p], a[i, p + 1], power_a[i, p] * down, power_a[i, p + 1] * down
    for j in range(c.size):
        sign = bits_of_float64(c[j]) & _SIGN
        top = max(power_x * power_b[p, j], power_y * power_b[p + 1, j])
        place = max(top, float64_of_bits(bits_of_float64(c[j]) & _EXPONENT) * late)
        inverse = inverse_power(place)
        total = np.floor(abs(c[j]) * inverse)
        inverse = float64_of_bits(bits_of_float64(inverse) ^ sign)
        total += complemented(x * b[p, j] * inverse) + complemented(y * b[p + 1, j] * inverse)
        c[j] = rounded_to_float(total * float64_of_bits(bits_of_float64(place) ^ sign), zero)


@noalias
def run_four(zero, down, late, least, edge, a, power_a, b, power_b, i, p, c):
    """c[j] = c[j] and two pairs of products from p on, floored."""
    x0, x1, x2, x3 = a[i, p], a[i, p + 1], a[i, p + 2], a[i, p + 3]
    e0, e1, e2, e3 = power_a[i, p] * down, power_a[i, p + 1] * down, power_a[i, p + 2] * down, power_a[i, p + 3] * down
    for j in range(c.size):
        first = max(e0 * power_b[p, j], e1 * power_b[p + 1, j])
        second = max(e2 * power_b[p + 2, j], e3 * power_b[p + 3, j])
        place = place_of(c[j], max(first, second), least, late)
        inverse = inverse_power(place)
        total = pair_on_grid(x0 * b[p, j], x1 * b[p + 1, j], first, inverse)
        total += pair_on_grid(x2 * b[p + 2, j], x3 * b[p + 3, j], second, inverse)
        lost = (abs(c[j]) < place) & (place > edge)
        total += 0.0 if lost else np.floor(c[j] * inverse)
        c[j] = rounded_to_float(total * place, zero)


@noalias
def run_any(rules, a, power_a, b, power_b, i, first, last, c, place, inverse, total):
    """c[j] = c[j] and products first … last - 1, cut in any way."""
    cut, zero, down, late, least, edge = rules
    width = c.size
    for j in range(width):
        place[j] = 0.0
    for p in range(first, last):
        x = power_a[i, p] * down
        for j in range(width):
            place[j] = max(place[j], x * power_b[p, j])
    for j in range(width):
        none = (place[j] == 0.0) & (c[j] == 0.0) & (cut == COMPLEMENT)
        place[j] = 0.0 if none else place_of(c[j], place[j], least, late)
        inverse[j] = inverse_power(place[j])
        sign = bits_of_float64(c[j]) & (_SIGN if cut == COMPLEMENT else 0)
        lost = (abs(c[j]) < place[j]) & (place[j] > edge) & (cut != COMPLEMENT)
        total[j] = 0.0 if lost else np.floor(float64_of_bits(bits_of_float64(c[j]) ^ sign) * inverse[j])
        inverse[j] = float64_of_bits(bits_of_float64(inverse[j]) ^ sign)
        place[j] = float64_of_bits(bits_of_float64(place[j]) ^ sign)
    step = 2 if cut == PAIRS else 1
    for p in range(first, last, step):
        x, power_x = a[i, p], power_a[i, p] * down
        if cut == COMPLEMENT:
            for j in range(width):
                total[j] += complemented(x * b[p, j] * inverse[j])
        elif cut == FLOOR or p + 1 == last:
            for j in range(width):
                total[j] += np.floor(x * b[p, j] * inverse[j])
        else:
            y, power_y = a[i, p + 1], power_a[i, p + 1] * down
            for j in range(width):
                top = max(power_x * power_b[p, j], power_y * power_b[p + 1, j])
                total[j] += pair_on_grid(x * b[p, j], y * b[p + 1, j], top, inverse[j])
    for j in range(width):
        c[j] = rounded_to_float(total[j] * place[j], zero)


@routine
def run_paired_block(rules, a, power_a, b, power_b, i, first, last, lines, width):
    """lines[0, j] = lines[0, j] and products first … last - 1 of row i of a and column j of b, whose rows stand in the order
    of products; the other lines are room.

    `power_a`, `power_b`: 2^(the exponent that a factor brings), 0 for a zero. No place at all is a grid of 0, of which every
    number is a multiple 0. Factors are finite; what is not so in c gives anything, but nothing finite.
    """
    cut, zero, down, late, least, edge = rules
    c = lines[0, :width]
    if cut == COMPLEMENT and last - first == 2 and least == 0.0:
        run_two(zero, down, late, a, power_a, b, power_b, i, first, c)
    elif cut == PAIRS and last - first == 4:
        run_four(zero, down, late, least, edge, a, power_a, b, power_b, i, first, c)
    else:
        run_any(rules, a, power_a, b, power_b, i, first, last, c, lines[1, :width], lines[2, :width], lines[3, :width])


@routine
def walk_special(rules, codes, a, power_a, b, power_b, i, j, starts, x, code, lines):
    """(value, NaN's code or 0) of one output of a panel, factors and c whatever they are: what each step makes of them, one by one."""
    own, blamed = codes
    k = a.shape[1]
    column, power = np.empty((k, 1)), np.empty((k, 1))
    for q in range(k):
        column[q, 0], power[q, 0] = b[q, j], power_b[q, j]
    for t in range(starts.size - 1):
        p, stop = starts[t], starts[t + 1]
        of_factor, invalid, plus, minus = False, False, False, False
        for q in range(p, stop):
            product = a[i, q] * b[q, j]
            of_factor |= np.isnan(a[i, q]) | np.isnan(b[q, j])
            invalid |= np.isnan(product)
            plus |= product == np.inf
            minus |= product == -np.inf
        if of_factor:
            code = blamed
        elif invalid or (plus and minus):
            code = own
        elif code != 0:
            code |= _QUIET
        elif (plus and x == -np.inf) or (minus and x == np.inf):
            code = own
        elif plus or minus:
            x = np.inf if plus else -np.inf
        elif abs(x) < np.inf:
            lines[0, 0] = x
            run_paired_block(rules, a, power_a, column, power, i, p, stop, lines, 1)
            x = lines[0, 0]
    return x, code


@kernel
def run_paired_rows(first, last, rules, codes, a, power_a, b, power_b, special_rows, special_columns, starts, c, nan_c, out):
    """Rows first … last - 1 of the codes of c + a·b; nan_c holds the codes of c that are NaN, or 0; b comes in
    panels of some columns each, (panels, k, columns), blocks from starts[t] to starts[t + 1] - 1."""
    n = c.shape[1]
    room, lines = np.empty((4, _COLUMNS)), np.empty((4, 1))
    for j0 in range(0, n, _COLUMNS):
        width = min(_COLUMNS, n - j0)
        right, power_right = b[j0 // _COLUMNS], power_b[j0 // _COLUMNS]
        for i in range(first, last):
            some = room[0, :width]
            some[:] = c[i, j0 : j0 + width]
            for t in range(starts.size - 1):
                run_paired_block(rules, a, power_a, right, power_right, i, starts[t], starts[t + 1], room, width)
            wrong = special_rows[i]
            for j in range(width):
                wrong |= special_columns[j0 + j] | ~np.isfinite(some[j])
                out[i, j0 + j] = np.uint32(bits_of_float(np.float32(some[j])))
            for j in range(width if wrong else 0):
                if special_rows[i] | special_columns[j0 + j] | ~np.isfinite(some[j]):
                    x, code = walk_special(
                        rules, codes, a, power_a, right, power_right, i, j, starts,
                        c[i, j0 + j], nan_c[i, j0 + j], lines,
                    )  # fmt: skip
                    out[i, j0 + j] = np.uint32(code) if code != 0 else np.uint32(bits_of_float(np.float32(x)))


def _factors(unit: Unit, codes: Codes, stored: Format, fmt: Format) -> tuple[Any, Any]:
    """Values as float64, and 2^E of each; flushed, zeros of their sign, where the unit does so."""
    if stored.width > 16 or codes.size < 1 << stored.width - 2:
        return _read(unit, np.ascontiguousarray(codes), stored, fmt)
    values, powers = _table(unit, stored, fmt)
    return values[codes], powers[codes]


@lru_cache(maxsize=8)
def _table(unit: Unit, stored: Format, fmt: Format) -> tuple[Any, Any]:
    """What `_read` makes of every code."""
    return _read(unit, np.arange(1 << stored.width, dtype=stored.storage), stored, fmt)


def _read(unit: Unit, codes: Codes, stored: Format, fmt: Format) -> tuple[Any, Any]:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        values = np.asarray(decode(codes, stored), np.float64)
    if unit.zeros.flush_operands:
        values = np.where(np.abs(values) < 2.0**unit.out_format.emin, np.copysign(0.0, values), values)
    finite = np.isfinite(values) & (values != 0)
    leading = (values.view(np.int64) & _EXPONENT).view(np.float64)
    return values, np.where(finite, np.maximum(leading, 2.0**fmt.emin), 0.0)


def _panels(b: Any) -> Any:
    """(panels, k, columns): the codes of b's columns, zeros behind the last."""
    k, n = b.shape
    width, count = max(min(_COLUMNS, n), 1), -(-n // _COLUMNS)
    wide = np.zeros((k, count * width), b.dtype)
    wide[:, :n] = b
    return np.ascontiguousarray(wide.reshape(k, count, width).transpose(1, 0, 2))


def multiply_paired(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    unit, order = problem.unit, order_of(problem.unit)
    assert unit.fraction_bits is not None
    assert unit.late_fraction_bits is not None
    emin, count = unit.min_exponent, threads or default_threads()
    least, edge = (0.0, 0.0) if emin is None else (2.0**emin, 2.0**emin)
    zero = np.nextafter(LEAST, 0.0) if unit.zeros.flush_results else 2.0**-150  # what a float32 is +0 for
    rules = (_CUTS[unit.term_cut], zero, 2.0**-unit.fraction_bits, 2.0**-unit.late_fraction_bits, least, edge)
    own = np.int64(unit.nan)
    codes = (own, own if unit.factor_nan is None else np.int64(unit.factor_nan))

    for t in range(problem.shape[0]):

        def chain(start: Codes, first: int, last: int, t: int = t) -> Codes:
            ks = (np.arange(first, last, order.size)[:, None] + order).reshape(-1)
            counts = (ks < last).reshape(-1, unit.block_size).sum(axis=1)
            starts, ks = np.append(0, np.cumsum(counts[counts > 0])), ks[ks < last]
            sums = np.ascontiguousarray(start).view(np.float32)
            nan_c = np.where(np.isnan(sums), start.astype(np.int64), 0)
            with np.errstate(invalid="ignore"):
                c = sums.astype(np.float64)
            if unit.zeros.flush_operands:
                c = np.where(np.abs(c) < 2.0**unit.out_format.emin, np.copysign(0.0, c), c)
            if not ks.size:  # c as it is taken; a NaN is the unit's own
                return np.where(nan_c != 0, np.uint32(own), c.astype(np.float32).view(np.uint32))
            found = np.empty(start.shape, np.uint32)
            left = _factors(unit, problem.a.codes[t][:, ks], problem.a.stored, unit.a_format)
            right = _factors(unit, _panels(problem.b.codes[t][ks]), problem.b.stored, unit.b_format)
            rows, columns = ~np.isfinite(left[0]).all(axis=1), ~np.isfinite(right[0]).all(axis=1).reshape(-1)
            run_tasks(
                run_paired_rows, start.shape[0], count, rules, codes, *left, *right, rows, columns, starts, c, nan_c,
                found,
            )  # fmt: skip
            return found

        out[t] = walked(problem, t, chain)
