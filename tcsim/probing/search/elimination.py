"""Elimination: candidates simulated on what the black box was asked, the best one changed part by part until every bit agrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum

import numpy as np
import numpy.typing as npt

from tcsim.hardware.choices import ROUNDINGS
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.spec import significands
from tcsim.probing.box import Batch, Formats, of_problems, simulated
from tcsim.probing.search.candidates import USUAL, Parts, Scan, all_moves, cuts, moves, scans, starts, unit_of_parts

_QUICK = ("zeros", "cut and least exponent")  # few changes, each cheap: before numbers are scanned
_WINDOW = 50  # bits beyond which kernels leave their words of 64
_CHEAP = (*_QUICK, "align rounding", "both cuts", "groups", "swaps")
_NEEDLES = 130  # values of a number, all of them, where none but the right one shows
_DEEP_NEEDLES = 300  # of fraction bits
_KICKS = 3  # changes of a group
_SLACK = 0.02  # of a scan: candidates so much worse than the best are given up early
# Of so many problems every eleventh first, or some two hundred, and the rest where these are explained nearly all.
_MANY, _APART, _PILOTS, _AT_ALL = 100, 11, 200, 0.97
_DEAR = 5000  # products of a batch from which on it is kept which of its outputs a candidate misses
ALL = 0.9999999  # of everything explained: nothing that misses an output
_AS_MANY = 1 - 1e-9  # of the share that may be missed, as rounding leaves it
_CALL = 1.5e4  # what a candidate costs before its first product


@lru_cache(maxsize=4096)
def cost_of(unit: Unit) -> int:
    """How many products of the simplest kind, about ten nanoseconds each, a product takes about as long as."""
    wide = sum(significands(unit)) > _WINDOW
    deep = unit.arithmetic == "two-stage" and max(unit.fraction_bits or 0, unit.late_fraction_bits or 0) > _WINDOW
    return 4 if unit.arithmetic == "paired" or (wide and unit.group_size > 1) else 2 if wide or deep else 1


@dataclass
class Judge:
    """Scores candidates on observed batches: outputs whose bits agree. Keeps what was computed before."""

    known: Formats
    seed: int = 0
    group: int | None = None  # the size of groups, where pairs of a scale showed it
    work: float = 0.0  # products simulated so far, those that take longer counted as several
    most: float = 0.0
    end: float = np.inf  # of the work, whatever is allowed or spared before
    _kept: dict[tuple[Unit, int], int] = field(default_factory=dict)
    _units: dict[tuple[object, ...], Unit | None] = field(default_factory=dict)
    _wrong: dict[tuple[Unit, int], npt.NDArray[np.uint8]] = field(default_factory=dict)  # of what takes long, a bit an output
    _rows: dict[tuple[Unit, int], list[bytes]] = field(default_factory=dict)
    _held: list[Batch] = field(default_factory=list)
    _pilots: dict[int, Batch] = field(default_factory=dict)
    _refuting: dict[int, float] = field(
        default_factory=dict
    )  # of each batch how often it was the last one asked, for what it costs
    refuter: Batch | None = None  # the batch that ended the last score early
    orders: dict[tuple[Unit, int], tuple[int, ...] | None] = field(default_factory=dict)  # that pairs of marks showed
    picked: dict[tuple[Unit | None, tuple[int, ...]], list[Batch]] = field(default_factory=dict)  # outputs that candidates miss

    @property
    def tired(self) -> bool:
        """Whether as much was simulated as is worth it."""
        return self.work > min(self.most, self.end)

    @property
    def ended(self) -> bool:
        """Whether no more is simulated, whatever else is allowed."""
        return self.work > self.end

    @property
    def spent(self) -> bool:
        """Whether it is tired of formats so wide that what was begun had better not be ended."""
        known = self.known
        return self.tired and max(known.a.precision + known.b.precision, known.out.precision) > _WINDOW

    def allow(self, more: float) -> None:
        """So much more may be simulated before it is tired."""
        self.most = self.work + more

    def spare(self, least: float) -> None:
        """So much at least may still be simulated."""
        self.most = max(self.most, self.work + least)

    def hold(self, batch: Batch) -> Batch:
        """A batch made for the search alone, kept as long as what was computed for it."""
        self._held.append(batch)
        return batch

    def unit(self, parts: Parts) -> Unit | None:
        """`unit_of_parts`, checked once."""
        key = tuple([parts.get(name, usual) for name, usual in USUAL.items()])
        if key not in self._units:
            self._units[key] = unit_of_parts(self.known, parts)
        return self._units[key]

    def missed(self, parts: Parts, batch: Batch) -> npt.NDArray[np.bool_]:
        """Which outputs of a batch a candidate does not give: all of them where its parts go together in no unit."""
        unit = self.unit(parts)
        assert batch.d is not None
        return np.ones(batch.d.shape, bool) if unit is None else self._missed(unit, batch)

    def _missed(self, unit: Unit, batch: Batch) -> npt.NDArray[np.bool_]:
        assert batch.d is not None
        if (unit, id(batch)) in self._wrong:
            bits = np.unpackbits(self._wrong[unit, id(batch)], count=batch.size)
            return bits.reshape(batch.d.shape).astype(bool)
        wrong = np.asarray(simulated(unit, batch, seed=self.seed) != batch.d)
        if batch.size * batch.a.shape[2] > _DEAR:
            self._wrong[unit, id(batch)] = np.packbits(wrong)
        return wrong

    def rows(self, unit: Unit, batch: Batch) -> list[bytes]:
        """What a unit answers to each problem of a batch."""
        self.begin()
        self.work += batch.size * batch.a.shape[2]
        if (unit, id(batch)) not in self._rows:
            self._rows[unit, id(batch)] = [d.tobytes() for d in simulated(unit, batch, seed=self.seed)]
        return self._rows[unit, id(batch)]

    def begin(self) -> None:
        """Count what computing a batch costs before its first product."""
        self.work += _CALL

    def matched(self, unit: Unit, batch: Batch) -> int:
        key = (unit, id(batch))
        if key not in self._kept:
            self.begin()
            self.work += batch.size * (batch.a.shape[2] + 10) * cost_of(unit)
            self._kept[key] = batch.size - int(np.count_nonzero(self._missed(unit, batch)))
        return self._kept[key]

    def share(self, unit: Unit, batch: Batch) -> float:
        """The share of a batch's outputs that agree; of a few problems among many where those are far off already."""
        if batch.places is None and len(batch.c) >= _MANY:
            if id(batch) not in self._pilots:
                step = max(_APART, len(batch.c) // _PILOTS | 1)
                self._pilots[id(batch)] = self.hold(of_problems(batch, range(step // 2, len(batch.c), step)))
            few = self._pilots[id(batch)]
            share = self.matched(unit, few) / few.size
            if share < _AT_ALL:
                return share
        return self.matched(unit, batch) / batch.size

    def score(self, parts: Parts, batches: list[Batch], above: float = -2.0) -> float:
        """The mean share of outputs that agree; -1 for parts that go together in no unit, and as soon as it cannot exceed `above`."""
        unit, self.refuter = self.unit(parts), None
        if unit is None:
            return -1.0
        missed, most = [], (1.0 - above) * len(batches) * _AS_MANY
        for batch in sorted(batches, key=lambda x: -self._refuting.get(id(x), 0.0)):  # those first that end it soonest
            short = cut_short(parts, batch.a.shape[2])
            missed.append(1.0 - self.share(unit if short is parts else self.unit(short) or unit, batch))
            if missed[-1] > 0 and fsum(missed) >= most:
                self._refuting[id(batch)] = self._refuting.get(id(batch), 0.0) + 1.0 / (batch.size * batch.a.shape[2])
                self.refuter = batch
                return -1.0
        return 1.0 - fsum(missed) / len(batches)


def cut_short(parts: Parts, k: int) -> Parts:
    """A candidate with blocks and chains no longer than so few products fill: it gives the same, and was perhaps computed before."""
    if (
        parts["k_order"] is not None
        or parts["lanes"] > 1
        or parts["nan_from"] == "operand"
        or parts["arithmetic"] in ("paired", "fused")
    ):
        return parts
    group = parts["group_size"]
    block = min(parts["block_size"], -(-k // group) * group)
    chain = min(parts["chain"], -(-k // block))
    chains = min(parts["chains"], -(-k // (block * chain)))
    if (block, chain, chains) == (parts["block_size"], parts["chain"], parts["chains"]):
        return parts
    return {**parts, "block_size": block, "chain": chain, "chains": chains}


@dataclass
class Found:
    """A candidate and how much of the observations it explains: 1.0 for every bit."""

    parts: Parts
    score: float

    @property
    def perfect(self) -> bool:
        return self.score == 1.0


def starting_points(judge: Judge, mode: Parts, batches: list[Batch], nan_code: int | None, kept: int) -> list[Found]:
    """The best of a mode's starting points, with another rounding, and with as many bits of results as answers have, where none explains
    everything; several where one product beside a late c does not tell them apart."""
    tried = [{**parts, "nan_code": nan_code} for parts in starts(judge.known, mode)]
    scored = [(judge.score(parts, batches), i) for i, parts in enumerate(tried)]
    if kept < judge.known.out.precision and max(scored)[0] < 1.0:
        shorter = [{**parts, "out_precision": kept} for parts in tried if parts["out_precision"] is None]
        scored += [(judge.score(parts, batches), len(tried) + i) for i, parts in enumerate(shorter)]
        tried += shorter
    if mode.get("arithmetic") not in ("integer", "fused", "paired") and max(scored)[0] < 1.0:
        products = ROUNDINGS if mode.get("arithmetic") == "rounded" else (None,)
        more = [
            {**parts, "rounding": r, **({} if q is None else {"product_rounding": q})}
            for parts in (tried if len(products) == 1 else _with_others(tried)) for r in ROUNDINGS for q in products
        ]  # fmt: skip
        scored += [(judge.score(parts, batches), len(tried) + i) for i, parts in enumerate(more)]
        tried += more
    ranked = sorted(scored, key=lambda pair: (-pair[0], pair[1]))
    count = 3 if mode.get("c_enters") == "after" else 1
    return [Found(tried[i], score) for score, i in ranked[:count] if score >= 0 and score == ranked[0][0]]


def _with_others(tried: list[Parts]) -> list[Parts]:
    """Two of each precision of results: what other roundings of products are tried beside."""
    kinds = dict.fromkeys(parts["out_precision"] for parts in tried)
    return [parts for kind in kinds for parts in [x for x in tried if x["out_precision"] == kind][:2]]


def improve(judge: Judge, found: Found, batches: list[Batch], rounds: int = 4) -> Found:
    """Numbers scanned and groups of changes tried, each to its best, until nothing improves or every bit agrees."""
    for _ in range(rounds):
        if judge.tired:
            break
        before = found.score
        for name in _QUICK:
            found = best_of(judge, found, dict(moves(judge.known, found.parts)).get(name, []), batches)
        if found.perfect:
            return found
        for name in [scan.name for scan in scans(judge.known, found.parts)]:
            if judge.spent:
                return found
            found = scanned(judge, found, next(s for s in scans(judge.known, found.parts) if s.name == name), batches)
            if found.perfect:
                return found
        for name in [name for name, _ in moves(judge.known, found.parts) if name not in _QUICK]:
            if judge.spent:
                return found
            found = best_of(judge, found, dict(moves(judge.known, found.parts)).get(name, []), batches)
            if found.perfect:
                return found
        if found.score == before:
            found = cut(judge, found, batches)
        if found.score == before or found.perfect:
            break
    return found


def needles(scan: Scan, now: int | None) -> list[Parts]:
    """Every value of a number, of one that has very many those about where it is now."""
    first = scan.least if now is None or scan.most <= _DEEP_NEEDLES else max(scan.least, now - _NEEDLES // 2)
    many = _DEEP_NEEDLES if now is None or scan.name.endswith("fraction_bits") else _NEEDLES
    return [scan.parts(v) for v in range(first, min(scan.most, first + many) + 1)]


def kicks(judge: Judge, found: Found, batches: list[Batch]) -> Iterator[Found]:
    """Values of its numbers of which none beside shows anything; then changes of a candidate, better or not, the best of every group
    first: two parts may be wrong where neither alone shows."""
    for scan in scans(judge.known, found.parts):
        best = best_of(judge, found, needles(scan, found.parts[scan.name]), batches)
        if best.score > found.score:
            yield best
    changed: list[tuple[int, float, int, Found]] = []
    for _, changes in all_moves(judge.known, found.parts):
        tried = [{**found.parts, **change} for change in changes]
        scored = [Found(parts, judge.score(parts, batches)) for parts in tried if parts != found.parts]
        ranked = sorted((f for f in scored if f.score > 0), key=lambda f: -f.score)[:_KICKS]
        changed += [(i, -f.score, len(changed) + i, f) for i, f in enumerate(ranked)]
    yield from (f for *_, f in sorted(changed, key=lambda x: x[:3]))


def descend(judge: Judge, found: Found, batches: list[Batch], rounds: int = 2) -> Found:
    """`improve` without what takes long: numbers scanned, few changes tried."""
    for _ in range(rounds):
        before = found.score
        for scan in scans(judge.known, found.parts):
            found = scanned(judge, found, scan, batches)
            if found.perfect:
                return found
        for changes in (
            *(c for name, c in all_moves(judge.known, found.parts) if name in _CHEAP),
            [{"rounding": r} for r in ROUNDINGS],
        ):
            found = best_of(judge, found, changes, batches)
            if found.perfect:
                return found
        if found.score == before:
            break
    return found


def cut(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """Terms that seem exact, cut in every way: where what is cut is rarely seen, no first guess leads there."""
    for scan in cuts(judge.known, found.parts):
        if not found.perfect and not judge.tired:
            found = max(found, scanned(judge, found, scan, batches), key=lambda f: f.score)
    return found


def scanned(judge: Judge, found: Found, scan: Scan, batches: list[Batch]) -> Found:
    """The best value of a number, from a coarse grid to the integers between its best neighbours."""
    now = found.parts[scan.name]
    grid = list(dict.fromkeys([v for v in (now, *scan.coarse) if v is not None and scan.least <= v <= scan.most]))
    begun, found = found, best_of(judge, found, list(scan.besides), batches)
    scores: dict[int, float] = {}

    def look(values: list[int]) -> None:
        for v in values:
            scores[v] = judge.score({**begun.parts, **scan.parts(v)}, batches, max(scores.values(), default=-2.0) - _SLACK)

    look(grid)
    while scores:
        best = max(scores, key=lambda v: scores[v])
        order = sorted(scores)
        at = order.index(best)
        low = order[at - 1] if at else scan.least
        high = order[at + 1] if at + 1 < len(order) else scan.most
        fresh = {v for lo, hi in ((low, best), (best, high)) for v in _between(lo, hi)} - set(scores)
        if not fresh or scores[best] == 1.0:
            break
        look(sorted(fresh))
    best_values = [{**begun.parts, **scan.parts(v)} for v in sorted(scores, key=lambda v: -scores[v])[:1]]
    return best_of(judge, found, best_values, batches)


def _between(low: int, high: int) -> list[int]:
    step = max((high - low) // 4, 1)
    return list(range(low, high + 1, step))


def best_of(judge: Judge, found: Found, changes: list[Parts], batches: list[Batch]) -> Found:
    """The best of a candidate and its changes; the candidate itself where nothing is better."""
    best = found
    for change in changes:
        parts = {**found.parts, **change}
        score = judge.score(parts, batches, best.score)
        if score > best.score:
            best = Found(parts, score)
            if best.perfect:
                break
    return best
