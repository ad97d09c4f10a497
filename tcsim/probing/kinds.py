"""One black box being asked and explained, kind of arithmetic by kind: the first under which everything is, confirmed."""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import Any

import numpy as np

from tcsim.probing.answers import remainders
from tcsim.probing.answers.numbers import Numbers
from tcsim.probing.box import Batch, simulated
from tcsim.probing.questions import families
from tcsim.probing.questions.chance import chance_of
from tcsim.probing.questions.codes import kept_bits
from tcsim.probing.result import ProbeResult, result_of_search
from tcsim.probing.search import simpler
from tcsim.probing.search.candidates import (
    arithmetic_kind,
    mode_of,
    modes,
    other_halves,
    other_roundings,
    unit_of_parts,
)
from tcsim.probing.search.challenge import missed_along, missed_at_edges, moved, refuted_before, refuted_by
from tcsim.probing.search.elimination import ALL, Found, best_of, descend, improve, kicks, starting_points
from tcsim.probing.search.focus import focus, missed_most, rounds_randomly, with_random_words
from tcsim.probing.search.reopened import reopened
from tcsim.probing.search.singly import moved_singly, resizings, scanned_singly

_TRIES, _FOCUSES, _FEW = 8, 4, 8  # the last: picked batches
_DEEP = 3  # kinds of arithmetic looked into further when none explains everything at first
_WORK, _DEEP_WORK = 6e7, 1.2e8  # products simulated for one kind of arithmetic
_FIRST_WORK = 6e7  # the most for a walk of k before other kinds were tried
_SECOND_WORK = 2e8  # more of it where it explains nearly everything
_ALL_WORK, _MOST_WORK = (
    7e8,
    1.4e9,
)  # beyond which nothing is looked into any further, about ten seconds; nor what explains nearly everything
_ONE_BLOCK = 0.99
_ORDERED = 0.95  # of everything explained by an order that is not yet right in every place
_SCALED = 0.97  # the same of scaled products, which are many ways wide, and of what a cut explained better
_FAR = 0.9  # of what begins further off, another kind that explains one product is asked first
_MARGIN = 0.015  # zeros that fill k up can show in one product
_UNRANDOM = 0.9  # less is explained of what rounds by words of its own
_NEARLY = 0.998  # another order of k would change more than is left to explain
_CORNERS, _ONE_SIGN = 3, 2  # which calls of a confirmation hold every corner, and no signs


