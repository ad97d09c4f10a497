"""Where terms are cut, from what was asked for that: ladders, rungs and remainders, and the sizes of groups of scaled products."""

from __future__ import annotations

from tcsim.probing.answers import groups, remainders
from tcsim.probing.answers.asking import WORK, Asking
from tcsim.probing.box import Batch
from tcsim.probing.questions.rungs import likely_cuts
from tcsim.probing.search.candidates import moves
from tcsim.probing.search.cut import anyhow_cut, apart, near_and_apart
from tcsim.probing.search.elimination import Found, best_of, descend
from tcsim.probing.search.focus import focus
from tcsim.probing.search.singly import moved_along

SHOWN = 2  # products that a block must have for a cut to show in it
_CUT_WORK = 3e7  # products simulated
_ONE_BLOCK = 0.99
_LIKELY = 0.85  # of everything explained by a kind whose cuts are worth it
_BEHIND = 0.03  # the nearest kind so far, at most


class Cuts(Asking):
    """What answers show of the cuts of a kind of arithmetic, beside its other numbers."""

    def cuts(self, found: Found) -> Found:
        """Where terms are cut, from what was asked for that: as long as blocks are long enough to show it."""
        if found.parts["arithmetic"] == "paired" and not found.perfect and self.steps:
            below = descend(self.judge, self._again(found, self.steps), self.steps)
            return max(found, self._again(below, self.all, found.score), key=lambda f: f.score)
        if found.parts["arithmetic"] == "rounded" and not found.perfect and self.steps:
            used = [*self.beside, *self.steps]
            rounded = dict(moves(self.judge.known, found.parts))["product rounding"]
            below = best_of(self.judge, self._again(found, used), rounded, used)
            return max(found, self._again(below, self.all, found.score), key=lambda f: f.score)
        parts = found.parts
        shown = parts["block_size"] >= SHOWN or parts["arithmetic"] == "two-stage" or parts["min_exponent"] is not None
        if found.perfect or not self.steps or not shown or found.score < _LIKELY:
            return found
        used = [*self.steps, *self.beside] if found.parts["arithmetic"] == "two-stage" else self.steps
        along = moved_along(self.judge, self._again(found, used), used)
        below = apart(self.judge, along, used, likely_cuts(self.steps[-1], self.box.formats))
        found = max(found, self._again(below, self.all, found.score), key=lambda f: f.score)
        if found.score >= _ONE_BLOCK:
            return found
        few = focus(self.judge, found.parts, self.sums)  # formats so narrow that only longer sums show a cut
        if not few:
            return found
        self.judge.spare(_CUT_WORK)
        elsewhere = anyhow_cut if found.parts["arithmetic"] == "aligned" else near_and_apart
        below = elsewhere(self.judge, self._again(found, few), few)
        return max(found, self._again(below, self.all, found.score), key=lambda f: f.score)

    def grouped(self, found: Found) -> Found:
        """Scaled products in groups of every size, unless another kind is much nearer."""
        nearest = max((f.score for f in self.tried), default=0.0)
        self.judge.spare(WORK)  # every size takes its share
        return found if found.score < max(_LIKELY, nearest - _BEHIND) else groups.grouped(self.judge, found, self.all)

    def read(self, found: Found, batches: list[Batch], sizes: tuple[int, ...] = ()) -> Found:
        """With the cut that remainders show, where that explains more; of these block sizes as that which explains most."""
        if self.left is None or found.perfect or found.parts["arithmetic"] != "aligned":
            return found
        own, group = found.parts["block_size"], found.parts["group_size"]
        tried = []
        for size in [size * group for size in sizes] or [own]:
            begun = Found({**found.parts, "block_size": size}, 0.0)
            tried.append((remainders.read(self.judge, self.left, begun), begun))
        shown, begun = max(tried, key=lambda pair: pair[0].score)
        used = [*batches, self.left.batch]
        if self.judge.score(shown.parts, used) <= self.judge.score(begun.parts, used):
            return found
        return self._again(Found({**shown.parts, "block_size": own}, 0.0), batches)
