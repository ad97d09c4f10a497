"""Exact alignment at speed: a block's products and c added in float64, and proof for every tile that nothing was lost.

Where a unit aligns exactly, a block is the exact sum of L products and c, rounded once. Products of up to 24 bits are
exact in float64, and so is most often their sum. A tile of 2 or 4 rows x 16 columns x 64 products is tried in three ways:

1. A chain of fused multiply-adds. The processor's inexact flag tells whether any of them rounded; rounding a block to
   the output is done on the bit pattern (add below the last kept place, cut), so that it does not raise the flag.
2. If it was raised: the same with errors. TwoSum (Knuth) gives s + p = s' + e exactly; the e are added likewise, and what
   *that* loses must be zero. s + e is then cut to a float64 whose last bit is odd if anything follows, which rounds to 24
   bits as the exact sum does.
3. If even that fails, the outputs are marked in `bad` and computed elsewhere.
"""

from __future__ import annotations

import platform
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.directed import vectors_held
from tcsim.codegen.jit import kernel_uncounted, no_refcount, variant
from tcsim.codegen.parts import addresses, emit_address, emit_call, emit_given
from tcsim.codegen.scratch import clear_all, release, zeros
from tcsim.codegen.vector_ops import F32, F64, I32, I64, LANES, Emitted, Variable
from tcsim.fp.modes import masks
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast.chunk import chunk_end, mark_specials, spare_bytes
from tcsim.kernels.fast.contiguous import make_contiguous
from tcsim.kernels.fast.job import job_of
from tcsim.kernels.fast.pack import VALUES, unpack_rows
from tcsim.kernels.fast.random import VectorDraws
from tcsim.kernels.fast.results import start, store
from tcsim.kernels.fast.sums import FOLD, sum_up
from tcsim.kernels.fast.tile import elements

FE_INEXACT = {"x86_64": 0x20, "AMD64": 0x20, "aarch64": 0x10, "arm64": 0x10}.get(platform.machine(), 0)
FE_INVALID = 0x01  # of all of them
ROWS = 4 if vectors_held() > 8 else 2  # of a tile: its sums fill a quarter of AVX-512's registers, half of others'
HALF = 8  # lanes of float64
NEAREST, RANDOM = 0, 1


class ExactPar(IntEnum):
    """The numbers of a unit that an exact tile reads, by place in an int64 array."""

    BLOCK = 0
    DROP = 1  # significand bits of a float64 that the output does not keep
    BASE = 2  # what is added below them: 0, half, or half - 1
    EVEN = 3  # 1: ties to even
    HIGH = 4  # patterns from here on do not fit
    LOW = 5  # nonzero patterns below this do not fit
    SEED = 6


def exact_par(unit: Unit) -> np.ndarray[Any, Any]:
    """The numbers of a unit that `plan.EXACT_SUMS` takes."""
    drop = 53 - unit.kept_bits
    half, how = 1 << (drop - 1), masks(unit.rounding)
    base = half - 1 + how.away if how.near else 0
    numbers = [unit.block_size, drop, base, how.even, (1023 + 128) << 52, (1023 - 126) << 52, 0]
    return np.array(numbers, dtype=np.int64)


