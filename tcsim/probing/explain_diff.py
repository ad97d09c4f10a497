"""Two results of "the same" GEMM: what explains each, where they part, and how far apart they can be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format, format_named
from tcsim.operands import accumulator, operand
from tcsim.probing.box import Batch
from tcsim.probing.models import Model, labels_alike, library_schedules, units_for
from tcsim.problem import Codes
from tcsim.schedule import Blocked, Schedule, Sequential, SplitK
from tcsim.schemes.bounds_units import unit_product
from tcsim.shown import Shown

MOST = 12  # explanations of a result, the plain ones first
SIDE = 12  # a search looks at SIDE x SIDE outputs, and checks what is left on all


@dataclass(frozen=True, repr=False)
class ResultExplanation(Shown):
    """A model that gives every output of a result, and the other rows of the table that are the same arithmetic."""

    model: Model
    alike: tuple[str, ...]
    checked: int

    def __str__(self) -> str:
        more = f" (also {', '.join(self.alike[1:4])}{' …' if len(self.alike) > 4 else ''})" if len(self.alike) > 1 else ""
        return f"{self.model.name}{more}: {self.checked} of {self.checked} outputs"


@dataclass(frozen=True, repr=False)
class SumsPart(Shown):
    """Where two explained results part for one output: products up to `k` give equal partial sums, up to `until` they do not."""

    index: tuple[int, ...]
    k: int
    until: int
    values: tuple[float, float]
    traces: tuple[str, str]

    def __str__(self) -> str:
        said = f"they part between k = {self.k} and k = {self.until}: {self.values[0]!r} and {self.values[1]!r}"
        return "\n".join([said, *(text for text in self.traces if text)])


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """What `explain_diff` says of two results."""

    first: tuple[ResultExplanation, ...]
    second: tuple[ResultExplanation, ...]
    outputs: int
    differing: int
    index: tuple[int, ...] | None
    values: tuple[float, float] | None
    largest: float
    parting: SumsPart | None
    bound: float | None

    def __str__(self) -> str:
        lines = [f"{self.differing} of {self.outputs} outputs differ, by at most {self.largest:g}"]
        for name, found in (("first", self.first), ("second", self.second)):
            lines.append(f"{name}: " + ("; ".join(map(str, found[:3])) or "no unit and schedule looked through explains it"))
        if self.index is not None and self.values is not None:
            lines.append(f"first difference at {list(self.index)}: {self.values[0]!r} and {self.values[1]!r}")
        if self.parting is not None:
            lines.append(f"there {self.parting}")
        if self.bound is not None:
            lines.append(f"on these inputs two such results differ by at most {self.bound:g}")
        return "\n".join(lines)


def explain_diff(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c: npt.ArrayLike | None = None,
    *,
    in_format: str | Format | None = None,
    b_format: str | Format | None = None,
    out_format: str | Format | None = None,
    seed: int = 0,
) -> Difference:
    """Which unit and schedule explains each of two results of c + a·b, where they part, and how large the difference can get.

    first, second
        (m, n), the same shape: values, or codes with `out_format`.
    a, b, c
        (m, k), (k, n), (m, n): values of the input format, or codes with `in_format`. Formats are those of the arrays' dtypes
        unless given.

    ValueError for shapes that do not fit and formats that are not said.
    """
    out = _format(np.asarray(first), out_format, "first", "out_format")
    batch, formats = problem_of(a, b, c, out, in_format, b_format)
    results = [accumulator(np.asarray(x), out, batch.c.shape[1:], codes=True)[None] for x in (first, second)]
    found = [explanations(batch, d, formats, out, seed) for d in results]
    return _compared(batch, results, formats, out, found)


def _format(array: Any, given: str | Format | None, name: str, argument: str) -> Format:
    if given is not None:
        return format_named(given)
    known = FORMATS.get(array.dtype.name)
    if known is None or array.dtype.kind == "u":
        raise ValueError(f"{name} is of dtype {array.dtype}, which says no format; pass {argument}")
    return known


def problem_of(
    a: Any, b: Any, c: Any, out: Format, in_format: str | Format | None, b_format: str | Format | None
) -> tuple[Batch, tuple[Format, Format]]:
    """a, b and c of one GEMM as codes. ValueError for shapes that do not fit."""
    left, right = np.asarray(a), np.asarray(b)
    fa = _format(left, in_format, "a", "in_format")
    fb = _format(right, b_format or in_format, "b", "b_format")
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ValueError(f"a of shape {left.shape} and b of shape {right.shape}: they must be (m, k) and (k, n)")
    x, y = (_own(operand(z, f, name), f) for z, f, name in ((left, fa, "a"), (right, fb, "b")))
    shape = (left.shape[0], right.shape[1])
    start = np.zeros(shape, out.storage) if c is None else np.array(accumulator(np.asarray(c), out, shape, codes=True))
    return Batch("GEMM", x[None], y[None], start[None]), (fa, fb)


def _own(given: Any, fmt: Format) -> Codes:
    from tcsim.fp.codes import encode

    return given.codes if given.stored == fmt else encode(decode(given.codes, given.stored), fmt)


def part(batch: Batch, d: Codes, rows: Any, columns: Any) -> tuple[Batch, Codes]:
    """Some rows and columns of a GEMM."""
    cut = np.ix_([0], rows, columns)
    return Batch(batch.name, batch.a[:, rows], batch.b[:, :, columns], batch.c[cut]), d[cut]


def explanations(
    batch: Batch, d: Codes, formats: tuple[Format, Format], out: Format, seed: int = 0, gpus: tuple[str, ...] | None = None
) -> tuple[ResultExplanation, ...]:
    """Models that give all outputs of d, those of the table's own blocks and plain schedules first; MOST of them."""
    rng = np.random.default_rng(seed)
    rows, columns = (np.sort(rng.permutation(size)[:SIDE]) for size in d.shape[1:])
    few, few_d = part(batch, d, rows[:3], columns[:3])
    some, some_d = part(batch, d, rows, columns)
    found = []
    for unit in units_for(*formats, out, gpus):
        for schedule in library_schedules(batch.a.shape[2]):
            model = Model(unit, schedule, out)
            if any(model.differing(x, y).any() for x, y in ((few, few_d), (some, some_d), (batch, d))):
                continue
            found.append(ResultExplanation(model, labels_alike(unit), d.size))
            if len(found) == MOST:
                return tuple(found)
    return tuple(found)


