"""A schedule's sum of chains of float32 codes, for what runs a chain as whole matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tcsim.codegen.jit import inline, kernel
from tcsim.codegen.memory import TableSide, matrices
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.spec import order_of, sums_of
from tcsim.kernels.general.walks import add_outside
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import walk_plan

# The least normal number less half an ulp: what is smaller is subnormal after its rounding to nearest-even.
LEAST = 2.0**-126 * (1 - 2.0**-25)
_AT_ONCE = 1 << 22  # factors of the problems that are multiplied at once


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


def turned_over(problem: Problem) -> Problem:
    """The problem whose result is this one's with rows as columns, for units that do not ask which factor is whose."""
    unit = problem.unit
    a, b = (Operand(x.codes.swapaxes(1, 2), x.stored) for x in (problem.b, problem.a))
    c = None if problem.c is None else problem.c.swapaxes(1, 2)
    unit = unit if unit.a == unit.b else unit.replace(a=unit.b, b=unit.a)
    return replace(problem, unit=unit, a=a, b=b, c=c)


def side_of(read: Reading, x: Operand, fmt: Format, least: float) -> tuple[Codes, TableSide]:
    """`read(codes, stored, fmt, least)` of an operand, values below `least` being zeros; and the array that must live as long."""
    if x.stored.width > 16:
        values = read(x.codes, x.stored, fmt, least)
        return values, TableSide(matrices(values), np.empty(0, values.dtype))
    return x.codes, TableSide(matrices(x.codes), table_of(read, x.stored, fmt, least))


class Shares(NamedTuple):
    """How outputs are shared out: the columns of every matrix in groups, and its rows in parts."""

    m: int
    n: int
    columns: int  # of a group
    groups: int
    parts: int


def shares_of(batch: int, m: int, n: int, columns: int, rows: int, threads: int) -> tuple[Shares, int]:
    """Groups of so many columns, and parts of at least so many rows, a few for each thread where there are several; how many in all."""
    groups = -(-n // max(columns, 1))
    parts = max(min(-(-m // rows), 4 * threads // max(batch * groups, 1)), 1) if threads > 1 else 1
    return Shares(m, n, min(columns, n), groups, parts), batch * groups * parts


@inline
def share_of(shares, task):
    """The matrix, first row, row behind the last and first column of a share."""
    t, group, part = task // shares.parts // shares.groups, task // shares.parts % shares.groups, task % shares.parts
    return t, shares.m * part // shares.parts, shares.m * (part + 1) // shares.parts, group * shares.columns


@inline
def numbered(count):
    """0 … count - 1."""
    found = np.empty(count, np.int64)
    for j in range(count):
        found[j] = j
    return found


@inline
def line_of(side, t, i, j):
    """Where element (t, i, j) of an operand lies."""
    return side.codes.address + t * side.codes.batch + i * side.codes.row + j * side.codes.column


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
