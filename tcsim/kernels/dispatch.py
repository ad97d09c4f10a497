"""The cpu backend: which kernel computes a problem, decided by what its unit's record says."""

from __future__ import annotations

from math import prod

import numpy as np

from tcsim.kernels.fast import run as simd
from tcsim.kernels.general import run as general
from tcsim.kernels.native import float32 as native
from tcsim.kernels.native import integers, library, narrow, payload
from tcsim.problem import Codes, Problem

# Multiply-adds below which sharing a problem among threads takes longer than it saves.
_FAST, _SLOW = 1 << 20, 1 << 16


def run(problem: Problem, threads: int | None = None) -> Codes:
    """Codes of D = C + A·B, (batch, m, n): on the fast path where it holds the unit, else on the general kernel."""
    out = _numbers(problem, threads)
    payload.restore(problem, out, _numbers)
    return out


def _numbers(problem: Problem, threads: int | None = None) -> Codes:
    """`run` with every NaN the unit's one."""
    batch, m, n, _ = problem.shape
    out = np.empty((batch, m, n), dtype=problem.unit.out_format.storage)
    match path(problem):
        case "narrow":
            narrow.run(problem, out, _numbers)
        case "library":
            library.run(problem, out, _threads(problem, threads, _FAST))
        case "integers":
            integers.run(problem, out)
        case "native":
            native.run(problem, out, _threads(problem, threads, _SLOW))
        case "fast":
            simd.run(problem, out, _threads(problem, threads, _FAST), general.run_part)
        case _:
            general.run(problem, out, _threads(problem, threads, _SLOW))
    return out


def path(problem: Problem) -> str:
    """The name of the kernel that computes a problem: each says by itself what it holds, the general kernel holds the rest."""
    if problem.unit.sum_format is not None:
        return "narrow"
    if library.supports(problem):
        return "library"
    if problem.unit.arithmetic == "integer":
        return "integers"
    if native.supports(problem):
        return "native"
    return "fast" if simd.supports(problem) else "general"


def _threads(problem: Problem, threads: int | None, alone: int) -> int | None:
    """The threads asked for; where none are, one for small problems."""
    return 1 if threads is None and prod(problem.shape) < alone else threads
