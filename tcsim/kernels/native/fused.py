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

from tcsim.codegen.jit import inline, kernel, kernel_uncounted, noalias, routine
from tcsim.codegen.memory import ahead, at, load_entries
from tcsim.codegen.scalar_ops import wide_vectors
from tcsim.codegen.scratch import zeros
from tcsim.codegen.vector_memory import bits_of_float, float_of_bits, peek16
from tcsim.codegen.vector_ops import LANES
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, Gate, floats, only, operands, schedules, up_to
from tcsim.kernels.fast.ready import transposed
from tcsim.kernels.general.numbers import bits_of_float64, float64_of_bits
from tcsim.kernels.native.fused_tile import ROWS, STRIPS, run_fused_tile
from tcsim.kernels.native.outside import (
    LEAST,
    Chain,
    line_of,
    numbered,
    products_taken,
    share_of,
    shares_of,
    side_of,
    table_of,
    turned_over,
    walk_batch,
)
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
_QUIET = 1 << 22
_KEPT = 1 << 18  # factors of b that are kept at hand
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
def one_output(a, b, pitch, starts, lanes, c, own, swapped):
    """The code of an output by the walk of run_fused_tile in float64, that of its NaN included; swapped: b is the unit's a."""
    x, code = np.float64(flush_to_zero(c)), quiet_code(c)
    for t in range(starts.size - 1):
        first, last = starts[t], starts[t + 1]
        total, kept = x, code
        for lane in range(lanes):
            s, mine = (x, code) if lanes == 1 else (np.float64(0), np.int64(0))
            for q in range(first + lane, last, lanes):
                left, right = a[q], b[q * pitch]
                s, mine = nan_step(s, mine, right, left, own) if swapped else nan_step(s, mine, left, right, own)
            total, kept = (s, mine) if lane == 0 else nan_add(total, kept, s, mine, own)
        x, code = (total, kept) if lanes == 1 else nan_add(x, code, total, kept, own)
    return np.uint32(code) if code != 0 else bits_of_float(np.float32(x))


