"""Kernels that go by shape and layout give the same bits in all: flat, turned over, ragged, several tasks, any strides.

Every problem is drawn: outputs are compared with the reference's at some places (the last row and column are among them), and all of
them with the general kernel's, or, where a kernel has no second one, with its own of one output after the other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.patterns import codes
from support.random_problems import SUMS, as_dots, by_general, carried, draw_schedule, drawn_scales, laid_out, operand_codes
from support.random_units import Rng, pick
from support.whatifs import label

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.fast import thin_drive
from tcsim.problem import Codes, Operand, Problem
from tcsim.reference.dot import multiply_reference

UNITS = [
    tcsim.unit("h200", "int8"),
    tcsim.unit("h200", "float64"),
    tcsim.unit("h200", "float64").replace(rounding="rz", nan_from="code"),
    tcsim.unit("mi100", "float32"),
    tcsim.unit("mi100", "float32").replace(rounding="ru"),
    tcsim.unit("x86", "bfloat16", instruction="vdpbf16ps"),
    tcsim.unit("x86", "bfloat16", instruction="tdpbf16ps"),
    tcsim.unit("rdna3", "float16"),
    tcsim.unit("rdna4", "bfloat16"),
    tcsim.unit("rdna4", "float16", instruction="wmma_w64"),
    tcsim.unit("x86", "bfloat16", instruction="vdpbf16ps").replace(b="float16"),
    tcsim.unit("rdna3", "float16").replace(b="bfloat16"),
    tcsim.unit("v100", "float16"),
    tcsim.unit("b200", "float8_e4m3fn"),
    tcsim.unit("b200", "nvfp4"),
    tcsim.unit("b200", "mxfp4"),
    tcsim.unit("b200", "mxfp4_block16").replace(rounding="rne"),
    tcsim.unit("b200", "mxfp8_e4m3"),
]
SIDES = (1, 1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 130, 300)
_MOST, _FLAT = 20_000, thin_drive.LEAST  # multiply-adds of a problem, about; elements of b of a flat one


def draw(rng: Rng, unit: Unit) -> Problem:
    """A problem of a drawn shape: a third of them with one row or column."""
    m, n = (1, pick(rng, SIDES)) if rng.random() < 0.33 else (pick(rng, SIDES), pick(rng, SIDES))
    batch, most = pick(rng, (1, 1, 1, 2, 3)), _MOST
    if rng.random() < 0.25:
        m, n, batch, most = int(rng.integers(1, 5)), int(rng.integers(64, 1100)), 1, 2 * _FLAT
    m, n = (n, m) if rng.random() < 0.5 else (m, n)
    k = int(rng.integers(1, max(min(most // (batch * m * n), 600), 2)))
    k = max(k, -(-_FLAT // max(m, n))) if most > _MOST else k
    drawn = partial(codes, kind="special") if rng.random() < 0.2 else operand_codes  # NaNs of both factors meet
    a, b = drawn(rng, unit.a_format, (batch, m, k)), drawn(rng, unit.b_format, (batch, k, n))
    c = laid_out(rng, operand_codes(rng, unit.out_format, (batch, m, n))) if rng.random() < 0.6 else None
    sides = []
    for x, fmt in ((a, unit.a_format), (b, unit.b_format)):
        stored = carried(rng, x, fmt)
        sides.append(Operand(laid_out(rng, stored.codes), stored.stored))
    schedule = draw_schedule(rng, unit, () if unit.arithmetic == "integer" else SUMS)
    scales = drawn_scales(rng, unit, m, n, k, batch)
    return Problem(unit, schedule.plan(k), *sides, c, *(laid_out(rng, x) for x in scales), seed=int(rng.integers(0, 1 << 62)))


def part_of(problem: Problem, t: int, i: int, j: int) -> Problem:
    """One output's problem."""
    return replace(
        problem,
        a=replace(problem.a, codes=problem.a.codes[t : t + 1, i : i + 1]),
        b=replace(problem.b, codes=problem.b.codes[t : t + 1, :, j : j + 1]),
        c=None if problem.c is None else problem.c[t : t + 1, i : i + 1, j : j + 1],
        scale_a=None if problem.scale_a is None else problem.scale_a[t : t + 1, i : i + 1],
        scale_b=None if problem.scale_b is None else problem.scale_b[t : t + 1, :, j : j + 1],
    )


def check(seed: int, number: int, unit: Unit) -> None:
    rng = np.random.default_rng([seed, number])
    problem = draw(rng, unit)
    found: Codes = cpu.multiply_cpu(problem, pick(rng, (1, 2, 3)))
    batch, m, n, k = problem.shape
    said = f"draw {number} of seed {seed}: {problem.shape} in {problem.a.stored.name}, {problem.b.stored.name}"
    places = [
        (batch - 1, m - 1, n - 1),
        *((int(rng.integers(batch)), int(rng.integers(m)), int(rng.integers(n))) for _ in range(3)),
    ]
    for t, i, j in places[: 1 + 600 // k]:
        assert found[t, i, j] == multiply_reference(part_of(problem, t, i, j))[0, 0, 0], f"{said}, output {t}, {i}, {j}"
    other = by_general(problem) if unit.arithmetic == "aligned" else as_dots(problem)
    if other is not None:
        wrong = np.argwhere(found != other)
        assert not wrong.size, f"{said}: {len(wrong)} outputs, the first {wrong[0]}"


@pytest.mark.parametrize("unit", UNITS, ids=label)
@pytest.mark.drawn(6)
def test_shapes_and_layouts(unit: Unit, fresh_seed: int) -> None:
    for number in range(10):
        check(12, number, unit)
        check(fresh_seed, number, unit)
