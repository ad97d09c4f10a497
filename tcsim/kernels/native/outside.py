"""A schedule's sum of chains of float32 codes, for what runs a chain as whole matrices."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tcsim.codegen.jit import kernel
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.spec import order_of, sums_of
from tcsim.kernels.general.walks import add_outside
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import walk_plan
from tcsim.tasks import run_tasks

# The least normal number less half an ulp: what is smaller is subnormal after its rounding to nearest-even.
LEAST = 2.0**-126 * (1 - 2.0**-25)
_AT_ONCE = 1 << 22  # factors that are decoded before they are multiplied


@kernel
def add_all(x, y, precision, layout, out):
    """out = x + y, each sum of two float64 rounded once to a format of `precision` bits."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = add_outside(x[i, j], y[i, j], precision, layout)


def products_taken(unit: Unit, first: int, last: int) -> tuple[Any, Any]:
    """(ks, starts): products first … last - 1 in a unit's order, absent ones left out, and where its blocks of them start and end."""
    order = order_of(unit)
    ks = (np.arange(first, last, order.size)[:, None] + order).reshape(-1)
    counts = (ks < last).reshape(-1, unit.block_size).sum(axis=1)
    return ks[ks < last], np.append(0, np.cumsum(counts[counts > 0]))


Reading: TypeAlias = Callable[[Codes, Format, Format, float], Any]


@kernel
def gather_entries(first, last, codes, table, out):
    """out[i] = table[codes[i]]."""
    for i in range(first, last):
        out[i] = table[codes[i]]


def read_factors(read: Reading, x: Operand, fmt: Format, least: float, threads: int | None) -> Any:
    """`read(codes, stored, fmt, least)` of an operand, values below `least` being zeros; by a table where there are few codes."""
    if x.stored.width > 16:
        return read(x.codes, x.stored, fmt, least)
    table = table_of(read, x.stored, fmt, least)
    values = np.empty(x.codes.shape, table.dtype)
    run_tasks(gather_entries, x.codes.size, threads, np.ascontiguousarray(x.codes).reshape(-1), table, values.reshape(-1))
    return values


@lru_cache(maxsize=16)
def table_of(read: Reading, stored: Format, fmt: Format, least: float) -> Any:
    """What `read` makes of every code of a format of at most 16 bits."""
    return read(np.arange(1 << stored.width, dtype=stored.storage), stored, fmt, least)


Chain: TypeAlias = Callable[[Codes, int, int], Codes]


def walk_batch(problem: Problem, out: Codes, chain_of: Callable[[slice], Chain]) -> None:
    """Write the codes of D into `out`, (batch, m, n): `chain_of` says what adds products to some elements' rows, one below another."""
    batch, m, n, k = problem.shape
    some = max(_AT_ONCE // max((m + n) * k, 1), 1)
    for first in range(0, batch, some):
        ts = slice(first, min(first + some, batch))
        count = ts.stop - first
        rows = count * m
        c = None if problem.c is None else problem.c[ts].reshape(rows, n)
        out[ts] = walked(problem, c, np.zeros((rows, n), np.uint32), chain_of(ts)).reshape(count, m, n)


def walked(problem: Problem, c: Codes | None, zero: Codes, chain: Chain) -> Codes:
    """c + A·B in codes of float32: `chain(c, first, last)` adds products first … last - 1 to the codes c.

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
