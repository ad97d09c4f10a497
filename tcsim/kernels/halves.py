"""Units whose instructions add in float32 and give float16 in float64 lanes: a whole chain at once, where `narrow` runs it in pieces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tcsim.gates import Gate, operands, schedules
from tcsim.kernels import narrow
from tcsim.kernels.left import Part, boxes_of
from tcsim.kernels.native import double, double_plan
from tcsim.problem import Codes, Problem

GATE = Gate(
    "float64 lanes rounded to float16",
    {
        **narrow.GATE.fields,
        "sum_format": lambda unit: unit.sum_format == "float32" and double_plan.GATE.takes(unit.inner),
    },
    {**schedules(None, "float16", "float32"), **operands(lambda asked, stored: not stored.integer)},
)


def multiply_halves(problem: Problem, out: Codes, threads: int | None, part: Part) -> None:
    """Write the codes of D = C + A·B into `out`; `part` writes the outputs that float64 lanes leave."""
    c = None if problem.c is None else problem.c.view(np.float16).astype(np.float32).view(np.uint32)
    wide = np.zeros(out.shape, np.uint32)
    inside = replace(problem, unit=problem.unit.inner, c=c)
    left = double.write_in_lanes(inside, wide, threads, problem.unit)
    with np.errstate(over="ignore"):
        out[:] = narrow.signed(problem.unit, wide.view(np.float32).astype(np.float16)).view(out.dtype)
    part(problem, out, boxes_of(left), threads)
