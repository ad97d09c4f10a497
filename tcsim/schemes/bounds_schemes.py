"""What `tcsim.gemm` can err at most, by any scheme on any unit: rigorous, for the words, slices or residues as they are.

A running error analysis. A scheme's own steps are walked with two arrays in place of C: the size of the terms summed so
far and a bound of the error so far. A product on the unit adds `bounds_units.scheduled_growth`; an addition outside adds
u times all that it holds; a scaling adds half of the least number where it may go subnormal. What splitting lost and
which products are left out is not estimated but taken from the words themselves,
|A B - sum of kept A_i B_j| <= |A - Σ A_i||B| + |Σ A_i||B - Σ B_j| + sum of dropped |A_i||B_j|, so words that go subnormal, or
vanish, are accounted for to the last bit and need no case of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import format_named
from tcsim.schedule import Schedule
from tcsim.schemes.bounds_papers import gamma
from tcsim.schemes.bounds_sizes import LEAST, Sizes, above, magnitudes, sizes
from tcsim.schemes.bounds_units import Bound, Growth, Statement, grown, scheduled_growth, silent
from tcsim.schemes.multiplier import IDEAL, Multiplier
from tcsim.schemes.multiword import Recipe
from tcsim.schemes.split import equilibrate, range_limit, split

Array: TypeAlias = npt.NDArray[Any]
Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class State:
    """A computed array in place of which stand the size of what it sums and a bound of its error."""

    size: Doubles
    error: Doubles

    def add(self, other: State, fmt: str) -> State:
        """The sum with another, rounded to nearest in `fmt`."""
        size = self.size + other.size
        error = self.error + other.error
        u = 2.0 ** -format_named(fmt).precision
        with np.errstate(over="ignore", invalid="ignore"):
            return State(size, above(error + u * (size + error), 4)).within(fmt)

    def scaled(self, power: int | npt.NDArray[np.int64], fmt: str) -> State:
        """Times 2^power in `fmt`, rounded where that is subnormal."""
        if np.ndim(power) == 0 and power == 0:
            return self
        known = format_named(fmt)
        least = max(2.0 ** (known.emin - known.mantissa_bits), LEAST)
        with np.errstate(over="ignore", under="ignore"):
            error = np.where(self.error == 0, 0.0, np.ldexp(self.error, power) + LEAST)
            size = np.where(self.size == 0, 0.0, np.ldexp(self.size, power) + LEAST)
        return State(size, np.where(size == 0, error, error + least)).within(fmt)

    def within(self, fmt: str) -> State:
        """The same, without a bound where the array may have overflowed."""
        over = ~(self.size + self.error <= format_named(fmt).max_finite)
        return State(self.size, np.where(over, np.inf, self.error))


def product_state(multiply: Multiplier, a: Doubles, b: Doubles, start: State | None, schedule: Schedule | None) -> State:
    """start + a·b on the multiplier's unit, or by ideal arithmetic: float64 sums in any order, each product rounded at most once."""
    plan = multiply.schedule if schedule is None else schedule
    unit, k = multiply.unit, a.shape[1]
    if unit is not None:
        found, growth = sizes(unit, a, b, c=start is not None), scheduled_growth(unit, plan, k, c=start is not None)
    else:
        found, growth = Sizes(magnitudes(a, b), magnitudes(a, b), np.zeros((a.shape[0], b.shape[1]))), _ideal(plan, k)
    with np.errstate(invalid="ignore"):
        limit = grown(growth, found, None if start is None else start.size + start.error)
    if start is None:
        return State(found.plain, limit)
    return State(start.size + found.plain, start.error + limit)


def _ideal(schedule: Schedule, k: int) -> Growth:
    """Products of float64 matrices by a library: γ in float64, and what underflows; segments are added as numpy adds them."""
    plan = schedule.plan(k)
    growth = Growth(gamma(k + 1, 2.0**-53), (k + 1) * LEAST, float(np.finfo(np.float64).max))
    if plan.sum is None:
        return growth
    fmt, segments = format_named(plan.sum), len(plan.bounds) - 1
    growth = Growth(growth.factor, growth.absolute * segments, growth.largest)
    return growth.then(2.0**-fmt.precision, 2.0 ** max(fmt.emin - fmt.mantissa_bits, -1074), segments + 2, fmt.max_finite)


