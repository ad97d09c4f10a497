"""Places within a block that whole blocks do not show, from blocks that are cut short: of those some places are left."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tcsim.hardware.unit import Unit
from tcsim.probing.answers.followers import Followers
from tcsim.probing.box import Batch, Box, simulated
from tcsim.probing.questions import families
from tcsim.probing.questions.codes import Rng
from tcsim.probing.questions.lanes import IN_LANES
from tcsim.probing.search.candidates import Parts
from tcsim.probing.search.elimination import Found, Judge, cost_of
from tcsim.probing.search.exchanges import exchanges
from tcsim.probing.search.focus import focus, rounds_randomly
from tcsim.probing.search.showing import chosen_of, few_of

_SHORTER = 6  # lengths below that of an order at which it is asked
_ALIKE = 0.5  # of everything by blocks whose pairs are looked for
_ORDERED = 0.9  # of everything explained by an order that is looked at further
_SHORT = 40  # products of orders of which every exchange is looked at before one is taken
_ROUNDS = 4  # that further lengths are asked for
_WORK, _FEWEST, _MOST, _EACH = (
    4e7,
    100,
    2000,
    6,
)  # products, sums of a length that these are chosen from, sums for every exchange
_NEARLY = 0.998  # of everything by blocks taken upwards
_AT_ONCE, _TURNS, _WORK_ANYWHERE = 4, 60, 1e8  # branches exchanged at once, how often, and products


class Shortened:
    """What a black box was asked of fewer products than an order has."""

    def __init__(self, box: Box, rng: Rng, judge: Judge, sums: list[Batch]) -> None:
        self.box, self.rng, self.judge, self.sums = box, rng, judge, sums
        self._asked: dict[int, list[Batch]] = {}
        self._followers: dict[tuple[frozenset[int], ...], tuple[int, ...] | None] = {}

    def exchanged(self, found: Found, used: list[Batch], *, anywhere: bool = False) -> Found:
        """Equal parts of a block exchanged where that explains more, as often as it does, pairs as they are found to follow on one another; lanes too
        that seem to be taken upwards, as whole blocks of them are nearly the same in any order. `anywhere`: of a tree that whole blocks tell, from other places as well."""
        parts, score = found.parts, found.score
        if parts["term_cut"] == "pairs" and _ALIKE < score < 1.0:
            found = self._followed(found, used)
            parts, score = found.parts, found.score
        hidden = parts["lanes"] > 1 or parts["parity_split"]
        if hidden and parts["k_order"] is None and _NEARLY < score < 1.0:
            upwards = {**parts, "k_order": tuple(range(parts["block_size"]))}
            better = self._climbed(Found(upwards, score), used)
            return found if better.parts == upwards else better
        if parts["k_order"] is None or score < _ORDERED or next(exchanges(parts), None) is None:
            return found
        found = self._climbed(found, used)
        branched = parts["arithmetic"] == "rounded" and not rounds_randomly(parts)
        return self._from_elsewhere(found, used) if anywhere and branched else found

    def in_lanes(self, found: Found, refuted: Batch) -> Found:
        """With lanes exchanged as the NaNs in them say, where such a question refutes it: every pair shows in a few outputs of its own."""
        order = found.parts["k_order"] or tuple(range(found.parts["block_size"]))
        return self._exchanged(Found({**found.parts, "k_order": order}, 0.0), [refuted]) if refuted.name == IN_LANES else found

    def _followed(self, found: Found, used: list[Batch]) -> Found:
        """With the pairs of each block in the order that blocks without some of their products show, where that explains more."""
        order, size = found.parts["k_order"] or range(found.parts["block_size"]), found.parts["block_size"]
        blocks = tuple(frozenset(order[i : i + size]) for i in range(0, len(order), size))
        if self._followers.get(blocks) is None:
            self._followers[blocks] = Followers(self.box, self.rng, self.judge, found.parts).found()
        parts = {**found.parts, "k_order": self._followers[blocks]}
        return (
            found
            if parts["k_order"] is None
            else max(found, Found(parts, self.judge.score(parts, used, found.score)), key=lambda f: f.score)
        )

    def _climbed(self, found: Found, used: list[Batch]) -> Found:
        used = [*used, *self.cut_short(len(found.parts["k_order"]))]
        found = self._exchanged(found, used)
        branched = found.parts["arithmetic"] in ("rounded", "fused") and not rounds_randomly(found.parts)
        for _ in range(_ROUNDS if branched and found.score > _ORDERED else 0):
            asked = [] if self.judge.tired else self._telling(found.parts)
            if not asked:
                break
            used = [*used, *asked]
            found = self._exchanged(found, used)
        return found

    def _from_elsewhere(self, found: Found, used: list[Batch]) -> Found:
        """The best of it and of those that a few exchanges at once lead to: of branches within branches one alone may explain less."""
        changes = list(exchanges(found.parts))
        used = [*used, *self._asked[len(found.parts["k_order"])]]
        found = Found(found.parts, self.judge.score(found.parts, used))
        self.judge.spare(_WORK_ANYWHERE)
        for _ in range(_TURNS if changes else 0):  # what was looked at before is no work
            if found.score == 1.0 or self.judge.tired:
                break
            order = found.parts["k_order"]
            for i in self.rng.integers(0, len(changes), self.rng.integers(2, _AT_ONCE + 1)):
                order = changes[i](order)
            found = max(found, self._exchanged(Found({**found.parts, "k_order": order}, 0.0), used), key=lambda f: f.score)
        return found

    def _exchanged(self, found: Found, used: list[Batch]) -> Found:
        short = len(found.parts["k_order"]) <= _SHORT  # of long orders each step would take long
        best_of_all = found.parts["arithmetic"] == "rounded" and short  # a step that explains a little more may lead away
        found, before = Found(found.parts, self.judge.score(found.parts, used)), -1.0
        while before < found.score < 1.0 and not self.judge.tired:
            before, begun = found.score, found
            few = focus(self.judge, begun.parts, used)
            least = self.judge.score(begun.parts, few)
            for change in exchanges(begun.parts):
                parts = {**begun.parts, "k_order": change(begun.parts["k_order"])}
                score = self.judge.score(parts, few, least)
                score = self.judge.score(parts, used, found.score) if score > least else score
                if score <= found.score:
                    continue
                found = Found(parts, score)
                if found.perfect:
                    return found
                if not best_of_all:
                    begun, few = found, focus(self.judge, parts, used)
                    least = self.judge.score(parts, few)
        return found

    def _telling(self, parts: Parts) -> list[Batch]:
        """Answered sums of as few further lengths as tell an order from those in which equal parts are exchanged, where any do."""
        unit, length = self.judge.unit(parts), len(parts["k_order"])
        others = [self.judge.unit({**parts, "k_order": change(parts["k_order"])}) for change in exchanges(parts)]
        before = self._asked[length]
        left = [x for x in others if x is not None and not any(self._differ(unit, x, batch).any() for batch in before)]
        lengths = sorted(set(range(2, length)) - {batch.a.shape[2] for batch in before})
        if unit is None or not left or not lengths or self.box.k_step > 1:
            return []
        count = min(max(int(_WORK / (len(lengths) * len(left) * length)), _FEWEST), _MOST)
        shown: dict[int, tuple[Batch, npt.NDArray[np.bool_]]] = {}
        for k in lengths:
            drawn = few_of(self.rng, self.judge, self.box.formats, unit, k, count)
            shown[k] = drawn, np.stack([self._differ(unit, x, drawn) for x in left])
        asked: list[Batch] = []
        open_ones = np.ones(len(left), bool)
        while open_ones.any() and shown:
            k = max(shown, key=lambda n: np.count_nonzero(shown[n][1].any(axis=1) & open_ones))
            drawn, differ = shown.pop(k)
            told = np.flatnonzero(differ.any(axis=1) & open_ones)
            if not told.size:
                break
            rows = np.unique(np.concatenate([np.flatnonzero(differ[i])[:_EACH] for i in told]))
            some = self.box.more(chosen_of(drawn, rows))
            if some is None:
                break
            asked.append(some)
            open_ones[told] = False
        self._asked[length] += asked
        self.sums += asked
        return asked

    def _differ(self, unit: Unit | None, other: Unit, batch: Batch) -> npt.NDArray[np.bool_]:
        """Which of a batch's outputs two units give differently."""
        assert unit is not None
        self.judge.begin()
        self.judge.work += batch.size * batch.a.shape[2] * cost_of(other)
        return np.asarray(
            (simulated(unit, batch, seed=self.judge.seed) != simulated(other, batch, seed=self.judge.seed)).ravel()
        )

    def cut_short(self, length: int) -> list[Batch]:
        """Sums of fewer products than an order has: of its blocks some places are left, in the order in which they are taken."""
        if length not in self._asked:
            shorter = {int(k) for k in np.linspace(length - 1, 2, _SHORTER)} if self.box.k_step == 1 else set()
            fewer = {k for k in shorter if 0 < k < length}
            asked = [
                self.box.more(families.sum_batches(self.rng, self.box.formats, k, name="cut short")) for k in sorted(fewer)
            ]
            self._asked[length] = [batch for batch in asked if batch is not None]
            self.sums += self._asked[length]
        return self._asked[length]
