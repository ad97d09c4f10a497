"""Terms of an aligned block cut at 2^q in any rounding: what `blocks` does with two masks where they are truncated, floored or rounded to nearest-even.

Stochastic rounding cuts every term by a word of its own: operation 0 of a block is its result's, 1 is c's, 2 + i that of
product (or group) i.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline, no_refcount, routine
from tcsim.fp.compiled.philox import random_word
from tcsim.kernels.general.row import draw_words

_LOW = 0xFFFFFFFF
C_OPERATION, FIRST_PRODUCT = 1, 2


@inline
def round_term(x, shift, how, random):
    """x·2^-shift as an integer, |x| < 2^62, rounded by `how`; stochastically by `random`, 32 bits (else 0)."""
    up, down, odd = how.up, how.down, how.odd  # read here, not where a condition would make gathers of it
    magnitude = abs(x)
    right, left = min(max(shift, np.int64(0)), np.int64(63)), min(max(-shift, np.int64(0)), np.int64(62))
    ones = (np.int64(1) << right) - 1
    cut, rest = magnitude >> right, magnitude & ones
    near = ((ones >> 1) & how.near) + (((cut & how.even) | how.away) & ones & 1)
    away = ones & (down if x < 0 else up)
    raised = np.int64((np.uint64(magnitude) + np.uint64(away + near)) >> np.uint64(right)) | (odd if rest != 0 else np.int64(0))
    deep = min(max(shift - 32, np.int64(0)), np.int64(63))
    first = (rest << (32 - min(right, np.int64(32)))) & _LOW if shift <= 32 else magnitude >> deep & _LOW
    kept = (raised + ((first + np.int64(random)) >> 32)) << left
    return -kept if x < 0 else kept


@no_refcount
def cut_words(spec, width, row, seed, elements, step, operation):
    """The random words of term `operation` of each column."""
    if spec.cut_draws:
        draw_words(seed, elements, step, operation, width, row.term_word)


@no_refcount
def round_c(spec, width, row, seed, elements, step):
    """c as the first term of a block's sum."""
    cut_words(spec, width, row, seed, elements, step, C_OPERATION)
    for j in range(width):
        row.total[j] = round_term(row.sig[j], row.q[j] - row.e[j] + spec.out.mantissa, spec.cut_how, row.term_word[j])


@no_refcount
def round_products(spec, panel, r, p0, p1, width, row, seed, elements, step):
    """Add the products."""
    for p in range(p0, p1):
        cut_words(spec, width, row, seed, elements, step, FIRST_PRODUCT + p - p0)
        x, place = panel.sa[r, p], panel.ea[r, p] - spec.weight
        for j in range(width):
            row.total[j] += round_term(x * panel.sb[p, j], row.q[j] - panel.eb[p, j] - place, spec.cut_how, row.term_word[j])


@no_refcount
def round_groups(spec, terms, width, row, seed, elements, step):
    """Add exact groups of products."""
    for g in range(terms):
        cut_words(spec, width, row, seed, elements, step, FIRST_PRODUCT + g)
        for j in range(width):
            at = g * row.width + j
            row.total[j] += round_term(row.term_sig[at], row.q[j] - row.term_e[at], spec.cut_how, row.term_word[j])


@routine
def cut_word(spec, seed, element, step, operation):
    """The random word of one term of one output."""
    if not spec.cut_draws:
        return np.uint64(0)
    return random_word(np.uint64(seed), np.uint64(element), np.uint64(step), np.uint64(operation))
