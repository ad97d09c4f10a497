"""NaN operands that a unit keeps: which of them a result is, found after the numbers.

Along a chain the last NaN of b wins; without one c's; without that the first of a, unless a NaN arose before it. Whether
one arose is asked of the kernel itself, on the products before that place.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from tcsim.fp.formats import Format
from tcsim.gates import (
    ANY_ORDER,
    ANY_SUM,
    LABELS,
    Gate,
    any_format,
    any_formats,
    one_of,
    only,
    operands,
    roundings,
    schedules,
    up_to,
)
from tcsim.hardware.unit import Unit
from tcsim.kernels.choice import Kernels, compute_codes, write
from tcsim.kernels.general.spec import order_of
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Sequential

# What the numbers are is the kernels' matter, which have gates of their own; whose NaN is kept, this one's.
GATE = Gate(
    "the search for kept NaN operands",
    {
        **LABELS,
        "nan_from": lambda unit: unit.nan_from == "operand" and unit.keeps_nan,
        **any_formats("a", "b", "out", "operand_format"),
        **only(arithmetic="aligned", block_size=1, c_enters="aligned", sum_format=None, chain=1, chains=1, group_size=1),
        **only(
            scale=None,
            scale_block=0,
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
            product_rounding="rne",
            overflow="wrap",
        ),
        **roundings("rounding"),
        **roundings("align_rounding", "exact"),
        **one_of("subnormals", "keep", "flush"),
        **one_of("zero_sign", "positive", "ieee"),
        **ANY_ORDER,
        **up_to("fraction_bits", 1 << 20),
        **up_to("out_precision", 1 << 20),
        **up_to("min_exponent", 1 << 20),
        **up_to("nan_code", 1 << 64),
    },
    {**schedules(*ANY_SUM), **operands(any_format, empty=True)},
)


@lru_cache(maxsize=64)
def _with_one_nan(unit: Unit) -> Unit:
    return unit.replace(nan_from="code")


def multiply_with_payloads(problem: Problem, out: Codes, threads: int | None, kernels: Kernels) -> None:
    """Write the codes of D = C + A·B into `out`: the kernels' numbers, every NaN of a chain the one that the unit keeps."""
    plain = replace(problem, unit=_with_one_nan(problem.unit))
    write(plain, out, threads, kernels)
    unit = problem.unit
    if problem.plan.sum is not None or problem.shape[3] == 0:
        return
    wrong = nan_places(out, unit.out_format)
    if not wrong.any():
        return
    ordered = _in_order(plain)
    for t in np.flatnonzero(wrong.any(axis=(1, 2))):
        _restore(ordered, int(t), out[t], wrong[t], kernels)


def _in_order(problem: Problem) -> Problem:
    """The problem with its products in the order in which the unit takes them, for a unit that takes them as they come."""
    unit, k = problem.unit, problem.shape[3]
    if unit.k_order is None:
        return problem
    order = (np.arange(0, k, unit.instruction_k)[:, None] + order_of(unit)).reshape(-1)
    order = order[order < k]
    return replace(
        problem,
        unit=unit.replace(k_order=None),
        a=Operand(problem.a.codes[:, :, order], problem.a.stored),
        b=Operand(problem.b.codes[:, order], problem.b.stored),
    )


def nan_places(codes: Codes, fmt: Format) -> np.ndarray:
    """Where codes are NaN."""
    if fmt.nan == "negative-zero":
        return np.equal(codes, codes.dtype.type(fmt.sign_bit))
    magnitude = codes & codes.dtype.type(((1 << fmt.width) - 1) & ~fmt.sign_bit)
    found = magnitude > fmt.max_code
    return found if fmt.inf_code is None else found & (magnitude != fmt.inf_code)


def _restore(problem: Problem, t: int, out: Codes, wrong: np.ndarray, kernels: Kernels) -> None:
    fmt = problem.unit.out_format
    quiet = out.dtype.type(1 << (fmt.mantissa_bits - 1 + fmt.padding))
    a, b = (_codes(Operand(x.codes[t], x.stored), fmt) for x in (problem.a, problem.b))
    c = None if problem.c is None else problem.c[t]
    kept = np.full_like(out, problem.unit.nan)
    in_a = nan_places(a, fmt)
    for i in np.flatnonzero(in_a.any(1) & wrong.any(1)):
        k = int(np.argmax(in_a[i]))
        kept[i, ~_arose(problem, t, int(i), k, kernels)] = a[i, k] | quiet
    if c is not None:
        kept = np.where(nan_places(c, fmt), c | quiet, kept)
    in_b = nan_places(b, fmt)
    for j in np.flatnonzero(in_b.any(0)):
        k = b.shape[0] - 1 - int(np.argmax(in_b[::-1, j]))
        kept[:, j] = b[k, j] | quiet
    np.copyto(out, kept, where=wrong)


def _arose(problem: Problem, t: int, i: int, k: int, kernels: Kernels) -> np.ndarray:
    """Which outputs of row i are NaN before product k."""
    part = replace(
        problem,
        plan=Sequential().plan(k),
        a=Operand(problem.a.codes[t : t + 1, i : i + 1, :k], problem.a.stored),
        b=Operand(problem.b.codes[t : t + 1, :k], problem.b.stored),
        c=None if problem.c is None else problem.c[t : t + 1, i : i + 1],
    )
    return nan_places(compute_codes(part, None, kernels)[0, 0], problem.unit.out_format)


def _codes(x: Operand, fmt: Format) -> Codes:
    """The operand's codes; one stored in another format brings its NaN as the one of `fmt`."""
    if x.stored == fmt:
        return x.codes
    out = np.zeros(x.codes.shape, fmt.storage)
    assert fmt.nan_code is not None
    out[nan_places(x.codes, x.stored)] = fmt.nan_code
    return out
