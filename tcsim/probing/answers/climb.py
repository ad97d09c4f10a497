"""One climb: some of a candidate's sums under an order of k that changes, two places or equal parts of a block at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, simulated
from tcsim.probing.questions.codes import Rng
from tcsim.probing.search.candidates import parts_of
from tcsim.probing.search.elimination import Judge, cost_of
from tcsim.probing.search.exchanges import branches_moved, exchanges
from tcsim.probing.search.showing import Ints, exchanged, with_order_of
from tcsim.problem import Codes

_OF_PARTS = 0.15  # of sums left, fewer than which parts may be what is in the wrong place
_VAIN, _NEARLY = 8, 0.05  # places from which nothing is gained, before more than so many sums are left as they are


class Climb:
    """Some of a candidate's sums under an order that changes."""

    def __init__(self, judge: Judge, unit: Unit, asked: Batch, rows: Ints, order: Ints) -> None:
        self.judge, self.unit, self.asked, self.rows, self.order = judge, unit, asked, rows, order.copy()
        begun = with_order_of(asked, order)
        self.a, self.b = begun.a[:, 0], begun.b[:, :, 0]
        assert asked.d is not None
        self.d = asked.d.ravel()
        self.within = len(order)  # places that are exchanged with one another
        self.wrong = np.zeros(self.d.size, bool)
        self.wrong[rows] = self._wrong(self.a[rows], self.b[rows], rows)

    @property
    def left(self) -> int:
        return int(np.count_nonzero(self.wrong))

    def climb(self, rng: Rng) -> int:
        """How many sums are left where no exchange of two places explains more, and none of equal branches or lanes. Of what is nearly
        explained those first, and of a tree then places of one block: there are fewer, and other exchanges gain by chance."""
        if self.left < _OF_PARTS * self.rows.size:
            self._parts_exchanged()
        nearly = self.left < _NEARLY * self.rows.size
        if nearly and self.unit.arithmetic == "rounded" and self.unit.block_size < len(self.order):
            self.within = self.unit.block_size
            self._climb_places(rng)
            self.within = len(self.order)
        self._climb_places(rng)
        while self.left and self._parts_exchanged():
            self._climb_places(rng)
        return self.left

    def _climb_places(self, rng: Rng) -> None:
        quiet, length = 0, len(self.order)
        most = length if self.left < _NEARLY * self.rows.size else min(length, _VAIN)  # until something is gained
        while self.left and quiet < most and not self.judge.tired:
            for place in rng.permutation(length):
                if self.exchanged(int(place)):
                    quiet, most = 0, length
                else:
                    quiet += 1
                if not self.left or quiet >= most or self.judge.tired:
                    break

    def _parts_exchanged(self) -> bool:
        """Whether equal parts of a block were exchanged, each time that this explains more: a place of one alone is right in neither."""
        gained, length = False, len(self.order)
        for places in self._parts():
            if self.judge.tired or not self.left:
                break
            moved = np.concatenate([places, np.arange(length, self.a.shape[1])])
            a, b = self.a[:, moved], self.b[:, moved]
            wrong = self._wrong(a[self.rows], b[self.rows], self.rows)
            if np.count_nonzero(wrong) < self.left:
                self.a, self.b, self.order, gained = a, b, self.order[places], True
                self.wrong[self.rows] = wrong
        return gained

    def _parts(self) -> Iterator[Ints]:
        """Places with equal parts of a block exchanged: lanes, pairs, branches of a tree that lie side by side, or anywhere in it."""
        upwards, size = tuple(range(len(self.order))), self.unit.block_size
        for change in exchanges({**parts_of(self.unit), "k_order": upwards}):
            yield np.array(change(upwards))
        for start in range(0, len(upwards), size) if self.unit.arithmetic == "rounded" else ():
            for places in branches_moved(size):
                yield np.concatenate([upwards[:start], start + places, upwards[start + size :]]).astype(np.int64)

    def exchanged(self, place: int) -> bool:
        """Whether this place and another one were exchanged, the one with which that explains most."""
        length = len(self.order)
        there = ((self.a[:, :length] != 0) | (self.b[:, :length] != 0))[self.rows]
        first = place // self.within * self.within
        at, others = np.nonzero((there[:, [place]] | there)[:, first : first + self.within])
        others = others + first
        rows, others = self.rows[at[others != place]], others[others != place]
        if not rows.size:
            return False
        wrong = self._together(rows, place, others)
        gained = np.bincount(others, self.wrong[rows].astype(np.int64) - wrong, minlength=length)
        best = int(gained.argmax())
        if gained[best] <= 0:
            return False
        self.order[[place, best]] = self.order[[best, place]]
        for codes in (self.a, self.b):
            codes[:, [place, best]] = codes[:, [best, place]]
        self.wrong[rows[others == best]] = wrong[others == best]
        return True

    def _together(self, rows: Ints, place: int, others: Ints) -> npt.NDArray[np.bool_]:
        """Which of these sums would be wrong with a place and another one of each exchanged."""
        a, b = (exchanged(codes[rows], np.full(rows.size, place), others) for codes in (self.a, self.b))
        return self._wrong(a, b, rows)

    def _wrong(self, a: Codes, b: Codes, rows: Ints) -> npt.NDArray[np.bool_]:
        """Which of these sums, with their products moved, a candidate does not give where they stand."""
        batch = Batch("moved", a[:, None], b[:, :, None], self.asked.c[rows], places=rows if self.unit.stochastic else None)
        self.judge.begin()
        self.judge.work += rows.size * (a.shape[1] + 10) * cost_of(self.unit)
        return np.asarray(simulated(self.unit, batch, seed=self.judge.seed).ravel() != self.d[rows])
