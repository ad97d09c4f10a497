"""Outputs with infinite terms: decided by their signs, without walking along k.

A sum with an infinite term is that infinity; it is NaN with terms of both signs, or with an infinity times zero. That
holds whatever the order, the blocks and the roundings, as long as no finite part of the sum can overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS
from tcsim.problem import Codes, Operand, Problem

Array = npt.NDArray[Any]
_SAFE = 100  # sums below 2^100 leave the largest float32 as it is where all its bits are kept, and nothing is random
_MOST = 32  # infinite factors for each row and column, on average, up to which this is quicker than the general kernel


def decide(problem: Problem, t: int, out: Codes, left: Array) -> None:
    """Write those outputs of batch element t that have infinite terms, among the ones where `left` holds.

    An infinite factor must have left, or made NaN, all of its row or column.
    """
    unit = problem.unit
    steady = unit.rounding == "rz" or (unit.rounding != "sr" and unit.kept_bits == 24)  # or c may be rounded to infinity
    if unit.out_format != FORMATS["float32"] or (problem.c is not None and not steady):
        return
    largest = unit.a_operand.emax + unit.b_operand.emax
    if largest + 2 + problem.shape[3].bit_length() > _SAFE:
        largest = _exponent(problem.a, t) + _exponent(problem.b, t)
    if largest + 2 + problem.shape[3].bit_length() > _SAFE:
        return
    marked = left | (out == unit.nan)
    with np.errstate(invalid="ignore"):
        terms = _terms(problem, t, np.flatnonzero(marked.all(1)), np.flatnonzero(marked.all(0)))
        if terms is None:
            return
        if problem.c is not None:
            c = decode(problem.c[t], unit.out_format)
            terms += np.where(np.isfinite(c), np.float32(0), c)
    np.copyto(out, terms.view(out.dtype), where=left & np.isinf(terms))
    np.copyto(out, out.dtype.type(unit.nan), where=left & np.isnan(terms))


def _exponent(operand: Operand, t: int) -> int:
    """The exponent of the largest finite number of a matrix."""
    fmt = operand.stored
    magnitudes = operand.codes[t] & operand.codes.dtype.type(((1 << fmt.width) - 1) & ~fmt.sign_bit)
    largest = np.where(magnitudes <= fmt.max_code, magnitudes, 0).max(keepdims=True).astype(operand.codes.dtype)
    return int(np.frexp(decode(largest, fmt).astype(np.float64))[1].item())


def _terms(problem: Problem, t: int, rows: Array, columns: Array) -> npt.NDArray[np.float32] | None:
    """The sums of the infinite terms of some rows and columns, zero elsewhere; None where those are too many."""
    _, m, n, _ = problem.shape
    a, b = problem.a.codes[t], problem.b.codes[t]
    left, right = decode(a[rows], problem.a.stored), decode(b[:, columns], problem.b.stored)
    in_a, in_b = np.argwhere(np.isinf(left)), np.argwhere(np.isinf(right))
    if len(in_a) + len(in_b) > _MOST * (m + n):
        return None
    terms = np.zeros((m, n), np.float32)
    for i, k in in_a:
        terms[rows[i]] += np.float32(left[i, k]) * decode(b[k], problem.b.stored).astype(np.float32)
    for k, j in in_b:
        terms[:, columns[j]] += decode(a[:, k], problem.a.stored).astype(np.float32) * np.float32(right[k, j])
    return terms
