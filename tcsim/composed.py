"""Schedules made of several products: slices and lanes of k, each a chain on a unit, added outside it in float32, or in
float64 where float32 does not hold the unit's results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.codes import decode, encode
from tcsim.fp.formats import Format
from tcsim.fp.round_to import round_to
from tcsim.hardware.unit import Unit
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Composed, Hybrid, Lanes, Plan, Sequential, Tiled

Floats = npt.NDArray[Any]  # float32, or float64 for results that float32 does not hold
Places = npt.NDArray[np.int64]
Run = Callable[[Problem, int | None], Codes]


def run_composed(problem: Problem, schedule: Composed, backend: Run, threads: int | None) -> Codes:
    """Codes of D = C + A·B, (batch, m, n), for a problem whose own plan is not looked at.

    ValueError for units with block scales, integers or outputs wider than float32.
    """
    unit = problem.unit
    if unit.scale is not None or unit.out_format.integer:
        raise ValueError(f"{type(schedule).__name__} is a schedule of unscaled units of floating point; not of {unit.label}")
    if isinstance(schedule, Hybrid):
        return _hybrid(problem, schedule, backend, threads)
    with np.errstate(invalid="ignore", over="ignore"):
        c = None if problem.c is None else _values(problem.c, unit.out_format)
        total = _summed(problem, schedule, c if schedule.c_joins_first else None, backend, threads)
        if c is not None and not schedule.c_joins_first:
            total = total + c
    return _codes(total, unit)


def _hybrid(problem: Problem, schedule: Hybrid, backend: Run, threads: int | None) -> Codes:
    out = run_composed(problem, schedule.whole, backend, threads)
    for top, bottom, left, right in schedule.regions:
        if top < out.shape[1] and left < out.shape[2]:
            part = replace(
                problem,
                a=Operand(problem.a.codes[:, top:bottom], problem.a.stored),
                b=Operand(problem.b.codes[:, :, left:right], problem.b.stored),
                c=None if problem.c is None else problem.c[:, top:bottom, left:right],
            )
            out[:, top:bottom, left:right] = run_composed(part, schedule.cut, backend, threads)
    return out


def _summed(problem: Problem, schedule: Tiled | Lanes, c: Floats | None, backend: Run, threads: int | None) -> Floats:
    """Every slice's result, and their sum; c is added to the first."""
    part = _tiled if isinstance(schedule, Tiled) else _lanes
    made = (
        _kept(part(problem, schedule, ks, backend, threads), schedule.partial)  # type: ignore[arg-type]
        for ks in schedule.slices(problem.shape[3])
    )
    first = next(made)
    first = first if c is None else first + c
    tree = schedule.tree if isinstance(schedule, Tiled) else schedule.parts
    if tree == "pairs":
        return _pairs([first, *made], schedule.reduce)
    if tree == "halves":
        parts = [first, *made]
        return _halves([*parts, *[np.zeros_like(first)] * (schedule.turns - len(parts))], schedule.reduce)
    total = _kept(first, schedule.reduce)
    for partial in made:
        total = _kept(total + partial, schedule.reduce)
    return total


def _pairs(parts: list[Floats], reduce: str) -> Floats:
    """Neighbours added from the last on, then their sums, the first of an odd number waiting."""
    while len(parts) > 1:
        odd = len(parts) % 2
        parts = parts[:odd] + [_kept(x + y, reduce) for x, y in zip(parts[odd::2], parts[odd + 1 :: 2], strict=True)]
    return _kept(parts[0], reduce)


