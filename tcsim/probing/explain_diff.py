"""Two results of "the same" GEMM: what explains each, where they part, and how far apart they can be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format, format_named
from tcsim.hardware import UNITS
from tcsim.operands import accumulator, operand
from tcsim.probing.box import Batch
from tcsim.probing.difference import Difference, Nearest, ResultExplanation, SumsPart
from tcsim.probing.models import Model, labels_alike, library_schedules, predicted_models, units_for
from tcsim.probing.questions.codes import doubles
from tcsim.problem import Codes
from tcsim.schedule import Blocked, Schedule, Sequential, SplitK
from tcsim.schemes.bounds_units import unit_product

MOST = 12  # explanations of a result, the plain ones first
SIDE = 12  # a search looks at SIDE x SIDE outputs, and checks what is left on all


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
        (m, n), values, each of its own dtype; or codes of `out_format`.
    a, b, c
        (m, k), (k, n), (m, n): values of the input format, or codes with `in_format`. Formats are those of the arrays' dtypes
        unless given.

    Looked through are the units of the table, plain orders of k, split and blocked ones, and what the library of a catalogue does
    with such a product; for a result that none of them gives whole, the one that gives most of it. ValueError for shapes that do
    not fit and formats that are not said.
    """
    rows, columns = np.shape(a)[:1], np.shape(b)[1:]
    for array, name in ((first, "first"), (second, "second")):
        if np.ndim(a) == np.ndim(b) == 2 and np.shape(array) != (*rows, *columns):
            raise ValueError(
                f"{name} has shape {np.shape(array)}; the product of a {np.shape(a)} and b {np.shape(b)} has {(*rows, *columns)}"
            )
    results = [
        _result(array, name, a, b, c, in_format, b_format, out_format) for array, name in ((first, "first"), (second, "second"))
    ]
    found = [explanations(r.batch, r.d, r.formats, r.out, seed) for r in results]
    near = [
        None if some else nearest_model(r.batch, r.d, r.formats, r.out, seed) for r, some in zip(results, found, strict=True)
    ]
    looked = [sum(1 for _ in _looked_through(r.batch, r.formats, r.out, None)) for r in results]
    return _compared(results, found, (near[0], near[1]), (looked[0], looked[1]))


@dataclass(frozen=True)
class _Result:
    """One of the two results, with its problem in the format that it is stored in."""

    batch: Batch
    formats: tuple[Format, Format]
    out: Format
    d: Codes


def _result(array: Any, name: str, a: Any, b: Any, c: Any, in_format: Any, b_format: Any, out_format: Any) -> _Result:
    out = _format(np.asarray(array), out_format, name, "out_format")
    batch, formats = problem_of(a, b, c, out, in_format, b_format)
    return _Result(batch, formats, out, np.array(accumulator(np.asarray(array), out, batch.c.shape[1:], codes=True))[None])


def _format(array: Any, given: str | Format | None, name: str, argument: str) -> Format:
    if given and any(u.name == given for u in UNITS):
        raise ValueError(
            f"{argument}={given!r}: its products have scales, of which nothing is passed here; tcsim.matmul takes them"
        )
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
    if 0 in shape:
        raise ValueError(f"a of shape {left.shape} and b of shape {right.shape}: their product has no output")
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
    few, some = _samples(batch, d, seed)
    found: list[ResultExplanation] = []
    for model in _looked_through(batch, formats, out, gpus):
        if len(found) == MOST or (found and not isinstance(model.schedule, Sequential | Blocked | SplitK)):
            break  # a library's own walk is looked for where no plain one explains
        if not any(model.differing(x, y).any() for x, y in (few, some, (batch, d))):
            found.append(ResultExplanation(model, labels_alike(model.unit), d.size))
    return tuple(found)


def nearest_model(batch: Batch, d: Codes, formats: tuple[Format, Format], out: Format, seed: int = 0) -> Nearest | None:
    """The model that gives most outputs of d, if it gives more than half of those that are looked at first."""
    few, some = _samples(batch, d, seed)
    scored = [(int(np.count_nonzero(model.differing(*few))), model) for model in _looked_through(batch, formats, out, None)]
    close = sorted((x for x in scored if 2 * x[0] < few[1].size), key=lambda x: x[0])[:MOST]
    if not close:
        return None
    model = min((model for _, model in close), key=lambda m: int(np.count_nonzero(m.differing(*some))))
    wrong = model.differing(batch, d)
    places = np.argwhere(wrong[0])
    index = tuple(int(i) for i in places[0])
    given, computed = (float(decode(codes[0][index], out)) for codes in (d, model.codes(batch)))
    return Nearest(model, d.size - len(places), d.size, index, (given, computed))


