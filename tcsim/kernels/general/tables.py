"""Operands as the general kernel reads them: codes of one or two bytes by a table of the numbers that they are.

To decode a code is the work of twenty products, which a batch of single outputs does for every product twice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.codegen.jit import inline, noalias
from tcsim.codegen.memory import TableSide, matrices
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.numbers import FINITE, NAN, PLUS_INF, ZERO_E, bit_length, decode_number, layout
from tcsim.kernels.general.spec import significands
from tcsim.problem import Codes, Problem

_SIGNIFICAND, _EXPONENT, _MARK = 32, 24, 8  # bits of each in an entry, from above


@inline
def number_of(code, stored, emin, precision, flush):
    """Significand, exponent and mark (special + 4·negative) of a code; subnormals and zeros are +0 where the unit flushes them."""
    x, e, negative, special = decode_number(code, stored, emin, precision)
    small = (flush != 0) & (bit_length(abs(x)) < precision) & (special == FINITE)
    x = np.int64(0) if small else x
    negative = np.int64(0) if small else negative
    return x, e if x != 0 else np.int64(ZERO_E), special + 4 * negative


@noalias
def read_entries(entries, count, emin, fixed, sig, e, mark):
    """Significands, exponents and marks of the first `count` entries; whether any is NaN or infinite. As `panel.decode_line`."""
    found = np.int64(0)
    for i in range(count):
        x, ex, m = (
            entries[i] >> _SIGNIFICAND,
            entries[i] << _SIGNIFICAND >> (_SIGNIFICAND + _MARK),
            entries[i] & ((1 << _MARK) - 1),
        )
        up = ex - emin if fixed and x != 0 else np.int64(0)
        sig[i], e[i], mark[i] = x << up, ex - up, m
        found |= m & 3
    return found != 0


@lru_cache(maxsize=16)
def _table(stored: Format, codes: int, emin: int, precision: int, flush: int) -> npt.NDArray[np.int64]:
    """Entries of all codes: `number_of`, of 65,536 codes in the time in which a kernel for it would be loaded."""
    code, has = np.arange(codes), layout(stored)
    magnitude = code & ~has.sign
    fields = magnitude >> has.padding
    field = fields >> has.mantissa
    normal = (field > 0) | (has.zero == 0)
    significand = fields & ((1 << has.mantissa) - 1) | normal.astype(np.int64) << has.mantissa
    lsb = field + 1 - normal - has.bias - has.mantissa
    e = np.maximum(_bit_lengths(significand) - 1 + lsb, emin)
    up = lsb - (e - (precision - 1))
    sig = significand << np.clip(up, 0, 63) >> np.clip(-up, 0, 63)
    minus = code & has.sign != 0
    no_number = (code == has.nan_code) | (magnitude > has.max_code)
    other = np.where(magnitude == has.inf_code, PLUS_INF + minus, NAN)
    flushed = (flush != 0) & (_bit_lengths(sig) < precision) & ~no_number
    sig = np.where(no_number | flushed, 0, np.where(minus, -sig, sig))
    mark = np.where(no_number, other, FINITE) + 4 * (minus & ~flushed)
    e = np.where(sig == 0, ZERO_E, e)
    entries: npt.NDArray[np.int64] = sig << _SIGNIFICAND | (e & ((1 << _EXPONENT) - 1)) << _MARK | mark
    return entries


def _bit_lengths(x: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bits of integers from 0 to 2^53."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


_NONE = np.empty(0, np.int64)


def tables_of(unit: Unit, a: Format, a_bytes: int, b: Format, b_bytes: int) -> tuple[Any, Any]:
    """Those of both operands, empty ones where there is none."""
    flush = int(unit.zeros.flush_operands)
    sides = zip((a, b), (a_bytes, b_bytes), (unit.a_operand, unit.b_operand), significands(unit), strict=True)
    found = [
        _table(stored, 1 << 8 * size, multiplied.emin, precision, flush) if size <= 2 and precision < _SIGNIFICAND else _NONE
        for stored, size, multiplied, precision in sides
    ]
    return found[0], found[1]


def sides_of(problem: Problem, a: Codes, b: Codes) -> tuple[TableSide, TableSide]:
    """Both operands of a problem, whose codes may be laid out otherwise there."""
    left, right = tables_of(problem.unit, problem.a.stored, a.itemsize, problem.b.stored, b.itemsize)
    return TableSide(matrices(a), left), TableSide(matrices(b), right)
