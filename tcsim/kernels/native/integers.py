"""Integer dot products of any width that wrap or stop at the ends of int32, a block at a time.

Sums that wrap are sums of uint32, in any order. A block that saturates is summed in float64, which holds it exactly: its
inputs have at most 8 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import FORMATS, Format
from tcsim.fp.modes import UNIT_MODES
from tcsim.gates import ANY_ORDER, ANY_SUM, LABELS, Gate, any_format, one_of, only, operands, schedules, up_to
from tcsim.kernels.general.spec import order_of
from tcsim.problem import Codes, Problem
from tcsim.schedule import walk_plan

GATE = Gate(
    "the kernel of integers of any width",
    {
        **LABELS,
        "a": lambda unit: unit.a_format.integer and unit.a_format.width <= 32,
        "b": lambda unit: unit.b_format.integer and unit.b_format.width <= 32,
        "out": lambda unit: unit.out_format == FORMATS["int32"],
        "overflow": lambda unit: (
            unit.overflow == "wrap" or (unit.overflow == "saturate" and max(unit.a_format.width, unit.b_format.width) <= 8)
        ),
        **only(arithmetic="integer", c_enters="aligned", chain=1, chains=1, group_size=1, scale=None, scale_block=0),
        **only(sum_format=None, operand_format=None, fraction_bits=None, min_exponent=None, out_precision=None),
        **only(
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
            product_rounding="rne",
            subnormals="keep",
            align_rounding="exact",
        ),
        **up_to("block_size", 1 << 30),  # float64 holds the sum of a block that saturates
        **ANY_ORDER,
        **one_of("rounding", *UNIT_MODES),  # nothing is rounded, there is one zero and no NaN
        **one_of("zero_sign", "positive", "ieee"),
        **one_of("nan_from", "code", "operand"),
        **up_to("nan_code", 1 << 64),
    },
    {
        **schedules(*ANY_SUM),
        **operands(any_format, empty=True),
        "problem.a": lambda asked: asked.a == asked.unit.a_format,
        "problem.b": lambda asked: asked.b == asked.unit.b_format,
    },
)
LEAST, LARGEST = -(1 << 31), (1 << 31) - 1
_AT_ONCE = 1 << 20  # numbers held


def multiply_integers(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write the codes of D = C + A·B into `out`; sums outside the unit wrap, as integer additions do."""
    _, m, n, k = problem.shape
    summed = _saturating if problem.unit.overflow == "saturate" else _wrapping
    some = max(_AT_ONCE // max(m * k + k * n + m * n, 1), 1)  # many small problems one by one take long
    for t in range(0, problem.shape[0], some):
        out[t : t + some] = summed(problem, slice(t, t + some)).astype(np.int64) & 0xFFFFFFFF


def _wrapping(problem: Problem, t: slice) -> Any:
    unit = problem.unit
    a, b = (_values(x.codes[t], f).astype(np.uint32) for x, f in ((problem.a, unit.a_format), (problem.b, unit.b_format)))
    total = a @ b
    return total if problem.c is None else total + problem.c[t].astype(np.uint32)


def _saturating(problem: Problem, t: slice) -> Any:
    unit = problem.unit
    a, b = (_values(x.codes[t], f).astype(np.float64) for x, f in ((problem.a, unit.a_format), (problem.b, unit.b_format)))
    c = None if problem.c is None else _values(problem.c[t], unit.out_format).astype(np.float64)

    def chain(start: Any, first: int, last: int) -> Any:
        return _chain(problem, a, b, start, first, last)

    zero = np.zeros((len(a), *problem.shape[1:3]))
    return walk_plan(problem.plan, c, zero, chain, add=np.add)


def _chain(problem: Problem, a: Any, b: Any, total: Any, start: int, stop: int) -> Any:
    unit, order = problem.unit, order_of(problem.unit)
    for base in range(start, stop, unit.instruction_k):
        for i in range(0, order.size, unit.block_size):
            ks = base + order[i : i + unit.block_size]
            ks = ks[ks < stop]
            total = np.clip(total + a[:, :, ks] @ b[:, ks], LEAST, LARGEST)
    return total


def _values(codes: Codes, fmt: Format) -> npt.NDArray[np.int64]:
    signed = codes.astype(np.int64)
    return np.where(signed >> (fmt.width - 1), signed - (1 << fmt.width), signed)
