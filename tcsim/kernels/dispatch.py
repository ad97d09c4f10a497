"""The cpu backend: the kernels in order, the first that declares all of a problem computes it.

Two steps stand around the arithmetic and are chosen in the same way: `payload` finds the NaN operands that a unit keeps, after
the numbers, and `narrow` walks instructions whose sums are wider than their results. Both ask the kernels below them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tcsim.codegen.start import imports
from tcsim.problem import Codes, Problem

with imports():
    from tcsim.kernels import halves, narrow, payload
    from tcsim.kernels.choice import ARITHMETIC, FAST, Kernel, Kernels, chosen, compute_codes
    from tcsim.kernels.choice import GENERAL as EXACT_ARITHMETIC
    from tcsim.kernels.fast import run as fast
    from tcsim.kernels.fast.special import TO_HALF
    from tcsim.kernels.left import Boxes
    from tcsim.kernels.native import fused, integers, paired


def around(arithmetic: Kernels, before: Kernels = ()) -> Kernels:
    """These kernels, and before them the steps that stand around their arithmetic."""
    return (
        Kernel("payload", payload.GATE, partial(payload.multiply_with_payloads, kernels=arithmetic), 0),
        *before,
        Kernel("narrow", narrow.GATE, partial(narrow.multiply_narrow, kernels=arithmetic), 0),
        *arithmetic,
    )


def _narrow_boxes(problem: Problem, out: Codes, boxes: Boxes, threads: int | None) -> None:
    """The outputs of some boxes, of a unit that adds in a wider format than its output: whole matrices side by side, then parts of others."""
    _, m, n, _ = problem.shape
    whole = (boxes[:, 1:] == (0, m, 0, n)).all(axis=1)
    elements = boxes[whole, 0]
    if len(elements):
        out[elements] = _narrow_part(problem, elements, slice(m), slice(n), threads)
    for t, i0, i1, j0, j1 in boxes[~whole].tolist():
        out[t, i0:i1, j0:j1] = _narrow_part(problem, slice(t, t + 1), slice(i0, i1), slice(j0, j1), threads)[0]


def _narrow_part(problem: Problem, elements: Any, rows: slice, columns: slice, threads: int | None) -> Codes:
    """The outputs of the same rows and columns of some elements."""
    a, b = problem.a.codes[elements][:, rows], problem.b.codes[elements][:, :, columns]
    c = None if problem.c is None else problem.c[elements][:, rows, columns]
    part = replace(problem, a=replace(problem.a, codes=a), b=replace(problem.b, codes=b), c=c)
    found = np.empty((len(a), a.shape[1], b.shape[2]), problem.unit.out_format.storage)
    narrow.multiply_narrow(part, found, threads, ARITHMETIC)
    return found


def _to_half(problem: Problem, out: Codes, threads: int | None) -> None:
    fast.multiply_fast(problem, out, threads, _narrow_boxes)


def _in_lanes(problem: Problem, out: Codes, threads: int | None) -> None:
    halves.multiply_halves(problem, out, threads, _narrow_boxes)


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
