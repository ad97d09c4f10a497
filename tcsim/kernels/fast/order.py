"""Units that take k in an order of their own: their problem with k put in that order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tcsim.problem import Operand, Problem


def in_order(problem: Problem) -> Problem:
    """An equal problem of the same unit with ascending k: every instruction's products in the unit's order.

    What a segment's last instruction lacks is filled with zeros, so that no block moves. Zero terms change nothing there: the
    instruction starts from a zero, so that the unit's floor holds anyhow, and blocks of zeros alone cut nothing off its sum (the gate asks
    for whole ones elsewhere).
    """
    unit, bounds = problem.unit, problem.plan.bounds
    if unit.k_order is None:
        return problem
    period, order = len(unit.k_order), np.array(unit.k_order)
    counts = -(-np.diff(bounds) // period)
    starts = np.concatenate([start + period * np.arange(n) for start, n in zip(bounds[:-1], counts, strict=True)])
    index = (starts[:, None] + order).reshape(-1)
    last = np.repeat(np.repeat(bounds[1:], counts), period)
    missing = np.flatnonzero(index >= last)
    index[missing] = 0
    a, b = problem.a.codes[:, :, index], problem.b.codes[:, index]
    a[:, :, missing], b[:, missing] = 0, 0
    plan = replace(problem.plan, bounds=np.concatenate([[0], np.cumsum(counts * period)]).astype(bounds.dtype))
    changed = replace(unit, k_order=None)
    return replace(problem, unit=changed, plan=plan, a=Operand(a, problem.a.stored), b=Operand(b, problem.b.stored))