def multiword_bound(made: Recipe, a: npt.ArrayLike, b: npt.ArrayLike, multiply: Multiplier) -> Bound:
    """The bound of ``multiword.evaluate(made, a, b, multiply)`` for finite matrices.

    ValueError, as there, where an element overflows the words' format.
    """
    says = statement(made.name, multiply, f"the recipe's: {made.merge} {len(made.groups)} groups of products")
    if multiply.unit is None and multiply.source not in IDEAL.values():
        return Bound(None, says, "nothing is known about the rounding of a callable")
    x, y = (np.asarray(z, dtype=np.float64) for z in (a, b))
    k = x.shape[1]
    fmt = multiply.word_format(made.fmt)
    out = "float64" if multiply.unit is None or multiply.unit.out_format.name == "float64" else "float32"
    nonzero = (x != 0).astype(np.float64) @ (y != 0).astype(np.float64)
    back: npt.NDArray[np.int64] | None = None
    underflow = 0.0
    if made.equilibrate:
        theta = range_limit(fmt, k)
        rows, columns = equilibrate(x, theta, axis=1), equilibrate(y, theta, axis=0)
        back = -(rows[:, None] + columns[None, :])
        inner = x, y
        x, y = np.ldexp(x, rows[:, None]), np.ldexp(y, columns[None, :])
        if any((np.ldexp(z, -e) != w).any() for z, e, w in ((x, rows[:, None], inner[0]), (y, columns[None, :], inner[1]))):
            underflow = (float(np.abs(x).max() + np.abs(y).max()) + 1.0) * k * LEAST
    left, right = (split(z, fmt, made.words, scale=made.scale, rounding=made.rounding, rest=made.rest) for z in (x, y))
    state: State | None = None
    step = made.stage or max(k, 1)
    for first in range(0, k, step):
        piece = slice(first, first + step)
        part = _stage(made, [w[:, piece] for w in left], [w[piece] for w in right], multiply, out)
        state = part if state is None else state.add(part, out)
    assert state is not None
    state = State(state.size, state.error + _lost(made, x, y, left, right) + underflow)
    if back is not None:
        state = state.scaled(back, out)
    limit = np.where(nonzero == 0, 0.0, state.error)
    return Bound(limit, says, silent(limit, out))


def _stage(made: Recipe, left: list[Any], right: list[Any], multiply: Multiplier, out: str) -> State:
    """The steps of `multiword._products`, one for one."""
    total: State | None = None
    weight, shift = 0, round(float(np.log2(made.scale)))
    for group in made.groups:
        level = sum(group[0]) - 2
        schedule = made.first if group == ((1, 1),) else made.others
        if made.merge == "chain":
            total = None if total is None else total.scaled(shift * (level - weight), out)
            total = _group(made, group, left, right, total, multiply, schedule)
            weight = level
        else:
            part = _group(made, group, left, right, None, multiply, schedule).scaled(-shift * level, out)
            total = part if total is None else total.add(part, out)
    assert total is not None
    return total.scaled(-shift * weight, out)


def _group(
    made: Recipe, group: tuple[tuple[int, int], ...], left: list[Any], right: list[Any], start: State | None, multiply: Multiplier,
    schedule: Schedule | None,
) -> State:  # fmt: skip
    from tcsim.schemes.multiword import _take_turns

    if made.chunk and len(group) > 1:
        a = _take_turns([left[i - 1] for i, _ in group], made.chunk, axis=1)
        b = _take_turns([right[j - 1] for _, j in group], made.chunk, axis=0)
        return product_state(multiply, a, b, start, schedule)
    for i, j in group:
        start = product_state(multiply, left[i - 1], right[j - 1], start, schedule)
    assert start is not None
    return start


def _lost(made: Recipe, x: Doubles, y: Doubles, left: list[Doubles], right: list[Doubles]) -> Doubles:
    """What the words do not hold of A·B, and the products left out."""
    rest_x, rest_y = _rest(x, left, made.scale), _rest(y, right, made.scale)
    lost = magnitudes(rest_x, y) + magnitudes(np.abs(x) + np.abs(rest_x), rest_y)
    for i in range(made.words):
        for j in range(made.words):
            if (i + 1, j + 1) not in made.products:
                lost = lost + magnitudes(left[i], right[j]) / made.scale ** (i + j)
    return above(lost, 8)


def _rest(x: Doubles, words: list[Doubles], scale: float) -> Doubles:
    """x - Σ words, exactly: each difference leaves the low bits of x alone."""
    rest = x
    for i, word in enumerate(words):
        rest = rest - word / scale**i
    return rest


def statement(scheme: str, multiply: Multiplier, order: str) -> Statement:
    return Statement(
        "|C~ - AB| <= limit, of |A - A~||B| + |A~||B - B~|, dropped products and the error of every operation",
        multiply.label,
        order,
        f"finite matrices whose elements {scheme} can hold and whose sums cannot overflow; subnormal words included",
    )
