"""Paired sums (RDNA's matrix units) in float64, whose numbers hold every product and every sum on the grid exactly.

A grid is a power of two, so dividing by it is a multiplication, and its inverse an exponent turned around; what is cut to it is
an integer that a float64 holds; one conversion to float32 rounds the sum. Where a factor or c is not finite, the output is
walked again by itself.
"""

from __future__ import annotations

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
from tcsim.problem import Codes, Operand, Problem

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
_TINY = 2.0**-900  # a grid where no term sets one


@inline
def inverse_power(x):
    """1/x for a power of two."""
    return float64_of_bits((np.int64(2046) << 52) - bits_of_float64(x))


@inline
def one_if_negative(x):
    """1.0 where the sign bit is set, also that of a zero."""
    return float64_of_bits((bits_of_float64(x) >> 63) & bits_of_float64(1.0))


@noalias
def run_paired_block(rules, a, power_a, b, power_b, i, first, last, c, top, grid, inverse, total):
    """c[j] = c[j] and products first … last - 1 of row i of a and column j of b; rows of b stand in the order of products.

    `power_a`, `power_b`: 2^(the exponent that a factor brings), 0 for a zero. What is not finite gives anything, but an
    infinite c stays.
    """
    cut, flush, down, late, least, edge = rules
    width = c.size
    for j in range(width):
        top[j] = 0.0
    for p in range(first, last):
        x = power_a[i, p]
        for j in range(width):
            top[j] = max(top[j], x * power_b[p, j])
    for j in range(width):
        leading = max(float64_of_bits(bits_of_float64(c[j]) & _EXPONENT), least)
        place = max(max(top[j] * down, leading * late), _TINY)
        grid[j] = place
        inverse[j] = inverse_power(place)
    if cut == COMPLEMENT:
        for j in range(width):
            sign = bits_of_float64(c[j]) & _SIGN
            total[j] = np.trunc(abs(c[j]) * inverse[j])
            inverse[j] = float64_of_bits(bits_of_float64(inverse[j]) ^ sign)
        for p in range(first, last):
            x = a[i, p]
            for j in range(width):
                term = x * b[p, j] * inverse[j]
                total[j] += np.trunc(term) - one_if_negative(term)
        for j in range(width):
            none = (top[j] == 0.0) & (c[j] == 0.0)
            signed = float64_of_bits(bits_of_float64(grid[j]) ^ (bits_of_float64(c[j]) & _SIGN))
            grid[j] = 0.0 if none else signed
    else:
        for j in range(width):
            lost = (abs(c[j]) < grid[j]) & (grid[j] > edge)
            total[j] = 0.0 if lost else np.floor(c[j] * inverse[j])
        if cut == PAIRS:
            for p in range(first, last - 1, 2):
                x, y, power_x, power_y = a[i, p], a[i, p + 1], power_a[i, p], power_a[i, p + 1]
                for j in range(width):
                    place = max(max(power_x * power_b[p, j], power_y * power_b[p + 1, j]) * down, _TINY)
                    up = inverse_power(place)
                    pair = np.floor(x * b[p, j] * up) + np.floor(y * b[p + 1, j] * up)
                    total[j] += np.floor(pair * (place * inverse[j]))
        start = last - 1 if cut == PAIRS and (last - first) % 2 else (last if cut == PAIRS else first)
        for p in range(start, last):
            x, power_x = a[i, p], power_a[i, p]
            for j in range(width):
                total[j] += np.floor(x * b[p, j] * inverse[j])
    for j in range(width):
        s = total[j] * grid[j]
        s = 0.0 if (abs(s) < LEAST) & flush else s
        c[j] = c[j] if abs(c[j]) == np.inf else np.float64(np.float32(s)) + 0.0


@routine
def walk_special(rules, codes, a, power_a, b, power_b, i, j, first, last, block, x, code, lines):
    """(value, NaN's code or 0) of one output, factors and c whatever they are: what each step makes of them, one by one."""
    own, blamed = codes
    one = lines[:, :1]
    for p in range(first, last, block):
        stop = min(p + block, last)
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
        else:
            one[0, 0] = x
            run_paired_block(
                rules, a, power_a, b[:, j : j + 1], power_b[:, j : j + 1], i, p, stop, one[0], one[1], one[2], one[3], one[4]
            )
            x = one[0, 0]
    return x, code


