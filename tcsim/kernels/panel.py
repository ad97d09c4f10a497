"""Packing: a chunk of k decoded into significands and exponents, in the order in which the unit takes its products."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.kernels.jit import inline, routine
from tcsim.kernels.memory import load
from tcsim.kernels.numbers import FINITE, NAN, ZERO_E, bit_length, decode

# What happens around a block, as bits.
SEGMENT_START, INSTRUCTION_START, INSTRUCTION_END, SEGMENT_END = 1, 2, 4, 8


class Panel(NamedTuple):
    """A chunk of a tile's rows of a and columns of b, decoded: arrays [row, position] and [position, column].

    `sa`, `sb` significands; `ea`, `eb` exponents; `ma`, `mb` special + 4·negative; `za`, `zb` whether a block holds a zero
    factor, [row, block] and [block, column]; `ga`, `gb` significand and exponent of the block scale, for exact groups.
    """

    sa: Any
    ea: Any
    ma: Any
    za: Any
    ga: Any
    sb: Any
    eb: Any
    mb: Any
    zb: Any
    gb: Any


@inline
def _integers(rows, columns):
    return np.empty((rows, columns), dtype=np.int64)


@routine
def new_panel(rows, columns, capacity, scales):
    """Room for `capacity` positions, `scales` of them with block scales."""
    return Panel(
        _integers(rows, capacity), _integers(rows, capacity), _integers(rows, capacity), _integers(rows, capacity),
        np.zeros((rows, scales, 2), dtype=np.int64),
        _integers(capacity, columns), _integers(capacity, columns), _integers(capacity, columns), _integers(capacity, columns),
        np.zeros((scales, columns, 2), dtype=np.int64),
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
def operand(code, stored, emin, precision, flush, fixed):
    """decode, with subnormals as +0 where the unit flushes them, and in fixed point (unit 2^(emin - p + 1)) for groups."""
    sig, e, negative, special = decode(code, stored, emin, precision)
    if flush and sig != 0 and bit_length(abs(sig)) < precision:
        sig, e, negative = np.int64(0), np.int64(ZERO_E), np.int64(0)
    if fixed and sig != 0:
        sig, e = sig << (e - emin), np.int64(emin)
    return sig, e, negative, special


@inline
def block_scale(scales, t, i, j, spec):
    """(sig, e, is NaN) of a block scale; the bit above an unsigned format's width is ignored."""
    code = load(scales, t, i, j) & ((np.int64(1) << (spec.scale.exponent_bits + spec.scale.mantissa)) - 1)
    sig, e, _, special = decode(code, spec.scale, spec.scale.emin, spec.scale.mantissa + 1)
    return sig, e, special != FINITE


@routine
def pack(m, t, first, lines, columns, ks, positions, scales, spec, side, sig, e, mark):
    """Decode lines first … first + lines of an operand at ks[:positions].

    A line is a row of a (columns = False, arrays [line, position]) or a column of b (columns = True, arrays
    [position, line]). `mark` is special + 4·negative. The exponent of a power-of-two scale is added to e; returns
    whether any element is NaN or infinite.
    """
    emin, precision, stored = (
        (spec.b_emin, spec.b_precision, spec.b_stored) if side else (spec.a_emin, spec.a_precision, spec.a_stored)
    )
    grouped, scaled = spec.group > 1, scales.address != 0
    found = False
    for p in range(positions):
        k = ks[p]
        for line in range(lines):
            at = first + line
            code = load(m, t, k, at) if columns else load(m, t, at, k)
            x, ex, negative, special = operand(code, stored, emin, precision, spec.flush, grouped)
            if scaled:
                at_scale = k // spec.scale_block
                _, es, bad = (
                    block_scale(scales, t, at_scale, at, spec) if columns else block_scale(scales, t, at, at_scale, spec)
                )
                if not grouped and x != 0:
                    ex += es
                if bad:
                    special = np.int64(NAN)
            found = found or special != FINITE
            if columns:
                sig[p, line], e[p, line], mark[p, line] = x, ex, special + 4 * negative
            else:
                sig[line, p], e[line, p], mark[line, p] = x, ex, special + 4 * negative
    return found
