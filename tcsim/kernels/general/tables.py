"""Operands as the general kernel reads them: codes of one or two bytes by a table of the numbers that they are.

To decode a code is the work of twenty products, which a batch of single outputs does for every product twice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tcsim.codegen.jit import inline, kernel, noalias
from tcsim.codegen.memory import TableSide, matrices
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.numbers import FINITE, ZERO_E, bit_length, decode_number, layout
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


@kernel
def fill_table(stored, emin, precision, flush, entries):
    """Entries of all codes."""
    for code in range(entries.size):
        sig, e, mark = number_of(np.int64(code), stored, emin, precision, flush)
        entries[code] = sig << _SIGNIFICAND | (e & ((1 << _EXPONENT) - 1)) << _MARK | mark


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
def _table(stored: Format, codes: int, emin: int, precision: int, flush: int) -> Any:
    entries = np.empty(codes, np.int64)
    fill_table(layout(stored), emin, precision, flush, entries)
    return entries


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