def _samples(batch: Batch, d: Codes, seed: int) -> list[tuple[Batch, Codes]]:
    """A few outputs, and some more."""
    rng = np.random.default_rng(seed)
    rows, columns = (np.sort(rng.permutation(size)[:SIDE]) for size in d.shape[1:])
    return [part(batch, d, rows[:3], columns[:3]), part(batch, d, rows, columns)]


def _looked_through(batch: Batch, formats: tuple[Format, Format], out: Format, gpus: tuple[str, ...] | None) -> Iterator[Model]:
    """The table's units by the schedules of libraries, then what the catalogues' libraries are guessed to do."""
    shape = (batch.a.shape[1], batch.b.shape[2], batch.a.shape[2])
    for unit in units_for(*formats, out, gpus):
        for schedule in library_schedules(shape[2]):
            yield Model(unit, schedule, out)
    yield from predicted_models(*formats, out, shape, gpus)


def _compared(
    results: list[_Result],
    found: list[tuple[ResultExplanation, ...]],
    near: tuple[Nearest | None, Nearest | None],
    looked: tuple[int, int],
) -> Difference:
    one, other = results
    values = [doubles(r.d, r.out)[0] for r in results]
    if one.out == other.out:
        unequal = one.d[0] != other.d[0]
    else:
        unequal = (values[0] != values[1]) & ~(np.isnan(values[0]) & np.isnan(values[1]))
    different = np.argwhere(unequal)
    with np.errstate(invalid="ignore"):
        gaps = np.abs(values[0] - values[1])
    largest = float(np.nanmax(gaps, initial=0.0)) if gaps.size else 0.0
    index = tuple(int(i) for i in different[0]) if different.size else None
    at = None if index is None else (float(values[0][index]), float(values[1][index]))
    models = _pair(*found)
    parting, bound = None, None
    if models:
        if index is not None:
            parting = parted([r.batch for r in results], models, index)
        bound = _bound(results, models)
    return Difference(found[0], found[1], near, looked, int(one.d.size), len(different), index, at, largest, parting, bound)


def _pair(first: tuple[ResultExplanation, ...], second: tuple[ResultExplanation, ...]) -> list[Model]:
    """A model of each: the same sums where both have them, else the first of each; none where one is not explained."""
    for one in first:
        for other in second:
            if one.model.unit == other.model.unit and one.model.schedule == other.model.schedule:
                return [one.model, other.model]
    return [first[0].model, second[0].model] if first and second else []


def _of_segments(models: list[Model]) -> bool:
    """Whether every schedule cuts k into segments and does nothing else."""
    return all(isinstance(m.schedule, Sequential | SplitK | Blocked) for m in models)


def _bound(results: list[_Result], models: list[Model]) -> float | None:
    """The sum of both results' distances from the exact one, at most; None where numbers are not finite, or a schedule has no bound."""
    if not _of_segments(models):
        return None
    total: Any = 0.0
    for result, model in zip(results, models, strict=True):
        batch = result.batch
        x, y = (doubles(z, f)[0] for z, f in zip((batch.a, batch.b), result.formats, strict=True))
        c = doubles(batch.c, model.stored)[0]
        if not (np.isfinite(x).all() and np.isfinite(y).all() and np.isfinite(c).all()):
            return None
        limit = np.asarray(unit_product(model.unit, x, y, c, schedule=model.schedule).limit)
        if model.stored != model.unit.out_format:
            size = np.abs(x) @ np.abs(y) + np.abs(c) + limit
            limit = limit + size * 2.0**-model.stored.precision + 2.0 ** (model.stored.emin - model.stored.precision)
        total = total + limit
    return float(np.max(total))


def parted(batches: list[Batch], models: list[Model], index: tuple[int, ...]) -> SumsPart | None:
    """The first block of k after which two models' partial sums of one output differ, and what each does there.

    None where they never do, or where a schedule does not say how it cuts a shorter k.
    """
    if not _of_segments(models):
        return None
    ones = [part(batch, batch.c, [index[0]], [index[1]])[0] for batch in batches]
    k = ones[0].a.shape[2]
    step = min(m.unit.block_size for m in models)
    wide = models[0].unit.out_format
    if models[1].unit.out_format == wide:  # before a narrower format hides it
        ones = [
            replace(one, c=np.array(accumulator(decode(one.c, m.stored), wide, one.c.shape)))
            for one, m in zip(ones, models, strict=True)
        ]
        models = [replace(m, stored=wide) for m in models]
    before = 0
    for until in [*range(step, k, step), k]:
        values = [_prefix(m, one, until) for m, one in zip(models, ones, strict=True)]
        if values[0] != values[1] and not all(np.isnan(values)):
            traces = tuple(_trace(m, one, before, until) for m, one in zip(models, ones, strict=True))
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
