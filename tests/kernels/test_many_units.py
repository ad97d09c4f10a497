"""One question laid out once and asked of many units: what each answers is what it answers alone."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from support import fresh
from support.patterns import KINDS, operands
from support.random_units import draw_unit, near

from tcsim.hardware.unit import Unit
from tcsim.kernels.general.run import Arrays, multiply_general
from tcsim.kernels.narrow import GATE, Instructions
from tcsim.problem import Operand, Problem
from tcsim.reference import multiply_reference
from tcsim.schedule import Sequential


def _question(unit: Unit, rng: np.random.Generator, single: bool) -> Problem:
    """Matrices, or many single outputs."""
    m, n, k = (1, 1, 3) if single else (3, 2, unit.block_size + 1)
    drawn = [operands(rng, unit, m, n, k, "bits") for _ in range(6)]
    a, b, c = (np.stack(part) for part in zip(*drawn, strict=True))
    scales = []
    if unit.scale_format is not None:
        count = -(-k // unit.scale_block)
        codes = unit.scale_format.max_code
        scales = [
            rng.integers(0, codes + 1, shape).astype(unit.scale_format.storage) for shape in ((6, m, count), (6, count, n))
        ]
    return Problem(
        unit, Sequential().plan(k), Operand(a, unit.a_format), Operand(b, unit.b_format), c, *(scales or (None, None)), seed=3
    )


def _for(problem: Problem, unit: Unit) -> Problem:
    return Problem(unit, problem.plan, problem.a, problem.b, problem.c, problem.scale_a, problem.scale_b, problem.seed)


def _alike(unit: Unit, other: Unit) -> bool:
    """Whether the same question can be asked of both by the general kernel."""
    same = ("a_format", "b_format", "out_format", "scale_format", "scale_block")
    able = other.arithmetic not in ("integer", "fused", "paired") and other.sum_format is None and not other.keeps_nan
    return able and all(getattr(unit, name) == getattr(other, name) for name in same)


@pytest.mark.parametrize("single", [False, True], ids=["matrices", "single outputs"])
@pytest.mark.parametrize("seed", fresh.seeds(1).values(), ids=fresh.seeds(1))
def test_units_asked_in_turn_answer_as_alone(seed: int, single: bool) -> None:
    asked = 0
    for i in range(40):
        rng = np.random.default_rng([seed, i])
        unit = draw_unit(rng)
        others = [x for x in (unit, *(near(rng, unit) for _ in range(6))) if _alike(unit, x)]
        if not others or others[0] is not unit:
            continue
        problem = _question(unit, rng, single)
        arrays = Arrays(problem, 1)
        for other in (*others, *others[::-1]):
            out = np.empty(problem.shape[:3], unit.out_format.storage)
            arrays.write(other, out, problem.seed)
            np.testing.assert_array_equal(out, multiply_reference(_for(problem, other)), err_msg=repr(other))
            asked += 1
    assert asked > 60


def test_results_of_other_strides_and_arrays_of_another_process() -> None:
    rng = np.random.default_rng(4)
    unit = Unit("random", "mma", "float16", "float16", "float32", 4, 24)
    problem = _question(unit, rng, single=False)
    wanted = multiply_reference(problem)
    arrays, room = Arrays(problem, 1), np.zeros((*problem.shape[:3], 2), np.uint32)
    for out in (np.empty_like(wanted), room[..., 1], np.empty_like(wanted)):
        arrays.write(unit, out, problem.seed)
        np.testing.assert_array_equal(out, wanted)
    assert not room[..., 0].any()
    moved = pickle.loads(pickle.dumps(arrays))
    assert moved.problem.a.codes is not problem.a.codes
    out = np.empty_like(wanted)
    moved.write(unit, out, problem.seed)
    np.testing.assert_array_equal(out, wanted)


def test_random_words_are_those_of_a_place() -> None:
    rng = np.random.default_rng(5)
    unit = Unit("random", "mma", "float16", "float16", "float8_e5m2", 4, 24, rounding="sr")
    problem = _question(unit, rng, single=True)
    every, some = np.empty(problem.shape[:3], np.uint8), np.empty((2, 1, 1), np.uint8)
    multiply_general(problem, every, 1)
    places = np.array([4, 1])
    few = Problem(
        unit, problem.plan, *(Operand(x.codes[places], x.stored) for x in (problem.a, problem.b)), problem.c[places], seed=3
    )
    Arrays(few, 1).write(unit, some, 3, places)
    np.testing.assert_array_equal(some, every[places])


@pytest.mark.parametrize("seed", fresh.seeds(1).values(), ids=fresh.seeds(1))
def test_units_with_wider_sums_asked_in_turn_answer_as_alone(seed: int) -> None:
    """Instruction by instruction, of any length, specials and subnormals among the operands; a copy of what is laid out, too."""
    rng = np.random.default_rng(seed)
    begun = Unit("random", "mma", "float16", "float8_e5m2", "float16", 4, 24, c_enters="after", sum_format="float32", chain=2)
    for k in (1, 7, 8, 17):
        drawn = [operands(rng, begun, 3, 2, k, kind) for kind in KINDS]
        a, b, c = (np.stack(part) for part in zip(*drawn, strict=True))
        problem = Problem(
            begun, Sequential().plan(k), Operand(a, begun.a_format), Operand(b, begun.b_format), c, None, None, seed=0
        )
        laid_out = Instructions(problem)
        for _ in range(12):
            unit = begun.replace(
                block_size=int(rng.integers(1, 6)), chain=int(rng.integers(1, 4)), chains=int(rng.integers(1, 3)),
                fraction_bits=int(rng.integers(8, 30)), align_rounding=str(rng.choice(["rz", "rne", "rd", "ro"])),
                rounding=str(rng.choice(["rz", "rne", "ru", "rna"])), zero_sign=str(rng.choice(["positive", "ieee"])),
            )  # fmt: skip
            assert GATE.takes(unit)
            expected = multiply_reference(_for(problem, unit))
            for arrays in (laid_out, pickle.loads(pickle.dumps(laid_out))):
                found = np.zeros_like(c)
                arrays.write(unit, found)
                assert np.array_equal(found, expected), unit
