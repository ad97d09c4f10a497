"""Packing: a chunk of k decoded into significands and exponents, in the order in which the unit takes its products."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.codegen.jit import inline, inline_ir, noalias, routine
from tcsim.codegen.memory import at, load_code, load_codes, load_entries
from tcsim.codegen.scalar_ops import wide_vectors
from tcsim.codegen.scratch import release, room, zeros_table
from tcsim.kernels.general.numbers import FINITE, NAN, ZERO_E, decode_number
from tcsim.kernels.general.tables import number_of, read_entries

# What happens around a block, as bits.
SEGMENT_START, INSTRUCTION_START, INSTRUCTION_END, SEGMENT_END = 1, 2, 4, 8


# What a block's operands hold, as bits.
HAS_ZERO, HAS_SPECIAL = 1, 2

# Lines of operands, as sides.
ROWS_OF_A, COLUMNS_OF_B, COLUMNS_OF_A = 0, 1, 2


class Panel(NamedTuple):
    """A chunk of a tile's rows of a and columns of b, decoded: arrays [row, position] and [position, column].

    `sa`, `sb` significands; `ea`, `eb` exponents; `ma`, `mb` special + 4·negative; `za`, `zb` what a block holds,
    [row, block] and [block, column]; for exact groups `ga`, `gb` significands and `ha`, `hb` exponents of the block scales.
    """

    sa: Any
    ea: Any
    ma: Any
    za: Any
    ga: Any
    ha: Any
    sb: Any
    eb: Any
    mb: Any
    zb: Any
    gb: Any
    hb: Any


@inline_ir
def _integers(rows, columns):
    return zeros_table(rows, columns, np.int64)


@inline_ir
def new_panel(rows, columns, capacity, scales):
    """Room, which whoever asks gives back, for `capacity` positions, `scales` of them with block scales."""
    return Panel(
        _integers(rows, capacity), _integers(rows, capacity), _integers(rows, capacity), _integers(rows, capacity),
        _integers(rows, scales), _integers(rows, scales),
        _integers(capacity, columns), _integers(capacity, columns), _integers(capacity, columns), _integers(capacity, columns),
        _integers(scales, columns), _integers(scales, columns),
    )  # fmt: skip


@routine
def plan_chunk(spec, order, bounds, start, segment, ks, starts, events):
    """Lay out whole instructions from k = start, as many as fit `ks`.

    Fills ks[p] with the k of position p, and for each block the position it starts at and its events; returns the
    counts of positions and blocks, the next k and the next segment.
    """
    positions, blocks = 0, 0
    k, capacity, last = start, ks.size, bounds.size - 1
    while segment < last and positions + min(spec.period, bounds[segment + 1] - k) <= capacity:
        stop = bounds[segment + 1]
        first_block = blocks
        for begin in range(0, spec.period, spec.block):
            starts[blocks] = positions
            for i in range(begin, begin + spec.block):
                if k + order[i] < stop:
                    ks[positions] = k + order[i]
                    positions += 1
            if positions > starts[blocks]:
                events[blocks] = 0
                blocks += 1
        events[first_block] |= INSTRUCTION_START
        events[blocks - 1] |= INSTRUCTION_END
        if k == bounds[segment]:
            events[first_block] |= SEGMENT_START
        k = min(k + spec.period, stop)
        if k == stop:
            events[blocks - 1] |= SEGMENT_END
            segment += 1
    starts[blocks] = positions
    return positions, blocks, k, segment


@inline
def block_scale(scales, t, i, j, spec):
    """(sig, e, is NaN) of a block scale; the bit above an unsigned format's width is ignored."""
    code = load_code(scales, t, i, j) & ((np.int64(1) << (spec.scale.exponent_bits + spec.scale.mantissa)) - 1)
    sig, e, _, special = decode_number(code, spec.scale, spec.scale.emin, spec.scale.mantissa + 1)
    return sig, e, special != FINITE  # scales have no infinities


@noalias
def decode_line(codes, count, stored, emin, precision, flush, fixed, sig, e, mark):
    """Significands, exponents and marks (special + 4·negative) of the first `count` codes; whether any is NaN or infinite.

    Subnormals and zeros become +0 where the unit flushes them; numbers in fixed point have the unit 2^(emin - p + 1).
    """
    wide_vectors()
    found = np.int64(0)
    for i in range(count):
        x, ex, m = number_of(codes[i], stored, emin, precision, flush)
        up = ex - emin if fixed and x != 0 else np.int64(0)
        sig[i], e[i], mark[i] = x << up, ex - up, m
        found |= m & 3
    return found != 0


@inline
def scaled(grouped, s, up, bad, sig, e, mark):
    """(sig, e, mark) of a number times its scale: 0 by one of zero, but NaN for what is not finite; NaN by one that is."""
    nothing = (s == 0) & (bad == 0)
    wrong = (bad != 0) | (nothing & (mark & 3 != FINITE))
    raised = e + (up & -np.int64((sig != 0) & (not grouped)))
    return np.int64(0) if nothing else sig, np.int64(ZERO_E) if nothing else raised, mark | (NAN & -np.int64(wrong))


