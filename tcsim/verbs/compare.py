"""Two units on the same numbers: what differs in their records, in how many outputs, by how much, and where they part first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.analysis import exact, metrics
from tcsim.analysis.inputs import draw
from tcsim.hardware import as_unit, unit
from tcsim.hardware.names import gpu_named
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul
from tcsim.reference.trace import Block
from tcsim.schedule import Schedule, Sequential
from tcsim.shown import Shown
from tcsim.verbs.bits import result_codes
from tcsim.verbs.pairs import Pair, PairRow, held_pair
from tcsim.verbs.tracing import for_vectors, opened

Array = npt.NDArray[Any]


@dataclass(frozen=True, repr=False)
class Parting(Shown):
    """Where two units first part in one output.

    index
        The output. k: the first k after which the two running sums differ, at a place where both units end an instruction.
    before, after
        The two running sums before and after those blocks, as codes.
    blocks
        The blocks in between, of the one unit and of the other, opened.
    """

    index: tuple[int, ...]
    k: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]
    blocks: tuple[tuple[Block, ...], tuple[Block, ...]]

    def __str__(self) -> str:
        lines = [f"output {list(self.index)}: the running sums part between k = {self.k[0]} and {self.k[1]}, {self.before[0]:#x} to "
                 f"{self.after[0]:#x} and {self.after[1]:#x}"]  # fmt: skip
        mine, theirs = ("\n\n".join(str(block) for block in blocks).splitlines() for blocks in self.blocks)
        return "\n".join([*lines, *side_by_side(mine, theirs)])


@dataclass(frozen=True)
class Comparison:
    """What `compare` found. Prints as a page; `differing` is 0 where every bit of every output is the same.

    differ
        The fields of the records that differ, each with both values.
    outputs, differing
        Outputs compared, and those whose bits differ.
    ulps
        How many outputs lie how many units in the last place above or below the first unit's, by octaves: 4 counts 4 to 7,
        -4 counts -4 to -7, 0 the equal ones. `largest` is the most. None where the outputs have no such count (two formats, or one of 8 bits).
    errors
        Largest |C - Ĉ|/(|A||B|) of each unit against the exact product of its own inputs; NaN where something is not finite.
    rounded
        Elements of a and b that each unit's input format could not hold and that were rounded to nearest.
    d
        Both results.
    """

    units: tuple[Unit, Unit]
    differ: dict[str, tuple[Any, Any]]
    shape: tuple[int, int, int]
    outputs: int
    differing: int
    ulps: dict[int, int] | None
    largest: int | None
    errors: tuple[float, float]
    rounded: tuple[int, int]
    inputs: str
    schedule: str
    d: tuple[Array, Array]
    parting: Parting | None

    @property
    def share(self) -> float:
        """The share of outputs whose bits differ."""
        return self.differing / self.outputs if self.outputs else 0.0

    def document(self) -> dict[str, Any]:
        """The numbers, for JSON."""
        p = self.parting
        where = None if p is None else {
            "output": list(p.index), "k": list(p.k), "before": [hex(x) for x in p.before], "after": [hex(x) for x in p.after],
        }  # fmt: skip
        return {
            "units": [u.label for u in self.units], "differ": self.differ, "shape": list(self.shape), "inputs": self.inputs,
            "schedule": self.schedule, "outputs": self.outputs, "differing": self.differing, "share": self.share, "ulps": self.ulps,
            "largest_ulps": self.largest, "errors": list(self.errors), "rounded_inputs": list(self.rounded), "first": where,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<{self.units[0].label} beside {self.units[1].label}: {self.differing} of {self.outputs} outputs differ>"

    def __str__(self) -> str:
        return "\n".join([*self._lines(), *([str(self.parting)] if self.parting else [])])

    def _lines(self) -> Iterator[str]:
        one, two = self.units
        yield f"{one.label}   beside   {two.label}"
        for name, (mine, theirs) in self.differ.items():
            yield f"  {name:20}{'-' if mine is None else mine!s:22}{'-' if theirs is None else theirs}"
        m, n, k = self.shape
        yield f"{self.inputs}: {m} x {k} times {k} x {n}, {self.schedule}"
        for fmt, count in dict(zip((u.name or u.a for u in self.units), self.rounded, strict=True)).items():
            if count:
                yield f"{count} elements of a and b rounded to nearest in {fmt}, which cannot hold them"
        yield f"{self.differing} of {self.outputs} outputs differ ({100 * self.share:.3g} %)"
        if self.ulps is not None and self.differing:
            yield f"ulps from {one.gpu} to {two.gpu}, at most {self.largest}:"
            peak = max(self.ulps.values())
            for place, count in self.ulps.items():
                yield f"  {octave_name(place):>16}  {count:8}  {'#' * max(1, round(40 * count / peak))}"
        yield f"largest error |C - Ĉ|/(|A||B|): {self.errors[0]:.2e} and {self.errors[1]:.2e}"

    def figure(self) -> Any:
        """The histogram of ulps and both units' errors against the exact product, as a matplotlib Figure."""
        from tcsim.verbs.compare_figure import figure

        return figure(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def compare(
    first: Unit | str,
    second: Unit | str,
    a: npt.ArrayLike | None = None,
    b: npt.ArrayLike | None = None,
    c: npt.ArrayLike | None = None,
    *,
    fmt: Any = "float16",
    distribution: str = "gauss",
    shape: tuple[int, int, int] = (64, 64, 1024),
    schedule: Schedule | None = None,
    backend: str = "cpu",
    seed: int = 0,
) -> Comparison:
    """Multiply the same matrices on two units and say where and how much they differ.

    first, second
        Units, their names, or GPUs' names, which mean their units for `fmt`.
    a, b, c
        Matrices (m, k), (k, n) and, where given, (m, n); elements that a unit's format cannot hold are rounded to nearest,
        and counted; for a unit with block scales they are quantised as `tcsim.quantize` does. Without a and b they are drawn from `distribution` (`tcsim.inputs.DISTRIBUTIONS`), of shape (m, n, k).
    schedule, backend
        As `matmul` takes them, for both.

    The first output that differs is walked along k until the two running sums part, and the blocks there are opened for both:
    not for units that round stochastically. ValueError for unknown names and shapes that do not fit.
    """
    units = (_unit(first, fmt), _unit(second, fmt))
    x, y, said = _inputs(a, b, distribution, shape, seed)
    plan = Sequential() if schedule is None else schedule
    pairs = [held_pair(x, y, u) for u in units]
    ds = [
        np.asarray(matmul(p.a, p.b, c, unit=u, schedule=plan, backend=backend, seed=seed, **p.scales))
        for p, u in zip(pairs, units, strict=True)
    ]
    codes = [result_codes(d, u) for d, u in zip(ds, units, strict=True)]
    if units[0].out_format == units[1].out_format:
        different = codes[0] != codes[1]
    else:
        different = (ds[0].astype(np.float64) != ds[1].astype(np.float64)) & ~(np.isnan(ds[0]) & np.isnan(ds[1]))
    ulps, largest = _ulps(units, ds)
    errors = [_error(d, p, c) for d, p in zip(ds, pairs, strict=True)]
    return Comparison(
        units, units[0].diff(units[1]), (x.shape[0], y.shape[1], x.shape[1]), different.size, int(different.sum()), ulps, largest,
        (errors[0], errors[1]), (pairs[0].rounded, pairs[1].rounded), said, repr(plan), (ds[0], ds[1]),
        _parting(units, pairs, c, plan, different),
    )  # fmt: skip


def _unit(given: Unit | str, fmt: Any) -> Unit:
    from tcsim.hardware.record import unit_given

    if isinstance(given, str) and ":" not in given and "->" not in given and not given.endswith(".json"):
        return unit(gpu_named(given).name, fmt)
    return as_unit(unit_given(given))


def _inputs(a: Any, b: Any, distribution: str, shape: tuple[int, int, int], seed: int) -> tuple[Array, Array, str]:
    if (a is None) != (b is None):
        raise ValueError("compare takes both a and b, or neither: then they are drawn")
    if a is None:
        if len(shape) != 3:
            raise ValueError(f"shape is (m, n, k), three integers; got {shape!r}")
        m, n, k = (arguments.integer(size, name, 1) for size, name in zip(shape, ("m", "n", "k"), strict=True))
        x, y = draw(distribution, m, k, n, seed=arguments.seed(seed))
        return x, y, f"{distribution} matrices of seed {seed}"
    x, y = arguments.array(a, "a"), arguments.array(b, "b")
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[0]:
        raise ValueError(f"compare takes matrices, a (m, k) and b (k, n); got {x.shape} and {y.shape}")
    if not (x.size and y.size):
        raise ValueError(f"compare takes matrices, none of them empty; got {x.shape} and {y.shape}")
    return x, y, "the matrices given"


def _error(d: Array, pair: Pair, c: Any) -> float:
    a, b = pair.meant
    if c is not None or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("nan")
    return metrics.max_componentwise(d, exact.product(a, b), exact.magnitude(a, b))


def _ulps(units: tuple[Unit, Unit], ds: list[Array]) -> tuple[dict[int, int] | None, int | None]:
    if units[0].out_format != units[1].out_format:
        return None, None
    if units[0].out_format.integer:
        steps = ds[1].astype(np.int64) - ds[0].astype(np.int64)
    else:
        try:
            steps = metrics.ulp_distance(ds[1], ds[0], units[0].out_format.name)
        except ValueError:
            return None, None
    size = np.abs(steps)
    octave = np.where(size == 0, 0, 2 ** np.floor(np.log2(np.maximum(size, 1))).astype(np.int64)) * np.sign(steps)
    places, counts = np.unique(octave, return_counts=True)
    return dict(zip(places.tolist(), counts.tolist(), strict=True)), int(size.max(initial=0))


def _parting(units: tuple[Unit, Unit], pairs: list[Pair], c: Any, plan: Schedule, different: Array) -> Parting | None:
    """The first differing output walked along k; None where none differs, or where it cannot be walked alone."""
    stochastic = any(u.stochastic for u in units)
    if not different.any() or stochastic or units[0].out_format != units[1].out_format:
        return None
    i, j = (int(x) for x in np.argwhere(different)[0])
    rows = [PairRow.of(p, u, i, j) for p, u in zip(pairs, units, strict=True)]
    k = rows[0].a.size
    cut = plan.plan(k)
    start = np.broadcast_to(np.asarray(c), different.shape)[i, j] if c is not None and cut.sum is None else None
    for low, high in cut.segments:
        found = _walk(units, rows, start, low, high)
        if found is not None:
            return Parting((i, j), *found)
    return None


def _walk(units: tuple[Unit, Unit], rows: list[PairRow], c: Any, low: int, high: int) -> Any:
    """k, the sums before and after, and the blocks where the running sums of one segment part."""
    step = lcm(*(n for u in units for n in (u.instruction_k, u.scale_block or 1)))
    sums: list[Any] = [c, c]
    for at in range(low, high, step):
        stop = min(at + step, high)
        parts = [row.part(at, stop) for row in rows]
        after = [
            matmul(x, y, s, unit=u, **for_vectors(scales)) for u, (x, y, scales), s in zip(units, parts, sums, strict=True)
        ]
        codes = [int(result_codes(s, u)) for s, u in zip(after, units, strict=True)]
        if codes[0] != codes[1]:
            before = [0 if s is None else int(result_codes(s, u)) for s, u in zip(sums, units, strict=True)]
            shown = [
                tuple(opened(x, y, 0.0 if s is None else s, u, at, **scales))
                for u, (x, y, scales), s in zip(units, parts, sums, strict=True)
            ]
            return (at, stop), (before[0], before[1]), (codes[0], codes[1]), (shown[0], shown[1])
        sums = after
    return None


def octave_name(place: int) -> str:
    """The ulps that an octave of the histogram counts: "+4 to +7"."""
    return f"{place:+d}" if abs(place) < 2 else f"{place:+d} to {2 * place - (1 if place > 0 else -1):+d}"


def side_by_side(left: list[str], right: list[str], gap: int = 4) -> list[str]:
    """Two texts beside each other; one under the other where that is wider than 210 columns."""
    width = max(map(len, left), default=0)
    if width + gap + max(map(len, right), default=0) > 210:
        return [*left, "", *right]
    rows = max(len(left), len(right))
    columns = ([*left, *[""] * (rows - len(left))], [*right, *[""] * (rows - len(right))])
    return [f"{x.ljust(width + gap)}{y}".rstrip() for x, y in zip(*columns, strict=True)]
