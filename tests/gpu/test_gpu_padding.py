"""The certificate of padding: what it lets through has the bits of the unit, what it refuses can differ.

What the tensor core does is the compiled backend on the record of the GPU that would be present.
"""

from dataclasses import replace

import numpy as np
import pytest
from support.proofs import SEEDS, padded_unit
from support.random_units import written
from tcsim_gpu import certificates, native, what_ifs

import tcsim
from tcsim import reference
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential


def through(problem: Problem, unit: Unit) -> np.ndarray:
    """A problem as the GEMM kernel lays it out, on the record that it runs."""
    order = native.places(problem.unit, unit, problem.shape[3])
    order = np.concatenate([order, np.full(unit.block_size, -1)])  # the kernel fills whole tiles: a block of zeros at the end
    a = np.where(order < 0, 0, problem.a.codes[:, :, order]).astype(problem.a.codes.dtype)
    b = np.where(order[:, None] < 0, 0, problem.b.codes[:, order]).astype(problem.b.codes.dtype)
    x, y = Operand(a, problem.a.stored), Operand(b, problem.b.stored)
    return cpu.multiply_cpu(replace(problem, unit=unit, plan=Sequential().plan(order.size), a=x, b=y), 1)


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_padding_gives_the_bits_of_the_unit(seed: int) -> None:
    proved = refused = 0
    for i in range(400):
        draw = what_ifs.Draw((seed, i))
        unit, base = padded_unit(draw)
        problem = what_ifs.problem(draw, unit)
        problem = replace(problem, plan=Sequential().plan(problem.shape[3]))
        if certificates.padding(unit, base) is not None:
            refused += 1
            continue
        proved += 1
        stated = f"seed {(seed, i)}: {written(unit)}"
        np.testing.assert_array_equal(through(problem, base), reference.multiply_reference(problem), stated)
    assert proved > 100
    assert refused > 50


def test_what_padding_refuses_can_differ() -> None:
    """A floor that the unit has and the core has not, a wider sum, another block: some problem tells each of them."""
    base = tcsim.unit("h200", "bfloat16")
    for change in ({"min_exponent": -100}, {"fraction_bits": 24}, {"out_precision": 20}, {"rounding": "rne"}):
        unit = base.replace(block_size=4, **change)
        assert certificates.padding(unit, base) is not None
        problems = (what_ifs.problem(what_ifs.Draw((7, i)), unit) for i in range(600))
        alike = (replace(p, plan=Sequential().plan(p.shape[3])) for p in problems)
        assert any((through(p, base) != cpu.multiply_cpu(p, 1)).any() for p in alike), change
