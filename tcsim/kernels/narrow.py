"""Units whose instructions add in float32 and give float16: one instruction at a time on the kernels of the wide unit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.fp.formats import FORMATS
from tcsim.fp.modes import MODES, UNIT_MODES
from tcsim.gates import (
    ANY_SUM,
    LABELS,
    ONE_NAN,
    Gate,
    any_format,
    any_formats,
    one_of,
    only,
    operands,
    schedules,
    up_to,
)
from tcsim.hardware.unit import Unit
from tcsim.kernels.choice import Kernels, compute_codes
from tcsim.kernels.general import run as general
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Sequential, walk_plan

# Random words are numbered along the whole of k, which one instruction at a time does not see.
_STEADY = tuple(name for name in UNIT_MODES if MODES[name].toward != "random")
GATE = Gate(
    "the walk of instructions with wider sums",
    {
        **LABELS,
        **any_formats("a", "b", "operand_format"),
        "out": lambda unit: unit.out_format == FORMATS["float16"],
        **one_of("sum_format", "float32"),
        **one_of("arithmetic", "aligned"),
        **one_of("c_enters", "after"),
        **one_of("rounding", *_STEADY),
        **one_of("align_rounding", *_STEADY, "exact"),
        **one_of("zero_sign", "positive", "ieee"),
        **up_to("block_size", 1 << 20),
        **up_to("chain", 1 << 20),
        **up_to("chains", 1 << 20),
        **up_to("fraction_bits", 1 << 20),
        **up_to("min_exponent", 1 << 20),
        **up_to("nan_code", 1 << 16),
        **ONE_NAN,
        **only(out_precision=None, k_order=None, group_size=1, subnormals="keep", scale=None, scale_block=0, overflow="wrap"),
        **only(late_fraction_bits=None, parity_split=False, lanes=1, term_cut="floor", factor_nan=None, product_rounding="rne"),
    },
    {**schedules(*ANY_SUM), **operands(any_format, empty=True)},
)


def multiply_narrow(problem: Problem, out: Codes, threads: int | None, kernels: Kernels) -> None:
    """Write the codes of D = C + A·B into `out`; the kernels compute problems of the unit's wide one."""
    plan = problem.plan
    c = None if problem.c is None else problem.c.view(np.float16)

    def chain(start: Any, first: int, last: int) -> Any:
        return _chain(problem, start, first, last, threads, kernels)

    def add(x: Any, y: Any) -> Any:
        return x.astype(plan.sum) + y.astype(plan.sum)

    with np.errstate(over="ignore", invalid="ignore"):
        total = walk_plan(plan, c, np.zeros(out.shape, np.float16), chain, add)
        narrow = signed(problem.unit, total.astype(np.float16))
    out[:] = np.where(np.isnan(narrow), out.dtype.type(problem.unit.nan), narrow.view(out.dtype))


def _chain(problem: Problem, c: Any, start: int, stop: int, threads: int | None, kernels: Kernels) -> Any:
    for base in range(start, stop, problem.unit.instruction_k):
        part = _instruction(problem, base, min(base + problem.unit.instruction_k, stop), c.astype(np.float32))
        c = signed(problem.unit, compute_codes(part, threads, kernels).view(np.float32).astype(np.float16))
    return c


class Instructions:
    """The arrays of a problem, one chain from c, as the general kernel reads them, instruction by instruction, for every unit of its formats
    that `GATE` takes; see `general.Arrays`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._parts: dict[tuple[int, int], tuple[general.Arrays, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Instructions, (self.problem,)

    def write(self, unit: Unit, out: Codes) -> None:
        """Write what a unit answers into `out`."""
        assert self.problem.c is not None
        length, step = self.problem.shape[3], unit.instruction_k
        total, wide = self.problem.c.view(np.float16), np.empty(out.shape, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for base in range(0, length, step):
                arrays, c = self._part(unit, base, min(base + step, length))
                c[:] = total
                arrays.write(unit.inner, wide.view(np.uint32), 0)
                total = signed(unit, wide.astype(np.float16))
            narrow = signed(unit, total)
        out[:] = np.where(np.isnan(narrow), out.dtype.type(unit.nan), narrow.view(out.dtype))

    def _part(self, unit: Unit, base: int, end: int) -> tuple[general.Arrays, Any]:
        """The arrays of an instruction, and those of its c, which what came before it fills."""
        if (base, end) not in self._parts:
            assert self.problem.c is not None
            c = np.empty(self.problem.c.shape, np.float32)
            part = _instruction(replace(self.problem, unit=unit), base, end, c)
            self._parts[base, end] = general.Arrays(part, 1), c
        return self._parts[base, end]


def _instruction(problem: Problem, base: int, end: int, c: Any) -> Problem:
    """The products from `base` to `end` beside a float32 c, in the wide unit."""
    return replace(
        problem,
        unit=problem.unit.inner,
        plan=Sequential().plan(end - base),
        a=Operand(problem.a.codes[:, :, base:end], problem.a.stored),
        b=Operand(problem.b.codes[:, base:end], problem.b.stored),
        c=c.view(np.uint32),
    )


def signed(unit: Unit, x: Any) -> Any:
    """float16 results with zeros as the unit has them: a tiny negative number becomes +0 where every zero is."""
    return x if unit.zero_sign == "ieee" else x + np.float16(0)
