"""Units that are plain linear algebra, at the speed of a library: chains of IEEE fused multiply-adds, and int8 dot products.

A unit with L = 1, exact alignment and rounding to nearest-even is d = fma(a, b, c) for k = 0, 1, 2, …: one product and c,
added exactly, rounded once. The processor's fma is that operation, for float64 and float32, specials and subnormals
included; only the pattern of NaN and, for some units, the sign of a zero differ, and are repaired when results are stored.
So it is for truncation and the directed roundings, in the processor's rounding mode, but that an overflow may then give the
largest number where units give infinity: a task in which one occurred is left to the general kernel.

int8 products are summed in pairs of int16 (``vpmaddwd``) into int32, which wraps modulo 2^32 as the units do, so neither
their order nor the schedule matters.

A tile is 4 rows x 32 (float32), 16 (float64) or 64 (int8) columns in registers; operands are packed in chunks of k.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.jit import inline, kernel, variant
from tcsim.codegen.scratch import zeros
from tcsim.codegen.vector_memory import bits_of_double, bits_of_float, double_of_bits, float_of_bits, peek8, peek32, peek64
from tcsim.codegen.vector_ops import F32, F64, I16, I32, I64, Emitted, Variable
from tcsim.fp.modes import processor_mode
from tcsim.kernels.general import run as general
from tcsim.kernels.native.library_units import DOUBLE, FE_OVERFLOW, INTEGER, KINDS, SINGLE
from tcsim.problem import Codes, Problem
from tcsim.tasks import default_threads, run_tasks

ROWS = 4
_LANES = {DOUBLE: 8, SINGLE: 16, INTEGER: 16}
_VECTORS = {DOUBLE: 2, SINGLE: 2, INTEGER: 4}
WIDTHS = tuple(_LANES[kind] * _VECTORS[kind] for kind in (DOUBLE, SINGLE, INTEGER))
_TYPES = {DOUBLE: F64, SINGLE: F32, INTEGER: I32}
_CHUNK, _ROWS, _COLUMNS = 256, 128, 256
_NAMES: dict[int, type[Any]] = {DOUBLE: np.float64, SINGLE: np.float32, INTEGER: np.int32}


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


@intrinsic(prefer_literal=True)
def library_tile(typingctx, kind, a, b, c, numbers):
    """c[4, width] += A·B over `depth` packed products in ascending order; numbers: places in a, b, c, pitches of a and c, depth, mode.

    a is (row, k) and b (k, column) for floats; for int8 an element is a pair of int16, two neighbours along k.
    """
    chosen = kind.literal_value
    element = _TYPES[chosen].as_pointer()
    arguments = {"a": element, "bm": element, "c": element, "lda": I64, "ldc": I64, "depth": I64, "mode": I64}

    def body(builder: ir.IRBuilder, **arg: Any) -> None:
        _tile(builder, chosen, **arg)

    def codegen(context, builder, signature, args):
        emitted = ops.function(builder.module, f"tcsim_library_{chosen}", arguments, body)
        values = [builder.extract_value(args[4], i) for i in range(7)]
        arrays = [context.make_array(signature.args[i])(context, builder, args[i]).data for i in (1, 2, 3)]
        moved = [builder.gep(p, [at]) for p, at in zip(arrays, values[:3], strict=True)]
        builder.call(emitted, [*moved, *values[3:]])
        return context.get_dummy_value()

    return types.void(kind, a, b, c, numbers), codegen


def _tile(b: ir.IRBuilder, kind: int, a: Any, bm: Any, c: Any, lda: Any, ldc: Any, depth: Any, mode: Any) -> None:
    lanes, vectors = _LANES[kind], _VECTORS[kind]
    if kind != INTEGER:
        with b.if_then(b.icmp_signed("!=", mode, I64(ops.NEAREST))):
            ops.set_rounding(b, Emitted(b, mode).cast(I32, "trunc"))
    pitch, row_step = Emitted(b, ldc), Emitted(b, lda)
    at = [pitch * r + v * lanes for r in range(ROWS) for v in range(vectors)]
    total = [Variable(b, ops.emit_load(b, c, place, lanes)) for place in at]

    def add(k: Emitted) -> None:
        right = [ops.emit_load(b, bm, k * (lanes * vectors) + v * lanes, lanes) for v in range(vectors)]
        for r in range(ROWS):
            left = ops.emit_load(b, a, k + row_step * r).spread(lanes)
            for v in range(vectors):
                x = total[r * vectors + v]
                x.set(x.get() + pair_product(left, right[v]) if kind == INTEGER else left.call("fma", right[v], x.get()))

    ops.each(b, Emitted(b, I64(0)), Emitted(b, depth), add)
    for x, place in zip(total, at, strict=True):
        ops.emit_store(b, x.get(), c, place)
    if kind != INTEGER:
        with b.if_then(b.icmp_signed("!=", mode, I64(ops.NEAREST))):
            ops.set_rounding(b, Emitted(b, I32(ops.NEAREST)))


def _flag(name: str):
    @intrinsic
    def call(typingctx):
        def codegen(context, builder, signature, args):
            function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, [I32]), name)
            return builder.call(function, [I32(FE_OVERFLOW)])

        return types.int32(), codegen

    return call


has_overflowed, forget_overflow = _flag("fetestexcept"), _flag("feclearexcept")


def pair_product(x: Emitted, y: Emitted) -> Emitted:
    """x0·y0 + x1·y1 for the two int16 in each lane; LLVM has one instruction for it."""
    wide = x.bits_as(I16, 32).cast(I32, "sext") * y.bits_as(I16, 32).cast(I32, "sext")
    return wide.lanes(list(range(0, 32, 2))) + wide.lanes(list(range(1, 32, 2)))


@inline
def value_at(address, item):
    """The float32 or float64 at an address, as float64."""
    return double_of_bits(peek64(address)) if item == 8 else np.float64(float_of_bits(np.uint32(peek32(address))))


@inline
def pack_lines(kind, job, origin, item, across, along, lines, depth, across_pitch, along_pitch, target, at):
    """Copy lines x depth elements (pairs along k for int8) to target[at + line·across_pitch + k·along_pitch]."""
    for line in range(lines):
        start = origin + line * across
        for k in range((depth + 1) // 2 if kind == INTEGER else depth):
            to = at + line * across_pitch + k * along_pitch
            if kind == INTEGER:
                low = peek8(start + 2 * k * along)
                high = peek8(start + (2 * k + 1) * along) if 2 * k + 1 < depth else np.int64(0)
                low, high = (low ^ 128) - 128, (high ^ 128) - 128
                target[to] = (low & 0xFFFF) | (high << 16)
            else:
                target[to] = value_at(start + k * along, item)


@inline
def pack_panels(kind, job, t, j0, columns, width, k0, depth, target, chunk):
    for j in range(0, columns, width):
        origin = job.b + t * job.b_batch + k0 * job.b_k + (j0 + j) * job.b_column
        count = min(width, columns - j)
        pack_lines(kind, job, origin, job.b_item, job.b_column, job.b_k, count, depth, 1, width, target, j * chunk)


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
def code_of_result(kind, job, x):
    """The code of a result (float64 or int32 value held in float64)."""
    if kind == INTEGER:
        return np.int64(x) & 0xFFFFFFFF
    if np.isnan(x):
        return np.int64(job.nan)
    if kind == SINGLE:
        x = np.float64(np.float32(x))
    if x == 0.0 and not job.signed_zero:
        x = 0.0
    return bits_of_double(x) if kind == DOUBLE else np.int64(bits_of_float(np.float32(x)))


@cache
def library_driver(kind: int) -> Any:
    """The compiled walk over tasks for DOUBLE, SINGLE or INTEGER."""
    number, width, step = _NAMES[kind], WIDTHS[kind], 2 if kind == INTEGER else 1

    def work(first, last, job, bounds, out, left):
        """Tasks first … last, each a block of outputs through all of k; left[task] is 1 where the general kernel must."""
        down, right = -(-job.m // job.rows), -(-job.n // job.columns)
        high, pitch = -(-job.rows // ROWS) * ROWS, -(-job.columns // width) * width
        deep = _CHUNK // step
        a, b = zeros(high * deep, number), zeros(pitch * deep, number)
        c = zeros(high * pitch, number)
        total = zeros(high * pitch if job.sum else 0, np.float64)
        for task in range(first, last):
            t, i0, j0 = task // (down * right), task // right % down * job.rows, task % right * job.columns
            rows, columns = min(job.rows, job.m - i0), min(job.columns, job.n - j0)
            c[:], total[:] = 0, 0.0
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
                for k0 in range(bounds[segment], bounds[segment + 1], _CHUNK):
                    depth = min(_CHUNK, bounds[segment + 1] - k0)
                    origin = job.a + t * job.a_batch + i0 * job.a_row + k0 * job.a_k
                    pack_lines(kind, job, origin, job.a_item, job.a_row, job.a_k, rows, depth, deep, 1, a, 0)
                    pack_panels(kind, job, t, j0, columns, width, k0, depth, b, deep)
                    for j in range(0, columns, width):
                        for i in range(0, rows, ROWS):
                            library_tile(
                                kind, a, b, c, (i * deep, j * deep, i * pitch + j, deep, pitch, -(-depth // step), job.mode)
                            )
                if job.sum:
                    for at in range(rows * pitch):
                        total[at] = sum_rounded(job, total[at] + np.float64(c[at]))
                        c[at] = 0
            left[task] = job.mode != ops.NEAREST and has_overflowed() != 0
            for i in range(rows):
                for j in range(columns):
                    x = np.float64(c[i * pitch + j])
                    if job.sum:
                        x = total[i * pitch + j]
                        if job.c and not job.c_first:
                            x = sum_rounded(job, x + c_value(kind, job, t, i0 + i, j0 + j))
                    out[(t * job.m + i0 + i) * job.n + j0 + j] = code_of_result(kind, job, x)

    return kernel(variant(kind)(work))


def _tasks(batch: int, m: int, n: int, threads: int) -> tuple[int, int]:
    """Rows and columns of a task, halved until every thread has some."""
    rows, columns = min(m, _ROWS), min(n, _COLUMNS)
    while threads > 1 and batch * -(-m // rows) * -(-n // columns) < 2 * threads and (rows > 16 or columns > 64):
        if columns <= 64 or (rows > 16 and 2 * rows >= columns):
            rows = -(-rows // 8) * 4
        else:
            columns = -(-columns // 128) * 64
    return rows, columns


def _job(problem: Problem, kind: int, threads: int) -> LibraryJob:
    a, b, c = problem.a.codes, problem.b.codes, problem.c
    batch, m, n, k = problem.shape
    rows, columns = _tasks(batch, m, n, threads)
    address = 0 if c is None else c.__array_interface__["data"][0]
    sums = 0 if kind == INTEGER else problem.plan.sum_bits
    at, ai, ak = a.strides
    bt, bk, bj = b.strides
    ct, ci, cj = (0, 0, 0) if c is None else c.strides
    mode = ops.NEAREST if kind == INTEGER else processor_mode(problem.unit.rounding)
    assert mode is not None
    nan = (problem.unit.nan ^ 1 << 63) - (1 << 63)  # as a signed integer
    return LibraryJob(
        m, n, k, rows, columns, a.__array_interface__["data"][0], at, ai, ak, a.itemsize,
        b.__array_interface__["data"][0], bt, bk, bj, b.itemsize, address, ct, ci, cj,
        sums, int(problem.plan.c_first), nan, int(problem.unit.zero_sign == "ieee"),
        mode,
    )  # fmt: skip


def multiply_library(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write the codes of a supported problem into `out`, C-contiguous (batch, m, n)."""
    kind = INTEGER if problem.unit.arithmetic == "integer" else KINDS[problem.unit.out_format.name]
    job = _job(problem, kind, threads or default_threads())
    tasks = problem.shape[0] * -(-job.m // job.rows) * -(-job.n // job.columns)
    bounds = np.array([0, job.k]) if kind == INTEGER else np.ascontiguousarray(problem.plan.bounds, dtype=np.int64)
    left = np.zeros(tasks, dtype=np.int64)
    run_tasks(library_driver(kind), tasks, threads, job, bounds, out.reshape(-1), left)
    down, right = -(-job.m // job.rows), -(-job.n // job.columns)
    for task in np.flatnonzero(left).tolist():
        t, i, j = task // (down * right), task // right % down * job.rows, task % right * job.columns
        general.run_part(problem, out, t, i, min(i + job.rows, job.m), j, min(j + job.columns, job.n))
