"""Fused chains with DAZ and FTZ (x86's matrix units) in float64, whose product of two narrow factors is exact, on any machine.

The sum of a product and a float32 is made exact by TwoSum, cut to odd where float64 does not hold it, and so rounds to float32
as the exact sum does. The least normal number less half an ulp decides what is flushed. NaN go output by output.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.codegen.jit import default_threads, inline, kernel, routine, run_tasks
from tcsim.codegen.vector_memory import bits_of_float
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, Gate, floats, only, operands, schedules, up_to
from tcsim.kernels.general.numbers import bits_of_float64, float64_of_bits
from tcsim.kernels.general.spec import order_of
from tcsim.kernels.native.outside import LEAST, walked
from tcsim.problem import Codes, Operand, Problem

GATE = Gate(
    "the kernel of fused chains",
    {
        **LABELS,
        **floats("a", "b"),  # which the record holds to float32's range and precision
        "out": lambda unit: unit.out_format == FORMATS["float32"],
        **only(
            arithmetic="fused", rounding="rne", align_rounding="exact", subnormals="flush", zero_sign="ieee", nan_from="operand"
        ),
        **only(fraction_bits=None, min_exponent=None, out_precision=None, operand_format=None, product_rounding="rne"),
        **only(c_enters="aligned", chain=1, chains=1, sum_format=None, group_size=1, scale=None, scale_block=0),
        **only(late_fraction_bits=None, parity_split=False, overflow="wrap", term_cut="floor", factor_nan=None),
        **up_to("block_size", 1 << 20),
        **up_to("lanes", 1 << 20),
        **ANY_ORDER,
        **up_to("nan_code", 1 << 32),
    },
    {**schedules(*ANY_SUM), **operands(lambda asked, stored: not stored.integer, empty=True)},
)
_COLUMNS = 256
_QUIET = 1 << 22


@inline
def add_rounded_ftz(x, y):
    """x + y rounded to float32 with FTZ, as float64: x and y are numbers of float64 whose sum float64 need not hold."""
    s = x + y
    z = s - x
    e = (x - (s - z)) + (y - z)
    bits = bits_of_float64(s)
    beyond = ((bits ^ bits_of_float64(e)) >> 63) & 1
    s = float64_of_bits((bits - beyond) | 1) if (e != 0) & (abs(s) < np.inf) else s
    return np.copysign(0.0, s) if abs(s) < LEAST else np.float64(np.float32(s))


@routine
def run_fused_row(a, b, ks, i, first, last, block, lanes, c, sums):
    """c[j] and the products of blocks ks[first … last - 1] of row i of a and the columns of b."""
    width = c.size
    for p in range(first, last, block):
        stop = min(p + block, last)
        if lanes == 1:
            for q in range(p, stop):
                x, k = a[i, ks[q]], ks[q]
                for j in range(width):
                    c[j] = add_rounded_ftz(c[j], x * b[k, j])
            continue
        sums[:, :] = 0.0
        for q in range(p, stop):
            x, k, lane = a[i, ks[q]], ks[q], (q - p) % lanes
            for j in range(width):
                sums[lane, j] = add_rounded_ftz(sums[lane, j], x * b[k, j])
        for lane in range(1, lanes):
            for j in range(width):
                sums[0, j] = add_rounded_ftz(sums[0, j], sums[lane, j])
        for j in range(width):
            c[j] = add_rounded_ftz(c[j], sums[0, j])


@inline
def nan_step(x, code, a, b, nan_a, nan_b, own):
    """rounded(x, a·b) and its NaN's code, 0 for a number: a's before b's before the sum so far."""
    if nan_a != 0 or nan_b != 0 or code != 0:
        return np.nan, nan_a if nan_a != 0 else (nan_b if nan_b != 0 else code)
    s = add_rounded_ftz(x, a * b)
    return s, own if np.isnan(s) else np.int64(0)


