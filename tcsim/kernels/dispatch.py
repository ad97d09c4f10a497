"""The cpu backend: the kernels in order, the first that declares all of a problem computes it.

Two steps stand around the arithmetic and are chosen in the same way: `payload` finds the NaN operands that a unit keeps, after
the numbers, and `narrow` walks instructions whose sums are wider than their results. Both ask the kernels below them.
"""

from __future__ import annotations

from functools import partial

from tcsim.kernels import narrow, payload
from tcsim.kernels.choice import ARITHMETIC, Kernel, Kernels, chosen, compute_codes
from tcsim.kernels.choice import GENERAL as EXACT_ARITHMETIC
from tcsim.kernels.native import fused, integers
from tcsim.problem import Codes, Problem


def around(arithmetic: Kernels) -> Kernels:
    """These kernels, and before them the steps that stand around their arithmetic."""
    return (
        Kernel("payload", payload.GATE, partial(payload.multiply_with_payloads, kernels=arithmetic), 0),
        Kernel("narrow", narrow.GATE, partial(narrow.multiply_narrow, kernels=arithmetic), 0),
        *arithmetic,
    )


KERNELS = around(ARITHMETIC)
# The general kernel alone (and those of integers and of fused chains, of which there is one each): the second opinion of tests.
GENERAL = around(
    (
        *EXACT_ARITHMETIC,
        Kernel("integers", integers.GATE, integers.multiply_integers),
        Kernel("fused", fused.GATE, fused.multiply_fused),
    )
)


def multiply_cpu(problem: Problem, threads: int | None = None, kernels: Kernels = KERNELS) -> Codes:
    """Codes of D = C + A·B, (batch, m, n). ValueError for a problem with something in it that no kernel declares."""
    return compute_codes(problem, threads, kernels)


def path(problem: Problem) -> str:
    """The name of the kernel that computes a problem."""
    return chosen(problem, KERNELS).name