class Search(Numbers):
    """One black box being asked and explained."""

    def run(self, confirm: int, table: bool) -> ProbeResult:
        """The first kind of arithmetic under which every observation is explained, confirmed; or the nearest."""
        self.wanted = confirm
        for found in self.recorded() if table else ():
            if (refuted := self.confirm(found, confirm)) is None:
                return self.result(found)
            self.sums.append(missed_most(self.judge, found.parts, refuted))
        kept = max(kept_bits(batch.d, self.box.formats.out) for batch in self.products if batch.d is not None)
        kinds = modes(self.box.formats, self.judge.group)
        bits = {"after": min(kept, self.kept_without_c())}  # of a block's result, where c comes beside it
        starts = [
            starting_points(self.judge, mode, [self.small], self.nans[0], bits.get(mode.get("c_enters", ""), kept))
            for mode in kinds
        ]
        begun = [f for nth in zip_longest(*starts) for f in nth if f is not None]  # every kind once, then from elsewhere
        begun = [self.begun_of_pairs(f) if f.parts["arithmetic"] == "paired" else self.with_zeros(f) for f in begun]
        later = self.put_off
        for found in sorted(begun, key=lambda f: (not self.at_a_glance(f), -f.score)):
            if (found.score < _FAR and self.best_numbers() == 1.0) or self.reached.get(mode_of(found.parts), 1.0) < _ONE_BLOCK:
                later.append(found)
            elif self.attempt(found, confirm):
                return self.result(self.tried[-1])
        if any(self.likely(f) and self.walked(f, confirm) for f in sorted(self.waiting, key=lambda f: -f.score)):
            return self.result(self.tried[-1])
        if any(self.held(self.gone_on(*begun), confirm) for begun in sorted(self.unfinished, key=lambda x: -x[0].score)):
            return self.result(self.tried[-1])
        if self.looked_into(confirm, _WORK, _ONE_BLOCK) or any(self.attempt(found, confirm) for found in later):
            return self.result(self.tried[-1])
        if later and self.looked_into(confirm, _WORK, _ONE_BLOCK):
            return self.result(self.tried[-1])
        self.chance = chance_of(self.box)
        hopeless = self.chance is not None and max(f.score for f in self.tried) < _UNRANDOM  # by words that no seed says
        if not hopeless and self.looked_into(confirm, _DEEP_WORK):
            return self.result(self.tried[-1])
        return self.result(max((self._again(f, self.all) for f in self.tried), key=lambda f: f.score))

    def attempt(self, found: Found, confirm: int) -> bool:
        """A kind of arithmetic tried from where it begins: its numbers, then its walk of k, which waits for the numbers of other kinds
        where they explain one product no better than others might; whether it is confirmed."""
        self.judge.allow(_WORK)
        place = "after" if found.parts["c_enters"] == "after" else "among their terms"
        self.box.say(tried=f"trying {found.parts['arithmetic']} sums, c {place}")
        numbers = self.numbers(found)
        self.reached[mode_of(found.parts)] = numbers.score
        if not self.likely(numbers):
            return False
        if numbers.score < _NEARLY and not self.deep:
            self.waiting.append(numbers)
            return False
        if self.walked(numbers, confirm):
            return True
        off = {mode_of(f.parts) for f in self.put_off}
        others = [x for x in other_halves(numbers.parts) if found.score < _FAR or mode_of(x) in off]  # as far off, so put off
        return any(self.walked(self._again(Found(parts, 0.0), self.products), confirm) for parts in others)

    def likely(self, numbers: Found) -> bool:
        """Whether one product does not already refute numbers more than those of another kind."""
        best = self.best_numbers()
        if best == 1.0 and _ONE_BLOCK > numbers.score >= 0.99 - _MARGIN and not self.deep:
            self.put_off.append(numbers)
            return False
        return numbers.score >= min(best, 0.99) - _MARGIN

    def walked(self, numbers: Found, confirm: int) -> bool:
        """Numbers of a kind walked along k; whether it is confirmed. Before every kind was tried a walk may simulate a part of what it may
        afterwards: one that ended so goes on at once, for a while, where it explains most, else after the others."""
        if (self.deep, numbers.parts) in self.begun:
            return False
        self.begun.append((self.deep, numbers.parts))
        self.judge.end = np.inf if self.deep else self.judge.work + _FIRST_WORK
        walked = self.whole(numbers)
        least = _ONE_BLOCK if walked.parts["k_order"] is None else _ORDERED
        if self.judge.ended and least < walked.score < 1.0:
            self.judge.end = self.judge.work + _SECOND_WORK
            walked = self.gone_on(walked, numbers)
        ended, self.judge.end = not self.judge.ended, np.inf
        if ended or walked.perfect:
            return self.held(walked, confirm)
        self.unfinished.append((walked, numbers))
        self.tried.append(walked)
        return False

    def gone_on(self, walked: Found, numbers: Found) -> Found:
        """A walk that did not end, further. Of one that explains nearly everything a number is left, if anything."""
        if walked.score > _NEARLY:
            self.judge.allow(_WORK)
            walked = self.focused(self._again(walked, self.all), kicked=False)
            if walked.perfect:
                return walked
        again = self.whole(numbers)
        return max(again, self._again(walked, self.all), key=lambda f: f.score)

    def held(self, walked: Found, confirm: int) -> bool:
        """Whether a kind walked along k is confirmed."""
        walked = self.settled(walked, confirm)
        self.tried.append(walked)
        return walked.perfect and self.confirmed >= confirm

    def whole(self, numbers: Found) -> Found:
        """Numbers of a kind walked along k, and what is left of sums looked for in them."""
        self.judge.allow(_WORK)
        walked = self.usual(self.walk(self._again(numbers, self.all)))
        scaled, least = self.box.formats.scale is not None, _ONE_BLOCK
        below = self.grouped(walked) if scaled else self.cuts(walked)
        if scaled or below.score > walked.score:
            least = _SCALED
        walked = self.walk(below) if below.score > walked.score and not below.perfect else below
        walked = self.read(walked, self.all)
        walked = best_of(
            self.judge, walked, [{"rounding": r} for r in other_roundings(walked.parts)], self.all
        )  # sums show it better
        walked = self.by_words(walked, numbers)
        walked = self.by_words_of_terms(walked)
        if walked.score > least and not walked.perfect:
            self.judge.allow(_WORK)
            walked = self.focused(walked, kicked=False)  # sums show cuts that one product does not
        if walked.score > _NEARLY and not walked.perfect:
            self.sums += missed_at_edges(self.box, self.rng, self.judge, walked.parts)
            walked = self.focused(self.read(self._again(walked, self.all), self.all), kicked=False)
        if walked.score > _NEARLY and rounds_randomly(walked.parts):
            walked = self.climbed(walked, self.all)
        return walked

    def looked_into(self, confirm: int, work: float, least: float = 0.0) -> bool:
        """The best kinds so far explained further, those that explain `least` and one at any rate; whether one is confirmed.

        Of each kind the best alone: where few outputs tell kinds apart, all that explains most may be of one wrong kind.
        """
        self.deep = True
        self.box.say(
            tried=f"every kind tried once, the best explains {max((f.score for f in self.tried), default=0.0):.2%}; looking further"
        )
        kinds: dict[tuple[Any, ...], Found] = {}
        for found in sorted((self._again(f, self.all) for f in self.tried), key=lambda f: -f.score):  # more was seen since
            kinds.setdefault(arithmetic_kind(found.parts), found)
        for at, found in enumerate(list(kinds.values())[:_DEEP]):
            enough = self.judge.work > (_MOST_WORK if found.score > _NEARLY and not at else _ALL_WORK)
            if enough or (at and found.score < least):
                continue
            self.judge.allow(work)
            if found.score > _NEARLY and not at:
                self.sums += missed_at_edges(self.box, self.rng, self.judge, found.parts)
            explained = self.explain(self._again(found, self.all))
            if (
                not explained.perfect
                and work > _WORK
                and explained.parts["arithmetic"] == "rounded"
                and explained.parts["k_order"] is None
                and not self.ascending
            ):
                explained = max(explained, self._again(self.order(explained, self.label), self.all), key=lambda f: f.score)
            explained = self.settled(explained, confirm)
            self.tried.append(explained)
            if explained.perfect and self.confirmed >= confirm:
                return True
        return False

    def settled(self, found: Found, confirm: int) -> Found:
        """Confirmed, or changed until it explains what refuted it, a few times over."""
        for _ in range(_TRIES):
            if not found.perfect:
                return found
            simplest = simpler.with_exact_sums(self.judge, found, self.all)
            refuted = self.confirm(simplest, confirm)
            if refuted is None:
                return simplest
            self.sums.append(missed_most(self.judge, simplest.parts, refuted))
            self.judge.allow(_WORK)
            told = self.short.in_lanes(simplest, refuted)
            begun = max((self._again(f, self.all) for f in (found, simplest, told)), key=lambda f: f.score)
            begun = self.resized(begun)
            found = begun if begun.perfect else self.explain(begun)
            for name, step in moved(self.box.formats, simplest.parts, found.parts) if found.perfect else ():
                if name not in self.told_along:
                    self.told_along.add(name)
                    self.sums += missed_along(self.box, self.rng, self.judge, found.parts, name, step, self.all)
                    found = self._again(found, self.all)
                    found = found if found.perfect else self.explain(found)
        return found

    def resized(self, found: Found) -> Found:
        """With blocks or groups of another size, where that explains what refuted it and everything else: of what was asked before, sums are
        alike in several sizes."""
        sizes = () if found.perfect else resizings(self.box.formats, found.parts)
        able = [size for size in sizes if self.judge.score({**found.parts, **size}, self.sums[-1:], ALL) == 1.0]
        return best_of(self.judge, found, able, self.all)

    def explain(self, found: Found) -> Found:
        """Whatever is left against everything that was seen, and the walk of k again."""
        placed = found.parts["k_order"] is not None
        far = found.score < _ONE_BLOCK or rounds_randomly(found.parts)  # of random words few tell places apart
        if far and found.score > _NEARLY:
            found = self.focused(found, kicked=False)  # the walk would leave no work for a part that few outputs show
        if far and not found.perfect and not placed and self.judge.score(found.parts, self.products) == 1.0:
            found = self.walk(found)  # its numbers explain one product, not every sum: what is left is how k is taken
        before = 2.0
        for _ in range(2 if self.deep else 1):
            if found.score > before:
                self.judge.allow(_WORK)
            before, found = found.score, self.read(found, self.all)
            if not found.perfect:
                found = best_of(self.judge, found, remainders.whole_results(self.left, self.box.formats, found.parts), self.all)
            if not found.perfect:
                found = self.focused(found)
            if not found.perfect and self.deep:
                begun = reopened(self.judge, found, self.all)
                found = self.focused(begun) if begun.score > found.score else found
            if not found.perfect:
                found = self.cuts(self.walk(self._nans(found, self.all)))
            brief = self.brief(found)
            found = self.focused(brief) if brief.score > found.score else found
            if not found.perfect and found.parts["align_rounding"] != "exact" and found.parts["arithmetic"] == "aligned":
                exact = {**found.parts, "align_rounding": "exact", "fraction_bits": None, "operand_format": None}
                begun = self._again(Found(exact, 0.0), self.all)
                able = found.score < _NEARLY or begun.score > _ONE_BLOCK  # what nearly everything is explained with is cut
                found = max(found, self.walk(begun), key=lambda f: f.score) if able else found
            if not found.perfect and self.box.formats.scale is not None:
                self.judge.allow(_WORK)
                found = self.grouped(found)
        return found

    def focused(self, found: Found, batches: list[Batch] | None = None, *, kicked: bool = True) -> Found:
        """Changed as long as that explains more, by what a few outputs that it misses show; `kicked`: from changes of it, too."""
        used = batches or self.all
        for _ in range(_FOCUSES):
            if found.score > _NEARLY:
                self.judge.spare(_WORK)
            few = focus(self.judge, found.parts, used)
            if not few or self.judge.tired:
                break
            better = scanned_singly(self.judge, found, few, used) if found.score > _ONE_BLOCK else found
            better = better if better.score > found.score else moved_singly(self.judge, found, few, used)
            if better.score > found.score:
                found = better
                continue
            begun = self._again(found, few)
            for at, start in enumerate(chain([begun], kicks(self.judge, begun, few) if kicked else ())):
                changed = descend(self.judge, self._again(start, few), few) if at else improve(self.judge, start, few, 2)
                whole = self._again(changed, used)
                while whole.score <= found.score and changed.score > self._again(begun, few).score and len(few) < _FEW:
                    few += focus(self.judge, changed.parts, used)[:1]
                    changed = descend(self.judge, self._again(changed, few), few)
                    whole = self._again(changed, used)
                better = max(better, whole, key=lambda f: f.score)
                if better.score > found.score or self.judge.tired:
                    break
            if better.score <= found.score:
                break
            found = better
        random = (kicked or found.score > _ONE_BLOCK) and found.parts["arithmetic"] in ("aligned", "two-stage", "rounded")
        if random and not found.perfect:
            return best_of(
                self.judge, found, with_random_words(self.box.formats, found.parts), used
            )  # whole: words go by place
        return found

    def confirm(self, found: Found, outputs: int) -> Batch | None:
        """All answers so far, its edges, then fresh sums, `outputs` at least: a batch that refutes it, None where none does."""
        unit = unit_of_parts(self.box.formats, found.parts)
        assert unit is not None
        refuted = refuted_before(self.box, self.judge, unit)
        if refuted is not None:
            return refuted
        refuted = refuted_by(self.box, self.rng, self.judge, unit, [self.small, *self.sums, self.large])
        if refuted is not None:
            return refuted
        self.confirmed, i = 0, 0
        lengths = (unit.block_size, 2, unit.instruction_k, 1, unit.block_size + 1, 2 * unit.instruction_k + 1)
        if unit.k_order is not None and unit.instruction_k > 2:  # places within blocks may show only where blocks are cut short
            fewer = self.rng.integers(2, unit.instruction_k, 3).tolist()
            lengths = (lengths[0], fewer[0], lengths[2], fewer[1], unit.instruction_k + fewer[2], lengths[5])
        while self.confirmed < outputs and self.box.calls < self.box.most_calls:
            length = lengths[i % 6] if i % 2 else self.box.whole(lengths[i % 6])
            if i == _CORNERS:
                batch = families.all_corners(self.rng, self.box.formats, "confirmation")
            else:
                batch = families.sum_batches(self.rng, self.box.formats, length, batches=32, side=24, name="confirmation")
                batch = families.of_one_sign(batch, self.box.formats) if i == _ONE_SIGN else batch
            asked = self.box.ask(batch)
            assert asked.d is not None
            if not np.array_equal(simulated(unit, asked, seed=self.judge.seed), asked.d):
                return asked
            self.confirmed += asked.size
            i += 1
        return None

    def result(self, found: Found) -> ProbeResult:
        unit = unit_of_parts(self.box.formats, found.parts)
        assert unit is not None
        return result_of_search(unit, found, self.box, self.judge, self.confirmed, self.wanted, self.chance)