def _halves(parts: list[Floats], reduce: str) -> Floats:
    """The first and the one half of them on, then the last, then every other such pair; who has no partner alone."""
    half, last = -(-len(parts) // 2), len(parts) - 1
    pairs = [_kept(parts[i] + parts[i + half], reduce) if i + half < last else parts[i] for i in range(half)]
    total = _kept(pairs[0] + parts[last], reduce)
    for pair in pairs[1:]:
        total = _kept(total + pair, reduce)
    return total


def _tiled(problem: Problem, schedule: Tiled, ks: Places, backend: Run, threads: int | None) -> Floats:
    unit = problem.unit
    if schedule.instruction_k is not None:
        unit = shortened(unit, schedule.instruction_k)
    places = schedule.places(ks, unit.instruction_k)
    step = schedule.promote_k or places.size
    sums = [
        _values(backend(_at(problem, unit, places[start : start + step]), threads), unit.out_format)
        for start in range(0, places.size, step)
    ]
    return _ascending(np.stack(sums))


def _at(problem: Problem, unit: Unit, places: Places) -> Problem:
    """The product over some k, from zero."""
    a, b = _taken(problem.a, places, 2), _taken(problem.b, places, 1)
    return replace(problem, unit=unit, plan=Sequential().plan(places.size), a=a, b=b, c=None)


@lru_cache(maxsize=64)
def shortened(unit: Unit, k: int) -> Unit:
    """The unit in instructions of k products; itself where its own are not longer."""
    if unit.instruction_k <= k or unit.k_order is not None:
        return unit
    return unit.replace(
        block_size=min(unit.block_size, k), evidence=unit.evidence, source=f"{unit.source}; instructions of {k} products"
    )


def _taken(operand: Operand, places: Places, axis: int) -> Operand:
    """The operand at some k, +0 where a place is -1."""
    if places.size and places[0] >= 0 and (np.diff(places) == 1).all():
        cut = slice(int(places[0]), int(places[-1]) + 1)
        return Operand(operand.codes[:, :, cut] if axis == 2 else operand.codes[:, cut], operand.stored)
    codes = np.take(operand.codes, _beside(operand.codes, np.maximum(places, 0)), axis=axis)
    codes[(slice(None),) * axis + (_beside(codes, places < 0),)] = 0
    return Operand(codes, operand.stored)


def _lanes(problem: Problem, schedule: Lanes, ks: Places, backend: Run, threads: int | None) -> Floats:
    """A batch of chains, one a lane, tile and element of the batch; then the tree."""
    places = schedule.places(ks)
    lanes, tiles, length = places.shape
    batch, m, n, _ = problem.shape
    flat = places.reshape(-1, length)
    part = Problem(
        fused_unit(problem.unit),
        Plan(np.array([0, length], dtype=np.int64), None, True),
        Operand(_spread(problem.a.codes, flat).reshape(-1, m, length), problem.a.stored),
        Operand(_spread(problem.b.codes.transpose(0, 2, 1), flat).reshape(-1, n, length).transpose(0, 2, 1), problem.b.stored),
        None,
        seed=problem.seed,
    )
    sums = _values(backend(part, threads), part.unit.out_format).reshape(lanes, tiles, batch, m, n)
    totals = sums[:, 0]
    for tile in range(1, tiles):
        begun = _beside(sums, places[:, tile, 0] >= 0)
        totals[begun] = totals[begun] + sums[begun, tile]
    return TREE[schedule.tree](totals)


def _spread(codes: Codes, places: Places) -> Codes:
    """Codes (batch, lines, k) as (chains, batch, lines, products), +0 where a place is -1."""
    taken = codes[:, :, _beside(codes, np.maximum(places, 0))]
    taken[:, :, _beside(codes, places < 0)] = 0
    return taken.transpose(2, 0, 1, 3).copy()


def _beside(codes: Any, places: Any) -> Any:
    """Places as an array of the kind of the codes that they index, which may be CuPy's."""
    return np.asarray(places, like=codes)


def _ascending(totals: Floats) -> Floats:
    result: Floats = totals[0]
    for lane in totals[1:]:
        result = result + lane
    return result


def _butterfly(totals: Floats) -> Floats:
    while len(totals) > 1:
        half = 1 << (len(totals) - 1).bit_length() - 1
        pairs = len(totals) - half
        totals = np.concatenate([totals[:pairs] + totals[half:], totals[pairs:half]])
    total: Floats = totals[0]
    return total


def _blocks_of_128(totals: Floats) -> Floats:
    """A butterfly in each block of 128 lanes; the blocks' sums then as `_sums_of_blocks`."""
    blocks = totals.reshape(-1, 128, *totals.shape[1:])
    return _sums_of_blocks(_butterfly(np.moveaxis(blocks, 1, 0)))


def _pairs_in_blocks(totals: Floats) -> Floats:
    """Two neighbouring lanes are one thread's: they are added, then blocks of 128."""
    return _blocks_of_128(totals[0::2] + totals[1::2])


def _sums_of_blocks(sums: Floats) -> Floats:
    """By one block of 128 threads: every 128th in a chain, halves down to 32, every fourth in a chain, then those four."""
    sums = _every(sums, 128)
    while len(sums) > 32:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    return _ascending(_every(sums, 4))


def _every(sums: Floats, step: int) -> Floats:
    """Chains of every `step`-th; `step` sums, zero where there is none."""
    rows = np.zeros((-(-len(sums) // step) * step, *sums.shape[1:]), sums.dtype, like=sums)
    rows[: len(sums)] = sums
    return _ascending(rows.reshape(-1, step, *sums.shape[1:]))


TREE: dict[str, Callable[[Floats], Floats]] = {
    "ascending": _ascending,
    "butterfly": _butterfly,
    "blocks of 128": _blocks_of_128,
    "pairs in blocks of 128": _pairs_in_blocks,
}


@lru_cache(maxsize=64)
def fused_unit(unit: Unit) -> Unit:
    """Fused multiply-adds of the unit's inputs, as the CUDA cores of its GPU do them: float32's, of wider results float64's."""
    return Unit(
        unit.gpu, "fma", unit.a, unit.b, "float64" if _wide(unit.out_format) else "float32", 1, align_rounding="exact", rounding="rne", zero_sign="ieee",
        evidence="S", source="IEEE 754 fused multiply-add",
    )  # fmt: skip


def _wide(fmt: Format) -> bool:
    """Whether float32 does not hold a format's numbers."""
    return fmt.precision > 24 or fmt.emax > 127 or fmt.emin - fmt.mantissa_bits < -149


def _values(codes: Codes, fmt: Format) -> Floats:
    return decode(codes, fmt).astype(np.float64 if _wide(fmt) else np.float32, copy=False)


def _kept(x: Floats, fmt: str | Format) -> Floats:
    return x if fmt == "float32" else round_to(x, fmt).astype(x.dtype, copy=False)


def _codes(x: Floats, unit: Unit) -> Codes:
    """Codes of the output; NaN is the unit's own."""
    out = unit.out_format
    if out.name in ("float32", "float64"):
        codes: Any = x.astype(x.dtype, order="C").view(out.storage)
    else:
        codes = encode(_kept(x, out), out)
    codes[np.isnan(x)] = unit.nan
    return codes  # type: ignore[no-any-return]
