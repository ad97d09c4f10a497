"""The cpu backend: the kernels in order, the first that declares all of a problem computes it.

Two steps stand around the arithmetic and are chosen in the same way: `payload` finds the NaN operands that a unit keeps, after
the numbers, and `narrow` walks instructions whose sums are wider than their results. Both ask the kernels below them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from tcsim.kernels import halves, narrow, payload
from tcsim.kernels.choice import ARITHMETIC, FAST, Kernel, Kernels, chosen, compute_codes
from tcsim.kernels.choice import GENERAL as EXACT_ARITHMETIC
from tcsim.kernels.fast import run as fast
from tcsim.kernels.fast.special import TO_HALF
from tcsim.kernels.native import fused, integers, paired
from tcsim.problem import Codes, Problem


def around(arithmetic: Kernels, before: Kernels = ()) -> Kernels:
    """These kernels, and before them the steps that stand around their arithmetic."""
    return (
        Kernel("payload", payload.GATE, partial(payload.multiply_with_payloads, kernels=arithmetic), 0),
        *before,
        Kernel("narrow", narrow.GATE, partial(narrow.multiply_narrow, kernels=arithmetic), 0),
        *arithmetic,
    )


def _narrow_part(problem: Problem, out: Codes, t: int, i0: int, i1: int, j0: int, j1: int) -> None:
    """Rows i0 … i1 and columns j0 … j1 of batch element t of a unit that adds in a wider format than its output."""
    part = replace(
        problem,
        a=replace(problem.a, codes=problem.a.codes[t : t + 1, i0:i1]),
        b=replace(problem.b, codes=problem.b.codes[t : t + 1, :, j0:j1]),
        c=None if problem.c is None else problem.c[t : t + 1, i0:i1, j0:j1],
    )
    found = np.empty((1, i1 - i0, j1 - j0), out.dtype)
    narrow.multiply_narrow(part, found, 1, ARITHMETIC)
    out[t, i0:i1, j0:j1] = found[0]


def _to_half(problem: Problem, out: Codes, threads: int | None) -> None:
    fast.multiply_fast(problem, out, threads, _narrow_part)


def _in_lanes(problem: Problem, out: Codes, threads: int | None) -> None:
    halves.multiply_halves(problem, out, threads, _narrow_part)


KERNELS = around(ARITHMETIC, (Kernel("fast", TO_HALF, _to_half, FAST), Kernel("double", halves.GATE, _in_lanes)))
# The general kernel alone (and those of integers, fused chains and paired sums, of which there is one each): the second opinion of tests.
GENERAL = around(
    (
        *EXACT_ARITHMETIC,
        Kernel("integers", integers.GATE, integers.multiply_integers),
        Kernel("fused", fused.GATE, fused.multiply_fused),
        Kernel("paired", paired.GATE, paired.multiply_paired),
    )
)


def multiply_cpu(problem: Problem, threads: int | None = None, kernels: Kernels = KERNELS) -> Codes:
    """Codes of D = C + A·B, (batch, m, n). ValueError for a problem with something in it that no kernel declares."""
    return compute_codes(problem, threads, kernels)


def path(problem: Problem) -> str:
    """The name of the kernel that computes a problem."""
    return chosen(problem, KERNELS).name
