"""One block of a unit for one row of a and a panel of columns of b: the aligned sum, 64 bits wide, over the columns.

The loops over columns are straight-line integer arithmetic, so LLVM makes vector code of them. Three passes: the largest
exponent; the terms cut at 2^q and added; the sum rounded. A block whose bits do not fit in 64 goes to `wide`, column by
column.
"""

from __future__ import annotations

import numpy as np

from tcsim.kernels.jit import inline, routine
from tcsim.kernels.numbers import (
    ANY_ZERO,
    FINITE,
    MINUS_INF,
    NAN,
    PLUS_INF,
    RNE,
    RZ,
    SR,
    ZERO_E,
    round_sum,
)
from tcsim.kernels.philox import word
from tcsim.kernels.wide import add_term, round_limbs, wide_product

EXACT = 3
WIDE, DONE = 1, 2  # flags of a column: its sum needs limbs; its result is already there
_FAR = 1 << 40


@inline
def cut_term(p, shift, cut):
    """p·2^-shift as an integer, |p| < 2^62, cut toward zero (0), downward (1) or to nearest-even (2)."""
    left = min(max(-shift, np.int64(0)), np.int64(62))
    right = min(max(shift, np.int64(0)), np.int64(63))
    ones = (np.int64(1) << right) - 1
    if cut == 1 or cut == EXACT:
        return (p >> right) << left
    if cut == 0:
        return ((p + ((p >> 63) & ones)) >> right) << left
    return ((p + (ones >> 1) + ((p >> right) & ones & 1)) >> right) << left


@inline
def start_exponents(spec, width, c_sig, c_e, top, low, lsb):
    """c as the first term of pass 1."""
    for j in range(width):
        zero = c_sig[j] == 0
        top[j] = ZERO_E if zero else c_e[j]
        low[j] = ZERO_E if zero else np.int64(0)
        lsb[j] = _FAR if zero else c_e[j] - spec.out.mantissa


@inline
def exponents(spec, panel, r, p0, p1, step, block, width, top, low, lsb):
    """Pass 1: top[j] the largest exponent; low[j] = ZERO_E if a term is zero; lsb[j] the least place of a nonzero term,
    kept only where the quantum can depend on it. `za` and `zb` tell the blocks that hold a zero factor."""
    zero_row = panel.za[r, block] != 0
    for j in range(width):
        low[j] = ZERO_E if zero_row or panel.zb[block, j] != 0 else low[j]
    for p in range(p0, p1, step):
        x = panel.ea[r, p]
        for j in range(width):
            top[j] = max(top[j], x + panel.eb[p, j])
    if spec.cut == EXACT or spec.fraction > spec.room:
        for p in range(p0, p1, step):
            x = panel.ea[r, p]
            for j in range(width):
                e = x + panel.eb[p, j]
                lsb[j] = min(lsb[j], e - spec.weight if e > ANY_ZERO else np.int64(_FAR))


@routine
def zero_blocks(panel, rows, width, blocks, starts):
    """Which blocks of the chunk hold a zero factor, for each row and each column."""
    for block in range(blocks):
        for r in range(rows):
            panel.za[r, block] = 0
            for p in range(starts[block], starts[block + 1]):
                panel.za[r, block] |= np.int64(panel.sa[r, p] == 0)
        for j in range(width):
            panel.zb[block, j] = 0
        for p in range(starts[block], starts[block + 1]):
            for j in range(width):
                panel.zb[block, j] |= np.int64(panel.sb[p, j] == 0)


@routine
def group_exponents(spec, panel, r, p0, p1, width, top, low, lsb):
    """Pass 1 where exact groups align by their scales' exponents: a group is zero if all its products or a scale are."""
    for begin in range(p0, p1, spec.group):
        end = min(begin + spec.group, p1)
        for j in range(width):
            e = panel.ga[r, begin, 1] + panel.gb[begin, j, 1]
            nonzero = False
            for p in range(begin, end):
                nonzero = nonzero or panel.sa[r, p] * panel.sb[p, j] != 0
            if not nonzero or panel.ga[r, begin, 0] * panel.gb[begin, j, 0] == 0:
                low[j] = ZERO_E
            else:
                top[j] = max(top[j], e)
                lsb[j] = min(lsb[j], e - spec.weight)


