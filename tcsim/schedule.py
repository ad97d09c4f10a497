"""How a GEMM walks a unit along k: a schedule cuts k into segments and says how their results are added.

A schedule is read in one place, here, and comes out in one of two forms. Sequential, SplitK and Blocked become a `Plan`, which
`walk_plan` carries out for whatever runs a chain as one call, and whose bounds, `sum_bits` and `c_first` compiled kernels take
as they are. Tiled, Lanes and Hybrid say which k stands where (`slices`, `places`), and `tcsim.composed` adds the products.
"""

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
KEPT_FORMATS = ("float16", "bfloat16", "float32")
PART_TREES = ("ascending", "pairs", "halves")  # in which the parts of a tiled k are added
TREES = {"ascending": 1, "butterfly": 1, "blocks of 128": 128, "pairs in blocks of 128": 256}  # lanes come in multiples


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

    @property
    def segments(self) -> list[tuple[int, int]]:
        """The first k of each segment and the one after its last."""
        return list(pairwise(self.bounds.tolist()))

    @property
    def sum_bits(self) -> int:
        """The width of the format in which segments are added, as kernels take it: 16, 32 or 64; 0 for one chain."""
        return 0 if self.sum is None else format_named(self.sum).width


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


@dataclass(frozen=True)
class Tiled:
    """What a tensor-core GEMM kernel does with k, as CUTLASS writes it: slices of k, in each the odd tile first.

    slice_k
        Products of a slice; None for one slice. A slice is a chain from zero; their results are added in ascending order.
    tile_k
        A slice whose length is no multiple of `tile_k` starts with the remainder, filled up with zeros to whole
        instructions; None where the remainder comes last.
    instruction_k
        Products of an instruction where that is shorter than the unit's block (m16n8k8 on Hopper: 8); None for the unit's.
    promote_k
        Products after which the tensor core's sum is added to a float32 one and starts again from zero (fp8's promotion);
        None for never.
    turns
        Slices to which tiles of `tile_k` are dealt in turn, in place of `slice_k`; 1 for none. The remainder is then last.
    shares
        Slices to which neighbouring tiles of `tile_k` are given as evenly as can be, the longer slices last, in place of
        `slice_k`; 1 for none. The remainder is then last.
    tree
        "ascending": slices are added one after the other. "pairs": from the last on, neighbours are added two by two, and so
        their sums, until one is left; of an odd number the first waits. "halves": of n slices dealt in turns, slice i and slice
        i + ceil(n/2) are added, but for the last, which is added to the first pair; then those sums, one after the other.
    c_joins_first
        c is added to the first slice's result, before the others, as where thread blocks add to the output in place.
    forgotten
        Products at the end of k that take no part: a library's defect, where it has one.
    partial, reduce
        The formats in which a slice's result, and the sum after each addition, are kept. An addition is float32's, to
        nearest-even, whatever they are; for units of float64 "float32" stands for float64. c is added last.

    With one slice, no `tile_k` and no `instruction_k` this is Sequential from zero.
    """

    slice_k: int | None = None
    tile_k: int | None = None
    instruction_k: int | None = None
    promote_k: int | None = None
    turns: int = 1
    partial: str = "float32"
    reduce: str = "float32"
    shares: int = 1
    tree: str = "ascending"
    c_joins_first: bool = False
    forgotten: int = 0

    def __post_init__(self) -> None:
        _at_least_one(self, turns=self.turns, shares=self.shares)
        object.__setattr__(self, "forgotten", integer(self.forgotten, "Tiled: forgotten", 0))
        _counts_or_none(
            self, slice_k=self.slice_k, tile_k=self.tile_k, instruction_k=self.instruction_k, promote_k=self.promote_k
        )
        for name, count in (("turns", self.turns), ("shares", self.shares)):
            if count > 1 and (self.slice_k is not None or self.tile_k is None):
                raise ValueError(f"Tiled: {name}={count} deals out tiles of tile_k and takes no slice_k")
        if self.turns > 1 and self.shares > 1:
            raise ValueError(f"Tiled: tiles are dealt in turns ({self.turns}) or in shares ({self.shares}), not both")
        if self.tree not in PART_TREES:
            raise unknown("tree of slices", self.tree, PART_TREES)
        _halves_of_turns(self, self.tree, self.turns)
        _kept_format(self.partial)
        _kept_format(self.reduce)

    def slices(self, k: int) -> list[npt.NDArray[np.int64]]:
        """The k of each slice, ascending."""
        k = max(k - self.forgotten, 1)
        every = np.arange(k)
        if self.shares > 1:
            tiles = -(-k // (self.tile_k or 1))
            short = self.shares - tiles % self.shares  # slices with a tile less
            ends = [share * (tiles // self.shares) + max(share - short, 0) for share in range(1, self.shares)]
            return [part for part in np.split(every, [end * (self.tile_k or 1) for end in ends]) if part.size]
        return _slices(k, self.slice_k) if self.turns == 1 else _turns(k, self.tile_k or 1, self.turns)

    def places(self, ks: npt.NDArray[np.int64], step: int) -> npt.NDArray[np.int64]:
        """Which k of a slice stands where, -1 for a zero: the remainder by `tile_k` first, filled up to whole steps."""
        rest = 0 if self.tile_k is None or self.turns > 1 or self.shares > 1 else ks.size % self.tile_k
        return np.concatenate([ks[:rest], np.full(-rest % step, -1), ks[rest:]])

    def plan(self, k: int) -> Plan:
        raise _composed(self)


@dataclass(frozen=True)
class Lanes:
    """What a vector or thin GEMM kernel of the CUDA cores does with k: chains of fused multiply-adds, then a tree.

    Within a slice of `slice_k` products (None: all of k), product i belongs to lane (i // chunk) mod `lanes`; with
    ``chunk=None`` every lane has ceil(products / lanes) consecutive ones. A lane is a float32 chain in ascending k from zero;
    after each `tile` products of its own (None: never) the chain starts over and is added to the lane's sum.

    tree
        "butterfly": lane l and lane l + h are added, h half the power of two that `lanes` do not exceed, then those h/2 apart,
        and so on; who has no partner waits. "ascending": one after
        the other. "blocks of 128": a butterfly in each 128 lanes; of the blocks' sums every 128th is added in a chain,
        those are halved down to 32, of them every fourth is added in a chain, and then the four. "pairs in blocks of 128":
        the same after neighbouring lanes are added.
    turns
        Slices to which runs of `tile` products are dealt in turn, in place of `slice_k`; 1 for none.
    parts
        The order in which slices are added: "ascending", or "halves" as in `Tiled`.
    partial, reduce, c_joins_first
        As in `Tiled`: the formats in which a slice's result and the sum of slices are kept, and where c is added.

    The unit's own arithmetic is not used: products and sums are float32 fused multiply-adds of its inputs.
    """

    lanes: int = 1
    chunk: int | None = 1
    tile: int | None = None
    tree: str = "butterfly"
    slice_k: int | None = None
    partial: str = "float32"
    reduce: str = "float32"
    c_joins_first: bool = False
    turns: int = 1
    parts: str = "ascending"

    def __post_init__(self) -> None:
        if self.parts not in ("ascending", "halves"):
            raise unknown("order of slices", self.parts, ("ascending", "halves"))
        _halves_of_turns(self, self.parts, self.turns)
        _at_least_one(self, lanes=self.lanes, turns=self.turns)
        if self.turns > 1 and (self.slice_k is not None or self.tile is None):
            raise ValueError(f"Lanes: turns={self.turns} deals out runs of tile and takes no slice_k")
        _counts_or_none(self, chunk=self.chunk, tile=self.tile, slice_k=self.slice_k)
        if self.tree not in TREES:
            raise unknown("tree of lanes", self.tree, TREES)
        if self.lanes % TREES[self.tree]:
            raise ValueError(f"Lanes: {self.tree} need a multiple of {TREES[self.tree]} lanes; got {self.lanes}")
        _kept_format(self.partial)
        _kept_format(self.reduce)

    def slices(self, k: int) -> list[npt.NDArray[np.int64]]:
        """The k of each slice, ascending."""
        return _slices(k, self.slice_k) if self.turns == 1 else _turns(k, self.tile or 1, self.turns)

    def places(self, ks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Which k of a slice each lane takes, (lanes, tiles, products of a tile), -1 for none."""
        share = -(-ks.size // self.lanes)
        chunk = share if self.chunk is None else self.chunk
        lane = np.arange(ks.size) // chunk % self.lanes
        counts = np.bincount(lane, minlength=self.lanes)
        order = np.argsort(lane, kind="stable")
        place_in_lane = np.arange(ks.size) - np.repeat(np.cumsum(counts) - counts, counts)
        tile = self.tile if self.tile is not None and self.turns == 1 else int(counts.max())
        tiles = -(-int(counts.max()) // tile)
        places = np.full((self.lanes, tiles * tile), -1, dtype=np.int64)
        places[lane[order], place_in_lane] = ks[order]
        return places.reshape(self.lanes, tiles, tile)

    def plan(self, k: int) -> Plan:
        raise _composed(self)


@dataclass(frozen=True)
class Hybrid:
    """What a kernel with a fixed number of thread blocks does (stream-k, "segment k"): most of the output by `whole`, and the
    tiles that would leave blocks idle at the end by `cut`.

    regions
        The outputs computed by `cut`, as (first row, row after the last, first column, column after the last); a part of a
        region outside the output is left out. No two overlap.
    """

    whole: Tiled
    cut: Tiled
    regions: tuple[tuple[int, int, int, int], ...]

    def __post_init__(self) -> None:
        regions = tuple(tuple(integer(x, "Hybrid: regions", 0) for x in region) for region in self.regions)
        for region in regions:
            if len(region) != 4 or region[0] >= region[1] or region[2] >= region[3]:
                raise ValueError(f"Hybrid: a region is (first row, end of rows, first column, end of columns); got {region}")
        object.__setattr__(self, "regions", regions)

    def cut_places(self, rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which outputs (rows, columns) are computed by `cut`."""
        found = np.zeros((len(rows), len(columns)), dtype=bool)
        for top, bottom, left, right in self.regions:
            found |= ((rows >= top) & (rows < bottom))[:, np.newaxis] & (columns >= left) & (columns < right)
        return found

    def plan(self, k: int) -> Plan:
        raise _composed(self)


Composed = Tiled | Lanes | Hybrid
Schedule = Sequential | SplitK | Blocked | Tiled | Lanes | Hybrid


def walk_plan(plan: Plan, c: Any, zero: Any, chain: Callable[[Any, int, int], Any], add: Callable[[Any, Any], Any]) -> Any:
    """A plan carried out with whole matrices: `chain(start, k, k')` is the unit from `start` on, `add` the sum outside it.

    c may be None. One chain from c (or from zero) where nothing is added outside; otherwise every segment from zero, its
    result added to the sum so far, which begins with c or ends with it.
    """
    if plan.sum is None:
        return chain(zero if c is None else c, int(plan.bounds[0]), int(plan.bounds[-1]))
    total = c if c is not None and plan.c_first else zero
    for start, stop in plan.segments:
        total = add(total, chain(zero, start, stop))
    return total if c is None or plan.c_first else add(total, c)


def _bounds(k: int, step: int) -> npt.NDArray[np.int64]:
    return np.append(np.arange(0, k, step, dtype=np.int64), np.int64(k))


def _composed(schedule: object) -> ValueError:
    return ValueError(
        f"{schedule} is several products added outside the unit, which matmul computes; bounds, schemes and traces take "
        "Sequential(), SplitK(...) and Blocked(...)"
    )


def _slices(k: int, step: int | None) -> list[npt.NDArray[np.int64]]:
    return [np.arange(start, min(start + (step or k), k)) for start in range(0, k, step or k)]


def _turns(k: int, tile: int, turns: int) -> list[npt.NDArray[np.int64]]:
    every = np.arange(k)
    dealt = every // tile % turns
    return [every[dealt == turn] for turn in range(turns) if (dealt == turn).any()]


def _halves_of_turns(schedule: object, tree: str, turns: int) -> None:
    if tree == "halves" and turns == 1:
        raise ValueError(f"{type(schedule).__name__}: halves are those of slices dealt in turns; got turns=1")


def _counts_or_none(schedule: object, **counts: int | None) -> None:
    _at_least_one(schedule, **{key: value for key, value in counts.items() if value is not None})


def _at_least_one(schedule: object, **counts: int) -> None:
    """Counts as Python's integers, which do not wrap."""
    for key, value in counts.items():
        object.__setattr__(schedule, key, integer(value, f"{type(schedule).__name__}: {key}", 1))


def _sum_format(name: str) -> None:
    if format_named(name).name not in SUM_FORMATS:
        raise unknown("format for adding partial sums", name, SUM_FORMATS)


def _kept_format(name: str) -> None:
    if name not in KEPT_FORMATS:
        raise unknown("format for partial sums", name, KEPT_FORMATS)
