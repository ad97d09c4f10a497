"""What kernels leave to others: found in few boxes, and written as the general kernel writes it."""

from __future__ import annotations

import numpy as np
import pytest
from support.patterns import operands
from support.whatifs import label

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.left import SMALL, boxes_of
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

H200 = tcsim.unit("h200", "float16")
LEAVING = [H200, H200.replace(rounding="sr"), tcsim.unit("a100", "float16", out="float16"), tcsim.unit("h100", "float8_e4m3fn", out="float16"), *(tcsim.unit("a100", x) for x in ("tfloat32", "float64"))]  # fmt: skip


@pytest.mark.parametrize("shape", [(40, 4, 8, 24), (30, 16, 16, 40), (9, 70, 5, 33), (9, 5, 70, 33), (3, 70, 90, 300)])
@pytest.mark.parametrize("unit", LEAVING, ids=label)
def test_batches_with_outputs_left(unit: Unit, shape: tuple[int, int, int, int], fresh_seed: int) -> None:
    """Numbers that the fast arithmetic does not hold, in few elements of a batch or in all: infinities, NaN, the largest."""
    rng = np.random.default_rng(fresh_seed)
    batch, m, n, k = shape
    for count in (0.2, 1.0, 30.0):
        drawn = [operands(rng, unit, m, n, k, "mid") for _ in range(batch)]
        a, b, c = (np.stack([parts[i] for parts in drawn]) for i in range(3))
        for codes, fmt in ((a, unit.a_format), (b, unit.b_format), (c, unit.out_format)):
            specials = [x for x in (fmt.inf_code, fmt.max_code, fmt.nan_code) if x is not None]
            where = rng.random(codes.shape) < count / 3 / codes[0].size
            codes[where] = rng.choice(specials, np.count_nonzero(where))
        problem = Problem(unit, Sequential().plan(k), Operand(a, unit.a_format), Operand(b, unit.b_format), c, seed=5)
        assert np.array_equal(cpu.multiply_cpu(problem, 2), cpu.multiply_cpu(problem, 1, cpu.GENERAL))


@pytest.mark.parametrize("shape", [(1, 90, 140), (60, 1, 1), (40, 4, 8), (3, 1, 300), (2, 70, 2)])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.5, 1.0])
def test_boxes_hold_every_mark_once(shape: tuple[int, int, int], share: float, fresh_seed: int) -> None:
    marked = np.random.default_rng(fresh_seed).random(shape) < share
    boxes = boxes_of(marked)
    seen = np.zeros(shape, int)
    for t, i0, i1, j0, j1 in boxes:
        seen[t, i0:i1, j0:j1] += 1
    assert seen.max(initial=0) <= 1
    assert (seen[marked] == 1).all()
    assert share < 1.0 or len(boxes) == shape[0]
    assert seen.sum() <= 4 * marked.sum() + SMALL * len(boxes)
    assert all(marked[t, i0:i1, j0:j1].any() for t, i0, i1, j0, j1 in boxes)
