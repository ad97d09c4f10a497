"""Fused chains with DAZ and FTZ (x86's matrix units) by the processor's own fused multiply-add in float32, on any machine.

What is below the least normal number after the processor's rounding was below it before, and is flushed; what is the least
normal number itself may be a smaller one that the coarser grid of subnormal numbers rounded up. Outputs that ever held it go
one by one, and those that are NaN: there the sum of a product and a float32 is made exact in float64 by TwoSum, cut to odd
where float64 does not hold it, and so rounds to float32 as the exact sum does; the least normal number less half an ulp
decides what is flushed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tcsim.codegen.jit import inline, kernel, noalias, routine
from tcsim.codegen.memory import at
from tcsim.codegen.scalar_ops import fused_multiply_add, wide_vectors
from tcsim.codegen.scratch import zeros
from tcsim.codegen.vector_memory import bits_of_float
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, Gate, floats, only, operands, schedules, up_to
from tcsim.kernels.general.numbers import bits_of_float64, float64_of_bits
from tcsim.kernels.general.spec import order_of
from tcsim.kernels.native.outside import LEAST, walked
from tcsim.problem import Codes, Operand, Problem
from tcsim.tasks import default_threads, run_tasks

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
_LEAST_NORMAL = np.float32(2.0**-126)


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


@inline
def flush_to_zero(x):
    return x * np.float32(0) if abs(x) < _LEAST_NORMAL else x


@noalias
def run_steps(a, b, ks, steps, apart, lanes, pitch, width, sums, edge):
    """sums[lane, j] = a[k]·b[k, j] + sums[lane, j], flushed, for each k of ks and lanes in turn; lines of sums are `apart`.

    edge[j] is 1 where a step gave the least normal number.
    """
    wide_vectors()
    for q in range(steps):
        k, line = ks[q], q % lanes * apart
        x, first = a[k], k * pitch
        for j in range(width):
            s = fused_multiply_add(x, b[first + j], sums[line + j])
            edge[j] = np.float32(1) if abs(s) == _LEAST_NORMAL else edge[j]
            sums[line + j] = flush_to_zero(s)


@noalias
def add_lines(x, width, sums):
    """sums[j] += x[j], flushed; what is subnormal or the least normal number was not rounded."""
    wide_vectors()
    for j in range(width):
        sums[j] = flush_to_zero(sums[j] + x[j])


@routine
def run_fused_row(a, b, ks, i, j0, block, lanes, c, sums, edge):
    """c[j] and the products of blocks ks of row i of a and the columns j0 … of b, contiguous.

    edge[j] is set where a step of column j gave the least normal number, which may be wrong.
    """
    width, n, last, apart = c.size, b.shape[1], ks.size, sums.size // lanes
    row, right = at(a, i * a.shape[1]), at(b, j0)
    if lanes == 1:
        run_steps(row, right, at(ks, 0), last, 0, 1, n, width, at(c, 0), at(edge, 0))
        return
    for p in range(0, last, block):
        sums[:] = np.float32(0)
        run_steps(row, right, at(ks, p), min(block, last - p), apart, lanes, n, width, at(sums, 0), at(edge, 0))
        for lane in range(1, lanes):
            add_lines(at(sums, lane * apart), width, at(sums, 0))
        add_lines(at(sums, 0), width, at(c, 0))


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
def one_output(a, b, nan_a, nan_b, ks, i, j, first, last, block, lanes, x, code, own):
    """An output in float64 and the code of its NaN, 0 for a number, by the walk of run_fused_row; x and code are its c."""
    for p in range(first, last, block):
        stop = min(p + block, last)
        total, kept = x, code
        for lane in range(lanes):
            s, mine = (x, code) if lanes == 1 else (0.0, np.int64(0))
            for q in range(p + lane, stop, lanes):
                k = ks[q]
                s, mine = nan_step(s, mine, np.float64(a[i, k]), np.float64(b[k, j]), nan_a[i, k], nan_b[k, j], own)
            total, kept = (s, mine) if lane == 0 else nan_add(total, kept, s, mine, own)
        x, code = (total, kept) if lanes == 1 else nan_add(x, code, total, kept, own)
    return x, code


@kernel
def run_rows(first, last, a, b, nan_a, nan_b, ks, block, lanes, c, nan_c, own, out):
    """Rows first … last - 1 of the codes of c + a·b, products in the order ks; nan_… are codes of NaN operands, or 0."""
    k, n = ks.size, c.shape[1]
    most = -(-min(n, _COLUMNS) // 16) * 16
    line, edge = zeros(most, np.float32), zeros(most, np.float32)
    sums = zeros(lanes * most, np.float32)
    for i in range(first, last):
        for j0 in range(0, n, _COLUMNS):
            width = min(_COLUMNS, n - j0)
            some, odd = line[:width], edge[:width]
            for j in range(width):  # an array set to another brings the making of an error's words, a second of compiling
                some[j], odd[j] = c[i, j0 + j], 0
            run_fused_row(a, b, ks, i, j0, block, lanes, some, sums, odd)
            for j in range(width):
                out[i, j0 + j] = bits_of_float(some[j])
                if odd[j] != 0 or np.isnan(some[j]):
                    x, code = one_output(a, b, nan_a, nan_b, ks, i, j0 + j, 0, k, block, lanes, np.float64(c[i, j0 + j]),
                                         nan_c[i, j0 + j], own)  # fmt: skip
                    out[i, j0 + j] = np.uint32(code) if code != 0 else bits_of_float(np.float32(x))


def _operand(x: Operand, fmt: Format) -> tuple[Any, Any]:
    """Values with DAZ as float32, and the codes of NaN as float32 ones made quiet; a NaN stored in another format is the one of `fmt`."""
    if x.stored.width > 16:
        return _values(x.codes, x.stored, fmt)
    table, nans = _tables(x.stored, fmt)
    values = table[x.codes]
    return values, nans[x.codes] if np.isnan(values).any() else np.zeros(values.shape, np.int64)


@lru_cache(maxsize=16)
def _tables(stored: Format, fmt: Format) -> tuple[Any, Any]:
    """`_operand` of every code of a format of at most 16 bits."""
    return _values(np.arange(1 << stored.width, dtype=stored.storage), stored, fmt)


def _values(codes: Any, stored: Format, fmt: Format) -> tuple[Any, Any]:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        values = np.asarray(decode(codes, stored), np.float64)
    values = np.where(np.abs(values) < 2.0**fmt.emin, np.copysign(0.0, values), values)
    values, nan = np.ascontiguousarray(values, np.float32), np.isnan(values)
    if not nan.any():
        return values, np.zeros(values.shape, np.int64)
    codes = codes.astype(np.int64) if stored == fmt else np.full(nan.shape, fmt.nan_code)
    fraction = codes >> fmt.padding & ((1 << fmt.mantissa_bits) - 1)
    sign = np.where(codes & fmt.sign_bit, 1 << 31, 0)
    return values, np.where(nan, sign | 0x7F800000 | _QUIET | fraction << (23 - fmt.mantissa_bits), 0)


def multiply_fused(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    unit, order = problem.unit, order_of(problem.unit)
    a, nan_a = map(np.ascontiguousarray, _operand(problem.a, unit.a_format))
    b, nan_b = map(np.ascontiguousarray, _operand(problem.b, unit.b_format))
    c_format = FORMATS["float32"]
    block, lanes, own = unit.block_size, unit.lanes, np.int64(unit.nan | _QUIET)
    count = threads or default_threads()

    for t in range(problem.shape[0]):

        def chain(codes: Codes, first: int, last: int, t: int = t) -> Codes:
            ks = (np.arange(first, last, order.size)[:, None] + order).reshape(-1)
            whole = (last - first) // order.size * order.size
            # Behind the last whole turn of the order, blocks are short where it puts absent products: each by itself.
            short = [] if lanes == 1 else np.split(ks[whole:], range(block, ks.size - whole, block))
            for some in (ks,) if lanes == 1 else (ks[:whole], *short):
                if not (present := some[some < last]).size and last > first:
                    continue
                c, nan_c = _operand(Operand(codes, c_format), c_format)
                found = np.empty(codes.shape, np.uint32)
                run_rows_of = (a[t], b[t], nan_a[t], nan_b[t], present, block, lanes, c, nan_c, own, found)
                run_tasks(run_rows, codes.shape[0], count, *run_rows_of)
                codes = found
            return codes

        out[t] = walked(problem, t, chain)
