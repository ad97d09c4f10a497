"""Which kernel computes a problem: the first of a list whose gate takes all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from tcsim.gates import Asked, Gate, asked_of, first, refuse
from tcsim.kernels.fast import plan
from tcsim.kernels.fast import run as fast
from tcsim.kernels.fast.ready import Ready
from tcsim.kernels.general import blocks, rounded, two_stage
from tcsim.kernels.general import run as general
from tcsim.kernels.native import double, double_plan, float32, fused, integers, library, paired
from tcsim.kernels.native import library_units as units
from tcsim.problem import Codes, Problem

# Multiply-adds below which sharing a problem among threads takes longer than it saves.
FAST, SLOW = 1 << 20, 1 << 16


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel: what it understands, the function that writes D's codes, and below how many multiply-adds it runs alone.

    `ready`, where there is one, finds once what computes all problems of a layout (`tcsim.kernels.fast.ready`).
    """

    name: str
    gate: Gate
    run: Callable[[Problem, Codes, int | None], None]
    alone: int = SLOW
    ready: Callable[[Problem, int | None], Ready | None] | None = None


Kernels = tuple[Kernel, ...]


def _fast(problem: Problem, out: Codes, threads: int | None) -> None:
    fast.multiply_fast(problem, out, threads, general.write_boxes)


GENERAL: Kernels = (
    Kernel("general", blocks.GATE, general.multiply_general),
    Kernel("general", two_stage.GATE, general.multiply_general),
    Kernel("general", rounded.GATE, general.multiply_general),
)
ARITHMETIC: Kernels = (
    Kernel("library", units.FUSED, library.multiply_library, FAST),
    Kernel("library", units.INT8, library.multiply_library, FAST),
    Kernel("integers", integers.GATE, integers.multiply_integers),
    *(Kernel("fast", gate, _fast, FAST, fast.ready_for) for gate in plan.GATES),
    Kernel("native", float32.GATE, float32.multiply_float32),
    Kernel("fused", fused.GATE, fused.multiply_fused),
    *(
        Kernel("double", gate, double.multiply_double)
        for gate in (double_plan.GATE, double_plan.STAGES, double_plan.OPERATIONS)
    ),
    Kernel("paired", paired.GATE, paired.multiply_paired),
    *GENERAL,
)


@lru_cache(maxsize=1024)
def _chosen(kernels: Kernels, asked: Asked) -> Kernel:
    place = first((kernel.gate for kernel in kernels), asked)
    if place is None:
        refuse(tuple(kernel.gate for kernel in kernels), asked)
    assert place is not None
    return kernels[place]


def chosen(problem: Problem, kernels: Kernels) -> Kernel:
    """The kernel that computes a problem. ValueError naming the field, its value and what exists, where none takes it."""
    return _chosen(kernels, asked_of(problem))


def write(problem: Problem, out: Codes, threads: int | None, kernels: Kernels) -> None:
    """Write the codes of D = C + A·B into `out`, by the first of the kernels that takes the problem.

    Where no number of threads is asked for, small problems run on one.
    """
    kernel = chosen(problem, kernels)
    kernel.run(problem, out, _threads(problem, threads, kernel))


def _threads(problem: Problem, threads: int | None, kernel: Kernel) -> int | None:
    return 1 if threads is None and prod(problem.shape) < kernel.alone else threads


def ready_kernel(problem: Problem, threads: int | None, kernels: Kernels) -> Ready | None:
    """What computes every problem laid out as this one with the same threads; None where its kernel has to see the problem."""
    kernel = chosen(problem, kernels)
    return None if kernel.ready is None else kernel.ready(problem, _threads(problem, threads, kernel))


def compute_codes(problem: Problem, threads: int | None, kernels: Kernels) -> Codes:
    """Codes of D = C + A·B, (batch, m, n)."""
    batch, m, n, _ = problem.shape
    out = np.empty((batch, m, n), dtype=problem.unit.out_format.storage)
    write(problem, out, threads, kernels)
    return out
