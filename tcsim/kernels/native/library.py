"""Units that are plain linear algebra, at the speed of a library: chains of IEEE fused multiply-adds, and int8 dot products.

A unit with L = 1, exact alignment and rounding to nearest-even is d = fma(a, b, c) for k = 0, 1, 2, …: one product and c,
added exactly, rounded once. The processor's fma is that operation, for float64 and float32, specials and subnormals
included; only the pattern of NaN and, for some units, the sign of a zero differ, and are repaired when results are stored.
So it is for truncation and the directed roundings, in the processor's rounding mode, but that an overflow may then give the
largest number where units give infinity: a task in which one occurred is left to the general kernel.

int8 products are summed in pairs of int16 (``vpmaddwd``) into int32, which wraps modulo 2^32 as the units do, so neither
their order nor the schedule matters.

Operands are packed in chunks of k (`library_pack`), or read where they lie if they lie as tiles (`library_tile`) read them and
packing them would take as long as the products: beside few rows of a, b is walked in short runs of k, line by line. Products do
not ask which factor is whose, so what has fewer columns than rows is computed turned over where that fills tiles better.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.jit import inline, inline_ir, kernel_uncounted, noalias, variant
from tcsim.codegen.scratch import address_of, clear_all, release, zeros
from tcsim.codegen.vector_memory import bits_of_double, bits_of_float, peek32
from tcsim.codegen.vector_ops import I32
from tcsim.fp.modes import processor_mode
from tcsim.kernels.fast.ready import transposed
from tcsim.kernels.fast.turn import square
from tcsim.kernels.general import run as general
from tcsim.kernels.native.library_pack import pack_lines, pack_panel, value_at
from tcsim.kernels.native.library_tile import NUMBERS, SIZES, WIDTHS, library_tile
from tcsim.kernels.native.library_units import DOUBLE, FE_OVERFLOW, INTEGER, KINDS, SINGLE
from tcsim.kernels.native.outside import turned_over
from tcsim.problem import Codes, Problem
from tcsim.tasks import default_threads, run_tasks

_CHUNK, _ROWS, _COLUMNS = 256, 128, 256
_FEW, _RUN, _WIDE = 8, 32, 4096  # rows beside which b is read line by line: a run of so many lines, so many columns


class LibraryJob(NamedTuple):
    """A problem as numbers: addresses and steps in bytes; steps of the result in elements."""

    m: int
    n: int
    k: int
    rows: int
    columns: int
    a: int
    a_batch: int
    a_row: int
    a_k: int
    a_item: int
    b: int
    b_batch: int
    b_k: int
    b_column: int
    b_item: int
    c: int
    c_batch: int
    c_row: int
    c_column: int
    sum: int  # bits of the format of partial sums, 0 for none
    c_first: int
    nan: int
    signed_zero: int
    mode: int  # of llvm.set.rounding
    chunk: int  # codes along k that are packed at once
    a_lies: int  # whether rows of a, columns of b lie as a tile reads them and are not packed
    b_lies: int
    out_batch: int
    out_row: int
    out_column: int


def _flag(name: str):
    @intrinsic
    def call(typingctx):
        def codegen(context, builder, signature, args):
            function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, [I32]), name)
            return builder.call(function, [I32(FE_OVERFLOW)])

        return types.int32(), codegen

    return call


has_overflowed, forget_overflow = _flag("fetestexcept"), _flag("feclearexcept")


@inline
def c_value(kind, job, t, i, j):
    """c at (i, j) as float64 or int64; 0 without c."""
    address = job.c + t * job.c_batch + i * job.c_row + j * job.c_column
    if kind == INTEGER:
        return np.float64((peek32(address) ^ 0x80000000) - 0x80000000)
    return value_at(address, 8 if kind == DOUBLE else 4)


@inline
def sum_rounded(job, x):
    return np.float64(np.float32(x)) if job.sum == 32 else x


@inline
def code_of_sum(kind, job, x):
    """The code of a sum of chains, in float64."""
    if np.isnan(x):
        return np.int64(job.nan)
    x = np.float64(np.float32(x)) if kind == SINGLE else x
    if x == 0.0 and not job.signed_zero:
        x = 0.0
    return bits_of_double(x) if kind == DOUBLE else np.int64(bits_of_float(np.float32(x)))


@noalias
def store_integers(c, at, count, nan, signed_zero, out, place, step):
    for j in range(count):
        out[place + j * step] = np.uint32(c[at + j])


def _store_floats(name: str, bits_of: Any, kind: type[Any], magnitude_bits: int, infinity: int) -> Any:
    """What stores codes of numbers side by side, `step` apart: one NaN, and where zeros have no sign +0."""
    magnitude_bits, infinity = kind(magnitude_bits), kind(infinity)

    def store(c, at, count, nan, signed_zero, out, place, step):
        for j in range(count):
            code = bits_of(c[at + j])
            magnitude = code & magnitude_bits
            code = kind(nan) if magnitude > infinity else code
            out[place + j * step] = code if (magnitude != 0) | signed_zero else kind(0)

    return noalias(variant(name)(store))


_STORES = {
    DOUBLE: _store_floats("double", bits_of_double, np.int64, 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000),
    SINGLE: _store_floats("single", bits_of_float, np.uint32, 0x7FFFFFFF, 0x7F800000),
    INTEGER: store_integers,
}


@inline_ir
def lines_of(kind, size, job, source, rows, depth, target, deep):
    """Where rows of a, `depth` codes from `source` on, lie for a tile, and how far apart."""
    if job.a_lies:
        return source, job.a_row // size
    pack_lines(kind, job.a_item, source, job.a_row, job.a_k, rows, np.int64(0), depth, deep, 1, target, 0)
    return address_of(target), deep


@inline_ir
def multiply_panel(kind, size, left, right, place, rows, pitch, depth, mode):
    """A panel's columns of `rows` rows of c, at an address: tiles of four rows, then of two, then of one."""
    i = np.int64(0)
    while i < rows:
        high = np.int64(4) if rows - i >= 4 else (np.int64(2) if rows - i >= 2 else np.int64(1))
        a, c = left[0] + i * left[1] * size, place + i * pitch * size
        library_tile(kind, high, (a, right[0], c, left[1], right[1], pitch, depth, mode))
        i += high


