"""Paired sums (RDNA's matrix units) in float64, whose numbers hold every product and every sum on the grid exactly.

A grid is a power of two, so dividing by it is a multiplication, and its inverse an exponent turned around; what is cut to it is
an integer that a float64 holds; one conversion to float32 rounds the sum. Where a factor or c is not finite, the output is
walked again by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.codegen.jit import inline, kernel, noalias, routine
from tcsim.codegen.memory import at
from tcsim.codegen.scalar_ops import wide_vectors
from tcsim.codegen.scratch import release, room
from tcsim.codegen.vector_memory import bits_of_float
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, Gate, floats, one_of, only, operands, schedules, up_to
from tcsim.hardware.choices import TERM_CUTS
from tcsim.kernels.general.numbers import bits_of_float64, float64_of_bits
from tcsim.kernels.native.outside import LEAST, Chain, products_taken, read_factors, walk_batch
from tcsim.kernels.native.paired_rows import COLUMNS, COMPLEMENT, EXPONENT, FLOOR, PAIRS, PairedSides, run_paired_blocks
from tcsim.problem import Codes, Problem
from tcsim.tasks import run_tasks

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
_QUIET = 1 << 22


@routine
def walk_special(rules, codes, a, power_a, b, power_b, i, j, starts, x, code, lines):
    """(value, NaN's code or 0) of one output of a panel, factors and c whatever they are: what each step makes of them, one by one."""
    own, blamed = codes
    k = a.shape[1]
    column, power = room(k, np.float64), room(k, np.float64)
    for q in range(k):
        column[q], power[q] = b[q, j], power_b[q, j]
    sides = PairedSides(at(a, i * k), at(power_a, i * k), at(column, 0), at(power, 0), np.int64(1))
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
            lines[0] = x
            run_paired_blocks(rules, sides, starts, t, t + 1, at(lines, 0), np.int64(1))
            x = lines[0]
    release((column, power))
    return x, code


@routine
def run_paired_row(rules, codes, left, i, right, special, starts, c, nan_c, room, lines, out):
    """Row i of the codes of c + a·b for the columns of one panel; `special`: the columns, or the row, whose factors are not all finite."""
    (a, power_a), (b, power_b), k, width = left, right, left[0].shape[1], c.size
    for j in range(width):  # as in `fused`
        room[j] = c[j]
    sides = PairedSides(
        at(a, i * k), at(power_a, i * k), at(b, 0), at(power_b, 0), b.shape[1]
    )  # fmt: skip
    t = np.int64(0)
    while t < starts.size - 1:
        t = run_paired_blocks(rules, sides, starts, t, np.int64(starts.size - 1), at(room, 0), np.int64(width))
    for j in range(width):
        out[j] = np.uint32(bits_of_float(np.float32(room[j])))
        if special[j] | ~np.isfinite(room[j]):
            x, code = walk_special(rules, codes, a, power_a, b, power_b, i, j, starts, c[j], nan_c[j], lines)
            out[j] = np.uint32(code) if code != 0 else np.uint32(bits_of_float(np.float32(x)))


@kernel
def run_paired_rows(first, last, m, rules, codes, a, power_a, b, power_b, special_rows, special_columns, starts, c, nan_c, out):
    """Rows first … last - 1 of the codes of c + a·b; nan_c holds the codes of c that are NaN, or 0; m rows of a go with a matrix of
    panels of b, (matrices, panels, k, columns), the next m with the next; blocks are from starts[t] to starts[t + 1] - 1."""
    n = c.shape[1]
    room, lines, special = np.empty(4 * COLUMNS), np.empty(4 * COLUMNS), np.empty(COLUMNS, np.bool_)
    while first < last:
        t = first // m
        stop = min(last, (t + 1) * m)
        for j0 in range(0, n, COLUMNS):
            j1, right = min(j0 + COLUMNS, n), (b[t, j0 // COLUMNS], power_b[t, j0 // COLUMNS])
            for i in range(first, stop):
                for j in range(j1 - j0):
                    special[j] = special_rows[i] | special_columns[t, j0 + j]
                some, nans, found = c[i, j0:j1], nan_c[i, j0:j1], out[i, j0:j1]
                run_paired_row(rules, codes, (a, power_a), i, right, special, starts, some, nans, room, lines, found)
        first = stop


@inline
def exponent_power(x, leading, least):
    """What a factor's exponent brings: 2^E, at least `least`; 0 of zeros and of what is not finite."""
    return max(leading, least) if (x != 0) & (leading < np.inf) else 0.0


@kernel
def pack_paired_rows(first, last, values, ks, least, packed, powers, special):
    """Rows of a with their products in order, what their exponents bring, and whether one is not finite."""
    for i in range(first, last):
        odd = 0.0
        for q in range(ks.size):
            x = values[i, ks[q]]
            leading = float64_of_bits(bits_of_float64(x) & EXPONENT)
            packed[i, q], powers[i, q], odd = x, exponent_power(x, leading, least), max(odd, leading)
        special[i] = odd == np.inf


@noalias
def pack_paired_line(x, width, least, values, powers, odd):
    """A line of factors and what their exponents bring; odd[j] becomes infinite where one is not finite."""
    wide_vectors()
    for j in range(width):
        leading = float64_of_bits(bits_of_float64(x[j]) & EXPONENT)
        values[j], powers[j], odd[j] = x[j], exponent_power(x[j], leading, least), max(odd[j], leading)


@kernel
def pack_paired_panels(first, last, panels, values, ks, least, packed, powers, special):
    """Panels of b, (matrices, panels, k, columns), as `pack_paired_rows`; zeros behind the last column."""
    (_, k, n), depth, columns = values.shape, ks.size, packed.shape[3]
    odd = np.empty(columns)
    for task in range(first, last):
        t, j0 = task // panels, task % panels * columns
        width = min(columns, n - j0)
        for j in range(width):
            odd[j] = 0.0
        for q in range(depth):
            to = (task * depth + q) * columns
            pack_paired_line(at(values, (t * k + ks[q]) * n + j0), width, least, at(packed, to), at(powers, to), at(odd, 0))
            for j in range(width, columns):
                packed[t, task % panels, q, j] = powers[t, task % panels, q, j] = 0.0
        for j in range(width):
            special[t, j0 + j] = odd[j] == np.inf


def _read(codes: Codes, stored: Format, fmt: Format, least: float) -> Any:
    """Values as float64, zeros of their sign below `least`."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        values = np.ascontiguousarray(decode(codes, stored), np.float64)
    values[np.abs(values) < least] *= 0.0
    return values


def multiply_paired(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    unit = problem.unit
    assert unit.fraction_bits is not None
    assert unit.late_fraction_bits is not None
    emin = unit.min_exponent
    least, edge = (0.0, 0.0) if emin is None else (2.0**emin, 2.0**emin)
    zero = np.nextafter(LEAST, 0.0) if unit.zeros.flush_results else 2.0**-150  # what a float32 is +0 for
    rules = (_CUTS[unit.term_cut], zero, 2.0**-unit.fraction_bits, 2.0**-unit.late_fraction_bits, least, edge)
    flushed = 2.0**unit.out_format.emin if unit.zeros.flush_operands else 0.0
    own = np.int64(unit.nan)
    codes = (own, own if unit.factor_nan is None else np.int64(unit.factor_nan))

    def chain_of(ts: slice) -> Chain:
        _, m, n, k = problem.shape
        rows = read_factors(_read, problem.a.of(ts), unit.a_format, flushed, threads)
        columns = read_factors(_read, problem.b.of(ts), unit.b_format, flushed, threads)
        rows, count, width, panels = rows.reshape(len(rows) * m, k), len(columns), max(min(COLUMNS, n), 1), -(-n // COLUMNS)

        def chain(start: Codes, first: int, last: int) -> Codes:
            ks, starts = products_taken(unit, first, last)
            sums = np.ascontiguousarray(start).view(np.float32)
            nan_c = np.where(np.isnan(sums), start.astype(np.int64), 0)
            with np.errstate(invalid="ignore"):
                c = sums.astype(np.float64)
            c[np.abs(c) < flushed] *= 0.0
            if not ks.size:  # c as it is taken; a NaN is the unit's own
                return np.where(nan_c != 0, np.uint32(own), c.astype(np.float32).view(np.uint32))
            found = np.empty(start.shape, np.uint32)
            left, right = np.empty((2, len(rows), ks.size)), np.empty((2, count, panels, ks.size, width))
            special = np.empty(len(rows), np.bool_), np.empty((count, n), np.bool_)
            run_tasks(pack_paired_rows, len(rows), threads, rows, ks, 2.0**unit.a_format.emin, *left, special[0])
            run_tasks(
                pack_paired_panels, count * panels, threads, panels, columns, ks, 2.0**unit.b_format.emin, *right, special[1]
            )
            run_tasks(run_paired_rows, len(start), threads, m, rules, codes, *left, *right, *special, starts, c, nan_c, found)
            return found

        return chain

    walk_batch(problem, out, chain_of)
