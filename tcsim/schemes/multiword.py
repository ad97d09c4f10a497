"""Matrix products in multiword arithmetic: one evaluator, and a recipe that says which products, in which order.

A ~ sum_i A_i s^-(i-1) and B likewise (`tcsim.schemes.split`), so A·B ~ sum_ij A_i B_j s^-(i+j-2). A `Recipe` lists
which A_iB_j are formed, which of them share an accumulator inside the unit, and how the rest is added outside. Every
published scheme of the family is such a list (`tcsim.schemes.recipes`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.arguments import array
from tcsim.errors import unknown
from tcsim.schedule import Schedule
from tcsim.schemes.multiplier import Multiplier, SchemeProduct
from tcsim.schemes.split import equilibrate, range_limit, split

__all__ = ["MERGES", "Recipe", "evaluate"]


def __dir__() -> list[str]:
    return sorted(__all__)


Array: TypeAlias = npt.NDArray[Any]
Pairs: TypeAlias = tuple[tuple[int, int], ...]
MERGES = ("add", "chain")


@dataclass(frozen=True)
class Recipe:
    """A multiword product as data.

    name, fmt
        The scheme and the format of its words, used where the multiplier does not fix one.
    words, scale
        p words a matrix; the residual is multiplied by `scale` (a power of two) before each further word.
    groups
        In the order of evaluation. The products (i, j) of a group share one accumulator inside the unit.
    merge
        "chain": a group starts from the result so far, scaled to its own weight (beta = 1 of a BLAS call).
        "add": a group starts from zero and is added to the result so far outside, rounded to nearest-even.
    chunk
        0: the products of a group run one after the other over all of k. Otherwise they take turns every `chunk` of k.
    stage
        0, or the k after which the whole recipe starts over from zero; the stages are added outside, to nearest-even.
    first
        Schedule of the group that is (1, 1) alone; None for the multiplier's own.
    others
        Schedule of every other group; None for the multiplier's own.
    equilibrate
        Rows of A and columns of B are first scaled by powers of two to the largest size that cannot overflow.
    rounding, rest
        Rounding of the first word and of the others.
    """

    name: str
    fmt: str
    words: int
    groups: tuple[Pairs, ...]
    scale: float = 1.0
    merge: str = "add"
    chunk: int = 0
    stage: int = 0
    first: Schedule | None = None
    others: Schedule | None = None
    equilibrate: bool = False
    rounding: str = "rne"
    rest: str = "rne"

    def __post_init__(self) -> None:
        if self.merge not in MERGES:
            raise unknown("merge of products", self.merge, MERGES)
        for i, j in self.products:
            if not (1 <= i <= self.words and 1 <= j <= self.words):
                raise ValueError(f"{self.name}: product ({i}, {j}) of {self.words} words; words are counted from 1")
        for group in self.groups:
            if len({i + j for i, j in group}) > 1 and self.scale != 1.0:
                raise ValueError(
                    f"{self.name}: products {group} of different weight cannot share an accumulator when scale != 1"
                )

    @property
    def products(self) -> Pairs:
        """Every product in the order of evaluation."""
        return tuple(pair for group in self.groups for pair in group)

    def replace(self, **changes: Any) -> Recipe:
        """A variant of the recipe."""
        return replace(self, **changes)


def evaluate(recipe: Recipe, a: npt.ArrayLike, b: npt.ArrayLike, multiply: Multiplier) -> SchemeProduct:
    """A·B by a recipe: A (m, k), B (k, n) finite; the result in the multiplier's output format, at least float32.

    ValueError where an element overflows the word format.
    """
    x, y = array(a, "a"), array(b, "b")
    (m, k), n = x.shape, y.shape[1]
    fmt = multiply.word_format(recipe.fmt)
    rows = columns = None
    if recipe.equilibrate:
        theta = range_limit(fmt, k)
        rows, columns = equilibrate(x, theta, axis=1), equilibrate(y, theta, axis=0)
        x, y = np.ldexp(x.astype(np.float64), rows[:, None]), np.ldexp(y.astype(np.float64), columns[None, :])
    left, right = (split(z, fmt, recipe.words, scale=recipe.scale, rounding=recipe.rounding, rest=recipe.rest) for z in (x, y))
    total: Array | None = None
    step = recipe.stage or max(k, 1)
    for start in range(0, k, step):
        piece = slice(start, start + step)
        part = _products(recipe, [w[:, piece] for w in left], [w[piece] for w in right], multiply, int(start == 0))
        total = part if total is None else total + part
    if total is None:
        raise ValueError("a product needs k of at least 1")
    details: dict[str, Any] = {"recipe": recipe}
    if rows is not None and columns is not None:
        total = np.ldexp(total, -(rows[:, None] + columns[None, :])).astype(total.dtype)
        details |= {"row_exponents": np.array(rows.tolist()), "column_exponents": np.array(columns.tolist())}
    record = multiply.record(
        recipe.name, m, n, k, words=(recipe.words,) * 2, scale=recipe.scale, products=recipe.products, details=details
    )
    return SchemeProduct(total, record)


def _products(recipe: Recipe, left: list[Any], right: list[Any], multiply: Multiplier, count: int) -> Array:
    """Every product of the recipe, put together by its `merge`."""
    total: Array | None = None
    weight = 0
    for group in recipe.groups:
        level = sum(group[0]) - 2
        schedule = recipe.first if group == ((1, 1),) else recipe.others
        if recipe.merge == "chain":
            total = None if total is None else _scaled(total, recipe.scale, level - weight)
            total = _group(group, left, right, total, multiply, schedule, recipe.chunk, count)
            weight = level
        else:
            part = _scaled(_group(group, left, right, None, multiply, schedule, recipe.chunk, count), recipe.scale, -level)
            total = part if total is None else total + part
    if total is None:
        raise ValueError(f"{recipe.name}: a recipe needs at least one product")
    return _scaled(total, recipe.scale, -weight)


def _group(
    group: Pairs,
    left: list[Any],
    right: list[Any],
    c: Array | None,
    multiply: Multiplier,
    schedule: Schedule | None,
    chunk: int,
    count: int,
) -> Array:
    """The products of a group on one accumulator that starts from c."""
    if chunk and len(group) > 1:
        a = _take_turns([left[i - 1] for i, _ in group], chunk, axis=1)
        b = _take_turns([right[j - 1] for _, j in group], chunk, axis=0)
        return _wide(multiply(a, b, c, schedule=schedule, count=count * len(group)))
    for i, j in group:
        c = multiply(left[i - 1], right[j - 1], c, schedule=schedule, count=count)
    assert c is not None
    return _wide(c)


def _take_turns(words: list[Array], chunk: int, *, axis: int) -> Array:
    """Words interleaved along k: `chunk` of the first, `chunk` of the second, …; the last chunk is padded with zeros."""
    k = words[0].shape[axis]
    pad = [(0, 0), (0, 0)]
    pad[axis] = (0, -k % chunk)
    stacked = np.stack([np.pad(w, pad) for w in words], axis=axis)
    shape = list(words[0].shape)
    shape[axis] = -1
    if axis == 1:
        return stacked.reshape(shape[0], len(words), -1, chunk).swapaxes(1, 2).reshape(shape)
    return stacked.reshape(len(words), -1, chunk, shape[1]).swapaxes(0, 1).reshape(shape)


def _wide(c: Array) -> Array:
    """Results narrower than float32 are widened, so that what is added outside is added in float32."""
    return c.astype(np.float32) if c.dtype.itemsize < 4 else c


def _scaled(c: Array, scale: float, power: int) -> Array:
    """c·scale^power in c's own format, rounded once where it goes subnormal."""
    return c if power == 0 or scale == 1.0 else np.ldexp(c, round(np.log2(scale)) * power).astype(c.dtype)
