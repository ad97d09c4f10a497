"""Blocks of units that round every operation: over the columns where 64 bits are enough, else one output at a time."""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, routine
from tcsim.codegen.scratch import release, zeros
from tcsim.fp.compiled.philox import random_word
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, ONE_NAN, Gate, floats, one_of, only, operands, roundings, schedules, up_to
from tcsim.kernels.general.limbs import add_term, product_128, round_limbs
from tcsim.kernels.general.numbers import FINITE, MINUS_INF, TO_ZERO, ZERO_E, bit_length, round_sum
from tcsim.kernels.general.panel import HAS_SPECIAL
from tcsim.kernels.general.row import draw_row_words, special_add, special_product
from tcsim.kernels.general.two_terms import ieee_sum

GATE = Gate(
    "the general kernel's rounded operations",
    {
        **LABELS,
        **floats("a", "b", "out", "operand_format"),
        **only(arithmetic="rounded", align_rounding="exact", fraction_bits=None, min_exponent=None, c_enters="aligned"),
        **only(chain=1, chains=1, sum_format=None, group_size=1, scale=None, scale_block=0),
        **only(late_fraction_bits=None, parity_split=False, lanes=1, term_cut="floor", factor_nan=None, overflow="wrap"),
        **roundings("rounding"),
        **roundings("product_rounding"),
        **one_of("subnormals", "keep", "flush"),
        **one_of("zero_sign", "positive", "ieee"),
        **up_to("block_size", 1 << 30),
        **up_to("out_precision", 1 << 20),
        **ANY_ORDER,
        **up_to("nan_code", 1 << 64),
        **ONE_NAN,
    },
    {**schedules(*ANY_SUM), **operands(lambda asked, stored: not stored.integer, empty=True)},
)


@inline
def round_result(spec, sig, e, negative, special):
    """A rounded value with subnormals flushed and the unit's sign of zero; of a special value, its sign alone."""
    small = (spec.flush_results != 0) & (bit_length(abs(sig)) <= spec.out.mantissa)
    nothing = small | (special != FINITE)
    sig = np.int64(0) if nothing else sig
    signed = (spec.ieee_zero != 0) | (sig != 0)
    negative = negative if signed else np.int64(0)
    minus = np.int64(1) if special == MINUS_INF else np.int64(0)
    return sig, np.int64(ZERO_E) if nothing else e, negative if special == FINITE else minus, special


@inline
def pair_sum(spec, x, y, random):
    """ieee_sum by the unit's rounding, flushing and sign of zero."""
    sig, e, negative, special = ieee_sum(x, y, spec.how, random, spec.kept, spec.out)
    return round_result(spec, sig, e, negative, special)


