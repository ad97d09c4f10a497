"""The driver of flat problems: which they are, tasks of many columns, k in short runs that read b line by line (`thin`)."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from tcsim.codegen.directed import has_rounded_conversions
from tcsim.codegen.jit import inline_ir, kernel_uncounted, no_refcount, variant
from tcsim.codegen.scalar_ops import use_rounding
from tcsim.codegen.scratch import address_of, release, room, zeros
from tcsim.codegen.vector_memory import bits_of_float, double_of_bits, peek8, peek16, peek32, peek64, poke8, poke16, poke32
from tcsim.codegen.vector_ops import LANES, NEAREST
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast.chunk import chunk_end
from tcsim.kernels.fast.contiguous import make_contiguous
from tcsim.kernels.fast.exact import FE_INEXACT, forget_invalid, was_invalid
from tcsim.kernels.fast.folded import GROUP
from tcsim.kernels.fast.job import NO_SUM, FastJob, job_of
from tcsim.kernels.fast.pack import ALONE, WORD_ZERO, unpack_rows
from tcsim.kernels.fast.packing import packing_of
from tcsim.kernels.fast.record import A_OFFSET, FastPlan
from tcsim.kernels.fast.results import held_rounding, start, store
from tcsim.kernels.fast.round import AWAY, HALF, INTEGER, MASKED, NATIVE, ODD, Par
from tcsim.kernels.fast.scales import FAR, shifts
from tcsim.kernels.fast.sums import FOLD, sum_up, sums_address
from tcsim.kernels.fast.thin import BRAIN, BYTES, FLOATS, HALVES, copy_lines, widen_codes8
from tcsim.kernels.fast.thin_scaled import exact_in_float64
from tcsim.kernels.fast.thin_walk import call_row, thin_row_of
from tcsim.kernels.fast.tile import CARRY, FOLDED, NO_SCALES, PANEL, PLAIN, SHIFTED, WIDE
from tcsim.kernels.fast.turn import square, turn_square
from tcsim.tasks import run_tasks

MOST_ROWS = 4  # from here on packing is paid for
LEAST = 1 << 16  # elements of b from which on another kernel is worth its compiling
# Of a task: accumulators, packed a, and lines of b (32 where nothing is said) that stay in the first cache.
_COLUMNS, _CHUNK, _RUN = 4096, 4096, {BYTES: 64, FLOATS: 16}
# Where the first cache has room for eight lines of b so many bytes apart, columns of more are copied first. With AVX-512 it had twelve.
_COPIED, _APART, _WAYS = 128, 2048, 8
_KINDS = (NATIVE, MASKED, AWAY, HALF, INTEGER, ODD)
_SHIFT = {BRAIN: 7, FLOATS: 23}


class Thin(NamedTuple):
    """How a row's exponents and b's codes meet."""

    least: int  # the code of b's least normal number, in place
    rebase: int  # a sum of fields to e + 127
    offset: int  # the code of a's exponent to what is added to b's field
    shift: int
    factor: float  # by which a makes up for b's bias
    left: int  # bytes to float16's fields: shifted left, right with the sign, masked
    right: int
    kept: int
    magnitude: int  # of a byte
    largest: int


@lru_cache(maxsize=256)
def thin_form(a: Format, b: Format, stored: Format) -> tuple[int, Thin] | None:
    """How codes of `stored`, numbers of b's format, are read beside those of a row of a's; None where they are not.

    Sums of fields fit the codes: with 8 bits of exponent each up to 508 where 9 bits are, with 5 up to 63 where 6 are.
    """
    ieee = stored.infinities and stored.nan == "ieee" and stored.signed and stored.zero
    if ieee and (stored.exponent_bits, stored.bias) in ((8, 127), (11, 1023)):
        form = BRAIN if stored.width == 16 else FLOATS if stored.width in (32, 64) else None
        if form is None or (form == BRAIN and stored.mantissa_bits != 7):
            return None
        shift = _SHIFT[form]
        return form, Thin((b.emin + 127) << shift, -127, 127 - A_OFFSET, shift, 1.0, 0, 0, 0, 0, 0)
    byte = stored.width <= 8 and stored.nan != "negative-zero"
    if not stored.signed or not stored.zero or stored.integer or stored.padding or stored.exponent_bits > 5:
        return None
    if not (byte or (ieee and stored.width == 16 and stored.mantissa_bits == 10)) or stored.emin != b.emin:
        return None
    largest, up = stored.max_code << (10 - stored.mantissa_bits), 1 - a.emin
    if largest >= 0x7C00 or a.emax + up + (largest >> 10) > 63 or abs(15 - stored.bias) > 40:
        return None
    right = 6 + stored.mantissa_bits - stored.width if byte else 0
    kept = 0x8000 | (0x7FFF >> right)
    return BYTES if byte else HALVES, Thin(1 << 10, 127 - up - stored.bias, up - A_OFFSET, 10, 2.0 ** (15 - stored.bias), 16 - stored.width, right, kept,
                        (1 << (stored.width - 1)) - 1, stored.max_code)  # fmt: skip


def is_flat(unit: Unit, how: FastPlan, m: int, n: int, size: int) -> bool:
    """Whether there are few rows and many columns, `size` elements of b in all, and a plan that `thin` or `thin_scaled` knows."""
    scaled = (
        how.scaling == NO_SCALES
        or (how.scaling == SHIFTED and not how.words)
        or (how.scaling == FOLDED and exact_in_float64(unit))
    )
    known = how.kind in _KINDS and how.width in (PLAIN, CARRY, WIDE) and scaled and not how.late
    panels, rest = divmod(n, PANEL)  # one that is not full is gathered, and takes as long as one that is
    wide = panels >= ((3 * m + 1) // 2 if rest else (m + 1) // 2)
    return FE_INEXACT != 0 and known and m <= MOST_ROWS and wide and size >= LEAST


@inline_ir
def pack_rows(job, how, arrays, spare, t, i0, rows, k0, depth, line, ea, mask):
    """Rows of a: values times how.factor, exponents and masks as `thin_row` reads them."""
    origin = job.a + t * job.a_batch + i0 * job.a_row + k0 * job.a_k
    source, row_step = make_contiguous(job.packing, spare, job.a_item, origin, job.a_row, rows, job.a_k, depth)
    unpack_rows(
        job.packing, ALONE, arrays, min(job.a_item, 4), np.int64(0), np.int64(0), (source, depth, row_step, rows, line, line)
    )
    full = np.int64((1 << 31) - 1) if how.shift == 23 else np.int64(0x7FFF7FFF)
    for i in range(rows):
        for at in range(i * line, i * line + depth):
            code = np.int64(np.int16(arrays[1][2 * at]))
            field = (code + how.offset) << how.shift
            some = code != WORD_ZERO
            ea[at] = np.uint32((field if how.shift == 23 else field | field << 16) if some else 0)
            mask[at] = np.uint32(full if some else 0)
            arrays[0][at] *= np.float32(how.factor)


@no_refcount
def look_up_lines(address, line, along, lines, width, first, depth, scale_block, table, found, line_to, entry_to):
    """Patterns of the scales of several lines, one for each `width` products from `first` on; the largest of all.

    Line by line they are found[i * line_to + entry * entry_to].
    """
    most = np.int64(0)
    for entry in range(-(-depth // width)):
        source = address + (first + entry * width) // scale_block * along
        for i in range(lines):
            pattern = table[peek8(source + i * line)]
            found[i * line_to + entry * entry_to] = pattern
            most = max(most, pattern)
    return most


@inline_ir
def turn_panel(size, side, target, source, depth, b_k, b_column):
    """64 columns that lie along k as lines of 64; the lines that fill no square are left, and their number told."""
    whole = depth // side * side
    for k in range(0, whole, side):
        for j in range(0, PANEL, side):
            to, start = target + (k * PANEL + j) * size, source + k * b_k + j * b_column
            turn_square(size, (to, np.int64(PANEL * size), start, b_column))
    return whole


@inline_ir
def gather_panel(job, target, source, count, depth, to, size):
    """Codes in any layout as lines of 64, zeros beside them, from line `to` on."""
    for k in range(to, depth):
        line, start = target + k * PANEL * size, source + k * job.b_k
        if size == 4:
            for j in range(PANEL):
                poke32(line + 4 * j, np.int64(0))
            for j in range(count):
                address = start + j * job.b_column
                if job.b_item == 4:
                    poke32(line + 4 * j, peek32(address))
                else:
                    poke32(line + 4 * j, np.int64(bits_of_float(np.float32(double_of_bits(peek64(address))))))
        elif size == 2:
            for j in range(PANEL):
                poke16(line + 2 * j, peek16(start + j * job.b_column) if j < count else np.int64(0))
        else:
            for j in range(PANEL):
                poke8(line + j, peek8(start + j * job.b_column) if j < count else np.int64(0))


@cache
def thin_driver(form: int, half: int, scaling: int) -> Any:
    """The compiled driver of rows (`thin_row_of`) for a form of b's codes, a size of results, and a use of scales."""
    size, item = {BYTES: 1, FLOATS: 4}.get(form, 2), 4 if form == FLOATS else 2
    bytes_, side, scaled, meets = form == BYTES, square(size), scaling != NO_SCALES, not has_rounded_conversions()

    def work(first, last, walk, sums, given, how, par, numbers_a, bounds, table, out, left, special):
        """Tasks first … last; special[task] is set where an operand is infinite or NaN, and nothing is written then."""
        job = job_of(given)
        right, pitch = -(-job.n // job.columns), -(-min(job.columns, job.n) // PANEL) * PANEL
        line, report = -(-job.chunk // LANES) * LANES, zeros(1, np.int64)
        a = (room(job.m * line, np.float32), room(2 * job.m * line, np.uint16), numbers_a, report)
        ea, mask = room(job.m * line, np.uint32), room(job.m * line, np.uint32)
        spare = zeros(job.m * job.chunk * min(job.a_item, 4) + LANES, np.uint8)
        narrow, panel = zeros(PANEL * job.sub if bytes_ else 0, np.uint8), zeros(_COPIED * job.sub * item, np.uint8)
        c, bad = zeros(job.m * pitch, np.float32), zeros(job.m * pitch, np.uint8)
        total = zeros(job.m * pitch if sums else 0, np.float64)
        entries = -(-job.chunk // job.scale_width) if scaled else np.int64(0)
        sa, sb = zeros(job.m * entries, np.int32), zeros(pitch * -(-job.sub // job.scale_width) if scaled else 0, np.int32)
        groups = room(PANEL * -(-job.block // GROUP) if scaling == FOLDED else 0, np.float32)
        row_marks, column_marks = zeros(job.m, np.int64), zeros(pitch, np.int64)
        kept = c, total, bad, row_marks, column_marks
        i0, rows = np.int64(0), np.int64(job.m)
        place, first_place = address_of(panel), address_of(narrow if bytes_ else panel)
        packed_t, packed_k, special_row = np.int64(-1), np.int64(-1), np.int64(0)
        mode = par[Par.MODE]
        held = held_rounding(mode, sums)
        use_rounding(held)
        for task in range(first, last):
            t, j0 = task // right, task % right * job.columns
            columns = min(job.columns, job.n - j0)
            where = task, t, i0, rows, j0, columns, pitch
            start(half, sums, job, given, where, kept, out, left)
            segment, k0, k, k1 = 0, np.int64(0), np.int64(0), np.int64(0)
            report[0] = 0
            forget_invalid()
            whole = columns // PANEL * PANEL if job.b_item == job.b_column == item == size else np.int64(0)
            while k < job.k and report[0] == 0:
                if k == k1:
                    k0, k1 = k, chunk_end(job, bounds, segment, k)
                    if packed_t != t or packed_k != k0:
                        pack_rows(job, how, a, spare, t, i0, rows, k0, k1 - k0, line, ea, mask)
                        if scaled:
                            scales = job.scale_a + t * job.scale_a_batch + i0 * job.scale_a_row
                            most = look_up_lines(scales, job.scale_a_row, job.scale_a_k, rows, job.scale_width, k0, k1 - k0, job.scale_block, table,
                                                 sa, entries, 1)  # fmt: skip
                            report[0] |= np.int64(most >= FAR)
                            if scaling == SHIFTED:
                                shifts(sa, sa)
                        packed_t, packed_k, special_row = t, k0, report[0]
                    report[0] |= special_row
                stop = min(bounds[segment + 1], k1)
                if mode != held:
                    use_rounding(mode)
                for p in range(k - k0, stop - k0, job.sub):
                    depth = min(job.sub, stop - k0 - p)
                    if scaled:
                        scales = job.scale_b + t * job.scale_b_batch + j0 * job.scale_b_column
                        most = look_up_lines(scales, job.scale_b_column, job.scale_b_k, columns, job.scale_width, k0 + p, depth, job.scale_block, table,
                                             sb, 1, pitch)  # fmt: skip
                        report[0] |= np.int64(most >= FAR)
                        if scaling == SHIFTED:
                            shifts(sb, sb)
                    source = job.b + t * job.b_batch + (k0 + p) * job.b_k + j0 * job.b_column
                    j, count, at, step = np.int64(0), whole, source, job.b_k
                    while j < columns:
                        if j >= whole:
                            count, at = min(np.int64(PANEL), columns - j), source + j * job.b_column
                            step, done = job.b_k, np.int64(0)
                            if count < PANEL or job.b_item != size or job.b_column != size:
                                if count == PANEL and job.b_item == job.b_k == size:
                                    done = turn_panel(size, side, first_place, at, depth, job.b_k, job.b_column)
                                gather_panel(job, first_place, at, count, depth, done, size)
                                at, step = first_place, np.int64(PANEL * size)
                            if bytes_:
                                widen_codes8(report, (place, at, step, depth, np.int64(PANEL), how.left, how.right, how.kept,
                                                      how.magnitude, how.largest))  # fmt: skip
                                at, step = place, np.int64(PANEL * item)
                            count = np.int64(PANEL)
                        elif meets and job.block > _WAYS and job.b_k % _APART == 0:
                            count = min(np.int64(_COPIED), whole - j)
                            copy_lines((place, source + j * item, job.b_k, depth, count * item))
                            at, step = place, count * item
                        for i in range(rows):
                            call_row(walk, (a[0], ea, mask, c, bad, sa, sb, groups, par),
                                     (i * line + p, i * pitch + j, i * entries + p // job.scale_width, j, at, step, count, depth, how.least, how.rebase,
                                      pitch, job.scale_least))  # fmt: skip
                        j += count
                if mode != held:
                    use_rounding(held)
                k = stop
                if stop == bounds[segment + 1]:
                    segment += 1
                    if sums:
                        report[0] |= was_invalid()
                        sum_up(sums, FOLD, given, where, kept, out, left)
                        forget_invalid()
            special[task] = report[0] | was_invalid()
            if special[task] == 0:
                store(half, sums, job, given, where, kept, out, left)
        use_rounding(np.int64(NEAREST))
        release((*a[:2], report, ea, mask, spare, narrow, panel, c, bad, total, sa, sb, groups, row_marks, column_marks))

    return kernel_uncounted(variant(form, half, scaling)(work))


def flat_job(form: int, job: FastJob, batch: int, threads: int) -> FastJob:
    """The job in tasks of all rows and many columns."""
    share = -(-batch * job.n // (threads * PANEL)) * PANEL
    along = job.b_column == min(job.b_item, 4)  # else a task has few columns: each lies in lines of its own
    columns = max(min(share, -(-job.n // PANEL) * PANEL, _COLUMNS if along else PANEL), PANEL)
    chunk = max(min(_CHUNK, -(-job.k // job.block) * job.block) // job.block, 1) * job.block
    packing = packing_of((job.a_item,), 16, ALONE)
    return job._replace(
        rows=job.m, columns=columns, chunk=chunk, packing=packing, sub=max(_RUN.get(form, 32) // job.block, 1) * job.block
    )


def multiply_flat(
    how: FastPlan,
    form: int,
    thin: Thin,
    job: FastJob,
    row: np.ndarray[Any, Any],
    par: Any,
    bounds: Any,
    table: Any,
    shared: tuple[int, int],
    out: Any,
) -> Any:
    """Write a flat problem's codes; how many outputs of each task are left as `unresolved`, or None where operands were special.

    row: the Decoding of a, with wide codes; table: of scales; shared: how many threads do it, in how many runs of tasks.
    """
    tasks = out.shape[0] * -(-job.n // job.columns)
    left, special = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64)
    walk, work = (
        thin_row_of(form, how.kind, how.width, int(how.words), job.half, how.scaling),
        thin_driver(form, job.half, how.scaling),
    )
    sums = 0 if job.sum == NO_SUM else sums_address()
    given = (walk, sums, job.numbers(), thin, par, row, bounds, table, out.reshape(-1), left, special)
    run_tasks(work, tasks, shared[0], *given, runs=shared[1])
    return None if special.any() else left