class _Exact:
    """Emits one tile: rows of 16 accumulators in two halves of 8 lanes."""

    def __init__(self, b: ir.IRBuilder, kind: int, ranged: bool, careful: bool, arg: dict[str, Any]) -> None:
        self.b, self.kind, self.ranged, self.careful, self.arg = b, kind, ranged, careful, arg
        self.par = [ops.emit_load(b, arg["par"], p) for p in range(len(ExactPar))]
        self.lost = Variable(b, self.full(0))
        self.out_of_range = Variable(b, self.full(0))

    def full(self, value: int) -> Emitted:
        return ops.constant(self.b, ir.VectorType(I64, HALF), value)

    def sums(self, c: list[Emitted], k: Emitted, stop: Emitted, lda: Emitted) -> list[Emitted]:
        """Patterns of c plus products k … stop, for the half vectors; `lost` where that could not be exact."""
        total = [Variable(self.b, x) for x in c]
        error = [Variable(self.b, x * 0.0) for x in c] if self.careful else []

        def add(k: Emitted) -> None:
            right = [ops.emit_load(self.b, self.arg["bm"], k * LANES + h * HALF, HALF) for h in (0, 1)]
            for r in range(ROWS):
                left = ops.emit_load(self.b, self.arg["a"], k + lda * r).spread(HALF)
                for h in (0, 1):
                    i = 2 * r + h
                    if not self.careful:
                        total[i].set(left.call("fma", right[h], total[i].get()))
                        continue
                    s, e = two_sum(total[i].get(), left * right[h])
                    e, rest = two_sum(error[i].get(), e)
                    total[i].set(s)
                    error[i].set(e)
                    self.lost.set(self.lost.get() | (rest.bits_as(I64) << 1))

        ops.each(self.b, k, stop, add, unroll=4 if not self.careful else 1)
        if not self.careful:
            return [x.get().bits_as(I64) for x in total]
        return [self.to_odd(x.get(), e.get()) for x, e in zip(total, error, strict=True)]

    def to_odd(self, total: Emitted, error: Emitted) -> Emitted:
        """The pattern of total + error cut to 53 bits, odd if anything was cut."""
        high, low = two_sum(total, error)
        none = (error.bits_as(I64) << 1).compare("==", 0)  # then the sign of a zero total counts
        pattern, rest = none.where(total.bits_as(I64), high.bits_as(I64)), low.bits_as(I64)
        cut = (rest << 1).compare("!=", 0)
        if self.kind == RANDOM:  # a random word compares with more bits than these
            self.lost.set(self.lost.get() | (rest << 1))
        opposite = (pattern ^ rest) >> 63
        return cut.where((pattern - opposite) | 1, pattern)

    def rounded(self, pattern: Emitted, random: Emitted | None) -> Emitted:
        """Patterns rounded to the kept bits; -0 and a change of binade come out right by themselves."""
        drop = self.par[ExactPar.DROP].spread(HALF)
        if random is None:
            more = ((pattern >> drop) & self.par[ExactPar.EVEN]) + self.par[ExactPar.BASE].spread(HALF)
        else:
            word = random.cast(I64, "zext") << 31
            more = word >> (self.full(63) - drop)
        result = ((pattern + more) >> drop) << drop
        if not self.ranged:
            return result
        magnitude = result & ((1 << 63) - 1)
        low, high = self.par[ExactPar.LOW], self.par[ExactPar.HIGH]
        bad = (magnitude - 1).compare("u<", low.spread(HALF) - 1)
        bad = Emitted(self.b, self.b.or_(self.b.and_(bad.v, magnitude.compare("!=", 0).v), magnitude.compare("u>=", high).v))
        self.out_of_range.set(self.out_of_range.get() | bad.cast(I64, "sext"))
        return result


def two_sum(x: Emitted, y: Emitted) -> tuple[Emitted, Emitted]:
    """s = fl(x + y) and e with s + e = x + y exactly."""
    s = x + y
    z = s - x
    return s, (x - (s - z)) + (y - z)