@inline
def quanta(spec, width, top, low, lsb, q, flag):
    """q[j], where terms are cut; flag[j] where the sum would leave the 64-bit window. True if any column is flagged."""
    any_flag = False
    for j in range(width):
        emax = top[j]
        if spec.has_floor and low[j] < ANY_ZERO:
            emax = max(emax, np.int64(spec.floor))
        if spec.cut == EXACT:
            at = lsb[j]
        elif spec.fraction > spec.room:
            at = max(emax - spec.fraction, lsb[j])
        else:
            at = emax - spec.fraction
        nothing = emax < ANY_ZERO or at == _FAR
        q[j] = np.int64(0) if nothing else at
        flag[j] = np.int64(WIDE if emax - at > spec.room and not nothing else 0)
        any_flag = any_flag or flag[j] != 0
    return any_flag


@inline
def shift_down(p, right, cut):
    """p·2^-right for 0 <= right <= 63, |p| < 2^62, cut as in cut_term."""
    ones = (np.int64(1) << right) - 1
    if cut == 0:
        return (p + ((p >> 63) & ones)) >> right
    if cut == 1:
        return p >> right
    return (p + (ones >> 1) + ((p >> right) & ones & 1)) >> right


@inline
def add_products(spec, panel, r, p0, p1, step, width, q, total, cut):
    """Add the products cut at 2^q, where 2^q is the largest exponent less `fraction`: scaled up first, they only move down."""
    up = max(spec.fraction - spec.weight, np.int64(0))
    for p in range(p0, p1, step):
        x, place = panel.sa[r, p] << up, panel.ea[r, p] - spec.weight - up
        for j in range(width):
            total[j] += shift_down(x * panel.sb[p, j], min(q[j] - panel.eb[p, j] - place, np.int64(63)), cut)


@inline
def sums(spec, panel, r, p0, p1, step, width, q, total):
    """Pass 2: the cut products added exactly to total[j]."""
    if spec.cut == EXACT or spec.fraction > spec.room:
        for p in range(p0, p1, step):
            x, place = panel.sa[r, p], panel.ea[r, p] - spec.weight
            for j in range(width):
                total[j] += cut_term(x * panel.sb[p, j], q[j] - panel.eb[p, j] - place, spec.cut)
    elif spec.cut == 0:
        add_products(spec, panel, r, p0, p1, step, width, q, total, 0)
    elif spec.cut == 1:
        add_products(spec, panel, r, p0, p1, step, width, q, total, 1)
    else:
        add_products(spec, panel, r, p0, p1, step, width, q, total, 2)


@inline
def start_sums(spec, width, c_sig, c_e, q, total):
    """c, cut at 2^q, as the first term of pass 2."""
    for j in range(width):
        total[j] = cut_term(c_sig[j], q[j] - c_e[j] + spec.out.mantissa, spec.cut)


@routine
def group_sums(spec, panel, r, p0, p1, width, q, total):
    """Pass 2 with exact groups."""
    for begin in range(p0, p1, spec.group):
        end = min(begin + spec.group, p1)
        for j in range(width):
            group = np.int64(0)
            for p in range(begin, end):
                group += panel.sa[r, p] * panel.sb[p, j]
            scale = panel.ga[r, begin, 0] * panel.gb[begin, j, 0]
            e = panel.ga[r, begin, 1] + panel.gb[begin, j, 1]
            total[j] += cut_term(group * scale, q[j] - e + spec.weight, spec.cut)


