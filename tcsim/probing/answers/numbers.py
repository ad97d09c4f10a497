"""The numbers of a kind of arithmetic, from one product beside c, and from a few where c comes late."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np

from tcsim.hardware.choices import ROUNDINGS
from tcsim.probing.answers.walk import Walker
from tcsim.probing.box import Batch
from tcsim.probing.questions import families
from tcsim.probing.questions.rungs import rungs
from tcsim.probing.search import simpler, structure
from tcsim.probing.search.candidates import Parts, scans, usual_numbers
from tcsim.probing.search.cut import apart, cut_at_places, uncut
from tcsim.probing.search.elimination import ALL, Found, best_of, improve
from tcsim.probing.search.holders import operand_formats
from tcsim.probing.search.singly import narrow, rounded_and_cut

_ONE_BLOCK, _NEARLY = 0.99, 0.998
_MARGIN = 0.015  # zeros that fill k up can show in one product
_FAR_OFF = 0.9  # of one product explained by numbers of which several are wrong
_HOPELESS = 0.2  # what its own numbers leave so far behind another kind is asked for remainders last
_FAR_BEHIND = 0.1  # what explains so much less of one product than another kind is not looked at further
_SHAPES = (3, 1)  # block sizes for which remainders are read before blocks are known
_TWO_WORK = 6e7  # products simulated for those of two products
_RESULTS = ("rounding", "out_precision", "zero_sign")
_TERMS = ("fraction_bits", "align_rounding", "min_exponent", "late_fraction_bits", "operand_format", "subnormals")
_FEW_LATE = 4  # how many of the shortest sums are looked at
_LATE_SHAPES: tuple[Parts, ...] = ({"block_size": 9}, {"block_size": 1, "chain": 9})  # that hold their products


class Numbers(Walker):
    """What numbers of a kind explain before its walk of k is known."""

    def numbers(self, found: Found) -> Found:
        """What one product beside c shows; begun with how the best kind so far rounds results, and one of its arithmetic cuts terms, where
        that explains more."""
        if self.tried or self.waiting:
            best = max(self.tried or self.waiting, key=lambda f: f.score).parts
            shared = _RESULTS if best["arithmetic"] != found.parts["arithmetic"] else (*_RESULTS, *_TERMS)
            for names in dict.fromkeys((_RESULTS, shared)):
                parts = {**found.parts, **{name: best[name] for name in names}}
                found = max(found, self._again(Found(parts, 0.0), [self.small]), key=lambda f: f.score)
        found = self._again(self.read_off(found, rounded=self.best_numbers() < 1.0), [self.small])
        least = self.best_numbers() - _HOPELESS
        if least > 0 and not self.deep and improve(self.judge, found, [self.small], 1).score < least:
            self.put_off.append(found)
            return Found(found.parts, -1.0)
        found = improve(self.judge, self.read(found, [self.small], _SHAPES), [self.small])
        again = self.read(found, [self.small], _SHAPES)
        found = found if again is found else max(found, improve(self.judge, again, [self.small]), key=lambda f: f.score)
        found = self.under_any_least(found) if found.parts["arithmetic"] == "paired" else found
        nearest = _NEARLY if found.score >= self.best_numbers() - _MARGIN else _ONE_BLOCK
        if found.score < nearest:  # what was changed while numbers were far off may hold them there
            plain = uncut(self.judge, self._again(Found({**found.parts, **simpler.PLAIN}, 0.0), [self.small]), [self.small])
            aligned = found.parts["arithmetic"] == "aligned"
            places = cut_at_places(self.judge, found.parts, [self.small]) if aligned else []
            begun = [plain, narrow(self.judge, found, [self.small]), best_of(self.judge, found, places, [self.small])]
            if found.score < _FAR_OFF:  # nothing beside where terms are cut tells how results are rounded
                rounded = [{**place, "rounding": r} for place in places for r in ROUNDINGS]
                begun.append(best_of(self.judge, plain, rounded, [self.small]))
            improved = [improve(self.judge, f, [self.small]) for f in begun if f.parts != found.parts]
            found = max([found, *improved], key=lambda f: f.score)
        if found.score < min(self.best_numbers(), _ONE_BLOCK) - _FAR_BEHIND:
            return found
        found = self._again(found, self.products)
        found = simpler.without_scaled(self.judge, self._nans(improve(self.judge, found, self.products, 2)), self.products)
        return self.of_few(found) if found.parts["c_enters"] == "after" and found.score > _NEARLY else found

    def under_any_least(self, found: Found) -> Found:
        """A paired sum under the least exponent that explains most, of all: one far off may explain more than those near the right one."""
        every = (
            s.parts(e)
            for s in scans(self.box.formats, found.parts)
            if s.name == "min_exponent"
            for e in range(s.least, s.most + 1)
        )
        better = found if found.perfect else best_of(self.judge, found, list(every), [self.small])
        return improve(self.judge, better, [self.small]) if better.score > found.score else found

    def at_a_glance(self, found: Found) -> bool:
        """Whether a kind as it begins, in blocks of a likely size, explains everything that was seen: it is tried before the others."""
        return found.perfect and any(
            self.judge.score({**found.parts, **shape}, self.all, ALL) == 1.0
            for shape in structure.likely_blocks(found.parts, self.label, self.judge.group)
        )

    def of_few(self, found: Found) -> Found:
        """With numbers that explain sums of a few products, whatever their order, where c comes late: one alone shows none. As those of one
        block, or of blocks of one each; of two products beside zeros where sums of more tell their blocks too."""
        begun = [Found({**found.parts, **shape}, 0.0) for shape in _LATE_SHAPES]
        for shown in chain(map(self.as_usual, begun), map(self.of_shortest, begun), map(self.of_two, begun)):
            if shown.perfect:
                own = {name: found.parts[name] for name in ("block_size", "chain")}
                numbers = self._again(Found({**shown.parts, **own}, 0.0), self.products)
                return numbers if numbers.score >= found.score else found
        return found

    def as_usual(self, found: Found) -> Found:
        """With its own numbers, or those of a record of the table and an operand format, that explain all sums of two products."""
        used = [*self.products, *self.without_c()]
        if self.judge.score(found.parts, used, ALL) == 1.0:
            return Found(found.parts, 1.0)
        for numbers in usual_numbers(found.parts):
            for held in operand_formats(self.box.formats):
                usual = {**found.parts, **numbers, "operand_format": held}
                if self.judge.score(usual, used, ALL) == 1.0:
                    return Found(usual, 1.0)
        return found

    def of_shortest(self, found: Found) -> Found:
        """With numbers of the shortest sums."""
        used = [*self.products, *self.sums[:_FEW_LATE]]
        begun = uncut(self.judge, self._again(found, used), used)
        return begun if begun.perfect or begun.score < 0 else improve(self.judge, begun, used, 1)

    def of_two(self, found: Found) -> Found:
        """With numbers of two products beside zeros, where sums may be cut and rounded in any way."""
        used = [self.small, *self.without_c()]
        begun = uncut(self.judge, self._again(found, used), used)
        begun = begun if begun.perfect or begun.score < _ONE_BLOCK - _MARGIN else rounded_and_cut(self.judge, begun, used)
        self.judge.spare(_TWO_WORK)
        return begun if begun.perfect or begun.score < 0 else improve(self.judge, begun, used, 2)

    def without_c(self) -> list[Batch]:
        """Sums of two products beside zeros: those of blocks, that no c beside them rounds again."""
        if not self.pairs_alone:
            known = self.box.formats
            drawn = [families.sum_batches(self.rng, known, 2, batches=32, name="two products")]
            drawn += [rungs(self.rng, known, 2)] if self.cut else []
            asked = [self.box.more(replace(x, c=np.zeros_like(x.c))) for x in drawn]
            self.pairs_alone = [x for x in asked if x is not None]
        return self.pairs_alone

    def read_off(self, found: Found, *, rounded: bool) -> Found:
        """A two-stage sum's cuts as every distance between one product and c shows them; `rounded`: other roundings of results, too."""
        if found.parts["arithmetic"] != "two-stage":
            return found
        used = [*self.beside, self.small]
        begun = uncut(self.judge, self._again(found, [self.small]), [self.small]) if rounded else found
        begun = max(begun, narrow(self.judge, found, [self.small]), key=lambda f: f.score) if rounded else begun
        best = apart(self.judge, self._again(begun, used), used)
        if best.perfect or not rounded:
            return best
        return max(best, apart(self.judge, self._again(found, used), used), key=lambda f: f.score)
