"""The order of k from what is asked for it alone: contests for the blocks, marks within a block for its tree, random words of lone
products for the place of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import numpy.typing as npt

from tcsim.hardware.unit import Unit
from tcsim.probing.answers import words
from tcsim.probing.answers.halves import Halves
from tcsim.probing.answers.joined import in_their_tree
from tcsim.probing.answers.trees import Trees
from tcsim.probing.box import Batch, Box, embedded, simulated
from tcsim.probing.questions import contests, marks
from tcsim.probing.questions.codes import Rng
from tcsim.probing.questions.families import sum_batches
from tcsim.probing.search import structure
from tcsim.probing.search.candidates import Parts, unit_of_parts
from tcsim.probing.search.challenge import one_after_another
from tcsim.probing.search.elimination import Judge
from tcsim.probing.search.structure import Labels

_LONG, _SHORT = 130, 72  # products that contests and lone products are asked of
_BEHIND = 64  # products of zero behind them
_EXPLAINED = 0.9  # of sums by an order of whole blocks, if shorter ones are asked for
_FIRST = 3  # contests that are asked first
_TREES = 1500  # pairs within a block that marks are asked for
_BRANCHES = 40  # the largest tree of random words
_DEALT = 6  # orders that their random words allow
_WALKS = 2  # orders that lone products allow
# what chooses the lone products that are asked of
_OF_LONE = ("c_enters", "align_rounding", "fraction_bits", "product_rounding", "rounding", "out_precision")


class Orders:
    """What a black box was asked about the order of k."""

    def __init__(self, box: Box, rng: Rng, judge: Judge, sums: list[Batch]) -> None:
        self.box, self.rng, self.judge, self.sums = box, rng, judge, sums
        self._contests: dict[int, dict[contests.Contest, npt.NDArray[np.uint64]]] = {}  # of each its answers, (first, second)
        self.halves, self.trees = Halves(box, judge), Trees(box, rng)
        self._alone: dict[str, Batch | None] = {}
        self._whole: dict[int, list[Batch]] = {}  # sums of as many products as an order has
        self._fitting: dict[tuple[Unit, int], npt.NDArray[np.bool_]] = {}
        self._inner: dict[tuple[object, ...], list[Batch]] = {}

    def blocks(self, parts: Parts) -> Labels | None:
        """The block of every k as contests show it under a kind of arithmetic; None where they show nothing, or c comes late."""
        known = self.box.formats
        if known.a.integer or known.scale is not None or parts["c_enters"] != "aligned":
            return None
        size, kept = parts["block_size"], parts["out_precision"] or known.out.precision
        chosen = contests.contests_of(known, kept)
        unit = unit_of_parts(known, {**parts, "k_order": None})
        if not chosen or unit is None:
            return None
        ends = np.array([size, 2 * size])  # blocks of zeros before and behind, which may cut c
        either = self._simulated(unit, chosen, ends, 4 * size)
        able = [i for i in range(len(chosen)) if either[i, 0, 1] != either[i, 1, 0]]
        for count in dict.fromkeys((min(_FIRST, len(able)), len(able))):
            told = able[:count]
            seen = self._seen(kept, [chosen[i] for i in told])
            label = None if seen is None or not told else contests.blocks(seen, either[told, 0, 1], either[told, 1, 0])
            if seen is None or label is not None:
                return label
        return None

    def _simulated(self, unit: Unit, chosen: Sequence[contests.Contest], at: Labels, k: int) -> npt.NDArray[np.uint64]:
        """What a unit answers to contests at these places."""
        small = contests.contests_at(self.box.formats, chosen, at, at, k)
        self.judge.begin()
        return contests.answers(replace(small, d=simulated(unit, small, seed=self.judge.seed)), len(chosen))

    def _seen(self, kept: int, chosen: Sequence[contests.Contest]) -> npt.NDArray[np.uint64] | None:
        """What the black box answers to contests at all k, asked together where it was not before; None where it is asked no more."""
        known = self._contests.setdefault(kept, {})
        fresh = [contest for contest in chosen if contest not in known]
        if fresh:
            at, k = np.arange(self.box.whole(_LONG)), self.box.whole(_LONG + _BEHIND)
            asked = self.box.more(contests.contests_at(self.box.formats, fresh, at, at, k))
            if asked is None:
                return None
            known.update(zip(fresh, contests.answers(asked, len(fresh)), strict=True))
        return np.stack([known[contest] for contest in chosen]) if chosen else np.empty((0, 1, 1), np.uint64)

    def within(self, parts: Parts, label: Labels, length: int) -> Iterator[Parts]:
        """The order of these blocks, each in ascending k; then as contests, and marks, show the places within a block."""
        known, size = self.box.formats, parts["block_size"]
        blocks = list(contests.members(label, length))
        for read in (self.halves.ordered, self.trees.ordered):
            if (read_off := read(parts, blocks, partial(self._worth, parts))) is not None:
                yield self._ordered(parts, read_off)
        yield self._ordered(parts, blocks)
        unit = unit_of_parts(known, {**parts, "k_order": None})
        if size < 2 or unit is None:
            return
        kept = (
            parts["out_precision"] or known.out.precision
        )  # another than the contests were chosen for, where it was found since
        told = self._contests.get(kept) or next(reversed(self._contests.values()))
        chosen, seen = list(told), np.stack(list(told.values()))
        wanted = self._simulated(unit, chosen, np.arange(size), 2 * size)
        for some in (slice(None), *(slice(v, v + 1) for v in range(len(chosen)))):  # not all, where a number is not yet right
            found = [structure.matched(_rows(seen[some][:, x][:, :, x]), _rows(wanted[some]), size) for x in blocks]
            if all(order is not None for order in found):
                yield self._ordered(parts, [x[list(order or ())] for x, order in zip(blocks, found, strict=True)])
        if parts["align_rounding"] == "sr" and (cut := self._cut(parts, blocks)) is not None:
            yield cut
        if parts["arithmetic"] not in ("rounded", "fused", "paired") or size < 3:
            return
        if parts["rounding"] == "sr" and (treed := self._joined(parts, blocks)) is not None:
            yield treed
        for fars in ((False,), (True,), (False, True)):
            if (treed := self._trees(parts, blocks, length, fars)) is not None:
                yield treed

    def halved(self, parts: Parts) -> Iterator[Parts]:
        """Blocks taken upwards, even and odd places as they show, also with the cut that two products show whatever their order."""
        yield from self._in_halves(parts)
        for begun in self.halves.cuts(self.rng, parts):
            yield from self._in_halves(begun)

    def _in_halves(self, parts: Parts) -> Iterator[Parts]:
        if (found := self.halves.upwards(parts, self.box.whole(_LONG), partial(self._worth, parts))) is not None:
            yield self._ordered(parts, found)

    def _worth(self, parts: Parts, blocks: list[Labels]) -> bool:
        """Whether sums of whole blocks are explained so far that shorter ones are worth a call each."""
        length = sum(map(len, blocks))
        if length not in self._whole:
            asked = None if length % self.box.k_step else self.box.more(sum_batches(self.rng, self.box.formats, length))
            self._whole[length] = self.sums if asked is None else [asked]
        return self.judge.score(self._ordered(parts, blocks), self._whole[length], _EXPLAINED) > _EXPLAINED

    def _ordered(self, parts: Parts, blocks: list[Labels]) -> Parts:
        order = tuple(int(k) for k in np.concatenate(blocks))
        chain = max(len(order) // parts["block_size"], 1) if parts["c_enters"] == "after" else parts["chain"]
        return {**parts, "chain": chain, "k_order": None if order == tuple(range(len(order))) else order}

    def _trees(self, parts: Parts, blocks: list[Labels], length: int, fars: tuple[bool, ...]) -> Parts | None:
        """Places within blocks from pairs of marks of each."""
        unit = unit_of_parts(self.box.formats, {**parts, "k_order": None})
        asked = [self._marked(parts["block_size"], blocks, length, far) for far in fars]
        if unit is None or not all(asked):
            return None
        found: list[Labels] = []
        for block, pairs in zip(blocks, zip(*asked, strict=True), strict=True):
            for batch in pairs:
                self.judge.begin()
                self.judge.work += batch.size * batch.a.shape[2]
            wanted = [structure.answer_rows(simulated(unit, batch, seed=self.judge.seed)) for batch in pairs]
            seen = [structure.answer_rows(batch.d) for batch in pairs]
            order = structure.matched(np.concatenate(seen, axis=1), np.concatenate(wanted, axis=1), parts["block_size"])
            if order is None:
                return None
            found.append(block[list(order)])
        return self._ordered(parts, found)

    def _marked(self, size: int, blocks: list[Labels], length: int, far: bool) -> list[Batch]:
        """What pairs of marks within each of the blocks answer, as if it were alone; none where there are too many."""
        if size * size > _TREES:
            return []
        key = (far, length, *map(tuple, blocks))
        if key not in self._inner:
            inner = marks.pairs(self.rng, self.box.formats, size, far=far)
            asked = self.box.more(one_after_another([embedded(inner, at, length) for at in blocks]))
            answered = [] if asked is None or asked.d is None else np.split(asked.d, len(blocks))
            self._inner[key] = [replace(inner, d=d) for d in answered]
        return self._inner[key]

    def _joined(self, parts: Parts, blocks: list[Labels]) -> Parts | None:
        """Places within the blocks of a tree whose sums are rounded by random words: that of two products alone, or of three, says where in
        the tree they meet."""
        unit = unit_of_parts(self.box.formats, {**parts, "k_order": None})
        able = parts["arithmetic"] == "rounded" and 2 < parts["block_size"] <= _BRANCHES
        order = in_their_tree(self.judge, self.box, self.rng, unit, parts, blocks) if unit is not None and able else None
        return None if order is None else self._ordered(parts, order)

    def _cut(self, parts: Parts, blocks: list[Labels]) -> Parts | None:
        """Places within blocks whose terms are cut by random words: what is left of a product beside one that cancels c."""
        size, length = parts["block_size"], len(blocks) * parts["block_size"]
        unit = unit_of_parts(self.box.formats, {**parts, "k_order": None})
        inner, at = words.beneath(self.rng, self.box.formats, parts, size), np.arange(size)
        count = inner.a.shape[2]
        found: list[Labels] = []
        for start, block in zip(range(0, length, size), blocks, strict=True):
            asked = self.box.more(words.moved_to(inner, np.stack([np.roll(block, -i) for i in range(count)], axis=1), length))
            if asked is None or unit is None:
                return None
            fits = np.zeros((size, size), bool)
            for place in at:
                beside = start + (place + np.arange(count)) % size
                moved = words.moved_to(inner, np.broadcast_to(beside, (size, count)), length)
                self.judge.begin()
                self.judge.work += moved.size * length
                fits[:, place] = (simulated(unit, moved, seed=self.judge.seed) == asked.d).all(axis=(1, 2))
            order = words.in_turn(fits)
            if order is None:
                return None
            found.append(block[order])
        return self._ordered(parts, found)

    def of_terms(self, parts: Parts) -> Iterator[Parts]:
        """A candidate with its blocks before a late c in the order in which their terms are cut by random words, if they are: a product
        alone is not cut there."""
        size, order = parts["block_size"], parts["k_order"] or tuple(range(parts["block_size"] * parts["chain"]))
        if len(order) == size * parts["chain"] and size > words.FEWEST:
            cut = self._cut({**parts, "align_rounding": "sr"}, np.split(np.array(order), parts["chain"]))
            yield from [] if cut is None else [cut]

    def first_block(self, parts: Parts) -> int:
        """How many products the first block has whose sums are rounded, or terms cut, by random words: as lone products show at its places.
        0 where they show none, or the words are those of any."""
        asked = self._lone(parts)
        if asked is None:
            return 0
        if parts["arithmetic"] == "rounded":  # whose words of sums are those of no other size
            sizes = range(1, asked.a.shape[2] // 2 + 1)
            tried = (
                unit_of_parts(self.box.formats, {**parts, "block_size": n, "chain": 1, "chains": 1, "k_order": None})
                for n in sizes
            )
            return next((u.block_size for u in tried if u is not None and words.fits_first(self.judge, u, asked)), 0)
        most = asked.a.shape[2] - 1  # a block of zeros behind cuts a sum again that carried
        held = self._places({**parts, "block_size": most, "chain": 1, "chains": 1}, asked)[:, :most].any(axis=0)
        return int(held.argmin())

    def _lone(self, parts: Parts) -> Batch | None:
        """Answered lone products under whose c a candidate rounds by random words; None where it has none."""
        known = self.box.formats
        unit = unit_of_parts(known, {**parts, "k_order": None})
        if unit is None or not unit.stochastic or known.scale is not None:
            return None
        kind = repr([parts[key] for key in _OF_LONE])
        if kind not in self._alone:
            most = _LONG if _of_results(parts) else _SHORT
            self._alone[kind] = self.box.more(words.lone(self.rng, known, unit, parts, self.box.whole(most)))
        return self._alone[kind]

    def alone(self, parts: Parts) -> Iterator[Parts]:
        """Orders of k under which the random words of lone products are those of the places they are at."""
        asked = self._lone(parts)
        if asked is None:
            return
        count, size = asked.a.shape[2], parts["block_size"]
        for blocks in self._dealt(parts, asked) if _of_results(parts) else ():
            shape = {**parts, "block_size": len(blocks[0]), "chain": 1, "chains": 1}
            yield self._ordered(shape, blocks)
            halved = self.halves.ordered(shape, blocks, partial(self._worth, shape)) if shape["parity_split"] else None
            if halved is not None:
                yield self._ordered(shape, halved)
        fits = self._places(parts, asked)
        left, hidden = _WALKS, parts["rounding"] == "sr" and words.meeting_together(self.box.formats, parts) > 2
        for length in range(size, count + 1, size):
            starts = range(0, count - length + 1, length)
            order = words.in_turn(np.logical_and.reduce([fits[i : i + length, i : i + length] for i in starts]))
            if order is None:
                continue
            blocks = np.split(np.array(order), length // size)
            read_off = self._joined(parts, blocks) if hidden else None  # first: which places of a block they have no word shows
            yield from [] if read_off is None else [read_off]
            yield self._ordered(parts, blocks)
            kept = 1 + max((place for place, k in enumerate(order) if k != place), default=0)
            if length == size and 1 < kept < size:  # what is in its place at the end may be of the next block
                yield self._ordered({**parts, "block_size": kept}, [np.array(order[:kept])])
            read_off = self._joined(parts, blocks) if parts["rounding"] == "sr" and not hidden else None
            yield from [] if read_off is None else [read_off]
            left -= 1
            if not left:
                return

    def _dealt(self, parts: Parts, asked: Batch) -> Iterator[list[Labels]]:
        """The blocks, as random words of results allow: with as short ones as there are their words say how many blocks came before. Where a
        zero beside a product counts, or the other half of a block, those are of two products."""
        size = 2 if parts["min_exponent"] is not None or parts["parity_split"] else 1
        fits = self._places({**parts, "block_size": size, "chain": 1, "chains": 1}, asked)
        able = np.zeros_like(fits)
        able[:, : -(-len(fits) // size)] = fits[:, ::size]
        yield from islice(words.dealt(able), _DEALT)

    def _places(self, parts: Parts, asked: Batch) -> npt.NDArray[np.bool_]:
        """For every k of lone products at which places of a record without an order they would give the same answers; of these no
        NaN is one."""
        unit, count = unit_of_parts(self.box.formats, {**parts, "k_order": None, "nan_from": "code"}), asked.a.shape[2]
        if unit is None:
            return np.zeros((count, count), bool)
        fits = self._fitting.get((unit, id(asked)))
        if fits is None:
            fits = words.fitting(self.judge, unit, asked)
            if not self.judge.ended:
                self._fitting[unit, id(asked)] = fits
        return fits


def _of_results(parts: Parts) -> bool:
    """Whether the sum of a block is rounded by a random word."""
    return parts["rounding"] == "sr" and parts["arithmetic"] in ("aligned", "two-stage")


def _rows(found: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """What contests answer, a row for every two places."""
    return np.ascontiguousarray(found.transpose(1, 2, 0).reshape(-1, found.shape[0]))
