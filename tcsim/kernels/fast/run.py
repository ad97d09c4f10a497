"""The fast path: which problems it holds, how they are cut into tasks, and what it leaves to the general kernel.

`fast.plan` says which units it holds. The arithmetic is told in `fast.tile` and `fast.round`, packing in `fast.pack`, the
walk along k in `fast.drive`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tcsim.gates import asked_of, first
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast.infinities import decide
from tcsim.kernels.fast.job import FastJob
from tcsim.kernels.fast.order import in_order
from tcsim.kernels.fast.plan import EXACT, GATES, fast_plan
from tcsim.kernels.fast.ranges import least_c, operand_exponents
from tcsim.kernels.fast.ready import Ready, codes_read, effort, fed, layout_of, ready, runs_of, sides
from tcsim.kernels.fast.record import A_OFFSET, Exponents, FastPlan
from tcsim.kernels.fast.special import TO_HALF, may_be_one_sum, one_sum_plan, scales_apart
from tcsim.kernels.fast.thin import BYTES
from tcsim.kernels.fast.thin_drive import flat_job, is_flat, multiply_flat, thin_form
from tcsim.kernels.fast.tile import FOLDED, PAIRED, PAIRS, SHIFTED, WIDE
from tcsim.kernels.left import Part, boxes_of
from tcsim.problem import Codes, Problem
from tcsim.tasks import default_threads

LOOK = 1 << 20  # multiply-adds below which wide codes take no longer than to see that narrow ones do
_MANY = 8  # rows and columns from which on multiplying scales into operands takes less than they save
_LARGE = 1 << 13  # multiply-adds below which the general kernel takes no longer than to look for infinities


def fast_supports(problem: Problem) -> bool:
    """Whether the fast path computes this problem, by what its unit's record and its schedule say."""
    return first((*GATES, TO_HALF), asked_of(problem)) is not None


def taken_in_order(how: FastPlan, problem: Problem) -> tuple[FastPlan, Problem]:
    """What computes a problem of a unit with an order of k: a kernel that walks so, or k put in that order beforehand.

    WIDE walks groups of neighbours, in ascending order alone.
    """
    unit = problem.unit
    if unit.k_order is None:
        return how, problem
    paired = how.late and how.width != WIDE and (unit.k_order, unit.block_size, unit.instruction_k) == (PAIRS, 16, 32)
    if paired and not np.any(np.diff(problem.plan.bounds) % len(PAIRS)):
        return how._replace(scaling=PAIRED), problem
    return how, in_order(problem)


def _flat_form(how: FastPlan, problem: Problem) -> tuple[Any, Any] | None:
    """How `thin_drive` reads a flat problem; None where it is not for it."""
    (_, a), (line, b) = sides(problem.unit, (problem.a.stored, problem.b.stored), problem.shape)
    batch, (m, n), k = problem.shape[0], sorted(problem.shape[1:3]), problem.shape[3]
    form = thin_form(a, b, line) if is_flat(problem.unit, how, m, n, batch * n * k) else None
    return None if how.scaling == FOLDED and form is not None and form[0] != BYTES else form


def _multiply_flat(how: FastPlan, problem: Problem, found: Ready, out: Codes) -> tuple[FastJob, Any] | None:
    """What `thin_drive` writes of a flat problem, and the outputs of each task that it leaves; None where it is not for it."""
    form = None if found.layout.dots else _flat_form(how, problem)
    if form is None:
        return None
    (row, a), _ = sides(problem.unit, found.layout.stored, problem.shape)
    batch, job = problem.shape[0], found.job
    job = job._replace(**dict(zip(FastJob._fields, found.at(problem), strict=False)))
    work = effort(problem.shape, True)
    threads = fed(work, found.layout.threads)
    flat, (bounds, table) = flat_job(form[0], job, batch, threads), found.operands[2:]
    shared = (threads, runs_of(work, threads))
    left = multiply_flat(
        how, *form, flat, codes_read(row, a, A_OFFSET, True), found.seeded(problem.seed), bounds, table, shared, out
    )
    return None if left is None else (flat, left)


def _looks(how: FastPlan, problem: Problem) -> bool:
    """Whether a problem's numbers decide between wide codes and narrow ones: not where to look at them takes longer."""
    if not how.words or how.width == EXACT or prod(problem.shape) < LOOK:
        return False
    return _flat_form(how, problem) is None


def _one_sum(how: FastPlan, problem: Problem) -> FastPlan | None:
    """The plan of whole blocks as one sum, where a unit has one and a problem rows and columns enough to pay for its packing."""
    if how.scaling != SHIFTED or min(problem.shape[1:3]) < _MANY or _flat_form(how, problem) is not None:
        return None
    return one_sum_plan(problem.unit)


