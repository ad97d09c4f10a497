"""One block of a unit for one row of a and a panel of columns of b: the aligned sum, 64 bits wide, over the columns.

The loops over columns are straight-line integer arithmetic on arrays that do not overlap, so LLVM makes vector code of
them. Three passes: the largest exponent; the terms cut at 2^q and added; the sum rounded. A block whose bits do not fit
in 64 goes to `limbs`, column by column.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, inline_ir, no_refcount, routine
from tcsim.codegen.scratch import release, zeros
from tcsim.gates import (
    ANY_ORDER,
    ANY_SUM,
    LABELS,
    ONE_NAN,
    Gate,
    floats,
    one_of,
    only,
    operands,
    roundings,
    schedules,
    up_to,
)
from tcsim.kernels.general.cuts import C_OPERATION, FIRST_PRODUCT, cut_word
from tcsim.kernels.general.limbs import add_term, product_128, round_limbs
from tcsim.kernels.general.numbers import ANY_ZERO, FINITE, ZERO_E, round_sum
from tcsim.kernels.general.panel import HAS_ZERO
from tcsim.kernels.general.row import DONE, WIDE, all_negative_zero, flush_row
from tcsim.kernels.general.spec import CutMasks

# Exact sums in 64 bits, or in the limbs of `limbs` and `any_width`: the formats and counts decide, see `spec.widths`.
GATE = Gate(
    "the general kernel's aligned blocks",
    {
        **LABELS,
        **floats("a", "b", "out", "operand_format", "scale"),
        **only(
            arithmetic="aligned",
            sum_format=None,
            chains=1,
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
        ),
        **only(product_rounding="rne", overflow="wrap"),
        **roundings("align_rounding", "exact"),
        **roundings("rounding"),
        **one_of("c_enters", "aligned", "after"),
        **one_of("subnormals", "keep", "flush"),
        **one_of("zero_sign", "positive", "ieee"),
        **up_to("block_size", 1 << 30),
        **up_to("chain", 1 << 30),
        **up_to("group_size", 1 << 30),
        **up_to("scale_block", 1 << 30),
        **up_to("fraction_bits", 1 << 20),
        **up_to("out_precision", 1 << 20),
        **up_to("min_exponent", 1 << 18),  # far above ANY_ZERO
        **ANY_ORDER,
        **up_to("nan_code", 1 << 64),
        **ONE_NAN,
    },
    {**schedules(*ANY_SUM), **operands(lambda asked, stored: not stored.integer, empty=True)},
)
_FAR = 1 << 40
TRUNCATED = CutMasks(-1, 0)


@inline
def cut_term(p, shift, cut):
    """p·2^-shift as an integer, |p| < 2^62, see shift_down."""
    left = min(max(-shift, np.int64(0)), np.int64(62))
    right = min(max(shift, np.int64(0)), np.int64(63))
    return shift_down(p, right, cut) << left


@inline
def shift_down(p, right, cut):
    """p·2^-right for 0 <= right <= 63, |p| < 2^62, cut downward; but with the masks of `cut`, toward zero or to nearest-even."""
    ones = (np.int64(1) << right) - 1
    return (p + ((p >> 63) & ones & cut.to_zero) + (((ones >> 1) + ((p >> right) & ones & 1)) & cut.nearest)) >> right


@no_refcount
def start_block(spec, panel, r, block, width, row):
    """c as the first term of pass 1, and the floor under the largest exponent where some term is zero; groups tell by themselves."""
    zero_row, mask, floor = panel.za[r, block], np.int64(HAS_ZERO if spec.group == 1 else 0), spec.floor
    for j in range(width):
        zero = row.sig[j] == 0
        row.top[j] = row.e[j]
        lsb = row.e[j] - spec.out.mantissa
        row.lsb[j] = np.int64(_FAR) if zero else lsb
        some = (zero_row | panel.zb[block, j]) & mask != 0
        row.floor[j] = floor if zero | some else np.int64(ZERO_E)


@no_refcount
def largest_exponents(panel, r, p0, p1, step, width, top):
    """Pass 1: top[j] the largest exponent."""
    for p in range(p0, p1, step):
        x = panel.ea[r, p]
        for j in range(width):
            top[j] = max(top[j], x + panel.eb[p, j])


@no_refcount
def least_places(spec, panel, r, p0, p1, width, lsb):
    """lsb[j] the least place of a nonzero term, where the quantum can depend on it."""
    if spec.exact or spec.fraction > spec.room:
        for p in range(p0, p1):
            x = panel.ea[r, p]
            for j in range(width):
                e = x + panel.eb[p, j]
                place = e - spec.weight
                lsb[j] = min(lsb[j], place if e > ANY_ZERO else np.int64(_FAR))


@no_refcount
def groups(spec, panel, r, p0, p1, width, row):
    """Pass 1 where exact groups align by their scales' exponents: the groups' sums, and their largest exponent.

    A group is zero if all its products or a scale are.
    """
    for g in range(-(-(p1 - p0) // spec.group)):
        begin = p0 + g * spec.group
        for j in range(width):
            row.term_sig[g * row.width + j] = 0
            row.lost[j] = 0
        for p in range(begin, min(begin + spec.group, p1)):
            x = panel.sa[r, p]
            if x != 0:
                for j in range(width):
                    row.term_sig[g * row.width + j] += x * panel.sb[p, j]
                    row.lost[j] |= panel.sb[p, j]
        scale, e, floor = panel.ga[r, begin], panel.ha[r, begin], spec.floor
        for j in range(width):
            both, place = scale * panel.gb[begin, j], e + panel.hb[begin, j]
            zero = (row.lost[j] == 0) | (both == 0)
            row.floor[j] = floor if zero else row.floor[j]
            row.top[j] = row.top[j] if zero else max(row.top[j], place)
            row.lsb[j] = row.lsb[j] if zero else min(row.lsb[j], place - spec.weight)
            row.term_sig[g * row.width + j] *= both
            row.term_e[g * row.width + j] = place - spec.weight


@no_refcount
def quanta(spec, width, row):
    """q[j], where terms are cut; flag[j] where the sum would leave the 64-bit window. True if any column is flagged."""
    any_flag = np.int64(0)
    exact, deep = spec.exact != 0, spec.fraction > spec.room
    for j in range(width):
        emax = max(row.top[j], row.floor[j])
        least = row.lsb[j]
        at = emax - spec.fraction
        at = max(at, least) if deep else at
        at = least if exact else at
        some = (emax > ANY_ZERO) & (at != _FAR)
        row.q[j] = at if some else np.int64(0)
        flag = np.int64(WIDE) if (emax - at > spec.room) & some else np.int64(0)
        row.flag[j] = flag
        any_flag |= flag
    return any_flag != 0


@no_refcount
def start_sums(spec, width, row):
    """c, cut at 2^q, as the first term of pass 2."""
    for j in range(width):
        row.total[j] = cut_term(row.sig[j], row.q[j] - row.e[j] + spec.out.mantissa, spec.cut)


@no_refcount
def add_products(spec, panel, r, p0, p1, step, width, q, total, cut):
    """Add the products cut at 2^q, where 2^q is the largest exponent less `fraction`: scaled up first, they only move down."""
    up = max(spec.fraction - spec.weight, np.int64(0))
    for p in range(p0, p1, step):
        x, place = panel.sa[r, p] << up, panel.ea[r, p] - spec.weight - up
        for j in range(width):
            total[j] += shift_down(x * panel.sb[p, j], min(q[j] - panel.eb[p, j] - place, np.int64(63)), cut)


@no_refcount
def add_exactly(spec, panel, r, p0, p1, step, width, q, total):
    """Add the products, none of which has bits below 2^q (but for columns that are flagged)."""
    for p in range(p0, p1, step):
        x, place = panel.sa[r, p], panel.ea[r, p] - spec.weight
        for j in range(width):
            total[j] += x * panel.sb[p, j] << min(max(panel.eb[p, j] + place - q[j], np.int64(0)), np.int64(62))


@no_refcount
def sums(spec, panel, r, p0, p1, step, width, q, total):
    """Pass 2: the cut products added exactly to total[j]."""
    if spec.exact:
        add_exactly(spec, panel, r, p0, p1, step, width, q, total)
    elif spec.fraction > spec.room:
        for p in range(p0, p1, step):
            x, place = panel.sa[r, p], panel.ea[r, p] - spec.weight
            for j in range(width):
                total[j] += cut_term(x * panel.sb[p, j], q[j] - panel.eb[p, j] - place, spec.cut)
    elif spec.cut.to_zero:
        add_products(spec, panel, r, p0, p1, step, width, q, total, TRUNCATED)
    else:
        add_products(spec, panel, r, p0, p1, step, width, q, total, spec.cut)


@no_refcount
def group_sums(spec, terms, width, row):
    """Pass 2 with exact groups."""
    for g in range(terms):
        for j in range(width):
            row.total[j] += cut_term(row.term_sig[g * row.width + j], row.q[j] - row.term_e[g * row.width + j], spec.cut)


@inline_ir
def limbs_start(spec, c_sig, c_e, top, lsb, seed, element, step):
    """(limbs, q): as many limbs as the block's span needs, from its quantum 2^q up, holding c."""
    q = lsb if spec.exact else max(top - spec.fraction, lsb)
    limbs = zeros((top + 66 - spec.room - q) // 32 + 5, np.int64)
    if c_sig != 0:
        word = cut_word(spec, seed, element, step, C_OPERATION)
        add_term(limbs, np.uint64(0), np.uint64(abs(c_sig)), c_sig < 0, c_e - spec.out.mantissa - q, spec.cut_how, word)
    return limbs, q


@routine
def limbs_block(spec, panel, r, p0, p1, j, c_sig, c_e, top, lsb, random, seed, element, step):
    """The block for one column in limbs: (sig, e, negative, special)."""
    limbs, q = limbs_start(spec, c_sig, c_e, top, lsb, seed, element, step)
    for p in range(p0, p1):
        x, y = panel.sa[r, p], panel.sb[p, j]
        if x != 0 and y != 0:
            high, low_bits = product_128(abs(x), abs(y))
            place = panel.ea[r, p] + panel.eb[p, j] - spec.weight - q
            word = cut_word(spec, seed, element, step, FIRST_PRODUCT + p - p0)
            add_term(limbs, high, low_bits, (x < 0) != (y < 0), place, spec.cut_how, word)
    found = round_limbs(limbs, q, spec.how, random, spec.kept, spec.out)
    release((limbs,))
    return found


@routine
def limbs_groups(spec, panel, r, p0, p1, j, c_sig, c_e, top, lsb, random, seed, element, step):
    """wide_block with exact groups as terms."""
    limbs, q = limbs_start(spec, c_sig, c_e, top, lsb, seed, element, step)
    for begin in range(p0, p1, spec.group):
        group, scale = np.int64(0), panel.ga[r, begin] * panel.gb[begin, j]
        for p in range(begin, min(begin + spec.group, p1)):
            group += panel.sa[r, p] * panel.sb[p, j]
        if group != 0 and scale != 0:
            high, low_bits = product_128(abs(group), scale)
            place = panel.ha[r, begin] + panel.hb[begin, j] - spec.weight - q
            word = cut_word(spec, seed, element, step, FIRST_PRODUCT + (begin - p0) // spec.group)
            add_term(limbs, high, low_bits, group < 0, place, spec.cut_how, word)
    found = round_limbs(limbs, q, spec.how, random, spec.kept, spec.out)
    release((limbs,))
    return found


@no_refcount
def mark_zeros(panel, r, p0, p1, columns, row):
    """Where every term of a block is zero, the result is -0 if all of them are; flagged as DONE."""
    none = np.int64(0)
    for j in range(columns):
        none |= np.int64(1) if row.top[j] < ANY_ZERO else np.int64(0)
    if none:
        for j in range(columns):
            if row.special[j] == FINITE and row.top[j] < ANY_ZERO:
                keeps = row.sig[j] == 0 and row.negative[j] != 0 and all_negative_zero(panel, r, p0, p1, j)
                row.sig[j], row.e[j], row.negative[j] = 0, ZERO_E, np.int64(keeps)
                row.flag[j] = DONE


@no_refcount
def finish_block(spec, width, row, word):
    """Pass 3: each sum rounded to the output; columns with a flag, or whose c is NaN or infinite, are left alone."""
    for j in range(width):
        total = row.total[j]
        sig, e, special = round_sum(total, row.q[j], spec.how, row.random[word * row.width + j], spec.kept, spec.out)
        keep = (row.flag[j] | row.special[j]) != 0
        row.sig[j] = row.sig[j] if keep else sig
        row.e[j] = row.e[j] if keep else e
        negative = np.int64(1) if total < 0 else np.int64(0)
        row.negative[j] = row.negative[j] if keep else negative
        row.special[j] = row.special[j] if keep else special
    if spec.flush_results:
        flush_row(spec, width, row)
