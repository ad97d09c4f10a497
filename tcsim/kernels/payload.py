"""NaN operands that a unit keeps: which of them a result is, found after the numbers.

Along a chain the last NaN of b wins; without one c's; without that the first of a, unless a NaN arose before it. Whether
one arose is asked of the kernel itself, on the products before that place.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

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

Places: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]
_COPIED = 1 << 20  # numbers of operands copied at once

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
    ordered, hit = _in_order(plain), np.flatnonzero(wrong.any(axis=(1, 2)))
    _, m, n, k = problem.shape
    step = max(1, _COPIED // (m * k + k * n))
    for at in range(0, len(hit), step):
        _restore(ordered, hit[at : at + step], out, wrong, kernels)


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


def nan_places(codes: Codes, fmt: Format) -> Places:
    """Where codes are NaN."""
    if fmt.nan == "negative-zero":
        return np.equal(codes, codes.dtype.type(fmt.sign_bit))
    magnitude = _magnitudes(codes, fmt)
    found = magnitude > fmt.max_code
    return found if fmt.inf_code is None else found & (magnitude != fmt.inf_code)


def _magnitudes(codes: Codes, fmt: Format) -> Codes:
    return codes & codes.dtype.type(((1 << fmt.width) - 1) & ~fmt.sign_bit)


def _restore(problem: Problem, at: Rows, out: Codes, wrong: Places, kernels: Kernels) -> None:
    """Every wrong output of some elements the NaN that is kept: the last of its column of b, else c's, else the first of its row of a."""
    fmt = problem.unit.out_format
    quiet = out.dtype.type(1 << (fmt.mantissa_bits - 1 + fmt.padding))
    of_a, of_b = (Operand(x.codes[at], x.stored) for x in (problem.a, problem.b))
    a, b = _codes(of_a, fmt), _codes(of_b, fmt)
    in_a, in_b = nan_places(a, fmt), nan_places(b, fmt)
    kept: Codes = np.full_like(out[at], problem.unit.nan)
    rows = np.argwhere(np.any(in_a, axis=2) & np.any(wrong[at], axis=2))
    first = np.argmax(in_a, axis=2)[rows[:, 0], rows[:, 1]]
    may_arise = _infinite(of_a) or _infinite(of_b)
    for k in np.unique(first).tolist():
        t, i = rows[first == k].T
        arose = _arose(problem, at[t], i, k, kernels) if may_arise else np.zeros((len(t), out.shape[2]), np.bool_)
        kept[t, i] = np.where(arose, kept[t, i], (a[t, i, k] | quiet)[:, None])
    if problem.c is not None:
        c = problem.c[at]
        kept = np.where(nan_places(c, fmt), c | quiet, kept)
    last = b.shape[1] - 1 - np.argmax(in_b[:, ::-1], axis=1)[:, None]
    kept = np.where(np.any(in_b, axis=1)[:, None], np.take_along_axis(b, last, 1) | quiet, kept)
    out[at] = np.where(wrong[at], kept, out[at])


def _arose(problem: Problem, t: Rows, i: Rows, k: int, kernels: Kernels) -> Places:
    """Which outputs of rows i of elements t are NaN before product k."""

    def found(rows: Any, elements: Any) -> Places:
        """Of these rows of a and c, beside the b of these elements."""
        part = replace(
            problem,
            plan=Sequential().plan(k),
            a=Operand(problem.a.codes[rows][..., :k], problem.a.stored),
            b=Operand(problem.b.codes[elements][:, :k], problem.b.stored),
            c=None if problem.c is None else problem.c[rows],
        )
        return nan_places(compute_codes(part, None, kernels), problem.unit.out_format)

    if problem.unit.stochastic:  # whether a result overflows is a matter of the random words of its place
        return found(slice(None), slice(None))[t, i]
    if (t == t[0]).all():
        return found((t[:1, None], i[None]), t[:1]).reshape(len(i), -1)
    step = max(1, _COPIED // max(k * problem.shape[2], 1))
    some = [slice(at, at + step) for at in range(0, len(t), step)]
    return np.concatenate([found((t[x, None], i[x, None]), t[x]) for x in some]).reshape(len(i), -1)


def _infinite(x: Operand) -> bool:
    """Whether an operand has infinities, or a format without them: of finite numbers no sum is NaN, though it may overflow."""
    inf = x.stored.inf_code
    return inf is None or bool(np.any(_magnitudes(x.codes, x.stored) == inf))


def _codes(x: Operand, fmt: Format) -> Codes:
    """The operand's codes; one stored in another format brings its NaN as the one of `fmt`."""
    if x.stored == fmt:
        return x.codes
    out = np.zeros(x.codes.shape, fmt.storage)
    assert fmt.nan_code is not None
    out[nan_places(x.codes, x.stored)] = fmt.nan_code
    return out
