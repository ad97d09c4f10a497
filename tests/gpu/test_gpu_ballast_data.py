"""What is done before the kernel of ballast: places, what a corner of the operands tells, and products that the emulator adds first."""

import numpy as np
import pytest
from support.ballast_draws import A100, BF16, FLOAT16, V100, drawn_problem, drawn_unit
from support.fresh import seeds
from tcsim_gpu import ballast, what_ifs

import tcsim
from tcsim import reference
from tcsim.problem import Operand

SEEDS = seeds(20261123)


def test_places_are_whole_chunks() -> None:
    for unit, k in ((A100, 1), (A100, 17), (V100, 5), (V100, 8), (V100.replace(block_size=3), 7)):
        order = ballast.ballast_places(unit, k)
        assert order.size % 8 == 0
        assert sorted(order[order >= 0].tolist()) == list(range(k))
        first = order.reshape(-1, ballast.ballast_width(unit))[0]
        assert first[first >= 0].tolist() == list(range(min(k, unit.block_size)))


def test_a_corner_of_both_signs_is_seen() -> None:
    for codes, both in (([0x3C00, 0xBC00], True), ([0x3C00, 0x8000], False), ([0xBC00, 0], False), ([1, 0x8001], True)):
        assert ballast.mixed_signs(ballast.corner_values(Operand(np.array([[codes]], np.uint16), FLOAT16))) == both


def test_products_of_different_sizes_are_seen() -> None:
    rng = np.random.default_rng(5)
    for unit, values, expected in ((V100, rng.random, False), (BF16, lambda s: np.exp(rng.standard_normal(s)), True)):
        a, b = (tcsim.round_to(values((9, 70, 80)), str(unit.a)) for _ in range(2))
        sides = (Operand(tcsim.encode(x, str(unit.a)), unit.a_format) for x in (a, b.transpose(0, 2, 1)))
        corners = [ballast.corner_values(side) for side in sides]
        assert corners[0].shape == corners[1].shape == (9, 64, 64)
        assert ballast.differ_in_size(*corners) == expected


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_what_remains_after_a_head_is_the_rest_of_the_walk(seed: int) -> None:
    for index in range(30):
        draw = what_ifs.Draw((seed, 5, index))
        unit = drawn_unit(draw)
        problem = drawn_problem(draw, unit)
        k, step = problem.shape[3], unit.instruction_k
        if k > step:
            head = step * draw.between(1, (k - 1) // step)
            rest = ballast.after_head(problem, head, reference.multiply_reference)
            assert rest.shape[3] == k - head
            assert (reference.multiply_reference(rest) == reference.multiply_reference(problem)).all()