def _compared(
    batch: Batch, results: list[Codes], formats: tuple[Format, Format], out: Format, found: list[tuple[ResultExplanation, ...]]
) -> Difference:
    values = [decode(d, out)[0].astype(np.float64) for d in results]
    different = np.argwhere(results[0][0] != results[1][0])
    with np.errstate(invalid="ignore"):
        gaps = np.abs(values[0] - values[1])
    largest = float(np.nanmax(gaps, initial=0.0)) if gaps.size else 0.0
    index = tuple(int(i) for i in different[0]) if different.size else None
    at = None if index is None else (float(values[0][index]), float(values[1][index]))
    models = [x[0].model if x else None for x in found]
    parting, bound = None, None
    if models[0] is not None and models[1] is not None:
        if index is not None:
            parting = parted(batch, models[0], models[1], index)
        bound = _bound(batch, formats, [m for m in models if m is not None])
    return Difference(found[0], found[1], int(results[0].size), len(different), index, at, largest, parting, bound)


def _bound(batch: Batch, formats: tuple[Format, Format], models: list[Model]) -> float | None:
    """The sum of both results' distances from the exact one, at most; None where numbers are not finite."""
    x, y = (decode(z, f)[0].astype(np.float64) for z, f in ((batch.a, formats[0]), (batch.b, formats[1])))
    total: Any = 0.0
    for model in models:
        c = decode(batch.c, model.stored)[0].astype(np.float64)
        if not (np.isfinite(x).all() and np.isfinite(y).all() and np.isfinite(c).all()):
            return None
        limit = np.asarray(unit_product(model.unit, x, y, c, schedule=model.schedule).limit)
        if model.stored != model.unit.out_format:
            size = np.abs(x) @ np.abs(y) + np.abs(c) + limit
            limit = limit + size * 2.0**-model.stored.precision + 2.0 ** (model.stored.emin - model.stored.precision)
        total = total + limit
    return float(np.max(total))


def parted(batch: Batch, first: Model, second: Model, index: tuple[int, ...]) -> SumsPart | None:
    """The first block of k after which two models' partial sums of one output differ, and what each does there."""
    one, _ = part(batch, batch.c, [index[0]], [index[1]])
    k = one.a.shape[2]
    step = min(m.unit.block_size for m in (first, second))
    if first.unit.out_format == second.unit.out_format:  # before a narrower format hides it
        wide = first.unit.out_format
        one = replace(one, c=np.array(accumulator(decode(one.c, first.stored), wide, one.c.shape)))
        first, second = (replace(m, stored=wide) for m in (first, second))
    before = 0
    for until in [*range(step, k, step), k]:
        values = [_prefix(m, one, until) for m in (first, second)]
        if values[0] != values[1] and not all(np.isnan(values)):
            traces = tuple(_trace(m, one, before, until) for m in (first, second))
            return SumsPart(index, before, until, (values[0], values[1]), (traces[0], traces[1]))
        before = until
    return None


def _prefix(model: Model, one: Batch, until: int) -> float:
    """The output as it would be if k ended at `until`, cut where the whole k is."""
    cut = Batch(one.name, one.a[:, :, :until], one.b[:, :until], one.c)
    codes = Model(model.unit, _as_cut(model.schedule, one.a.shape[2]), model.stored).codes(cut)
    return float(decode(codes, model.stored)[0, 0, 0])


def _as_cut(schedule: Schedule, k: int) -> Schedule:
    """A schedule that cuts a shorter k where this one cuts k."""
    if isinstance(schedule, SplitK):
        step = int(schedule.plan(k).bounds[1])
        return SplitK(-(-k // step), step, schedule.reduce)
    if not isinstance(schedule, Sequential | Blocked):
        raise ValueError(f"where {schedule} cuts a shorter k is not known; Sequential(), SplitK(...) and Blocked(...) are")
    return schedule


def _trace(model: Model, one: Batch, start: int, stop: int) -> str:
    """The block of an unsplit chain term by term; empty where a schedule or a late c makes it more than a block."""
    from tcsim.reference.trace import trace_block

    unit = model.unit
    if not isinstance(model.schedule, Sequential) or unit.c_enters == "after" or unit.scale is not None:
        return ""
    first = start - start % unit.block_size
    stop = min(first + unit.block_size, one.a.shape[2]) if stop - first <= unit.block_size else stop
    wide = Model(unit, Sequential(), unit.out_format)
    c = one.c if unit.out_format == model.stored else accumulator(decode(one.c, model.stored), unit.out_format, one.c.shape)
    state = c if not first else wide.codes(Batch(one.name, one.a[:, :, :first], one.b[:, :first], np.array(c)))
    return str(trace_block(one.a[0, 0, first:stop], one.b[0, first:stop, 0], np.asarray(state)[0, 0, 0], unit=unit))
