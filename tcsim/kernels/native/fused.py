"""Fused chains with DAZ and FTZ (x86's matrix units) by the processor's own fused multiply-add in float32, on any machine.

What is below the least normal number after the processor's rounding was below it before, and is flushed; what is the least
normal number itself may be a smaller one that the coarser grid of subnormal numbers rounded up. Outputs that ever held it go
one by one, and those that are NaN: there the sum of a product and a float32 is made exact in float64 by TwoSum, cut to odd
where float64 does not hold it, and so rounds to float32 as the exact sum does; the least normal number less half an ulp
decides what is flushed.
"""

from __future__ import annotations

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
from tcsim.kernels.native.outside import LEAST, Chain, products_taken, read_factors, walk_batch
from tcsim.problem import Codes, Problem
from tcsim.tasks import run_tasks

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
def run_fused_row(a, b, ks, starts, lanes, c, pitch, sums, edge):
    """c[j] and the products of a[k] and b[k, j], k of ks, in blocks from starts[t] on; lines of b are `pitch` apart.

    edge[j] is set where a step of column j gave the least normal number, which may be wrong.
    """
    width, apart = c.size, sums.size // lanes
    if lanes == 1:
        run_steps(a, b, at(ks, 0), ks.size, 0, 1, pitch, width, at(c, 0), at(edge, 0))
        return
    for t in range(starts.size - 1):
        first, last = starts[t], starts[t + 1]
        sums[:] = np.float32(0)
        run_steps(a, b, at(ks, first), last - first, apart, lanes, pitch, width, at(sums, 0), at(edge, 0))
        for lane in range(1, lanes):
            add_lines(at(sums, lane * apart), width, at(sums, 0))
        add_lines(at(sums, 0), width, at(c, 0))


@inline
def quiet_code(x):
    """The code of a NaN of float32 made quiet, 0 of a number."""
    return np.int64(bits_of_float(x)) | _QUIET if np.isnan(x) else np.int64(0)


@inline
def nan_step(x, code, a, b, own):
    """rounded(x, a·b) and its NaN's code, 0 for a number: a's before b's before the sum so far."""
    if np.isnan(a) | np.isnan(b) | (code != 0):
        return np.nan, quiet_code(a) if np.isnan(a) else (quiet_code(b) if np.isnan(b) else code)
    s = add_rounded_ftz(x, np.float64(a) * np.float64(b))
    return s, own if np.isnan(s) else np.int64(0)


@inline
def nan_add(x, code_x, y, code_y, own):
    """rounded(x, y) and its NaN's code: x's before y's."""
    if code_x != 0 or code_y != 0:
        return np.nan, code_x if code_x != 0 else code_y
    s = add_rounded_ftz(x, y)
    return s, own if np.isnan(s) else np.int64(0)


@routine
def one_output(a, b, pitch, ks, starts, lanes, c, own):
    """The code of an output by the walk of run_fused_row in float64, that of its NaN included."""
    x, code = np.float64(flush_to_zero(c)), quiet_code(c)
    for t in range(starts.size - 1):
        first, last = starts[t], starts[t + 1]
        total, kept = x, code
        for lane in range(lanes):
            s, mine = (x, code) if lanes == 1 else (np.float64(0), np.int64(0))
            for q in range(first + lane, last, lanes):
                k = ks[q]
                s, mine = nan_step(s, mine, a[k], b[k * pitch], own)
            total, kept = (s, mine) if lane == 0 else nan_add(total, kept, s, mine, own)
        x, code = (total, kept) if lanes == 1 else nan_add(x, code, total, kept, own)
    return np.uint32(code) if code != 0 else bits_of_float(np.float32(x))


@kernel
def run_rows(first, last, m, a, b, ks, starts, lanes, c, own, out):
    """Rows first … last - 1 of the codes of c + a·b, products in the order ks, in blocks from starts[t] on.

    m rows of a go with k lines of b, the next m with the next k.
    """
    k, n = a.shape[1], c.shape[1]
    most = -(-min(n, _COLUMNS) // 16) * 16
    line, edge = zeros(most, np.float32), zeros(most, np.float32)
    sums = zeros(lanes * most, np.float32)
    for i in range(first, last):
        for j0 in range(0, n, _COLUMNS):
            width, row, right = min(_COLUMNS, n - j0), at(a, i * k), i // m * k * n + j0
            some, odd = line[:width], edge[:width]
            for j in range(width):  # an array set to another brings the making of an error's words, a second of compiling
                some[j], odd[j] = flush_to_zero(c[i, j0 + j]), np.float32(0)
            run_fused_row(row, at(b, right), ks, starts, lanes, some, n, sums, odd)
            for j in range(width):
                out[i, j0 + j] = bits_of_float(some[j])
                if odd[j] != 0 or np.isnan(some[j]):
                    out[i, j0 + j] = one_output(row, at(b, right + j), n, ks, starts, lanes, c[i, j0 + j], own)


def _read(codes: Codes, stored: Format, fmt: Format, least: float) -> Any:
    """Values as float32, zeros of their sign below `least`; a NaN's the code that it leaves; one stored in another format is the NaN of `fmt`."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        values = np.ascontiguousarray(decode(codes, stored), np.float32)
    values[np.abs(values) < least] *= np.float32(0)
    nan = np.isnan(values)
    if nan.any():
        kept = codes[nan].astype(np.int64) if stored == fmt else np.full(np.count_nonzero(nan), fmt.nan_code)
        fraction = kept >> fmt.padding & ((1 << fmt.mantissa_bits) - 1)
        sign = np.where(kept & fmt.sign_bit, 1 << 31, 0)
        values.view(np.uint32)[nan] = sign | 0x7F800000 | _QUIET | fraction << (23 - fmt.mantissa_bits)
    return values


def multiply_fused(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    unit = problem.unit
    own = np.int64(unit.nan | _QUIET)

    def chain_of(ts: slice) -> Chain:
        _, m, n, k = problem.shape
        a = read_factors(_read, problem.a.of(ts), unit.a_format, 2.0**unit.a_format.emin, threads)
        b = read_factors(_read, problem.b.of(ts), unit.b_format, 2.0**unit.b_format.emin, threads)
        a, b = a.reshape(len(a) * m, k), b.reshape(len(b) * k, n)

        def chain(codes: Codes, first: int, last: int) -> Codes:
            found, c = np.empty(codes.shape, np.uint32), np.ascontiguousarray(codes).view(np.float32)
            run_tasks(run_rows, len(c), threads, m, a, b, *products_taken(unit, first, last), unit.lanes, c, own, found)
            return found

        return chain

    walk_batch(problem, out, chain_of)