@noalias
def scale_numbers(count, each, grouped, s, es, bad, sig, e, mark):
    """Numbers times their scales, or all times the first; whether any has become NaN."""
    wide_vectors()
    found = np.int64(0)
    if each:
        for j in range(count):
            sig[j], e[j], now = scaled(grouped, s[j], es[j], bad[j], sig[j], e[j], mark[j])
            found |= now ^ mark[j]
            mark[j] = now
    else:
        scale, up, wrong = s[0], es[0], bad[0]
        for j in range(count):
            sig[j], e[j], now = scaled(grouped, scale, up, wrong, sig[j], e[j], mark[j])
            found |= now ^ mark[j]
            mark[j] = now
    return found != 0


@routine
def decode_unscaled(x, t, first, lines, side, ks, positions, spec, codes, sig, e, mark):
    """`decode_lines` without scales."""
    m, known = x.codes, x.table.size != 0
    emin, precision, stored = (
        (spec.b_emin, spec.b_precision, spec.b_stored)
        if side == COLUMNS_OF_B
        else (spec.a_emin, spec.a_precision, spec.a_stored)
    )
    pitch = sig.shape[1]
    alone = side != ROWS_OF_A and pitch == 1  # one column, whose codes are decoded together as those of a row are
    columns, found = side != ROWS_OF_A and not alone, False
    outer, inner = (positions, lines) if columns else (lines, positions)
    steps = room(lines if columns else np.int64(0), np.int64)
    for j in range(steps.size):
        steps[j] = j
    for i in range(outer):
        start, step, places = m.address + t * m.batch + (first + i) * m.row, m.column, at(ks, 0)
        if alone:
            start, step = m.address + t * m.batch + first * m.column, m.row
        elif columns:
            start, places = m.address + t * m.batch + ks[i] * m.row + first * m.column, at(steps, 0)
        here = i * pitch
        line = at(sig, here), at(e, here), at(mark, here)
        if known:
            load_entries(start, step, m.width, places, inner, at(x.table, 0), at(codes, 0))
            found |= read_entries(at(codes, 0), inner, emin, spec.fixed != 0, *line)
        else:
            load_codes(start, step, m.width, places, inner, at(codes, 0))
            found |= decode_line(at(codes, 0), inner, stored, emin, precision, spec.flush, spec.fixed != 0, *line)
    release((steps,))
    return found


@routine
def decode_lines(x, t, first, lines, side, ks, positions, scales, spec, codes, sig, e, mark):
    """Decode lines first … first + lines of an operand at ks[:positions]; whether any element is NaN or infinite.

    A line is a row of a (arrays [line, position]), a column of b or a row of a put into a column (arrays [position, line]). The
    exponent of a power-of-two scale is added to e. `codes` is scratch.
    """
    found = decode_unscaled(x, t, first, lines, side, ks, positions, spec, codes, sig, e, mark)
    if scales.address != 0:
        grouped, columns, pitch = spec.group > 1, side != ROWS_OF_A, sig.shape[1]
        outer, inner = (positions, lines) if columns else (lines, positions)
        many = lines if columns else 1  # scales are decoded once for the run of positions that have them
        s, up, bad = room(many, np.int64), room(many, np.int64), room(many, np.int64)
        start, stop = np.int64(0), np.int64(0)
        for i in range(outer):
            j = np.int64(0)
            while j < inner:
                k, line = (ks[i], first + j) if columns else (ks[j], first + i)
                if (j == 0 and not columns) or k < start or k >= stop:
                    place = k // spec.scale_block
                    start, stop = place * spec.scale_block, (place + 1) * spec.scale_block
                    for n in range(many):
                        s[n], up[n], wrong = (
                            block_scale(scales, t, place, first + n, spec)
                            if columns
                            else block_scale(scales, t, line, place, spec)
                        )
                        bad[n] = np.int64(wrong)
                last = inner if columns else j + 1
                while last < inner and start <= ks[last] < stop:
                    last += 1
                here = i * pitch + j
                found |= scale_numbers(
                    last - j, columns, grouped, at(s, 0), at(up, 0), at(bad, 0), at(sig, here), at(e, here), at(mark, here)
                )
                j = last
        release((s, up, bad))
    return found


@routine
def pack_groups(spec, scale_a, scale_b, t, i0, j0, ni, nj, ks, blocks, starts, panel):
    """Significand and exponent of the scales, at the first position of every group."""
    for block in range(blocks):
        for p in range(starts[block], starts[block + 1], spec.group):
            s = ks[p] // spec.scale_block
            for r in range(ni):
                panel.ga[r, p], panel.ha[r, p], _ = block_scale(scale_a, t, i0 + r, s, spec)
            for j in range(nj):
                panel.gb[p, j], panel.hb[p, j], _ = block_scale(scale_b, t, s, j0 + j, spec)


@noalias
def mark_blocks(panel, rows, width, blocks, starts):
    """Which blocks of the chunk hold a zero factor or a special operand, for each row and each column."""
    for block in range(blocks):
        for r in range(rows):
            found = np.int64(0)
            for p in range(starts[block], starts[block + 1]):
                found |= np.int64(HAS_ZERO) if panel.sa[r, p] == 0 else np.int64(0)
                found |= np.int64(HAS_SPECIAL) if panel.ma[r, p] & 3 != 0 else np.int64(0)
            panel.za[r, block] = found
        for j in range(width):
            panel.zb[block, j] = 0
        for p in range(starts[block], starts[block + 1]):
            for j in range(width):
                found = np.int64(HAS_ZERO) if panel.sb[p, j] == 0 else np.int64(0)
                found |= np.int64(HAS_SPECIAL) if panel.mb[p, j] & 3 != 0 else np.int64(0)
                panel.zb[block, j] |= found