def _tile(b: ir.IRBuilder, kind: int, ranged: bool, careful: bool, **arg: Any) -> None:
    """One tile: reads c, writes the accumulators to `to`; report[0] is 0 where every bit is right."""
    v = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    tile = _Exact(b, kind, ranged, careful, arg)
    draws = (
        VectorDraws(b, tile.par[ExactPar.SEED], [elements(b, v["row"] + r, 0, v) for r in range(ROWS)])
        if kind == RANDOM
        else None
    )
    places = [((v["row"] + r) * v["ldc"] + h * HALF) for r in range(ROWS) for h in (0, 1)]
    c = [Variable(b, ops.emit_load(b, arg["c"], place, HALF).cast(F64, "fpext")) for place in places]
    step = Variable(b, v["step"])
    with ops.loop(b, v["depth"], tile.par[ExactPar.BLOCK]) as k:
        stop = (k + tile.par[ExactPar.BLOCK]).call("smin", v["depth"])
        total = tile.sums([x.get() for x in c], k, stop, v["lda"])
        words = draws.words(step.get()) if draws else []
        for i, x in enumerate(c):
            half = list(range(i % 2 * HALF, i % 2 * HALF + HALF))
            random = words[i // 2].lanes(half) if words else None
            x.set(tile.rounded(total[i], random).bits_as(F64))
        step.set(step.get() + 1)
    for i, x in enumerate(c):
        ops.emit_store(b, x.get().cast(F32, "fptrunc"), arg["to"], Emitted(b, I64(i * HALF)))
    flaw = (tile.lost.get() | tile.out_of_range.get()).compare("!=", 0).any()
    ops.emit_store(b, flaw.cast(I64, "zext"), arg["report"], 0)


_POINTERS = {"a": F64, "bm": F64, "c": F32, "to": F32, "report": I64, "par": I64}
_NUMBERS = ("lda", "ldc", "row", "depth", "element", "row_step", "column_step", "step")


_ARGUMENTS = {name: kind.as_pointer() for name, kind in _POINTERS.items()} | dict.fromkeys(_NUMBERS, I64)


@intrinsic(prefer_literal=True)
def exact_address(typingctx, kind, ranged, careful):
    """The address of a tile; all numbers are literal."""
    chosen = (kind.literal_value, bool(ranged.literal_value), bool(careful.literal_value))

    def body(b: ir.IRBuilder, **arg: Any) -> None:
        _tile(b, *chosen, **arg)

    def codegen(context, builder, signature, args):
        return emit_address(builder, "tcsim_exact_" + "_".join(str(int(x)) for x in chosen), _ARGUMENTS, body)

    return types.int64(kind, ranged, careful), codegen


@cache
def exact_tiles_of(kind: int, ranged: int) -> tuple[int, ...]:
    """Addresses of the quick and the careful tile of a kind of rounding."""

    def tiles(careful):
        """The address of a tile of `ROWS` x 16 outputs."""
        return exact_address(kind, ranged, 1) if careful else exact_address(kind, ranged, 0)

    return addresses(kernel_uncounted(variant(kind, ranged)(tiles)), 0, 1)


@intrinsic
def call_tile(typingctx, address, arrays, numbers):
    """One tile of `ROWS` x 16 outputs; arrays: (a, b, c, to, report, par); numbers: places in a, b and c, then _NUMBERS."""

    def codegen(context, builder, signature, args):
        pointers, values = emit_given(context, builder, signature, args)
        moved = [builder.gep(p, [offset]) for p, offset in zip(pointers[:3], values[:3], strict=True)]
        emit_call(builder, args[0], _ARGUMENTS, [*moved, *pointers[3:], *values[3:]])
        return context.get_dummy_value()

    return types.void(types.int64, arrays, numbers), codegen


def _flag(name: str, flag: int = FE_INEXACT):
    @intrinsic
    def call(typingctx):
        def codegen(context, builder, signature, args):
            function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, [I32]), name)
            return builder.call(function, [I32(flag)])

        return types.int32(), codegen

    return call


was_inexact, forget_inexact = _flag("fetestexcept"), _flag("feclearexcept")
was_invalid, forget_invalid = _flag("fetestexcept", FE_INVALID), _flag("feclearexcept", FE_INVALID)


@no_refcount
def widen_codes(source, target, count):
    for i in range(count):
        target[i] = np.float64(source[i])


@no_refcount
def pack_exact_a(job, t, i0, rows, k0, depth, arrays, spare, double, marks):
    """Rows of a chunk of a in float64; rows with specials are marked."""
    origin, zero, one = job.a + t * job.a_batch + i0 * job.a_row + k0 * job.a_k, np.int64(0), np.int64(1)
    arrays[3][0] = 0
    for i in range(rows):
        source, _ = make_contiguous(job.packing, spare, job.a_item, origin + i * job.a_row, job.a_row, one, job.a_k, depth)
        unpack_rows(job.packing, VALUES, arrays, min(job.a_item, 4), zero, zero, (source, depth, zero, one, zero, zero))
        widen_codes(arrays[0], double[i * job.chunk :], depth)
    if arrays[3][0]:
        mark_specials(job, arrays, spare, job.a_item, origin, job.a_row, rows, job.a_k, depth, marks, 1)