@kernel
def run_paired_rows(
    first, last, rules, codes, a, power_a, b, power_b, special_rows, special_columns, block, c, nan_c, out
):
    """Rows first … last - 1 of the codes of c + a·b; nan_c holds the codes of c that are NaN, or 0."""
    k, n = a.shape[1], c.shape[1]
    room = np.empty((5, _COLUMNS))
    for j0 in range(0, n, _COLUMNS):
        width = min(_COLUMNS, n - j0)
        right, power_right = b[:, j0 : j0 + width], power_b[:, j0 : j0 + width]
        for i in range(first, last):
            some = room[0, :width]
            some[:] = c[i, j0 : j0 + width]
            for p in range(0, k, block):
                run_paired_block(
                    rules, a, power_a, right, power_right, i, p, min(p + block, k),
                    some, room[1, :width], room[2, :width], room[3, :width], room[4, :width],
                )  # fmt: skip
            for j in range(width):
                out[i, j0 + j] = np.uint32(bits_of_float(np.float32(some[j])))
            for j in range(width):
                if special_rows[i] | special_columns[j0 + j] | (nan_c[i, j0 + j] != 0):
                    x, code = walk_special(
                        rules, codes, a, power_a, right, power_right, i, j, 0, k, block,
                        c[i, j0 + j], nan_c[i, j0 + j], room,
                    )  # fmt: skip
                    out[i, j0 + j] = np.uint32(code) if code != 0 else np.uint32(bits_of_float(np.float32(x)))


def _factors(unit: Unit, x: Operand, fmt: Format) -> tuple[Any, Any]:
    """Values as float64, and 2^E of each; flushed, zeros of their sign, where the unit does so."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        values = np.asarray(decode(x.codes, x.stored), np.float64)
    if unit.zeros.flush_operands:
        values = np.where(np.abs(values) < 2.0**unit.out_format.emin, np.copysign(0.0, values), values)
    finite = np.isfinite(values) & (values != 0)
    exponent = np.frexp(np.where(finite, values, 1.0))[1] - 1
    return values, np.where(finite, np.ldexp(1.0, np.maximum(exponent, fmt.emin)), 0.0)


def multiply_paired(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    unit, order = problem.unit, order_of(problem.unit)
    assert unit.fraction_bits is not None
    assert unit.late_fraction_bits is not None
    a, power_a = _factors(unit, problem.a, unit.a_format)
    b, power_b = _factors(unit, problem.b, unit.b_format)
    emin, count = unit.min_exponent, threads or default_threads()
    least, edge = (0.0, 0.0) if emin is None else (2.0**emin, 2.0**emin)
    rules = (_CUTS[unit.term_cut], unit.zeros.flush_results, 2.0**-unit.fraction_bits, 2.0**-unit.late_fraction_bits, least, edge)
    own = np.int64(unit.nan)
    codes = (own, own if unit.factor_nan is None else np.int64(unit.factor_nan))

    for t in range(problem.shape[0]):

        def chain(start: Codes, first: int, last: int, t: int = t) -> Codes:
            ks = (np.arange(first, last, order.size)[:, None] + order).reshape(-1)
            ks = ks[ks < last]
            sums = np.ascontiguousarray(start).view(np.float32)
            nan_c = np.where(np.isnan(sums), start.astype(np.int64), 0)
            with np.errstate(invalid="ignore"):
                c = sums.astype(np.float64)
            if unit.zeros.flush_operands:
                c = np.where(np.abs(c) < 2.0**unit.out_format.emin, np.copysign(0.0, c), c)
            if not ks.size:  # c as it is taken; a NaN is the unit's own
                return np.where(nan_c != 0, np.uint32(own), c.astype(np.float32).view(np.uint32))
            found = np.empty(start.shape, np.uint32)
            left, right = a[t][:, ks], b[t][ks]
            run_tasks(
                run_paired_rows, start.shape[0], count, rules, codes, left, power_a[t][:, ks], right, power_b[t][ks],
                ~np.isfinite(left).all(axis=1), ~np.isfinite(right).all(axis=0), unit.block_size, c, nan_c, found,
            )  # fmt: skip
            return found

        out[t] = walked(problem, t, chain)