@cache
def library_driver(kind: int) -> Any:
    """The compiled walk over tasks for DOUBLE, SINGLE or INTEGER."""
    number, width, size, step = NUMBERS[kind], WIDTHS[kind], SIZES[kind], 2 if kind == INTEGER else 1
    lying = 2 if kind == INTEGER else size  # bytes of an element of b before it is packed
    side, store = square(lying), _STORES[kind]

    def work(first, last, job, bounds, out, left):
        """Tasks first … last, each a block of outputs through all of k; left[task] is 1 where the general kernel must."""
        down, right = -(-job.m // job.rows), -(-job.n // job.columns)
        high, pitch, deep = min(job.rows, job.m), -(-job.columns // width) * width, job.chunk // step
        a, b, narrow = zeros(high * deep, number), zeros(width * deep, number), zeros(width * deep, np.uint16)
        c = zeros(high * pitch, number)
        total = zeros(high * pitch if job.sum else 0, np.float64)
        for task in range(first, last):
            t, i0, j0 = task // (down * right), task // right % down * job.rows, task % right * job.columns
            rows, columns = min(job.rows, job.m - i0), min(job.columns, job.n - j0)
            clear_all(c)
            clear_all(total)
            forget_overflow()
            if job.c:
                for i in range(rows):
                    for j in range(columns):
                        x = c_value(kind, job, t, i0 + i, j0 + j)
                        if job.sum == 0:
                            c[i * pitch + j] = number(x)
                        elif job.c_first:
                            total[i * pitch + j] = x
            for segment in range(bounds.size - 1):
                for k0 in range(bounds[segment], bounds[segment + 1], job.chunk):
                    depth = min(job.chunk, bounds[segment + 1] - k0)
                    elements = (depth + step - 1) // step
                    source = job.a + t * job.a_batch + i0 * job.a_row + k0 * job.a_k
                    lines = lines_of(kind, size, job, source, rows, depth, a, deep)
                    for j in range(0, columns, width):
                        count = min(np.int64(width), columns - j)
                        source = job.b + t * job.b_batch + k0 * job.b_k + (j0 + j) * job.b_column
                        panel = source, job.b_k // size
                        if not job.b_lies or count < width:
                            pack_panel(kind, lying, side, width, job, source, count, depth, b, narrow)
                            panel = address_of(b), np.int64(width)
                        multiply_panel(kind, size, lines, panel, address_of(c) + j * size, rows, pitch, elements, job.mode)
                if job.sum:
                    for at in range(rows * pitch):
                        total[at] = sum_rounded(job, total[at] + np.float64(c[at]))
                        c[at] = 0
            left[task] = job.mode != ops.NEAREST and has_overflowed() != 0
            for i in range(rows):
                place = t * job.out_batch + (i0 + i) * job.out_row + j0 * job.out_column
                if job.sum:
                    for j in range(columns):
                        x = total[i * pitch + j]
                        if job.c and not job.c_first:
                            x = sum_rounded(job, x + c_value(kind, job, t, i0 + i, j0 + j))
                        out[place + j * job.out_column] = code_of_sum(kind, job, x)
                else:
                    store(c, i * pitch, columns, job.nan, job.signed_zero != 0, out, place, job.out_column)
        release((a, b, narrow, c, total))

    return kernel_uncounted(variant(kind)(work))


def _tasks(batch: int, m: int, n: int, threads: int, most: int = _COLUMNS) -> tuple[int, int]:
    """Rows and columns of a task, halved until every thread has some."""
    rows, columns = min(m, _ROWS), min(n, most)
    while threads > 1 and batch * -(-m // rows) * -(-n // columns) < 2 * threads and (rows > 16 or columns > 64):
        if columns <= 64 or (rows > 16 and 2 * rows >= columns):
            rows = -(-rows // 8) * 4
        else:
            columns = -(-columns // 128) * 64
    return rows, columns


def _job(problem: Problem, out: Codes, kind: int, threads: int) -> LibraryJob:
    a, b, c = problem.a.codes, problem.b.codes, problem.c
    batch, m, n, k = problem.shape
    at, ai, ak = a.strides
    bt, bk, bj = b.strides
    ct, ci, cj = (0, 0, 0) if c is None else c.strides
    out_batch, out_row, out_column = (step // out.itemsize for step in out.strides)
    size, floats = SIZES[kind], kind != INTEGER
    lines = m <= _FEW and abs(bj) < abs(bk)
    rows, columns = _tasks(batch, m, n, threads, _WIDE if lines else _COLUMNS)
    a_lies, b_lies = a.itemsize == ak == size and ai % size == 0, b.itemsize == bj == size and bk % size == 0
    mode = processor_mode(problem.unit.rounding) if floats else ops.NEAREST
    assert mode is not None
    nan = (problem.unit.nan ^ 1 << 63) - (1 << 63)  # as a signed integer
    return LibraryJob(
        m, n, k, rows, columns, a.__array_interface__["data"][0], at, ai, ak, a.itemsize,
        b.__array_interface__["data"][0], bt, bk, bj, b.itemsize, 0 if c is None else c.__array_interface__["data"][0], ct, ci, cj,
        problem.plan.sum_bits if floats else 0, int(problem.plan.c_first), nan, int(problem.unit.zero_sign == "ieee"), mode,
        _RUN if lines else _CHUNK, int(floats and a_lies), int(floats and m <= _FEW and b_lies), out_batch, out_row, out_column,
    )  # fmt: skip


def multiply_library(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write the codes of a supported problem into `out`, C-contiguous (batch, m, n)."""
    kind = INTEGER if problem.unit.arithmetic == "integer" else KINDS[problem.unit.out_format.name]
    codes = out.reshape(-1)
    if transposed(problem.shape, WIDTHS[kind]):
        problem, out = turned_over(problem), out.swapaxes(1, 2)
    job = _job(problem, out, kind, threads or default_threads())
    down, right = -(-job.m // job.rows), -(-job.n // job.columns)
    tasks = problem.shape[0] * down * right
    bounds = np.array([0, job.k]) if kind == INTEGER else np.ascontiguousarray(problem.plan.bounds, dtype=np.int64)
    left = np.zeros(tasks, dtype=np.int64)
    run_tasks(library_driver(kind), tasks, threads, job, bounds, codes, left)
    tasks_left = np.flatnonzero(left)
    t, i, j = tasks_left // (down * right), tasks_left // right % down * job.rows, tasks_left % right * job.columns
    boxes = np.stack([t, i, np.minimum(i + job.rows, job.m), j, np.minimum(j + job.columns, job.n)], axis=1)
    general.write_boxes(problem, out, boxes, threads)