@no_refcount
def pack_exact_b(job, t, j0, columns, k0, depth, arrays, spare, double, marks):
    """Columns of a chunk of b in float64, in panels of 16; columns with specials are marked."""
    origin, lanes = job.b + t * job.b_batch + k0 * job.b_k + j0 * job.b_column, np.int64(LANES)
    arrays[3][0] = 0
    for j in range(0, columns, LANES):
        count = min(lanes, columns - j)
        source, row_step = make_contiguous(
            job.packing, spare, job.b_item, origin + j * job.b_column, job.b_k, depth, job.b_column, count
        )
        unpack_rows(job.packing, VALUES, arrays, min(job.b_item, 4), 0, 0, (source, count, row_step, depth, lanes, np.int64(0)))
        widen_codes(arrays[0], double[j * job.chunk :], depth * LANES)
    if arrays[3][0]:
        mark_specials(job, arrays, spare, job.b_item, origin, job.b_column, columns, job.b_k, depth, marks, 1)


@no_refcount
def keep(c, bad, to, at, pitch, good):
    """Put a tile's accumulators in their place, or mark its outputs."""
    for r in range(ROWS):
        if good:
            for lane in range(LANES):
                c[at + r * pitch + lane] = to[r * LANES + lane]
        else:
            bad[at + r * pitch : at + r * pitch + LANES] = 1


@kernel_uncounted
def run_exact(first, last, quick, careful, sums, given, par, numbers_a, numbers_b, bounds, out, left):
    """Tasks first … last of exact tiles: the walk of `drive`, tiles at two addresses, sums at a third, or none; left[task] counts outputs written as `unresolved`."""
    job = job_of(given)
    down, right = -(-job.m // job.rows), -(-job.n // job.columns)
    high = -(-min(job.rows, job.m) // ROWS) * ROWS
    pitch = -(-min(job.columns, job.n) // LANES) * LANES
    report, flaw, to = zeros(1, np.int64), zeros(1, np.int64), zeros(ROWS * LANES, np.float32)
    single = (zeros(LANES * (job.chunk + LANES), np.float32), zeros(4 * (job.chunk + LANES), np.uint8))
    spare = spare_bytes(job)
    a, b = zeros(high * job.chunk, np.float64), zeros(pitch * job.chunk, np.float64)
    c, bad = zeros(high * pitch, np.float32), zeros(high * pitch, np.uint8)
    total = zeros(high * pitch if sums else 0, np.float64)
    row_marks, column_marks = zeros(high, np.int64), zeros(pitch, np.int64)
    kept = c, total, bad, row_marks, column_marks
    forget_inexact()
    for task in range(first, last):
        t, i0, j0 = task // (down * right), task // right % down * job.rows, task % right * job.columns
        rows, columns = min(job.rows, job.m - i0), min(job.columns, job.n - j0)
        where = task, t, i0, rows, j0, columns, pitch
        start(0, sums, job, given, where, kept, out, left)
        clear_all(row_marks)
        clear_all(column_marks)
        clear_all(a)
        element = t * job.out_batch + i0 * job.out_row + j0 * job.out_column
        segment, k0, k, k1, step = 0, np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        while k < job.k:
            if k == k1:
                k0, k1 = k, chunk_end(job, bounds, segment, k)
                pack_exact_a(job, t, i0, rows, k0, k1 - k0, (*single, numbers_a, report), spare, a, row_marks)
                pack_exact_b(job, t, j0, columns, k0, k1 - k0, (*single, numbers_b, report), spare, b, column_marks)
                forget_inexact()
            stop = min(bounds[segment + 1], k1)
            for j in range(0, columns, LANES):
                for p in range(k - k0, stop - k0, job.sub):
                    now = step + (p + k0 - k) // job.block
                    for i in range(0, rows, ROWS):
                        numbers = (i * job.chunk + p, j * job.chunk + p * LANES, np.int64(j), job.chunk, pitch, np.int64(i),
                                   min(job.sub, stop - k0 - p), element + j * job.out_column, job.out_row, job.out_column,
                                   now)  # fmt: skip
                        call_tile(quick, (a, b, c, to, flaw, par), numbers)
                        if was_inexact():
                            call_tile(careful, (a, b, c, to, flaw, par), numbers)
                            forget_inexact()
                        keep(c, bad, to, j + i * pitch, pitch, flaw[0] == 0)
            step += -(-(stop - k) // job.block)
            k = stop
            if stop == bounds[segment + 1]:
                segment += 1
                if sums:
                    sum_up(sums, FOLD, given, where, kept, out, left)
                    forget_inexact()
        store(0, sums, job, given, where, kept, out, left)
        forget_inexact()
    release((report, flaw, to, *single, spare, a, b, c, bad, total, row_marks, column_marks))
