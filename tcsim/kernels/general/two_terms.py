"""Sums of two terms in 64 bits, over the columns: one product and c, two rounded values, a late c.

Where the smaller term leaves the window, that it was cut is remembered in one bit, and rounding goes by it.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, no_refcount
from tcsim.kernels.general.numbers import FINITE, NEAREST, ZERO_E, bit_length, round_sum
from tcsim.kernels.general.row import WIDE, flush_row, special_add
from tcsim.kernels.general.spec import PAIR


@inline
def pair(x, x_e, y, y_e, room):
    """(total, q), total·2^q standing for x·2^(x_e - room) + y·2^(y_e - room): x and y are below 2^(room + 2), room <= 58.

    Both are floored at 2^(q + 1); the one with the larger exponent has no bits below that, so at most the other loses any.
    The exact sum then stands between two multiples of 2^(q + 1), and the lowest bit of `total`, set, says so: it rounds
    as the exact sum does if enough bits are left above that one.
    """
    top = max(x_e, y_e)
    right, down = min(top - x_e, np.int64(63)), min(top - y_e, np.int64(63))
    lost = x & ((np.int64(1) << right) - 1) | y & ((np.int64(1) << down) - 1)
    return ((x >> right) + (y >> down)) << 1 | (np.int64(1) if lost != 0 else np.int64(0)), top - room - 1


@no_refcount
def add_product(spec, panel, r, p, width, row, word):
    """A whole block of one product, added to c exactly (`pair`) and rounded.

    True if some column was left alone and flagged WIDE: its larger term was subnormal, and too few bits are left to round by.
    """
    m, least = spec.out.mantissa, spec.kept + 1 + (32 if spec.draws else 1)
    x, e, negative, raise_c = panel.sa[r, p] << (spec.room - spec.weight), panel.ea[r, p], panel.ma[r, p] >> 2, spec.room - m
    any_flag = np.int64(0)
    for j in range(width):
        c, product = row.sig[j] << raise_c, x * panel.sb[p, j]
        total, q = pair(c, row.e[j], product, e + panel.eb[p, j], spec.room)
        flag = np.int64(WIDE) if bit_length(abs(total)) < least else np.int64(0)
        flag &= total
        sig, place, special = round_sum(total, q, spec.how, row.random[word * row.width + j], spec.kept, spec.out)
        minus = np.int64(1) if total < 0 else np.int64(0)
        minus = row.negative[j] & (negative ^ panel.mb[p, j] >> 2) if (c | product) == 0 else minus
        small = (spec.flush_results != 0) & (abs(sig) >> m == 0)
        sig, place = np.int64(0) if small else sig, np.int64(ZERO_E) if small else place
        keep = (flag | row.special[j]) != 0
        row.sig[j] = row.sig[j] if keep else sig
        row.e[j] = row.e[j] if keep else place
        row.negative[j] = row.negative[j] if keep else minus
        row.special[j] = row.special[j] if keep else special
        row.flag[j] = flag
        any_flag |= flag
    return any_flag != 0


@inline
def ieee_sum(x, y, how, random, kept, out):
    """The rounded sum of two values of `out`, each (sig, e, negative, special), where PAIR bits are enough; see `pair`."""
    up = PAIR - out.mantissa
    total, q = pair(x[0] << up, x[1], y[0] << up, y[1], np.int64(PAIR))
    sig, e, special = round_sum(total, q, how, random, kept, out)
    minus = np.int64(1) if total < 0 else np.int64(0)
    given = special_add(x[3], y[3])
    sig = sig if given == FINITE else np.int64(0)
    e = e if given == FINITE else np.int64(ZERO_E)
    return sig, e, x[2] & y[2] if (x[0] | y[0]) == 0 else minus, special if given == FINITE else given


@no_refcount
def keep_c(width, row):
    """Put c aside: the instruction starts from zero."""
    for j in range(width):
        row.c_sig[j], row.c_e[j], row.c_negative[j], row.c_special[j] = row.sig[j], row.e[j], row.negative[j], row.special[j]


@no_refcount
def add_late_c(spec, width, row):
    """c + the instruction's result, to nearest-even in the output format."""
    for j in range(width):
        c = (row.c_sig[j], row.c_e[j], row.c_negative[j], row.c_special[j])
        x = (row.sig[j], row.e[j], row.negative[j], row.special[j])
        row.sig[j], row.e[j], row.negative[j], row.special[j] = ieee_sum(
            c, x, NEAREST, np.uint64(0), spec.out.mantissa + 1, spec.out
        )
    if spec.flush_results:
        flush_row(spec, width, row)