@routine
def run_tile(a, b, pitch, starts, lanes, c, i, rows, j, columns, own, swapped, room, edge, out):
    """`rows` and `columns` of c + a·b from i, j on; a and b begin there. Columns that fill no strip are computed in `room`."""
    k, n, blocks, wide = starts[starts.size - 1], c.shape[1], np.int64(starts.size - 1), -(-columns // LANES) * LANES
    shape = 0 if rows == ROWS else (1 if wide == STRIPS * LANES else 2)
    if columns == wide:
        start, end = at(c, i * n + j), at(out, i * n + j)
        run_fused_tile(shape, a, b, at(starts, 0), start, end, at(edge, 0), k, pitch, blocks, lanes, np.int64(n))
    else:
        for r in range(rows):
            for s in range(columns):
                room[r * wide + s] = c[i + r, j + s]
        line = at(room, 0)
        run_fused_tile(shape, a, b, at(starts, 0), line, line, at(edge, 0), k, pitch, blocks, lanes, wide)
        for r in range(rows):
            for s in range(columns):
                out[i + r, j + s] = room[r * wide + s]
    if edge[0] == 0:
        return
    for r in range(rows):
        for s in range(columns):
            if edge[1 + r * wide + s] == 0:
                code = one_output(ahead(a, r * k), ahead(b, s), pitch, starts, lanes, c[i + r, j + s], own, swapped)
                out[i + r, j + s] = float_of_bits(code)


@noalias
def read_upper(address, count, values):
    """Neighbouring codes that are the upper halves of those of float32, as numbers: what is subnormal flushed, NaNs made quiet."""
    wide_vectors()
    for j in range(count):
        code = np.uint32(peek16(address + 2 * j)) << np.uint32(16)
        magnitude = code & np.uint32(0x7FFFFFFF)
        code |= np.uint32(_QUIET) if magnitude > np.uint32(0x7F800000) else np.uint32(0)
        values[j] = float_of_bits(code & np.uint32(0x80000000) if magnitude < np.uint32(1 << 23) else code)


@routine
def read_line(x, upper, address, step, places, count, values):
    """values[j], the factor at address + step·places[j]; upper: they lie side by side and are the upper halves of their values."""
    if upper:
        read_upper(address + step * places[0], count, values)
    else:
        load_entries(address, step, x.codes.width, places, count, at(x.table, 0), values)


@kernel
def run_shares(first, last, shares, a, b, upper, pitch, ks, starts, lanes, c, own, swapped, out):
    """Shares first … last - 1 of c + a·b, products in the order ks, in blocks from starts[t] on; lines of factors of b are `pitch` apart."""
    m, n, depth = shares.m, shares.n, ks.size
    left, right = np.empty(min(ROWS, m) * depth, np.float32), zeros(depth * pitch + LANES, np.float32)
    room, edge = zeros(ROWS * STRIPS * LANES, np.float32), zeros(1 + ROWS * STRIPS * LANES, np.int32)
    side = numbered(shares.columns)
    for task in range(first, last):
        t, i0, i1, j0 = share_of(shares, task)
        columns = min(shares.columns, n - j0)
        strips = -(-columns // LANES)
        for q in range(depth):
            line = line_of(b, t, ks[q], j0)
            read_line(b, upper[1], line, b.codes.column, at(side, 0), columns, at(right, q * pitch))
        for i in range(i0, i1, ROWS):
            rows = min(ROWS, i1 - i)
            for r in range(rows):
                read_line(a, upper[0], line_of(a, t, i + r, 0), a.codes.column, at(ks, 0), depth, at(left, r * depth))
            for r in range(0, rows, ROWS if rows == ROWS else 1):
                s = 0
                while s < strips:
                    count = STRIPS if rows < ROWS and strips - s >= STRIPS else 1
                    row, j, x, y = t * m + i + r, j0 + s * LANES, at(left, r * depth), at(right, s * LANES)
                    high, wide = ROWS if rows == ROWS else 1, min(count * LANES, n - j)
                    run_tile(x, y, pitch, starts, lanes, c, row, high, j, wide, own, swapped, room, edge, out)
                    s += count


@kernel_uncounted
def read_all(address, count, values):
    """`read_upper` for Python."""
    read_upper(address, count, at(values, 0))


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


@lru_cache(maxsize=16)
def _upper_halves(stored: Format, fmt: Format) -> bool:
    """Whether the values of all codes are as `read_upper` has them."""
    codes = np.arange(1 << stored.width, dtype=np.uint16)
    table, found = table_of(_read, stored, fmt, 2.0**fmt.emin), np.empty(len(codes), np.float32)
    read_all(codes.ctypes.data, len(codes), found)
    return np.array_equal(found.view(np.uint32), table.view(np.uint32))


def _is_upper(x: Operand, fmt: Format) -> bool:
    return x.codes.itemsize == x.codes.strides[2] == 2 and x.stored.width == 16 and _upper_halves(x.stored, fmt)


def multiply_fused(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    swapped = transposed(problem.shape)
    if swapped:
        problem, out = turned_over(problem), out.swapaxes(1, 2)
    unit, own = problem.unit, np.int64(problem.unit.nan | _QUIET)
    m, n = problem.shape[1:3]
    count = threads or default_threads()
    upper = _is_upper(problem.a, unit.a_format) and unit.k_order is None, _is_upper(problem.b, unit.b_format)

    def chain_of(ts: slice) -> Chain:
        held_a, a = side_of(_read, problem.a.of(ts), unit.a_format, 2.0**unit.a_format.emin)
        held_b, b = side_of(_read, problem.b.of(ts), unit.b_format, 2.0**unit.b_format.emin)

        def chain(codes: Codes, first: int, last: int) -> Codes:
            ks, starts = products_taken(unit, first, last)
            found, c = np.empty(codes.shape, np.float32), np.ascontiguousarray(codes).view(np.float32)
            columns = LANES * max(STRIPS, _KEPT // (LANES * max(ks.size, 1) * count))
            shares, tasks = shares_of(min(len(held_a), len(held_b)), m, n, columns, ROWS, count)
            pitch = n if n < LANES else (-(-shares.columns // LANES) + 1) * LANES
            run_tasks(run_shares, tasks, threads, shares, a, b, upper, pitch, ks, starts, unit.lanes, c, own, swapped, found)
            return found.view(np.uint32)

        return chain

    walk_batch(problem, out, chain_of)