@no_refcount
def rounded_row(spec, panel, r, p0, p1, width, row, seed, elements, step):
    """A block in which every product and every addition rounds, over the columns: a balanced tree of the products, then c."""
    count = p1 - p0
    for i in range(count):
        if spec.product_draws:
            draw_row_words(seed, elements, step >> 2, np.int64(i), width, row.random, row.width)
        x, e, negative = panel.sa[r, p0 + i], panel.ea[r, p0 + i] - spec.weight, panel.ma[r, p0 + i] >> 2
        for j in range(width):
            random = row.random[(step & 3) * row.width + j] if spec.product_draws else np.uint64(0)
            product, minus = x * panel.sb[p0 + i, j], negative ^ (panel.mb[p0 + i, j] >> 2)
            q = e + panel.eb[p0 + i, j] if product != 0 else np.int64(0)
            sig, ex, special = round_sum(product, q, spec.product_how, random, spec.kept, spec.out)
            result = round_result(spec, sig, ex, minus, special)
            (
                row.term_sig[i * row.width + j],
                row.term_e[i * row.width + j],
                row.term_negative[i * row.width + j],
                row.term_special[i * row.width + j],
            ) = result
    operation = count
    while count > 1:
        for i in range(count // 2):
            _add_terms(spec, 2 * i, 2 * i + 1, i, width, row, seed, elements, step, operation)
            operation += 1
        if count % 2:
            _copy_term(row.term_sig, (count - 1) * row.width, count // 2 * row.width, width)
            _copy_term(row.term_e, (count - 1) * row.width, count // 2 * row.width, width)
            _copy_term(row.term_negative, (count - 1) * row.width, count // 2 * row.width, width)
            _copy_term(row.term_special, (count - 1) * row.width, count // 2 * row.width, width)
        count = (count + 1) // 2
    if spec.draws:
        draw_row_words(seed, elements, step >> 2, np.int64(operation), width, row.random, row.width)
    for j in range(width):
        random = row.random[(step & 3) * row.width + j] if spec.draws else np.uint64(0)
        c = (row.sig[j], row.e[j], row.negative[j], row.special[j])
        result = pair_sum(spec, (row.term_sig[j], row.term_e[j], row.term_negative[j], row.term_special[j]), c, random)
        row.sig[j], row.e[j], row.negative[j], row.special[j] = result


@no_refcount
def _add_terms(spec, left, right, to, width, row, seed, elements, step, operation):
    """term[to] = term[left] + term[right], rounded; by way of arrays that are none of the terms."""
    if spec.draws:
        draw_row_words(seed, elements, step >> 2, np.int64(operation), width, row.random, row.width)
    for j in range(width):
        random = row.random[(step & 3) * row.width + j] if spec.draws else np.uint64(0)
        x = (
            row.term_sig[left * row.width + j],
            row.term_e[left * row.width + j],
            row.term_negative[left * row.width + j],
            row.term_special[left * row.width + j],
        )
        y = (
            row.term_sig[right * row.width + j],
            row.term_e[right * row.width + j],
            row.term_negative[right * row.width + j],
            row.term_special[right * row.width + j],
        )
        row.total[j], row.top[j], row.lost[j], row.flag[j] = pair_sum(spec, x, y, random)
    _move_term(row.total, row.term_sig, to * row.width, width)
    _move_term(row.top, row.term_e, to * row.width, width)
    _move_term(row.lost, row.term_negative, to * row.width, width)
    _move_term(row.flag, row.term_special, to * row.width, width)


@no_refcount
def _move_term(source, terms, to, width):
    for j in range(width):
        terms[to + j] = source[j]


@no_refcount
def _copy_term(terms, source, to, width):
    for j in range(width):
        terms[to + j] = terms[source + j]


@no_refcount
def in_vectors(spec, panel, r, block, columns):
    """Whether a block of a unit that rounds every operation holds no special operands and nothing wider than 64 bits."""
    found = panel.za[r, block]
    for j in range(columns):
        found |= panel.zb[block, j]
    return spec.narrow != 0 and found & HAS_SPECIAL == 0


@routine
def exact_round(spec, x1, y1, l1, x2, l2, how, random):
    """x1·y1·2^l1 + x2·2^l2 rounded once to the output: (sig, e, negative, special)."""
    bits1, bits2 = bit_length(abs(x1)) + bit_length(abs(y1)), bit_length(abs(x2))
    low = min(l1 if bits1 > 1 else l2, l2 if bits2 > 0 else l1)
    if max(bits1 + l1, bits2 + l2) - low <= 61:
        first = (x1 * y1) << (l1 - low) if x1 != 0 and y1 != 0 else np.int64(0)
        second = x2 << (l2 - low) if x2 != 0 else np.int64(0)
        total = first + second
        sig, e, special = round_sum(total, low, how, random, spec.kept, spec.out)
        return sig, e, np.int64(total < 0), special
    limbs = zeros((max(bits1 + l1, bits2 + l2) - low) // 32 + 6, np.int64)
    high, low_bits = product_128(abs(x1), abs(y1))
    if x1 != 0 and y1 != 0:
        add_term(limbs, high, low_bits, (x1 < 0) != (y1 < 0), l1 - low, TO_ZERO, np.uint64(0))
    if x2 != 0:
        add_term(limbs, np.uint64(0), np.uint64(abs(x2)), x2 < 0, l2 - low, TO_ZERO, np.uint64(0))
    found = round_limbs(limbs, low, how, random, spec.kept, spec.out)
    release((limbs,))
    return found


@inline
def _random(draws, seed, element, step, operation):
    if not draws:
        return np.uint64(0)
    return random_word(np.uint64(seed), np.uint64(element), np.uint64(step), np.uint64(operation))


@routine
def product_rounded(spec, panel, r, p, j, random):
    """(sig, e, negative, special) of one product rounded to the output."""
    special = special_product(panel.ma[r, p], panel.mb[p, j], panel.sa[r, p], panel.sb[p, j])
    negative = (panel.ma[r, p] ^ panel.mb[p, j]) >> 2
    x, y = panel.sa[r, p], panel.sb[p, j]
    if special != FINITE or x == 0 or y == 0:
        return round_result(spec, np.int64(0), np.int64(ZERO_E), negative, special)
    place = panel.ea[r, p] + panel.eb[p, j] - spec.weight
    sig, e, _, special = exact_round(spec, x, y, place, np.int64(0), place, spec.product_how, random)
    return round_result(spec, sig, e, negative, special)


@routine
def rounded_add(spec, a, b, random):
    """The rounded sum of two rounded values, each (sig, e, negative, special)."""
    special = special_add(a[3], b[3])
    if special != FINITE or (a[0] == 0 and b[0] == 0):
        return round_result(spec, np.int64(0), np.int64(ZERO_E), a[2] & b[2], special)
    m = spec.out.mantissa
    sig, e, negative, special = exact_round(spec, a[0], np.int64(1), a[1] - m, b[0], b[1] - m, spec.how, random)
    return round_result(spec, sig, e, negative, special)


@routine
def rounded_column(spec, panel, r, p0, p1, j, c, tree, seed, element, step):
    """rounded_row for one column, whatever its operands are and however wide its sums."""
    count = p1 - p0
    for i in range(count):
        x = product_rounded(spec, panel, r, p0 + i, j, _random(spec.product_draws, seed, element, step, i))
        tree[i, 0], tree[i, 1], tree[i, 2], tree[i, 3] = x
    operation = count
    while count > 1:
        for i in range(count // 2):
            left = (tree[2 * i, 0], tree[2 * i, 1], tree[2 * i, 2], tree[2 * i, 3])
            right = (tree[2 * i + 1, 0], tree[2 * i + 1, 1], tree[2 * i + 1, 2], tree[2 * i + 1, 3])
            x = rounded_add(spec, left, right, _random(spec.draws, seed, element, step, operation))
            tree[i, 0], tree[i, 1], tree[i, 2], tree[i, 3] = x
            operation += 1
        if count % 2:
            for f in range(4):
                tree[count // 2, f] = tree[count - 1, f]
        count = (count + 1) // 2
    root = (tree[0, 0], tree[0, 1], tree[0, 2], tree[0, 3])
    return rounded_add(spec, root, c, _random(spec.draws, seed, element, step, operation))
