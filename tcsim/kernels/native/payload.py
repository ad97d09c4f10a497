"""NaN operands that a unit keeps: which of them a result is, found after the numbers.

Along a chain the last NaN of b wins; without one c's; without that the first of a, unless a NaN arose before it. Whether
one arose is asked of the kernel itself, on the products before that place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tcsim.fp.formats import Format
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Sequential

Run = Callable[[Problem], Codes]


def restore(problem: Problem, out: Codes, run: Run) -> None:
    """Give every NaN of `out`, results of a unit that keeps NaN operands, the code that it has on that unit."""
    unit = problem.unit
    if not unit.keeps_nan or problem.plan.sum is not None or problem.shape[3] == 0:
        return
    for t in range(problem.shape[0]):
        wrong = is_nan(out[t], unit.out_format)
        if wrong.any():
            _restore(problem, t, out[t], wrong, run)


def is_nan(codes: Codes, fmt: Format) -> np.ndarray:
    """Where codes are NaN."""
    if fmt.nan == "negative-zero":
        return np.equal(codes, codes.dtype.type(fmt.sign_bit))
    magnitude = codes & codes.dtype.type(((1 << fmt.width) - 1) & ~fmt.sign_bit)
    found = magnitude > fmt.max_code
    return found if fmt.inf_code is None else found & (magnitude != fmt.inf_code)


def _restore(problem: Problem, t: int, out: Codes, wrong: np.ndarray, run: Run) -> None:
    fmt = problem.unit.out_format
    quiet = out.dtype.type(1 << (fmt.mantissa_bits - 1 + fmt.padding))
    a, b = (_codes(Operand(x.codes[t], x.stored), fmt) for x in (problem.a, problem.b))
    c = None if problem.c is None else problem.c[t]
    kept = np.full_like(out, problem.unit.nan)
    in_a = is_nan(a, fmt)
    for i in np.flatnonzero(in_a.any(1) & wrong.any(1)):
        k = int(np.argmax(in_a[i]))
        kept[i, ~_arose(problem, t, int(i), k, run)] = a[i, k] | quiet
    if c is not None:
        kept = np.where(is_nan(c, fmt), c | quiet, kept)
    in_b = is_nan(b, fmt)
    for j in np.flatnonzero(in_b.any(0)):
        k = b.shape[0] - 1 - int(np.argmax(in_b[::-1, j]))
        kept[:, j] = b[k, j] | quiet
    np.copyto(out, kept, where=wrong)


def _arose(problem: Problem, t: int, i: int, k: int, run: Run) -> np.ndarray:
    """Which outputs of row i are NaN before product k."""
    part = replace(
        problem,
        plan=Sequential().plan(k),
        a=Operand(problem.a.codes[t : t + 1, i : i + 1, :k], problem.a.stored),
        b=Operand(problem.b.codes[t : t + 1, :k], problem.b.stored),
        c=None if problem.c is None else problem.c[t : t + 1, i : i + 1],
    )
    return is_nan(run(part)[0, 0], problem.unit.out_format)


def _codes(x: Operand, fmt: Format) -> Codes:
    """The operand's codes; one stored in another format brings its NaN as the one of `fmt`."""
    if x.stored == fmt:
        return x.codes
    out = np.zeros(x.codes.shape, fmt.storage)
    assert fmt.nan_code is not None
    out[is_nan(x.codes, x.stored)] = fmt.nan_code
    return out
