"""Units whose instructions add in float32 and give float16: one instruction at a time on the kernels of the wide unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Sequential

Run = Callable[[Problem], Codes]


def run(problem: Problem, out: Codes, run_wide: Run) -> None:
    """Write the codes of D = C + A·B into `out`; `run_wide` computes problems of the unit's wide one."""
    plan = problem.plan
    bounds = plan.bounds.tolist()
    zero = np.zeros(out.shape, np.float16)
    c = zero if problem.c is None else problem.c.view(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        if plan.sum is None:
            total = _chain(problem, c, bounds[0], bounds[-1], run_wide)
        else:
            total = (c if plan.c_first else zero).astype(plan.sum)
            for start, stop in pairwise(bounds):
                total = total + _chain(problem, zero, start, stop, run_wide).astype(plan.sum)
            if problem.c is not None and not plan.c_first:
                total = total + c.astype(plan.sum)
        narrow = _signed(problem, total.astype(np.float16))
    out[:] = np.where(np.isnan(narrow), out.dtype.type(problem.unit.nan), narrow.view(out.dtype))


def _chain(problem: Problem, c: Any, start: int, stop: int, run_wide: Run) -> Any:
    for base in range(start, stop, problem.unit.instruction_k):
        end = min(base + problem.unit.instruction_k, stop)
        part = replace(
            problem,
            unit=problem.unit.wide,
            plan=Sequential().plan(end - base),
            a=Operand(problem.a.codes[:, :, base:end], problem.a.stored),
            b=Operand(problem.b.codes[:, base:end], problem.b.stored),
            c=c.astype(np.float32).view(np.uint32),
        )
        c = _signed(problem, run_wide(part).view(np.float32).astype(np.float16))
    return c


def _signed(problem: Problem, x: Any) -> Any:
    """Zeros as the unit has them: a tiny negative number becomes +0 where every zero is."""
    return x if problem.unit.zero_sign == "ieee" else x + np.float16(0)
