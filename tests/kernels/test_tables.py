"""What the general kernel looks up of a code of two bytes at most is what it would decode."""

from __future__ import annotations

import numpy as np
import pytest
from support import fresh
from support.random_units import draw_unit

from tcsim.codegen import jit
from tcsim.codegen.memory import at
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.numbers import layout
from tcsim.kernels.general.panel import decode_line
from tcsim.kernels.general.spec import significands
from tcsim.kernels.general.tables import read_entries, sides_of
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential


@jit.kernel
def both(codes, table, stored, emin, precision, flush, fixed, entries, looked_up, decoded):  # type: ignore[no-untyped-def]
    """Significands, exponents and marks of codes, in two ways; and what both say of NaNs and infinities."""
    for i in range(codes.size):
        entries[i] = table[codes[i]]
    x, y, count = looked_up, decoded, codes.size
    found = read_entries(at(entries, 0), count, emin, fixed, at(x[0], 0), at(x[1], 0), at(x[2], 0))
    return found, decode_line(at(codes, 0), count, stored, emin, precision, flush, fixed, at(y[0], 0), at(y[1], 0), at(y[2], 0))


def _problem(unit: Unit) -> Problem:
    a, b = (np.zeros((1, 1, 1), fmt.storage) for fmt in (unit.a_format, unit.b_format))
    scales = [] if unit.scale_format is None else [np.zeros((1, 1, 1), unit.scale_format.storage)] * 2
    return Problem(unit, Sequential().plan(1), Operand(a, unit.a_format), Operand(b, unit.b_format), None, *scales)


@pytest.mark.parametrize("seed", fresh.seeds(1).values(), ids=fresh.seeds(1))
def test_every_code_of_random_units(seed: int) -> None:
    """Codes that no format has, too; subnormals flushed and kept, numbers in fixed point and not."""
    looked_at = 0
    for i in range(60):
        unit = draw_unit(np.random.default_rng([seed, i]))
        if unit.arithmetic == "integer":
            continue
        problem = _problem(unit)
        sides = sides_of(problem, problem.a.codes, problem.b.codes)
        given = zip(sides, (unit.a_format, unit.b_format), (unit.a_operand, unit.b_operand), significands(unit), strict=True)
        for side, stored, multiplied, precision in given:
            codes = np.arange(side.table.size)
            assert codes.size == (1 << 8 * np.dtype(stored.storage).itemsize if stored.width <= 16 and precision < 32 else 0)
            for fixed in (False, True) if codes.size and multiplied.emax - multiplied.emin + precision < 63 else (False,):
                looked_up, decoded = np.zeros((2, 3, max(codes.size, 1)), np.int64)
                flush, entries = int(unit.zeros.flush_operands), np.zeros_like(codes)
                told = both(
                    codes, side.table, layout(stored), multiplied.emin, precision, flush, fixed, entries, looked_up, decoded
                )
                assert told[0] == told[1]
                assert np.array_equal(looked_up, decoded), (stored, multiplied, flush, fixed)
            looked_at += codes.size > 0
    assert looked_at > 20
