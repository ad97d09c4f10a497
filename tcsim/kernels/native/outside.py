"""A schedule's sum of chains of float32 codes, for what runs a chain as whole matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tcsim.codegen.jit import kernel
from tcsim.kernels.general.spec import sums_of
from tcsim.kernels.general.walks import add_outside
from tcsim.problem import Codes, Problem
from tcsim.schedule import walk_plan

# The least normal number less half an ulp: what is smaller is subnormal after its rounding to nearest-even.
LEAST = 2.0**-126 * (1 - 2.0**-25)


@kernel
def add_all(x, y, precision, layout, out):
    """out = x + y, each sum of two float64 rounded once to a format of `precision` bits."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = add_outside(x[i, j], y[i, j], precision, layout)


def walked(problem: Problem, t: int, chain: Callable[[Codes, int, int], Codes]) -> Codes:
    """D of batch element t; see `walked_from`."""
    return walked_from(problem, None if problem.c is None else problem.c[t], np.zeros(problem.shape[1:3], np.uint32), chain)


def walked_from(problem: Problem, c: Codes | None, zero: Codes, chain: Callable[[Codes, int, int], Codes]) -> Codes:
    """c + A·B of some elements in codes of float32: `chain(c, first, last)` adds products first … last - 1 to the codes c.

    One chain from c, or the sum of chains from zero, added as the plan says and rounded as the unit has zeros and subnormals.
    """
    zeros = problem.unit.zeros
    plan, sums = problem.plan, sums_of(problem)
    if plan.sum is None:
        return chain(zero if c is None else c, 0, problem.shape[3])

    def values(codes: Any) -> Any:
        return np.ascontiguousarray(codes).view(np.float32).astype(np.float64)

    def add(x: Any, y: Any) -> Any:
        out = np.empty_like(x)
        add_all(x, y, sums["precision"], sums["layout"], out)
        return out

    with np.errstate(all="ignore"):
        start = None if c is None else values(c)
        total = walk_plan(plan, start, values(zero), lambda _, first, last: values(chain(zero, first, last)), add)
        below = (np.abs(total) < LEAST) & zeros.flush_results
        result = np.where(below, np.copysign(0.0, total), total).astype(np.float32)
        if not zeros.signed:
            result += np.float32(0.0)  # -0 becomes +0
    found: Codes = result.view(np.uint32)
    found[np.isnan(result)] = problem.unit.nan
    return found
