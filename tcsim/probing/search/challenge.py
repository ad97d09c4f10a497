"""A record that explains everything, challenged: asked where its own numbers say that something happens, and told from what it
would be with one part changed.

Adversarial sums that agree show that a record is right where they look. What they do not look at is any other record's chance: so
for every change of one part an output must have been seen that the changed record does not give, or be looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from tcsim.hardware.choices import TERM_CUTS
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Box, Formats, of_problems, simulated
from tcsim.probing.questions.codes import Rng
from tcsim.probing.questions.contests import of_small_range
from tcsim.probing.questions.edges import edge_sums
from tcsim.probing.questions.heaps import heaps
from tcsim.probing.questions.lanes import nans_in_lanes
from tcsim.probing.search.candidates import (
    Parts,
    Scan,
    bits_apart,
    floors,
    group_sizes,
    most_fraction_bits,
    scans,
    unit_of_parts,
)
from tcsim.probing.search.elimination import ALL, Judge, cost_of
from tcsim.probing.search.evidence import others
from tcsim.probing.search.holders import operand_formats

_TOGETHER = ("fraction_bits", "min_exponent")
TOGETHER = "both"  # of these, by as much: terms are cut at the same place under a zero, elsewhere beside others
_COUNTS = (1500, 1500, 1000, 300)  # outputs asked of one product, a block, an instruction, more than one
_SHORT = 2  # lengths
_HEAPS = 2000  # outputs
_ALONG = (-9, -4, -2, -1, 1, 2, 4, 9)  # places that a cut and a least exponent are moved
_CUT_STEP, _WINDOW = 4, 64  # bits between deep cuts that are told from none, and beyond which they are further apart
_LEASTS = 12  # other least exponents, besides those near the lowest ones
_WIDER = 6  # formats of operands
_LEFT, _ALTOGETHER = (
    400,
    16000,
)  # outputs at the edges of a changed record that no output told from it; of all where they are few
_LARGE = 4e6  # products simulated of a batch that was asked before
_WORK = 4e7  # products simulated for all of them
_VALUES, _FEW, _AT_EACH = 40, 6, 120  # values of a number that are asked together, and outputs at each


def refuted_by(box: Box, rng: Rng, judge: Judge, unit: Unit, seen: list[Batch]) -> Batch | None:
    """An answered batch that a record does not explain; None where it stands. `seen`: what it explained so far, cheap ones first."""
    asked: list[Batch] = []
    for batch in edges_of(rng, box.formats, unit):
        answered = box.more(batch)
        if answered is None:
            return None
        if not _gives(unit, answered, judge.seed):
            return answered
        asked.append(answered)
    return told_apart(box, rng, judge, unit, unshown(box.formats, judge, unit, [*seen, *asked]))


def refuted_before(box: Box, judge: Judge, unit: Unit) -> Batch | None:
    """A batch, answered when another candidate was asked, that a record does not explain; None where it explains all. Of the largest
    ones some problems are looked at."""
    for batch in box.asked:
        products = batch.size * batch.a.shape[2] * cost_of(unit)
        step = max(1, int(products // _LARGE))
        looked_at = batch if step == 1 else of_problems(batch, range(0, len(batch.c), step))
        if not _gives(unit, looked_at, judge.seed):
            return looked_at
    return None


def missed_at_edges(box: Box, rng: Rng, judge: Judge, parts: Parts) -> list[Batch]:
    """Short sums at the edges of a candidate that explains nearly everything: what it misses there shows where it is wrong."""
    found: list[Batch] = []
    unit = unit_of_parts(box.formats, parts)
    for batch in () if unit is None else islice(edges_of(rng, box.formats, unit), _SHORT):
        asked = box.more(batch)
        if unit is not None and asked is not None and not _gives(unit, asked, judge.seed):
            found.append(asked)
    return found


def moved(known: Formats, before: Parts, now: Parts) -> list[tuple[str, int]]:
    """Numbers whose other value explains what refuted a candidate, and which way they moved; none where another part changed as well."""
    changed = {key for key in now if now[key] != before[key]}
    numbers = {scan.name for scan in scans(known, now) if None not in (before[scan.name], now[scan.name])}
    steps = {name: now[name] - before[name] for name in sorted(changed & numbers)}
    if changed == {*_TOGETHER} == {*steps} and len({*steps.values()}) == 1:
        return [(TOGETHER, 1 if steps[_TOGETHER[0]] > 0 else -1)]
    return [(name, 1 if step > 0 else -1) for name, step in steps.items()] if changed <= numbers else []


def missed_along(box: Box, rng: Rng, judge: Judge, parts: Parts, name: str, step: int, seen: list[Batch]) -> list[Batch]:
    """Short sums at the edges of values of a number, as far in the direction of `step` as they explain all that was `seen`, those that
    refute a candidate: what tells two values far apart says little of those between, so that one after another would be refuted."""
    scan = _scan_of(box.formats, parts, name)
    if scan is None:
        return []
    now, reach = parts[scan.name], 1
    least, most = min(scan.least, now), max(scan.most, now)

    def changed(value: int) -> Parts:
        return {**parts, **scan.parts(value), **(_at_one_place(parts, value) if name == TOGETHER else {})}

    def explains(value: int) -> bool:
        return least <= value <= most and judge.score(changed(value), seen, ALL) == 1.0

    while explains(now + 2 * reach * step):
        reach *= 2
    values = {now + round(i * 2 * reach * step / _VALUES) for i in range(_VALUES + 1)}
    units = [unit for v in sorted(values) if least <= v <= most and (unit := judge.unit(changed(v))) is not None]
    found: list[Batch] = []
    for k in dict.fromkeys(lengths_of(units[0])[:_SHORT]) if len(units) > _FEW else ():
        each = min(_AT_EACH, int(_WORK / ((k + 10) * cost_of(units[0]) * len(units))))
        asked = box.more(one_after_another([edge_sums(rng, box.formats, unit, k, each) for unit in units])) if each else None
        found += [] if asked is None or not judge.missed(parts, asked).any() else [asked]
    return found


def _scan_of(known: Formats, parts: Parts, name: str) -> Scan | None:
    """The scan of a number, or of the first of those that move together; None where what explained the last refutation has none."""
    wanted = _TOGETHER if name == TOGETHER else (name,)
    held = None not in [parts[number] for number in wanted]
    return next((scan for scan in scans(known, parts) if held and scan.name == wanted[0]), None)


def _at_one_place(parts: Parts, bits: int) -> Parts:
    """So many fraction bits under a least exponent as far above the place where terms are cut now."""
    return {"fraction_bits": bits, "min_exponent": parts["min_exponent"] + bits - parts["fraction_bits"]}


def _gives(unit: Unit, batch: Batch, seed: int) -> bool:
    return np.array_equal(simulated(unit, batch, seed=seed), batch.d)  # type: ignore[arg-type]


def lengths_of(unit: Unit) -> tuple[int, ...]:
    """Numbers of products at which a record is asked: one, a block, an instruction, some more."""
    return 1, unit.block_size, unit.instruction_k, 2 * unit.instruction_k + 1


def edges_of(rng: Rng, known: Formats, unit: Unit) -> Iterator[Batch]:
    """Questions at the edges of a record, one of each length; NaNs in its lanes; sums of the highest and the least products of narrow formats."""
    counts: dict[int, int] = {}
    for k, count in zip(lengths_of(unit), _COUNTS, strict=True):
        counts.setdefault(k, count)
    for k, count in counts.items():
        yield edge_sums(rng, known, unit, k, count)
    lanes = nans_in_lanes(rng, known, unit)
    if lanes is not None:
        yield lanes
    if of_small_range(known) and not known.a.integer:
        for k in dict.fromkeys(lengths_of(unit)[_SHORT:]):
            yield heaps(rng, known, k, _HEAPS)


def unshown(known: Formats, judge: Judge, unit: Unit, batches: list[Batch]) -> list[Unit]:
    """The records changed in one part, or cut at the same place under another least exponent, that give every output seen as well."""
    return [
        other for other in (*(other for _, _, other in others(unit)), *along(unit), *elsewhere(known, unit))
        if all(np.array_equal(simulated(other, batch, seed=judge.seed), batch.d) for batch in batches)  # type: ignore[arg-type]
    ]  # fmt: skip


def along(unit: Unit) -> Iterator[Unit]:
    """The record with its cut and its least exponent moved together: what lies below that exponent does not tell them apart."""
    if unit.arithmetic != "aligned" or unit.fraction_bits is None or unit.min_exponent is None:
        return
    for step in _ALONG:
        if unit.fraction_bits + step > 0:
            yield unit.replace(fraction_bits=unit.fraction_bits + step, min_exponent=unit.min_exponent + step)


def elsewhere(known: Formats, unit: Unit) -> Iterator[Unit]:
    """The record with least exponents all over what the formats reach, the lowest that any sum can show among them, and with other
    groups, operand formats and formats of sums: a record that explains everything may be far from the right one in one of these."""
    changes: list[Parts] = [{"min_exponent": least} for least in _leasts(known, unit) if least != unit.min_exponent]
    changes += [{"align_rounding": r, "fraction_bits": f} for f in _deep_cuts(known, unit) for r in ("rz", "rd", "ru")]
    changes += [{"group_size": g} for g in group_sizes(known, unit.block_size)] if known.scale is not None else []
    wider = [] if known.a.integer else operand_formats(known)
    changes += [{"operand_format": f} for f in wider[:: max(len(wider) // _WIDER, 1)] if f != unit.operand_format]
    changes += [{"sum_format": f} for f in (None, "float32") if f != unit.sum_format]
    changes += [{"term_cut": cut} for cut in TERM_CUTS if cut != unit.term_cut]
    for change in changes:
        try:
            yield unit.replace(**change)
        except ValueError:
            continue


def _deep_cuts(known: Formats, unit: Unit) -> list[int]:
    """Fraction bits of cuts of an exact sum below all that its results keep: products so far apart are seldom beside each other."""
    if unit.arithmetic != "aligned" or unit.align_rounding != "exact":
        return []
    kept, most = known.out.precision, most_fraction_bits(known)
    return [*range(kept + _CUT_STEP, min(most, _WINDOW), _CUT_STEP), *(f for f in bits_apart(most) if f >= _WINDOW)]


def _leasts(known: Formats, unit: Unit) -> list[int]:
    if unit.arithmetic not in ("aligned", "paired") or unit.fraction_bits is None:
        return []
    scales = 0 if known.scale is None else 2 * (known.scale.emin - known.scale.mantissa_bits)
    last = known.out.emin - known.out.mantissa_bits
    lowest = min(known.a.emin + known.b.emin - known.a.mantissa_bits - known.b.mantissa_bits + scales, last)
    low, high = floors(known, unit.fraction_bits)
    low = max(low, lowest + unit.fraction_bits)  # under a lower one nothing is cut
    near = [max(low, place) + up for place in (low, last) for up in (1, 3, 6, 10, 15)]
    if unit.zeros.flush_results:  # what is below the least normal result shows nothing
        near += [max(low, known.out.emin) + up for up in (1, 2, 3, 5)]
    return [least for least in sorted({*near, *range(low + 1, high, max((high - low) // _LEASTS, 1))}) if least <= high]


def told_apart(box: Box, rng: Rng, judge: Judge, unit: Unit, left: list[Unit]) -> Batch | None:
    """Changed records told from a record at their own edges: an answered batch that refutes the record, None where none does."""
    for k in dict.fromkeys(lengths_of(unit)[i] for i in (1, 2, 0)):
        most = int(_WORK / ((k + 10) * cost_of(unit) * max(len(left), 1)))
        each = min(max(_LEFT, _ALTOGETHER // max(len(left), 1)), most // max(len(left), 1))
        if not left or not each:
            break
        batch = one_after_another([edge_sums(rng, box.formats, other, k, each) for other in left])
        expected = simulated(unit, batch, seed=judge.seed)
        rest = [other for other in left if np.array_equal(simulated(other, batch, seed=judge.seed), expected)]
        answered = box.more(batch) if len(rest) < len(left) else None
        if answered is not None and not np.array_equal(answered.d, expected):  # type: ignore[arg-type]
            return answered
        left = rest
    return None


def one_after_another(batches: list[Batch]) -> Batch:
    """Batches of one shape, one after the other."""
    arrays = ("a", "b", "c", "scale_a", "scale_b")
    made = {key: [x for batch in batches if (x := getattr(batch, key)) is not None] for key in arrays}
    whole: dict[str, Any] = {key: np.concatenate(found) for key, found in made.items() if found}
    return Batch(batches[0].name, **whole)
