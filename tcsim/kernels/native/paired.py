"""Paired sums (RDNA's matrix units) in float64, whose numbers hold every product and every sum on the grid exactly.

A grid is a power of two, so dividing by it is a multiplication, and its inverse an exponent turned around; what is cut to it is
an integer that a float64 holds; one conversion to float32 rounds the sum. Where a factor or c is not finite, the output is
walked again by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.codegen.jit import inline, kernel, noalias, routine
from tcsim.codegen.memory import ahead, at, load_entries
from tcsim.codegen.scalar_ops import wide_vectors
from tcsim.codegen.vector_memory import bits_of_float
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, Gate, floats, one_of, only, operands, schedules, up_to
from tcsim.hardware.choices import TERM_CUTS
from tcsim.kernels.fast.ready import transposed
from tcsim.kernels.general.numbers import bits_of_float64, float64_of_bits
from tcsim.kernels.native.outside import (
    LEAST,
    Chain,
    line_of,
    numbered,
    products_taken,
    share_of,
    shares_of,
    side_of,
    turned_over,
    walk_batch,
)
from tcsim.kernels.native.paired_rows import COLUMNS, COMPLEMENT, EXPONENT, FLOOR, PAIRS, PairedSides, run_paired_blocks
from tcsim.problem import Codes, Problem
from tcsim.tasks import default_threads, run_tasks

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
_LANES = 8  # of float64
_KEPT, _LEAST_COLUMNS, _ROWS = 1 << 17, 32, 8  # factors of b that are kept at hand, and what a share has at least


@routine
def walk_special(rules, codes, sides, starts, x, code, lines):
    """(value, NaN's code or 0) of one output, factors and c whatever they are: what each step makes of them, one by one."""
    own, blamed = codes
    one = np.int64(1)
    for t in range(starts.size - 1):
        of_factor, invalid, plus, minus = False, False, False, False
        for q in range(starts[t], starts[t + 1]):
            left, right = sides.a[q], sides.b[q * sides.pitch]
            product = left * right
            of_factor |= np.isnan(left) | np.isnan(right)
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
            run_paired_blocks(rules, sides, one, one, starts, t, t + 1, at(lines, 0), one)
            x = lines[0]
    return x, code


@inline
def taken_as(c, flushed):
    """c as float64, a zero of its sign below `flushed`, and its code where it is NaN, else 0."""
    x = np.float64(c)
    return x * 0.0 if abs(x) < flushed else x, np.int64(bits_of_float(c)) if np.isnan(c) else np.int64(0)


@routine
def run_paired_panel(rules, codes, flushed, sides, odd, rows, depth, starts, c, i0, j0, width, room, lines, out):
    """Rows i0 … and columns j0 … of the codes of c + a·b, where `sides` begin; odd: rows, and columns, whose factors are not all finite."""
    of_rows, of_columns = odd
    for i in range(rows):
        for j in range(width):
            room[i * width + j] = taken_as(c[i0 + i, j0 + j], flushed)[0]
    t, stop = np.int64(0), np.int64(starts.size - 1)
    while t < stop:
        t = run_paired_blocks(rules, sides, np.int64(rows), depth, starts, t, stop, at(room, 0), np.int64(width))
    for i in range(rows):
        for j in range(width):
            found = np.float32(room[i * width + j])
            out[i0 + i, j0 + j] = np.uint32(bits_of_float(found))
            if (of_rows[i] + of_columns[j] == np.inf) | ~np.isfinite(found):
                x, code = taken_as(c[i0 + i, j0 + j], flushed)
                k = i * depth
                here = PairedSides(
                    ahead(sides.a, k), ahead(sides.power_a, k), ahead(sides.b, j), ahead(sides.power_b, j), sides.pitch
                )  # fmt: skip
                x, code = walk_special(rules, codes, here, starts, x, code, lines)
                out[i0 + i, j0 + j] = np.uint32(code) if code != 0 else np.uint32(bits_of_float(np.float32(x)))


@noalias
def take_powers(values, width, least, powers, odd):
    """What the exponent of each factor brings: 2^E, at least `least`; 0 of zeros and of what is not finite, where odd[j] becomes infinite."""
    wide_vectors()
    for j in range(width):
        leading = float64_of_bits(bits_of_float64(values[j]) & EXPONENT)
        powers[j], odd[j] = max(leading, least) if (values[j] != 0) & (leading < np.inf) else 0.0, max(odd[j], leading)


@kernel
def run_paired_shares(first, last, shares, rules, codes, flushed, least, a, b, ks, starts, c, out):
    """Shares first … last - 1 of the codes of c + a·b, products in the order ks, in blocks from starts[t] on."""
    m, n, wide, depth = shares.m, shares.n, shares.columns, np.int64(ks.size)
    most = min(max(COLUMNS // wide, 1), m)
    left, power_left, right, power_right = (
        np.empty(most * depth),
        np.empty(most * depth),
        np.empty(depth * wide),
        np.empty(depth * wide),
    )
    room, lines, side, odd_line = np.empty(4 * COLUMNS), np.empty(4 * COLUMNS), numbered(wide), np.empty(depth)
    odd = np.empty(most), np.empty(wide)
    for task in range(first, last):
        t, i0, i1, j0 = share_of(shares, task)
        width = min(wide, n - j0)
        for j in range(width):
            odd[1][j] = 0.0
        for q in range(depth):
            line = at(right, q * wide)
            load_entries(line_of(b, t, ks[q], j0), b.codes.column, b.codes.width, at(side, 0), width, at(b.table, 0), line)
            take_powers(line, width, least[1], at(power_right, q * wide), at(odd[1], 0))
        for i in range(i0, i1, most):
            rows = min(most, i1 - i)
            for r in range(rows):
                line = at(left, r * depth)
                load_entries(line_of(a, t, i + r, 0), a.codes.column, a.codes.width, at(ks, 0), depth, at(a.table, 0), line)
                for q in range(depth):
                    odd_line[q] = 0.0
                take_powers(line, depth, least[0], at(power_left, r * depth), at(odd_line, 0))
                odd[0][r] = 0.0
                for q in range(depth):
                    odd[0][r] = max(odd[0][r], odd_line[q])
            sides = PairedSides(
                at(left, 0), at(power_left, 0), at(right, 0), at(power_right, 0), np.int64(wide)
            )  # fmt: skip
            run_paired_panel(rules, codes, flushed, sides, odd, rows, depth, starts, c, t * m + i, j0, width, room, lines, out)


def _read(codes: Codes, stored: Format, fmt: Format, least: float) -> Any:
    """Values as float64, zeros of their sign below `least`."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        values = np.ascontiguousarray(decode(codes, stored), np.float64)
    values[np.abs(values) < least] *= 0.0
    return values


def multiply_paired(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    if transposed(problem.shape, _LANES):
        problem, out = turned_over(problem), out.swapaxes(1, 2)
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

    emins = 2.0**unit.a_format.emin, 2.0**unit.b_format.emin
    m, n = problem.shape[1:3]
    count = threads or default_threads()

    def chain_of(ts: slice) -> Chain:
        held_a, a = side_of(_read, problem.a.of(ts), unit.a_format, flushed)
        held_b, b = side_of(_read, problem.b.of(ts), unit.b_format, flushed)

        def chain(start: Codes, first: int, last: int) -> Codes:
            ks, starts = products_taken(unit, first, last)
            c = np.ascontiguousarray(start).view(np.float32)
            if not ks.size:  # c as it is taken; a NaN is the unit's own
                kept = np.where(np.abs(c) < flushed, c * np.float32(0), c)
                return np.where(np.isnan(c), np.uint32(own), kept.view(np.uint32))
            found = np.empty(start.shape, np.uint32)
            columns = min(COLUMNS, max(_LEAST_COLUMNS, _KEPT // ks.size))
            shares, tasks = shares_of(min(len(held_a), len(held_b)), m, n, columns, _ROWS, count)
            run_tasks(run_paired_shares, tasks, threads, shares, rules, codes, flushed, emins, a, b, ks, starts, c, found)
            return found

        return chain

    walk_batch(problem, out, chain_of)