@inline
def wide_start(spec, c_sig, c_e, top, low, lsb):
    """(limbs, q): as many limbs as the block's span needs, from its quantum 2^q up, holding c."""
    emax = top
    if spec.has_floor and low < ANY_ZERO:
        emax = max(emax, np.int64(spec.floor))
    q = lsb if spec.cut == EXACT else max(emax - spec.fraction, lsb)
    limbs = np.zeros((emax + 66 - spec.room - q) // 32 + 5, dtype=np.int64)
    if c_sig != 0:
        add_term(limbs, np.uint64(0), np.uint64(abs(c_sig)), c_sig < 0, c_e - spec.out.mantissa - q, spec.cut)
    return limbs, q


@routine
def wide_block(spec, panel, r, p0, p1, j, c_sig, c_e, top, low, lsb, random):
    """The block for one column in limbs: (sig, e, negative, special)."""
    limbs, q = wide_start(spec, c_sig, c_e, top, low, lsb)
    for p in range(p0, p1):
        x, y = panel.sa[r, p], panel.sb[p, j]
        if x != 0 and y != 0:
            high, low_bits = wide_product(abs(x), abs(y))
            add_term(limbs, high, low_bits, (x < 0) != (y < 0), panel.ea[r, p] + panel.eb[p, j] - spec.weight - q, spec.cut)
    return round_limbs(limbs, q, spec.mode, random, spec.kept, spec.out)


@routine
def wide_groups(spec, panel, r, p0, p1, j, c_sig, c_e, top, low, lsb, random):
    """wide_block with exact groups as terms."""
    limbs, q = wide_start(spec, c_sig, c_e, top, low, lsb)
    for begin in range(p0, p1, spec.group):
        group, scale = np.int64(0), panel.ga[r, begin, 0] * panel.gb[begin, j, 0]
        for p in range(begin, min(begin + spec.group, p1)):
            group += panel.sa[r, p] * panel.sb[p, j]
        if group != 0 and scale != 0:
            high, low_bits = wide_product(abs(group), scale)
            place = panel.ga[r, begin, 1] + panel.gb[begin, j, 1] - spec.weight - q
            add_term(limbs, high, low_bits, group < 0, place, spec.cut)
    return round_limbs(limbs, q, spec.mode, random, spec.kept, spec.out)


@inline
def special_product(a, b, a_sig, b_sig):
    """NaN, infinity or FINITE from the marks (special + 4·negative) of two factors."""
    x, y = a & 3, b & 3
    if x == FINITE and y == FINITE:
        return np.int64(FINITE)
    if x == NAN or y == NAN or (x == FINITE and a_sig == 0) or (y == FINITE and b_sig == 0):
        return np.int64(NAN)
    return np.int64(MINUS_INF if (a >> 2) != (b >> 2) else PLUS_INF)


@inline
def special_add(x, y):
    """The special value of a sum: opposite infinities and NaN give NaN."""
    if x == FINITE:
        return y
    return x if y == FINITE or x == y else np.int64(NAN)


@routine
def all_negative_zero(panel, r, p0, p1, j):
    """Whether every product of the block is -0."""
    for p in range(p0, p1):
        if panel.sa[r, p] != 0 and panel.sb[p, j] != 0:
            return False
        if (panel.ma[r, p] >> 2) == (panel.mb[p, j] >> 2):
            return False
    return True


@inline
def mark_zeros(spec, panel, r, p0, p1, width, state, top, flag):
    """Where zeros are signed and every term of a block is zero, the result is -0 if all of them are; flagged as DONE."""
    if spec.ieee_zero:
        for j in range(width):
            if state[3, j] == FINITE and top[j] < ANY_ZERO:
                keeps = state[0, j] == 0 and state[2, j] != 0 and all_negative_zero(panel, r, p0, p1, j)
                state[0, j], state[1, j], state[2, j] = 0, ZERO_E, np.int64(keeps)
                flag[j] = DONE


@inline
def finish_as(spec, total, q, random, width, flag, state, mode):
    sig, e, negative, special = state[0], state[1], state[2], state[3]
    for j in range(width):
        x, ex, kind = round_sum(total[j], q[j], mode, random[j] if mode == SR else np.uint64(0), spec.kept, spec.out)
        skip = flag[j] != 0 or special[j] != FINITE
        sig[j] = sig[j] if skip else x
        e[j] = e[j] if skip else ex
        negative[j] = negative[j] if skip else np.int64(total[j] < 0)
        special[j] = special[j] if skip else kind


@inline
def finish(spec, total, q, random, width, flag, state):
    """Pass 3: each sum rounded to the output; columns with a flag, or whose c is NaN or infinite, are left alone."""
    if spec.mode == RZ:
        finish_as(spec, total, q, random, width, flag, state, RZ)
    elif spec.mode == RNE:
        finish_as(spec, total, q, random, width, flag, state, RNE)
    else:
        finish_as(spec, total, q, random, width, flag, state, spec.mode)
    if spec.flush:
        for j in range(width):
            if abs(state[0, j]) >> spec.out.mantissa == 0:
                state[0, j], state[1, j] = 0, ZERO_E


@routine
def draw(seed, element, step, width, random):
    """The random word of each column for one block rounding."""
    for j in range(width):
        random[j] = word(np.uint64(seed), np.uint64(element + j), np.uint64(step), np.uint64(0))
