"""Batches of single outputs, which the fast path multiplies side by side, against the general kernel: any unit, layout, carrier, schedule."""

from __future__ import annotations

import numpy as np
import pytest
from support.patterns import KINDS, codes
from support.random_problems import SUMS, cancel, carried, draw_schedule, drawn_scales, laid_out, operand_codes
from support.random_units import Rng, pick
from support.whatifs import distinct, label, whatifs

import tcsim
from tcsim import reference
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.fast.plan import fast_plan
from tcsim.kernels.fast.ready import dots_fit
from tcsim.problem import Operand, Problem

UNITS = [
    u for u in (*distinct(), *whatifs()) if u.arithmetic == "aligned" and (how := fast_plan(u)) and dots_fit(how, (2, 1, 1, 1))
]


def draw(rng: Rng, unit: Unit) -> Problem:
    batch, k = pick(rng, (2, 3, 15, 16, 17, 63, 64, 65, 130, 300, 700)), int(rng.integers(1, 3 * unit.instruction_k + 2))
    k = int(rng.integers(1, 900)) if rng.random() < 0.1 else k
    kind = pick(rng, (None, *KINDS))
    a, b = (
        operand_codes(rng, fmt, shape) if kind is None else codes(rng, fmt, shape, kind)
        for fmt, shape in ((unit.a_format, (batch, 1, k)), (unit.b_format, (batch, k, 1)))
    )
    if rng.random() < 0.2:
        cancel(rng, unit, a, b)
    c = laid_out(rng, operand_codes(rng, unit.out_format, (batch, 1, 1))) if rng.random() < 0.7 else None
    sides = [carried(rng, x, fmt) for x, fmt in ((a, unit.a_format), (b, unit.b_format))]
    if rng.random() < 0.1:  # one row of a for all
        sides[0] = Operand(np.broadcast_to(sides[0].codes[:1], a.shape), sides[0].stored)
    sides = [Operand(laid_out(rng, x.codes), x.stored) for x in sides]
    plan = draw_schedule(rng, unit, SUMS).plan(k)
    return Problem(
        unit, plan, sides[0], sides[1], c, *drawn_scales(rng, unit, 1, 1, k, batch), seed=int(rng.integers(0, 1 << 62))
    )


@pytest.mark.parametrize("unit", UNITS, ids=label)
@pytest.mark.drawn(40)
def test_dots(unit: Unit, fresh_seed: int) -> None:
    for seed in (7, fresh_seed):
        for number in range(4):
            rng = np.random.default_rng([seed, number])
            problem = draw(rng, unit)
            said = f"draw {number} of seed {seed}: {problem.shape} in {problem.a.stored.name}, {problem.b.stored.name}"
            found = cpu.multiply_cpu(problem, pick(rng, (1, 2, 3)))
            wrong = np.flatnonzero(found != cpu.multiply_cpu(problem, 1, cpu.GENERAL))
            assert not wrong.size, f"{said}: {wrong.size} outputs, the first {wrong[0]}"


def test_most_units_of_the_fast_path_walk_dots() -> None:
    assert len(UNITS) >= 120


def test_a_few_are_the_references(fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    for name in ("v100", "h200"):
        problem = draw(rng, tcsim.unit(name, "float16"))
        assert np.array_equal(cpu.multiply_cpu(problem), reference.multiply_reference(problem))
