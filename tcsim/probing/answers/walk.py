"""The walk of k: blocks, chains and the order of k, from sums and marks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.hardware.choices import ROUNDINGS
from tcsim.probing.answers import saturation
from tcsim.probing.answers.asking import LADDERS, RUNGS
from tcsim.probing.answers.cuts import SHOWN, Cuts
from tcsim.probing.box import Batch, embedded
from tcsim.probing.questions import contests, families
from tcsim.probing.questions.edges import ladders
from tcsim.probing.questions.rungs import likely_cuts, rungs
from tcsim.probing.search import structure
from tcsim.probing.search.candidates import (
    Parts,
    alike_alone,
    all_moves,
    other_roundings,
    unrounded,
    usual_numbers,
    usual_shapes,
)
from tcsim.probing.search.challenge import one_after_another
from tcsim.probing.search.cut import apart
from tcsim.probing.search.elimination import Found, best_of, improve
from tcsim.probing.search.focus import brief_orders, focus, rounds_randomly
from tcsim.probing.search.singly import best_of_used, scanned_singly

_CUT_WORK, _ORDER_WORK = 3e7, 1.2e8  # products simulated
_PERIODS = 8
_SIZES = 8  # of blocks whose terms are cut by random words
_ONE_BLOCK = 0.99
_NEARLY = 0.998  # another order of k would change more than is left to explain
_BRIEF = 4  # products of a block of which every order is tried where random words are those of a place
_SWAPS = 12  # of two places, one after the other
_ORDERED = 0.9  # of everything explained by an order that numbers are looked for beside
_TOLD = 0.8  # of one product, explained by what is asked for an order at first


class Walker(Cuts):
    """How a black box takes k under a kind of arithmetic whose numbers are found."""

    def walk(self, found: Found) -> Found:
        """The block size and what goes with it; the order of k where it is not ascending."""
        label = self.label
        used = [*self.sums, self.marks]
        best = self._again(found, used)
        if best.parts["overflow"] == "saturate" and not best.perfect:
            best = self.saturating(best, used)
        runs = structure.ascending(label)
        each = int(label.max()) == label.size - 1  # marks tell all places apart
        self.ascending |= each and structure.all_in_place(self.judge, self.marks, best.parts)
        early = self.deep or each or not label.any() or not runs
        likely = self.deep or self.judge.score(best.parts, self.products) > _TOLD
        random = rounds_randomly(best.parts)  # whose marks differ, ordered or not
        best = self.upwards(best, used) if random else best
        best = best_of(self.judge, best, brief_orders(best.parts, _BRIEF) if random else [], used)
        best = best if runs or structure.likely(label) else self.climbed(best, used)
        nearly = random and best.score > _ONE_BLOCK and not self.deep
        if not (best.perfect or nearly or self.ascending) and likely and early:
            best = self.told(best, used)
        late = best.parts["c_enters"] == "after"
        if likely and not best.perfect and late:
            best = self.upwards(best, used) if runs else best
            lengths = () if runs else (length for length, _ in structure.likely(label))
            best = best if best.perfect else self.first_best(best, self.tides.ordered(best.parts, lengths), used)
        if not runs and likely and not best.perfect and self.box.formats.scale is None:
            best = self.order(best, label)
        ordered = best.parts["k_order"] is not None
        seen = late and ordered and not runs
        best = best if (random and not ordered) or seen else self.upwards(best, used)
        if seen and not best.perfect:  # marks of few bits may seem to be in an order
            best = max(best, self.upwards(self._again(found, used), used), key=lambda f: f.score)
        if late and likely and not (runs or best.perfect) and best.parts["k_order"] is None:
            best = self.first_best(best, self.tides.ordered(best.parts), used)  # of as many as were seen to be taken before c
        chained = best.parts["arithmetic"] == "rounded" and best.score > _ORDERED and likely  # marks may not tell chains apart
        if not (best.perfect or self.ascending or early) and (chained or best.parts["arithmetic"] == "paired"):
            best = self.told(best, used)  # nothing else is like one product of these: no other kind is asked first
        if not best.perfect and runs and best.parts["parity_split"]:
            best = self.first_best(best, self.asked_orders.halved(best.parts), used)
        if not best.perfect and runs and self.orders(best):
            best = self.order(best, label)
        nearly = not best.perfect and best.score > _ORDERED and best.parts["c_enters"] == "aligned"
        brief = self.box.formats.scale is None and contests.of_small_range(self.box.formats)
        if nearly and self.deep and not self.ascending and brief:
            best = structure.brief(self.judge, best, used)
        return self._again(self.short.exchanged(self.climbed(best, used), used), self.all)

    def climbed(self, found: Found, used: list[Batch]) -> Found:
        """With an order of k to which exchanges of places lead, where one product is explained and k is not taken upwards."""
        known, score = self.box.formats, self.judge.score(found.parts, self.products)
        able = known.scale is None and not known.a.integer and not self.ascending
        able &= self.deep or found.parts["arithmetic"] != "fused"
        plain = (
            found.parts["arithmetic"] == "aligned" and found.parts["c_enters"] == "aligned" and not rounds_randomly(found.parts)
        )
        able &= not (plain and self.label.any() and structure.ascending(self.label))  # no order within their blocks shows
        if found.perfect or not able or score < (_ONE_BLOCK if self.deep else 1.0):
            return found
        self.judge.spare(_ORDER_WORK if self.deep else _CUT_WORK)
        if found.score > _NEARLY and (found := self.beside_order(self.swapped(found))).perfect:
            return found
        every = self.deep and found.parts["arithmetic"] != "rounded" and not rounds_randomly(found.parts)
        lengths = structure.lengths_of_orders(self.label, found.parts, every)
        return self._again(self.climbs.best(found, used, lengths), used)

    def swapped(self, found: Found) -> Found:
        """With two places of its order exchanged as often as that explains more of what it misses, also of blocks that are cut short."""
        for _ in range(_SWAPS if found.parts["k_order"] is not None and not rounds_randomly(found.parts) else 0):
            few = focus(self.judge, found.parts, self.all)
            swaps = dict(all_moves(self.judge.known, found.parts))["swaps"]
            better = best_of_used(self.judge, found, swaps, few, self.all) if few and not self.judge.tired else found
            if better.score <= found.score:
                break
            found = better
        return found

    def beside_order(self, found: Found) -> Found:
        """With a number changed where that explains more of what it misses: an order that is right leaves nothing else to look for."""
        if found.perfect or found.parts["k_order"] is None or rounds_randomly(found.parts):
            return found
        few = focus(self.judge, found.parts, self.all)
        return max(found, scanned_singly(self.judge, found, few, self.all) if few else found, key=lambda f: f.score)

    def by_words(self, found: Found, before: Found) -> Found:
        """With the order of k that random words tell, where they were not seen before k was walked: marks and sums may not show it."""
        fresh = rounds_randomly(found.parts) and not rounds_randomly(before.parts)
        found = self.told(found, self.all) if fresh and _ONE_BLOCK < found.score < 1.0 else found
        return self._again(self.climbed(found, self.all), self.all) if rounds_randomly(found.parts) else found

    def by_words_of_terms(self, found: Found) -> Found:
        """With the order within late blocks that random words of their terms tell, where terms that seem to be cut otherwise explain nearly
        everything: words of a wrong order explain less than none."""
        late = found.parts["c_enters"] == "after" and self.box.formats.scale is None
        cut = found.parts["align_rounding"] not in ("exact", "sr")
        able = late and cut and _ONE_BLOCK < found.score < 1.0
        return self.first_best(found, self.asked_orders.of_terms(found.parts), self.all) if able else found

    def usual(self, found: Found) -> Found:
        """With the numbers of a record of the table where c comes late and those explain more: no product beside c shows any. With
        its order of k, results rounded in any way."""
        late = found.parts["c_enters"] == "after" and not found.perfect
        found = best_of(self.judge, found, usual_numbers(found.parts) if late else [], self.all)
        shapes = [] if found.perfect or self.box.formats.scale is not None else usual_shapes(found.parts)
        shapes += usual_shapes(found.parts, "align_rounding", "fraction_bits", "min_exponent") if shapes and late else []
        rounded = [found.parts["rounding"], *other_roundings(found.parts)]
        return best_of(self.judge, found, [{**shape, "rounding": r} for shape in shapes for r in rounded], self.all)

    def upwards(self, found: Found, used: list[Batch]) -> Found:
        """The best of it and of blocks and chains taken in ascending k."""
        longest = structure.REACH if found.parts["c_enters"] == "after" else structure.REACH // 2
        kept = self.kept_without_c() if found.parts["c_enters"] == "after" else self.box.formats.out.precision
        short = {**found.parts, "out_precision": kept}
        fewer = [short] if kept < self.box.formats.out.precision and self.judge.unit(short) is not None else []
        for begun in (found, *(self._again(Found(parts, 0.0), used) for parts in (*alike_alone(found.parts), *fewer))):
            if not found.perfect:
                walked = structure.walked_upwards(self.judge, begun, used, structure.whole_runs(self.label), longest)
                found = max(found, walked, key=lambda f: f.score)
        chains = [] if found.perfect else structure.other_chains(found.parts)
        few = focus(self.judge, found.parts, used) if chains else []
        return best_of_used(self.judge, found, chains, few, used) if few else found

    def saturating(self, found: Found, used: list[Batch]) -> Found:
        """The blocks and the order of k of integers that saturate."""
        known = self.box.formats
        self.saturated = self.saturated or self.box.more(saturation.contests(known, self.box.whole(structure.REACH)))
        shapes = [] if self.saturated is None else saturation.taken(self.saturated, known)
        return best_of(self.judge, found, list(shapes), used)

    def brief(self, found: Found) -> Found:
        """With the order of a few products that explains most, once every kind was tried."""
        able = self.deep and not found.perfect and self.box.formats.scale is None
        return structure.brief(self.judge, found, self.all) if able else found

    def orders(self, found: Found) -> bool:
        """Whether an order of k can be what is left to explain: one product is, and k may be ordered."""
        other = any(f.score > _NEARLY > found.score for f in self.tried)
        one_product = self.judge.score(found.parts, self.products)
        nearly = other or found.score > _NEARLY or one_product < _ONE_BLOCK
        able = self.deep and not self.ascending and self.box.formats.scale is None
        return able and not nearly and not self.judge.tired

    def order(self, found: Found, label: Any) -> Found:
        """The order of k of a unit that does not take it upwards, from marks; from pairs of marks where those leave it open. Of the
        length that contests show, unless every kind was tried with that."""
        used = [*self.sums, self.marks]
        best, likely = found, structure.likely(label)[:_PERIODS]
        told = None if self.deep or found.parts["c_enters"] != "aligned" else self.taken
        label, likely = (label, likely) if told is None else (told[0], [told[1:]])
        for length, size in likely:
            start_from = found
            if found.parts["arithmetic"] == "aligned":
                start_from = self.within(found, label, size, length)
                if start_from.score < _ONE_BLOCK:
                    if found.parts["min_exponent"] is None or self.judge.score(found.parts, self.products) < 1.0:
                        continue
                    start_from = found  # blocks of zeros beside the one that was asked may have cut c
            for begun in (start_from, *(Found(parts, start_from.score) for parts in unrounded(start_from.parts))):
                best = best if best.perfect else self.placed.best(best, begun, used, size, length)
            if best.perfect:
                return best
            if start_from.perfect:
                found = start_from  # more products share a longer block: begin there with what a shorter one showed
        if told is not None or (likely and found.parts["arithmetic"] == "aligned"):
            return best
        return self.placed.best(best, found, used)

    def told(self, found: Found, used: list[Batch]) -> Found:
        """The best order of k that contests of two products tell, or random words of lone ones."""
        best = self.contested(found, used)
        random = not best.perfect and rounds_randomly(best.parts)
        if random:  # with the roundings that lone products showed: those of a wrong order may be others
            lone = {key: found.parts[key] for key in ("rounding", "product_rounding", "align_rounding", "fraction_bits")}
            begun = [{**best.parts, **lone}, *([best.parts] if best.parts != {**best.parts, **lone} else [])]
            best = self.first_best(best, chain.from_iterable(self.asked_orders.alone(parts) for parts in begun), used)
        shown = best.parts["align_rounding"] == "sr" or (best.parts["arithmetic"] == "rounded" and random)
        if best.perfect or best.score > _ONE_BLOCK or not shown:
            return best
        told = self.asked_orders.first_block(best.parts)
        sizes = [told] if told > 1 else range(1, _SIZES + 1)  # which blocks show only in the right order
        others = (n for n in sizes if n != best.parts["block_size"] and not self.judge.ended)
        tried = (self.asked_orders.alone({**best.parts, "block_size": n}) for n in others)
        return self.first_best(best, chain.from_iterable(tried), used)

    def contested(self, found: Found, used: list[Batch], *, again: bool = True) -> Found:
        """The best order of k that contests of two products tell."""
        parts = found.parts
        label = self.asked_orders.blocks(parts)
        taken = None if label is None else contests.period(label)
        if label is None or taken is None:
            return found
        length, size = taken
        self.taken = label, length, size
        plain = parts["arithmetic"] == "aligned" and parts["align_rounding"] != "sr"
        if length == size == parts["block_size"] and parts["k_order"] is None and plain:
            return found  # upwards, in blocks that are known
        begun = [parts]
        if parts["arithmetic"] in ("aligned", "two-stage") and size > 1:
            begun.append(self.within(found, label, size, length).parts)
        lanes = [1]
        if parts["arithmetic"] == "fused" and size > 1:
            lanes = [n for n in range(2, size + 1) if size % n == 0]
        made = Found(parts, -1.0)
        for start in begun:
            for count in lanes:
                shape = {**start, "block_size": size, "chain": 1, "chains": 1, "lanes": count}
                made = self.first_best(made, self.asked_orders.within(shape, label, length), used)
        if made.score > max(found.score, _ORDERED) and not made.perfect and again:
            better = self.bettered(made, used)  # with numbers that are right the order within blocks is seen better
            made = better if better.perfect else self.contested(better, used, again=False)
        return max(found, made, key=lambda f: f.score)

    def bettered(self, found: Found, used: list[Batch]) -> Found:
        """Its numbers changed, all or one alone, as a few outputs that it misses show."""
        few = focus(self.judge, found.parts, used)
        changed = improve(self.judge, self._again(found, few), few, 1)
        return max(found, self._again(changed, used), scanned_singly(self.judge, found, few, used), key=lambda f: f.score)

    def first_best(self, found: Found, tried: Iterator[Parts], used: list[Batch]) -> Found:
        """The best of these, as far as one explains everything: what comes later may have to be asked for. Results that were rounded
        in a wrong order may have shown a wrong rounding."""
        seen = set()
        for parts in tried:
            if found.perfect:
                break
            if parts["k_order"] not in seen:
                seen.add(parts["k_order"])
                rounded = [{**parts, "rounding": r} for r in (parts["rounding"], *other_roundings(parts))]
                begun = best_of(self.judge, Found(parts, -1.0), rounded, used)
                if parts["arithmetic"] == "rounded" and not begun.perfect:
                    begun = best_of(self.judge, begun, [{"product_rounding": r} for r in ROUNDINGS], used)
                found = max(found, self.short.exchanged(begun, used), key=lambda f: f.score)
            if self.judge.ended:
                break
        return self._again(found, used)

    def within(self, found: Found, label: Any, size: int, length: int) -> Found:
        """Numbers from sums of products that share a block, wherever along k that is."""
        of = next(int(x) for x in label if np.count_nonzero(label[:length] == x) == size)
        members = np.flatnonzero(label[:length] == of)
        key = (length, *members.tolist())
        if key not in self.blocks:
            inner = families.sum_batches(self.rng, self.box.formats, size, name=f"one block at {', '.join(map(str, members))}")
            self.blocks[key] = self.box.more(embedded(inner, members, length))
        asked = self.blocks[key]
        if asked is None:
            return found
        parts = {**found.parts, "block_size": size * found.parts["group_size"]}
        used = [self.as_first(asked, members), *self.products]
        begun = improve(self.judge, self._again(Found(parts, 0.0), used), used, 2)
        staged = found.parts["arithmetic"] == "two-stage"
        if not self.steps or (size <= SHOWN and not staged) or (begun.score < _ONE_BLOCK and not staged):
            return begun
        count = min(size, RUNGS)
        if (*key, -1) not in self.blocks:
            steps = rungs(self.rng, self.box.formats, count)
            if count == RUNGS:
                steps = one_after_another([ladders(self.rng, self.box.formats, LADDERS), steps])
            self.blocks[(*key, -1)] = self.box.more(embedded(steps, members[:count], length))
        asked = self.blocks[(*key, -1)]
        if asked is None:
            return begun
        cuts = self.as_first(asked, members[:count])
        begun = apart(self.judge, self._again(begun, [cuts]), [cuts], likely_cuts(asked, self.box.formats))
        return improve(self.judge, self._again(begun, [cuts, *used]), [cuts, *used], 2)

    def as_first(self, asked: Batch, members: npt.NDArray[np.int64]) -> Batch:
        """What was asked of products at these places, as if they had been the first: answers of one block are the same."""
        inner = replace(asked, a=asked.a[:, :, members], b=asked.b[:, members], d=None)
        return self.judge.hold(replace(embedded(inner, np.arange(members.size), asked.a.shape[2]), d=asked.d))
