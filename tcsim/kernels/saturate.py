"""Integer dot products that stop at the ends of int32: a block at a time, in float64, which holds a block's sum exactly."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.formats import Format
from tcsim.kernels.spec import order_of
from tcsim.problem import Codes, Problem

LEAST, LARGEST = -(1 << 31), (1 << 31) - 1


def run(problem: Problem, out: Codes) -> None:
    """Write the codes of D = C + A·B into `out`; sums outside the unit wrap, as integer additions do."""
    unit, plan = problem.unit, problem.plan
    bounds = plan.bounds.tolist()
    segments = [(bounds[0], bounds[-1])] if plan.sum is None else list(pairwise(bounds))
    for t in range(problem.shape[0]):
        a, b = _values(problem.a.codes[t], unit.a_format), _values(problem.b.codes[t], unit.b_format)
        zero = np.zeros(out.shape[1:])
        c = zero if problem.c is None else _values(problem.c[t], unit.out_format)
        total = _chain(problem, a, b, c, *segments[0]) if plan.sum is None else c
        if plan.sum is not None:
            for start, stop in segments:
                total = total + _chain(problem, a, b, zero, start, stop)
        out[t] = (total.astype(np.int64) & 0xFFFFFFFF).astype(out.dtype)


def _chain(problem: Problem, a: Any, b: Any, total: Any, start: int, stop: int) -> Any:
    unit, order = problem.unit, order_of(problem.unit)
    for base in range(start, stop, unit.instruction_k):
        for i in range(0, order.size, unit.block_size):
            ks = base + order[i : i + unit.block_size]
            ks = ks[ks < stop]
            total = np.clip(total + a[:, ks] @ b[ks], LEAST, LARGEST)
    return total


def _values(codes: Codes, fmt: Format) -> npt.NDArray[np.float64]:
    signed = codes.astype(np.int64)
    return np.where(signed >> (fmt.width - 1), signed - (1 << fmt.width), signed).astype(np.float64)