def _unit_plan(problem: Problem) -> FastPlan:
    """The plan of a problem's unit: of whole blocks as one sum where its scales are so much alike that most blocks' numbers will prove it."""
    how = fast_plan(problem.unit)
    assert how is not None
    whole = _one_sum(how, problem)
    if whole is None or problem.scale_a is None or problem.scale_b is None or not problem.scale_a.size:
        return how
    apart = sum(int(x.max()) - int(x.min()) for x in (problem.scale_a, problem.scale_b))
    return whole if apart <= scales_apart(problem.unit) else how


@lru_cache(maxsize=256)
def _scaled_alike(unit: Unit) -> Unit | None:
    """The unit with a scale for every block, where these may then be one sum: with scales of 1 it computes the same."""
    if unit.scale is not None or not may_be_one_sum(unit):
        return None
    alike = unit.replace(scale="float8_e8m0fnu", scale_block=unit.block_size)
    how = fast_plan(alike)
    return None if how is None or how.scaling != SHIFTED or one_sum_plan(alike) is None else alike


def _with_scales(problem: Problem) -> Problem:
    """The same problem with scales of 1, where whole blocks may be one sum."""
    alike = _scaled_alike(problem.unit)
    if alike is None or np.any(problem.plan.bounds[:-1] % alike.block_size):
        return problem
    how = fast_plan(alike)
    assert how is not None
    batch, m, n, k = problem.shape
    one, count = np.array(127, np.uint8), -(-k // alike.block_size)
    scales = np.broadcast_to(one, (batch, m, count)), np.broadcast_to(one, (batch, count, n))
    scaled = replace(problem, unit=alike, scale_a=scales[0], scale_b=scales[1])
    return problem if _one_sum(how, scaled) is None else scaled


def _plan_of(problem: Problem) -> tuple[FastPlan, Exponents | None]:
    """The plan of a problem; where its unit's takes wide codes, of narrow ones, and for which exponents, if operands and c allow."""
    how = _unit_plan(problem)
    if not _looks(how, problem):
        return how, None
    within = operand_exponents(problem)
    narrow = None if within is None else fast_plan(problem.unit, within)
    if narrow is None or narrow.words:
        return how, None
    if problem.unit.out_format.width == 16:  # any c fits
        return narrow, within
    least, most = least_c(problem)
    return (narrow, within) if narrow.c_least <= least and most <= narrow.c_most else (how, None)


def ready_for(problem: Problem, threads: int | None) -> Ready | None:
    """What computes every problem laid out as this one, whatever its numbers; None where these decide, or an order of k."""
    how = fast_plan(problem.unit)
    assert how is not None
    numbers = _looks(how, problem) or _one_sum(how, problem) is not None or _scaled_alike(problem.unit) is not None
    if problem.unit.k_order is not None or numbers or _flat_form(how, problem) is not None:
        return None
    return ready(layout_of(problem, how, None, threads or default_threads()))


def multiply_fast(problem: Problem, out: Codes, threads: int | None, part: Part) -> None:
    """Write the codes of a supported problem into `out`, C-contiguous (batch, m, n); `part` writes what the fast arithmetic does not hold."""
    whole, problem = problem, _with_scales(problem)
    how, within = _plan_of(problem)
    how, problem = taken_in_order(how, problem)
    found = ready(layout_of(problem, how, within, threads or default_threads()))
    flat = _multiply_flat(how, problem, found, out)
    job, left = flat or (found.job, found.write(found.at(problem), problem.seed, out.reshape(-1)))
    if np.count_nonzero(left):
        each = -(-job.m // job.rows) * -(
            -job.n // job.columns
        )  # tasks of an element of the batch, but for dots: these share them
        dots = found.layout.dots
        elements = np.flatnonzero(out == job.unresolved) if dots else np.unique(np.flatnonzero(left) // each)
        _unresolved(whole, out, job.unresolved, elements, found.threads, part)


def _unresolved(problem: Problem, out: Codes, mark: int, elements: Any, threads: int | None, part: Part) -> None:
    """Compute every output of some batch elements that is marked: infinities of large ones by their signs, the rest in few boxes."""
    unit, depth = problem.unit, problem.shape[3]
    marked = out[elements] == mark
    if unit.scale is None and unit.c_enters == "aligned" and unit.arithmetic == "aligned":
        for i in np.flatnonzero(np.count_nonzero(marked, axis=(1, 2)) * depth >= _LARGE):
            t = int(elements[i])
            decide(problem, t, out[t], marked[i])
            marked[i] = out[t] == mark
    boxes = boxes_of(marked)
    boxes[:, 0] = elements[boxes[:, 0]]
    part(problem, out, boxes, threads)
