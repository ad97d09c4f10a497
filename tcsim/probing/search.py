"""Elimination: candidates simulated on what the black box was asked, the best one changed part by part until every bit agrees."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Formats, simulated
from tcsim.probing.candidates import Parts, Scan, moves, scans, starts, unit_of


@dataclass
class Judge:
    """Scores candidates on observed batches: outputs whose bits agree. Keeps what was computed before."""

    known: Formats
    seed: int = 0
    simulations: int = 0
    _kept: dict[tuple[Unit, int], int] = field(default_factory=dict)

    def matched(self, unit: Unit, batch: Batch) -> int:
        key = (unit, id(batch))
        if key not in self._kept:
            self.simulations += 1
            self._kept[key] = int(np.count_nonzero(simulated(unit, batch, seed=self.seed) == batch.d))
        return self._kept[key]

    def score(self, parts: Parts, batches: list[Batch], above: float = -2.0) -> float:
        """The mean share of outputs that agree; -1 for parts that go together in no unit, and as soon as it cannot exceed `above`."""
        unit = unit_of(self.known, parts)
        if unit is None:
            return -1.0
        missed, most = 0.0, (1.0 - above) * len(batches)
        for batch in batches:
            missed += 1.0 - self.matched(unit, batch) / batch.size
            if missed >= most and missed > 0:
                return -1.0
        return 1.0 - missed / len(batches)


@dataclass
class Found:
    """A candidate and how much of the observations it explains: 1.0 for every bit."""

    parts: Parts
    score: float

    @property
    def perfect(self) -> bool:
        return self.score == 1.0


def start(judge: Judge, mode: Parts, batches: list[Batch], nan_code: int | None) -> Found:
    """The best of a mode's starting points."""
    tried = [{**parts, "nan_code": nan_code} for parts in starts(judge.known, mode)]
    scored = [(judge.score(parts, batches), i) for i, parts in enumerate(tried)]
    best = max(scored, key=lambda pair: (pair[0], -pair[1]), default=(-1.0, -1))
    return Found(tried[best[1]], best[0]) if tried else Found({}, -1.0)


def improve(judge: Judge, found: Found, batches: list[Batch], rounds: int = 4) -> Found:
    """Numbers scanned and groups of changes tried, each to its best, until nothing improves or every bit agrees."""
    for _ in range(rounds):
        before = found.score
        for name in [scan.name for scan in scans(judge.known, found.parts)]:
            found = scanned(judge, found, next(s for s in scans(judge.known, found.parts) if s.name == name), batches)
            if found.perfect:
                return found
        for name in [name for name, _ in moves(judge.known, found.parts)]:
            found = best_of(judge, found, dict(moves(judge.known, found.parts)).get(name, []), batches)
            if found.perfect:
                return found
        if found.score == before:
            break
    return found


def scanned(judge: Judge, found: Found, scan: Scan, batches: list[Batch]) -> Found:
    """The best value of a number, from a coarse grid to the integers between its best neighbours."""
    grid = sorted({v for v in scan.coarse if scan.least <= v <= scan.most} | ({found.parts[scan.name]} - {None}))
    found = best_of(judge, found, list(scan.besides), batches)
    scores = {v: judge.score({**found.parts, **scan.parts(v)}, batches) for v in grid}
    while scores:
        best = max(scores, key=lambda v: scores[v])
        order = sorted(scores)
        at = order.index(best)
        low = order[at - 1] if at else scan.least
        high = order[at + 1] if at + 1 < len(order) else scan.most
        fresh = {v for lo, hi in ((low, best), (best, high)) for v in _between(lo, hi)} - set(scores)
        if not fresh or scores[best] == 1.0:
            break
        scores.update({v: judge.score({**found.parts, **scan.parts(v)}, batches) for v in fresh})
    return best_of(judge, found, [scan.parts(v) for v in sorted(scores, key=lambda v: -scores[v])[:1]], batches)


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
