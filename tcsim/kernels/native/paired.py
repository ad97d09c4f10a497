"""Paired sums (RDNA's matrix units) in float64, whose numbers hold every product and every sum on the grid exactly.

A grid is a power of two, so dividing by it is a multiplication, and its inverse an exponent turned around; what is cut to it is
an integer that a float64 holds; one conversion to float32 rounds the sum. Where a factor or c is not finite, the output is
walked again by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tcsim.codegen.jit import kernel, routine
from tcsim.codegen.memory import at
from tcsim.codegen.scratch import release, room
from tcsim.codegen.vector_memory import bits_of_float
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, Gate, floats, one_of, only, operands, schedules, up_to
from tcsim.hardware.choices import TERM_CUTS
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.spec import order_of
from tcsim.kernels.native.outside import LEAST, walked, walked_from
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
def run_paired_rows(first, last, rules, codes, a, power_a, b, power_b, special_rows, special_columns, starts, c, nan_c, out):
    """Rows first … last - 1 of the codes of c + a·b; nan_c holds the codes of c that are NaN, or 0; b comes in
    panels of some columns each, (panels, k, columns), blocks from starts[t] to starts[t + 1] - 1."""
    n = c.shape[1]
    room, lines, special = np.empty(4 * COLUMNS), np.empty(4 * COLUMNS), np.empty(COLUMNS, np.bool_)
    for j0 in range(0, n, COLUMNS):
        j1, panel = min(j0 + COLUMNS, n), j0 // COLUMNS
        for i in range(first, last):
            for j in range(j1 - j0):
                special[j] = special_rows[i] | special_columns[j0 + j]
            right = (b[panel], power_b[panel])
            run_paired_row(
                rules, codes, (a, power_a), i, right, special, starts, c[i, j0:j1], nan_c[i, j0:j1], room, lines, out[i, j0:j1]
            )


@kernel
def run_paired_outputs(first, last, rules, codes, a, power_a, b, power_b, special_rows, special_columns, starts, c, nan_c, out):
    """Single outputs first … last - 1, each of a row of a and a panel of b of one column."""
    room, lines, special = np.empty(4 * COLUMNS), np.empty(4 * COLUMNS), np.empty(COLUMNS, np.bool_)
    for i in range(first, last):
        special[0] = special_rows[i] | special_columns[i]
        run_paired_row(rules, codes, (a, power_a), i, (b[i], power_b[i]), special, starts, c[i], nan_c[i], room, lines, out[i])


def _factors(unit: Unit, codes: Codes, stored: Format, fmt: Format) -> tuple[Any, Any]:
    """Values as float64, and 2^E of each; flushed, zeros of their sign, where the unit does so."""
    codes = np.ascontiguousarray(codes)
    if stored.width > 16 or codes.size < 1 << stored.width - 2:
        return _read(unit, codes, stored, fmt)
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
    leading = (values.view(np.int64) & EXPONENT).view(np.float64)
    return values, np.where(finite, np.maximum(leading, 2.0**fmt.emin), 0.0)


def _panels(b: Any) -> Any:
    """(panels, k, columns): the codes of b's columns, zeros behind the last."""
    k, n = b.shape
    width, count = max(min(COLUMNS, n), 1), -(-n // COLUMNS)
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

    def chained(rows: Codes, columns: Codes, panels: Callable[[Codes], Codes], run: Any) -> Callable[[Codes, int, int], Codes]:
        """What adds some products to codes of c: rows of a along k, columns of b along k, cut into panels."""

        def chain(start: Codes, first: int, last: int) -> Codes:
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
            left = _factors(unit, rows[:, ks], problem.a.stored, unit.a_format)
            right = _factors(unit, panels(columns[ks]), problem.b.stored, unit.b_format)
            special = ~np.isfinite(left[0]).all(axis=1), ~np.isfinite(right[0]).all(axis=1).reshape(-1)
            run_tasks(run, start.shape[0], count, rules, codes, *left, *right, *special, starts, c, nan_c, found)
            return found

        return chain

    batch, m, n, _ = problem.shape
    if m == n == 1:
        rows, columns = problem.a.codes[:, 0], problem.b.codes[:, :, 0].T
        outputs = chained(rows, columns, lambda b: np.ascontiguousarray(b.T)[:, :, None], run_paired_outputs)
        out[:, 0] = walked_from(
            problem, None if problem.c is None else problem.c[:, 0], np.zeros((batch, 1), np.uint32), outputs
        )
        return
    for t in range(batch):
        out[t] = walked(problem, t, chained(problem.a.codes[t], problem.b.codes[t], _panels, run_paired_rows))
