"""How a GEMM walks a unit along k: a schedule cuts k into segments and says how their results are added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arguments import integer
from tcsim.errors import unknown
from tcsim.fp.formats import format_named

SUM_FORMATS = ("float16", "float32", "float64")


@dataclass(frozen=True)
class Plan:
    """A schedule applied to one k: segment s covers k in [bounds[s], bounds[s+1]).

    `sum` is the format in which segment results are added one after the other, rounded to nearest-even at each addition;
    None when a single segment starts from c. `c_first` says whether that sum starts from c, or from zero with c added
    last.
    """

    bounds: npt.NDArray[np.int64]
    sum: str | None
    c_first: bool


@dataclass(frozen=True)
class Sequential:
    """One chain of blocks in ascending k, starting from c: what a kernel that does not split k computes."""

    def plan(self, k: int) -> Plan:
        return Plan(np.array([0, k], dtype=np.int64), None, True)


@dataclass(frozen=True)
class SplitK:
    """k cut into tiles of `tile_k`; each of `splits` workers accumulates ceil(tiles/splits) consecutive tiles from zero.

    The partial results are added in ascending order in the format `reduce`, rounded to nearest-even at each addition,
    then c is added and the sum is rounded to the output. Workers left without a tile take no part. With
    ``reduce="float32"`` and ``tile_k=64`` this is cublasGemmEx's split-k on an H200.
    """

    splits: int
    tile_k: int = 64
    reduce: str = "float32"

    def __post_init__(self) -> None:
        _at_least_one(self, splits=self.splits, tile_k=self.tile_k)
        _sum_format(self.reduce)

    def plan(self, k: int) -> Plan:
        tiles = -(-k // self.tile_k)
        step = max(-(-tiles // self.splits), 1) * self.tile_k
        return Plan(_bounds(k, step), format_named(self.reduce).name, False)


@dataclass(frozen=True)
class Blocked:
    """FABsum: blocks of `b` along k, each accumulated from zero on the unit, added to c outside in the format `sum`.

    ``sum="float32"`` is FABsum-v1 and ``sum="float64"`` FABsum-v2 of Fasi, Higham, Lopez, Mary and Mikaitis,
    Algorithms 4.2 and 4.3: every addition rounds to nearest-even, and the last result is rounded to the output.
    """

    b: int
    sum: str = "float32"

    def __post_init__(self) -> None:
        _at_least_one(self, b=self.b)
        _sum_format(self.sum)

    def plan(self, k: int) -> Plan:
        return Plan(_bounds(k, self.b), format_named(self.sum).name, True)


Schedule = Sequential | SplitK | Blocked


def walk(plan: Plan, c: Any, zero: Any, chain: Callable[[Any, int, int], Any], add: Callable[[Any, Any], Any]) -> Any:
    """A plan carried out with whole matrices: `chain(start, k, k')` is the unit from `start` on, `add` the sum outside it.

    c may be None. One chain from c (or from zero) where nothing is added outside; otherwise every segment from zero, its
    result added to the sum so far, which begins with c or ends with it.
    """
    bounds = plan.bounds.tolist()
    if plan.sum is None:
        return chain(zero if c is None else c, bounds[0], bounds[-1])
    total = c if c is not None and plan.c_first else zero
    for start, stop in pairwise(bounds):
        total = add(total, chain(zero, start, stop))
    return total if c is None or plan.c_first else add(total, c)


def _bounds(k: int, step: int) -> npt.NDArray[np.int64]:
    return np.append(np.arange(0, k, step, dtype=np.int64), np.int64(k))


def _at_least_one(schedule: object, **counts: int) -> None:
    """Counts as Python's integers, which do not wrap."""
    for key, value in counts.items():
        object.__setattr__(schedule, key, integer(value, f"{type(schedule).__name__}: {key}", 1))


def _sum_format(name: str) -> None:
    if format_named(name).name not in SUM_FORMATS:
        raise unknown("format for adding partial sums", name, SUM_FORMATS)
