"""CDNA3's block: products truncated among themselves, their sum and c floored against each other, one rounding."""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, no_refcount
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, ONE_NAN, Gate, floats, one_of, only, operands, roundings, schedules, up_to
from tcsim.kernels.general.blocks import largest_exponents, sums
from tcsim.kernels.general.numbers import ANY_ZERO, FINITE, MINUS_INF, PLUS_INF, ZERO_E, bit_length, round_sum
from tcsim.kernels.general.row import all_negative_zero, special_add

GATE = Gate(
    "the general kernel's sums in two stages",
    {
        **LABELS,
        **floats("a", "b", "out", "operand_format"),
        **only(arithmetic="two-stage", align_rounding="rz", min_exponent=None, c_enters="aligned", chain=1, chains=1),
        **only(sum_format=None, group_size=1, scale=None, scale_block=0, subnormals="keep"),
        **only(product_rounding="rne", overflow="wrap"),
        **roundings("rounding"),
        **one_of("parity_split", False, True),
        **only(lanes=1, term_cut="floor", factor_nan=None),
        **one_of("zero_sign", "positive", "ieee"),
        **up_to("block_size", 1 << 30),
        **up_to("fraction_bits", 1 << 20),
        **up_to("late_fraction_bits", 1 << 20),
        **up_to("out_precision", 1 << 20),
        **ANY_ORDER,
        **up_to("nan_code", 1 << 64),
        **ONE_NAN,
    },
    {**schedules(*ANY_SUM), **operands(lambda asked, stored: not stored.integer, empty=True)},
)


@inline
def floor_shift(x, shift):
    """floor(x·2^-shift)."""
    return (x >> min(max(shift, np.int64(0)), np.int64(63))) << min(max(-shift, np.int64(0)), np.int64(62))


@no_refcount
def two_stage_row(spec, panel, r, p0, p1, width, columns, row, word):
    """CDNA3's block over the columns: products truncated at their own largest exponent, then against c, floors, one rounding."""
    _products_sum(spec, panel, r, p0, p1, width, row)
    near = np.int64(0)
    for j in range(width):
        near |= np.int64(1) if row.q[j] + spec.fraction >= spec.out.emax else np.int64(0)
    if near:
        for j in range(columns):
            for p in range(p0, p1):
                if overflowing(spec, panel, r, p, j):
                    infinity = np.int64(MINUS_INF if (panel.ma[r, p] ^ panel.mb[p, j]) & 4 else PLUS_INF)
                    row.special[j] = special_add(row.special[j], infinity)
    zeros = np.int64(0)
    for j in range(width):
        zero = (row.total[j] == 0) & (row.sig[j] == 0) & (row.negative[j] != 0)
        row.flag[j] = np.int64(1) if zero else np.int64(0)
        zeros |= row.flag[j]
    if zeros:
        for j in range(columns):
            if row.flag[j]:
                row.flag[j] = np.int64(all_negative_zero(panel, r, p0, p1, j))
    emin = spec.out.emin
    for j in range(width):
        c_e = row.e[j] if row.sig[j] != 0 else emin
        sig, e, negative, special = two_stage(spec, row.total[j], row.q[j], row.sig[j], c_e, row.random[word * row.width + j])
        keep = row.special[j] != FINITE
        row.sig[j] = row.sig[j] if keep else sig
        row.e[j] = row.e[j] if keep else e
        row.negative[j] = row.negative[j] if keep else negative | row.flag[j]
        row.special[j] = row.special[j] if keep else special


@no_refcount
def _products_sum(spec, panel, r, p0, p1, width, row):
    """The sum of the truncated products is total·2^q, q = largest exponent - fraction; of even and odd k apart if the unit does."""
    step = 2 if spec.parity else 1
    for half in range(step):
        for j in range(width):
            row.top[j] = ZERO_E
            row.floor[j] = 0
        largest_exponents(panel, r, p0 + half, p1, step, width, row.top)
        for j in range(width):
            row.top[j] = (row.top[j] if row.top[j] > ANY_ZERO else np.int64(ZERO_E)) - spec.fraction
        sums(spec, panel, r, p0 + half, p1, step, width, row.top, row.floor)
        for j in range(width):
            q = max(row.q[j], row.top[j]) if half else row.top[j]
            before = floor_shift(row.total[j], q - row.q[j]) if half else np.int64(0)
            row.total[j] = before + floor_shift(row.floor[j], q - row.top[j])
            row.q[j] = q


@inline
def two_stage(spec, products, place, c_sig, c_e, random):
    """(sig, e, negative, special) of products·2^place + c. `c_e` is emin where c is zero."""
    f = spec.fraction
    deep = max(spec.late + 1, f)
    emax = max(place + f, c_e)
    q = emax - deep
    total = floor_shift(products, emax - spec.late - 1 - place) << (deep - spec.late - 1)
    c = floor_shift(c_sig, emax - f - (c_e - spec.out.mantissa)) << (deep - f)
    near = (c_e >= emax - f - 1) | (spec.parity == 0)
    total += c if near else np.int64(0)
    leading = max(bit_length(abs(total)) - 1 + q, spec.out.emin)
    more = max(leading - spec.late - q, np.int64(0)) if total != 0 else np.int64(0)
    total, q = total >> min(more, np.int64(63)), q + more
    sig, e, special = round_sum(total, q, spec.how, random, spec.kept, spec.out)
    return sig, e, np.int64(1) if total < 0 else np.int64(0), special


@no_refcount
def overflowing(spec, panel, r, p, j):
    """Whether a product reaches 2^(emax + 1) of the output, which CDNA3 takes for infinity."""
    e = panel.ea[r, p] + panel.eb[p, j]
    x = abs(panel.sa[r, p] * panel.sb[p, j])
    return x != 0 and bit_length(x) - 1 + e - spec.weight > spec.out.emax
