"""Orders of k found by exchanging two places as long as that explains more, of sums drawn so that an order shows in them.

Once its numbers are right, a candidate itself says which sums tell orders apart: of many sums, most of a few products, those that it
answers differently when their products are moved about. In each of those few places count, so that a place put right explains more
whatever the others are, and exchanges lead from any order to the right one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import numpy.typing as npt

from tcsim.hardware.unit import Unit
from tcsim.probing.answers.climb import Climb
from tcsim.probing.answers.shortened import Shortened
from tcsim.probing.box import Batch, Box, simulated
from tcsim.probing.questions.codes import Rng
from tcsim.probing.search.candidates import Parts
from tcsim.probing.search.challenge import one_after_another
from tcsim.probing.search.elimination import Found, Judge, cost_of
from tcsim.probing.search.focus import rounds_randomly
from tcsim.probing.search.showing import (
    FEW,
    Ints,
    alone,
    answered_after,
    showing_exchanges,
    showing_orders,
    with_order_of,
    with_zeros,
)
from tcsim.problem import Codes

_TOLD, _UNABLE = 16, 0.05  # orders in which sums are answered alike, and how many of those may be wrong
_BRIEF = 6  # products of which every order is a likely one
_FINER = 3  # times that sums are asked in which orders near one show
_EXCHANGED = 0.6  # of these
_SHORT = 24  # products of orders that are asked for together
_AGAIN, _WORK = 3, 1e7  # shapes tried again from other orders, and products simulated for each
_NEAR_WORK = 8e7  # the same of one that explains nearly all
_KNOWN_ORDERS = 50  # drawn again, after which all are taken to be tried
_KNOWN = 0.998  # of everything explained by blocks that are right
_NEARLY = 0.05  # of the sums asked for an order left by one that explains nearly all
_CHANGED = 0.1  # of sums by zeros behind them
_WORTH = 0.3  # of sums of few products left unexplained by an order that the others are looked at under


@dataclass(frozen=True)
class _Tried:
    """A candidate without its order, and the best order that was found for it."""

    parts: Parts
    unit: Unit
    left: int  # sums that it does not explain
    order: Ints


class Climbs:
    """What a black box was asked about orders of k in general."""

    def __init__(self, box: Box, rng: Rng, judge: Judge, short: Shortened) -> None:
        self.box, self.rng, self.judge, self.short = box, rng, judge, short
        self._asked: dict[tuple[int, bool], Batch | None] = {}  # by the number of products, and whether words are random
        self._ended: set[tuple[Unit, bytes]] = set()  # candidates, and orders from which they were tried

    def best(self, found: Found, used: list[Batch], lengths: Iterable[int]) -> Found:
        """The best of a candidate and of those with an order of so many products that explains every sum asked for it."""
        best, tried = found, []
        for length in lengths:
            for end in self._climbs(found, length, lengths):
                if end.left:
                    tried.append(end)
                    continue
                best = self._explaining(best, end, used)
                if best.perfect:
                    return best
        for end in sorted(tried, key=lambda end: end.left)[:_AGAIN]:
            if found.parts["k_order"] is not None and not self._nearly(end):
                continue
            again = self._from_elsewhere(end)
            tried.append(again)
            best = best if again.left or best.perfect else self._explaining(best, again, used)
        for end in sorted(tried, key=lambda end: end.left)[: 0 if best.perfect else 1]:
            if self._nearly(end):  # a number is wrong as well, which its order shows better
                parts = with_order(end.parts, end.order)
                best = max(Found(parts, self.judge.score(parts, used)), best, key=lambda f: f.score)
        return best

    def _nearly(self, end: _Tried) -> bool:
        """Whether an order explains nearly all sums that were asked for one."""
        asked = self._asked.get((end.order.size, end.unit.stochastic))
        return asked is not None and end.left <= _NEARLY * asked.size

    def _climbs(self, found: Found, length: int, lengths: Iterable[int]) -> Iterator[_Tried]:
        """Every shape of so many products with the order that exchanges lead to from a candidate's own; its own shape alone where that
        explains nearly everything in blocks of several sums."""
        now = found.parts
        shapes = shaped(now, length)
        if found.score > _KNOWN and now["arithmetic"] == "rounded" and length > now["block_size"] > 1:
            shapes = islice(shapes, 1)
        candidates = [(parts, unit) for parts in shapes if (unit := self.judge.unit(parts)) is not None]
        random = rounds_randomly(now)  # by words that are those of a place in a call
        if (length, random) not in self._asked and candidates and not self.judge.tired:
            self._ask(now, [n for n in lengths if n <= _SHORT] if length <= _SHORT and not random else [length])
        asked, own = self._asked.get((length, random)), now["k_order"]
        begun = np.arange(length) if own is None or len(own) != length else np.array(own)
        for parts, unit in candidates if asked is not None else ():
            key = unit, begun.tobytes()
            if asked is None or self.judge.tired or key in self._ended or not self._able(unit, asked, length):
                continue
            left, order = self._climbed(unit, asked, begun)
            if not self.judge.ended:
                self._ended.add(key)
            yield _Tried(parts, unit, left, order)

    def _from_elsewhere(self, end: _Tried) -> _Tried:
        """The best of an order and of those that exchanges lead to from others, near it where it explains nearly all."""
        asked, near = self._asked.get((end.order.size, end.unit.stochastic)), self._nearly(end)
        if near:
            self.judge.spare(_NEAR_WORK)
        most, known, seen = self.judge.work + (_NEAR_WORK if near else _WORK), 0, set[bytes]()
        while asked is not None and end.left and self.judge.work < most and known < _KNOWN_ORDERS and not self.judge.tired:
            near = self._nearly(end)
            begun = end.order[self._few_exchanged(end.order.size)] if near else self.rng.permutation(end.order.size)
            if begun.tobytes() in seen:  # of a few products there are not many
                known += 1
                continue
            seen.add(begun.tobytes())
            left, order = self._climbed(end.unit, asked, begun)
            end = replace(end, left=left, order=order) if left < end.left else end
        return end

    def _explaining(self, best: Found, end: _Tried, used: list[Batch]) -> Found:
        """The best of what was found before and of an order that explains all sums so far, changed until it explains others in which
        orders near it show as well, then blocks that are cut short."""
        order, size = end.order, end.parts["block_size"]
        for turn in range(_FINER):
            parts = with_order(end.parts, order)
            best = max(best, Found(parts, self.judge.score(parts, used, best.score)), key=lambda f: f.score)
            before = self._asked.get((order.size, end.unit.stochastic))
            if best.perfect or end.unit.stochastic or before is None:
                break
            near = partial(self._near, order.size, size)
            chosen = (
                showing_orders(self.rng, self.judge, self.box.formats, [end.unit], order.size, near)
                if turn
                else showing_exchanges(self.rng, self.judge, self.box.formats, end.unit, order.size)
            )
            asked = None if chosen is None else self.box.more(with_order_of(chosen, np.argsort(order)))
            if asked is None:
                break
            every = self._asked[order.size, False] = answered_after(before, asked)
            left, order = self._climbed(end.unit, every, order)
            if left:
                return best
        if best.perfect:
            return best
        self.judge.spare(_NEAR_WORK)
        parts = with_order(end.parts, order)
        settled = self.short.exchanged(Found(parts, self.judge.score(parts, used)), used, anywhere=True)
        return max(best, Found(settled.parts, self.judge.score(settled.parts, used, best.score)), key=lambda f: f.score)

    def _ask(self, now: Parts, lengths: list[int]) -> None:
        """Sums of so many products in which orders show under a candidate, of all lengths in one call: zeros lie behind, but where those
        would change what it answers."""
        random = rounds_randomly(now)
        chosen: dict[int, Batch] = {}
        for n in lengths:
            if (n, random) not in self._asked and not self.judge.tired and (shown := self._showing(now, n)) is not None:
                chosen[n] = shown
        self._asked |= dict.fromkeys((n, random) for n in chosen)
        if not chosen:
            return
        most = self.box.whole(max(chosen))
        if len(chosen) > 1 and any(self._changed_by_zeros(now, batch, most) for batch in chosen.values()):
            self._asked |= {(n, random): self.box.more(batch) for n, batch in chosen.items()}
            return
        asked = self.box.more(one_after_another([with_zeros(batch, most) for batch in chosen.values()]))
        ends = np.cumsum([batch.size for batch in chosen.values()])
        for n, end in zip(chosen, ends.tolist(), strict=True) if asked is not None else ():
            assert asked is not None
            self._asked[n, random] = asked if len(chosen) == 1 else alone(asked, slice(end - chosen[n].size, end))

    def _changed_by_zeros(self, now: Parts, batch: Batch, length: int) -> bool:
        """Whether a candidate answers many of these sums otherwise where zeros are behind them."""
        unit = self.judge.unit({**now, "k_order": None})
        assert unit is not None
        plain, padded = (simulated(unit, x, seed=self.judge.seed) for x in (batch, with_zeros(batch, length)))
        return bool(np.count_nonzero(plain != padded) > _CHANGED * batch.size)

    def _showing(self, now: Parts, length: int) -> Batch | None:
        units = [unit for parts in shaped(now, length) if (unit := self.judge.unit(parts)) is not None]
        return showing_orders(self.rng, self.judge, self.box.formats, units, length) if units else None

    def _near(self, length: int, size: int) -> Ints:
        """An order in which a few places are exchanged, or all places within blocks."""
        if self.rng.random() < _EXCHANGED:
            return self._few_exchanged(length)
        order = np.arange(length)
        return np.concatenate([self.rng.permutation(x) for x in np.split(order, length // size)])

    def _few_exchanged(self, length: int) -> Ints:
        order, some = np.arange(length), self.rng.permutation(length)[: int(self.rng.integers(2, min(length, 4) + 1))]
        order[some] = np.roll(order[some], 1)
        return order

    def _alike(self, unit: Unit, asked: Batch, length: int) -> tuple[npt.NDArray[np.bool_], Codes]:
        """Which sums a candidate answers alike in several orders, and what it answers to each in one of them."""
        moved = [with_order_of(asked, self.rng.permutation(length)) for _ in range(_TOLD)]
        answers = np.stack([simulated(unit, batch, seed=self.judge.seed).ravel() for batch in moved])
        self.judge.work += _TOLD * (asked.size * (asked.a.shape[2] + 10) * cost_of(unit))
        return np.asarray((answers == answers[0]).all(axis=0)), answers[0]

    def _able(self, unit: Unit, asked: Batch, length: int) -> bool:
        """Whether a candidate gives the sums that it answers alike in several orders: of no order could it give others."""
        if length <= _BRIEF:
            return True
        alike, answers = self._alike(unit, asked, length)  # in orders at random: places drawn side by side are rarely so in any
        assert asked.d is not None
        wrong = np.count_nonzero(alike & (answers != asked.d.ravel()))
        return bool(wrong <= _UNABLE * np.count_nonzero(alike))

    def _climbed(self, unit: Unit, asked: Batch, order: Ints) -> tuple[int, Ints]:
        """How many sums an order leaves unexplained from which no exchange of two places explains more, and that order: first of sums of
        few products, which are little work, then of all where those are nearly explained. Of random words those that show orders alone."""
        shown = ~self._alike(unit, asked, order.size)[0] if unit.stochastic else np.ones(asked.size, bool)
        few = ((asked.a[:, 0] != 0) | (asked.b[:, :, 0] != 0)).sum(axis=1) < FEW
        left = 0
        for rows in (np.flatnonzero(shown & few), np.flatnonzero(shown)):
            climb = Climb(self.judge, unit, asked, rows, order)
            left, order = climb.climb(self.rng), climb.order
            if left > _WORTH * rows.size:
                return asked.size, order
        return left, order


def shaped(now: Parts, length: int) -> Iterator[Parts]:
    """A candidate without an order in every shape that so many products are a whole number of, its own first; but for one in which no
    order shows."""
    alike = now["arithmetic"] == "aligned" and now["align_rounding"] != "sr"
    sizes = sorted((n for n in range(1, length + 1) if length % n == 0), key=lambda n: (n != now["block_size"], -n))
    for size in sizes:
        if not (alike and size == length):
            chain = length // size if now["c_enters"] == "after" else 1
            shape = {**now, "block_size": size, "chain": chain, "chains": 1, "k_order": None}
            lanes = (n for n in range(1, size + 1) if size % n == 0) if now["arithmetic"] == "fused" else (now["lanes"],)
            yield from ({**shape, "lanes": n} for n in sorted(lanes, key=lambda n: n != now["lanes"]))


def with_order(parts: Parts, order: Ints) -> Parts:
    upwards = bool((np.diff(order) == 1).all())
    return {**parts, "k_order": None if upwards else tuple(int(k) for k in order)}