@inline
def nan_add(x, code_x, y, code_y, own):
    """rounded(x, y) and its NaN's code: x's before y's."""
    if code_x != 0 or code_y != 0:
        return np.nan, code_x if code_x != 0 else code_y
    s = add_rounded_ftz(x, y)
    return s, own if np.isnan(s) else np.int64(0)


@routine
def nan_of(a, b, nan_a, nan_b, ks, i, j, first, last, block, lanes, x, code, own):
    """The code of an output that is NaN, by the walk of run_row; x and code are its c."""
    for p in range(first, last, block):
        stop = min(p + block, last)
        total, kept = x, code
        for lane in range(lanes):
            s, mine = (x, code) if lanes == 1 else (0.0, np.int64(0))
            for q in range(p + lane, stop, lanes):
                k = ks[q]
                s, mine = nan_step(s, mine, a[i, k], b[k, j], nan_a[i, k], nan_b[k, j], own)
            total, kept = (s, mine) if lane == 0 else nan_add(total, kept, s, mine, own)
        x, code = (total, kept) if lanes == 1 else nan_add(x, code, total, kept, own)
    return code


@kernel
def run_rows(first, last, a, b, nan_a, nan_b, ks, block, lanes, c, nan_c, own, out):
    """Rows first … last - 1 of the codes of c + a·b, products in the order ks; nan_… are codes of NaN operands, or 0."""
    k, n = ks.size, c.shape[1]
    line, sums = np.empty(min(n, _COLUMNS)), np.empty((lanes, min(n, _COLUMNS)))
    for i in range(first, last):
        for j0 in range(0, n, _COLUMNS):
            width = min(_COLUMNS, n - j0)
            some = line[:width]
            some[:] = c[i, j0 : j0 + width]
            run_fused_row(a, b[:, j0 : j0 + width], ks, i, 0, k, block, lanes, some, sums[:, :width])
            for j in range(width):
                if np.isnan(some[j]):
                    code = nan_of(a, b, nan_a, nan_b, ks, i, j0 + j, 0, k, block, lanes, c[i, j0 + j], nan_c[i, j0 + j], own)
                    out[i, j0 + j] = np.uint32(code)
                else:
                    out[i, j0 + j] = np.uint32(bits_of_float(np.float32(some[j])))


def _operand(x: Operand, fmt: Format) -> tuple[Any, Any]:
    """Values with DAZ as float64, and the codes of NaN as float32 ones made quiet; a NaN stored in another format is the one of `fmt`."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        values = np.asarray(decode(x.codes, x.stored), np.float64)
    values = np.where(np.abs(values) < 2.0**fmt.emin, np.copysign(0.0, values), values)
    nan = np.isnan(values)
    codes = x.codes.astype(np.int64) if x.stored == fmt else np.full(nan.shape, fmt.nan_code)
    fraction = codes >> fmt.padding & ((1 << fmt.mantissa_bits) - 1)
    sign = np.where(codes & fmt.sign_bit, 1 << 31, 0)
    return values, np.where(nan, sign | 0x7F800000 | _QUIET | fraction << (23 - fmt.mantissa_bits), 0)


def multiply_fused(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    unit, order = problem.unit, order_of(problem.unit)
    a, nan_a = _operand(problem.a, unit.a_format)
    b, nan_b = _operand(problem.b, unit.b_format)
    c_format = FORMATS["float32"]
    block, lanes, own = unit.block_size, unit.lanes, np.int64(unit.nan | _QUIET)
    count = threads or default_threads()

    for t in range(problem.shape[0]):

        def chain(codes: Codes, first: int, last: int, t: int = t) -> Codes:
            ks = (np.arange(first, last, order.size)[:, None] + order).reshape(-1)
            c, nan_c = _operand(Operand(codes, c_format), c_format)
            found = np.empty(codes.shape, np.uint32)
            run_rows_of = (a[t], b[t], nan_a[t], nan_b[t], ks[ks < last], block, lanes, c, nan_c, own, found)
            run_tasks(run_rows, codes.shape[0], count, *run_rows_of)
            return found

        out[t] = walked(problem, t, chain)
