"""Which products of a block are summed together where a unit sums even and odd places apart, from one question.

A product far below another is cut towards zero beside it, and floored with the other half's sum; so a little negative one says
whether the two share a half. More than that of the order within a block no such unit shows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format
from tcsim.probing.answers.trees import Worth, always
from tcsim.probing.box import Batch, Box, Formats, simulated
from tcsim.probing.questions.codes import Rng, codes_at
from tcsim.probing.questions.contests import factors
from tcsim.probing.search.candidates import Parts, most_fraction_bits, unit_of_parts
from tcsim.probing.search.elimination import Judge, cost_of

Labels = npt.NDArray[np.int64]
Same = npt.NDArray[np.bool_]
_FEWEST = 3  # products of a block whose halves show
_STEPS = 20_000  # orders looked at
_COARSE = 8  # bits between the cuts that are tried first
_PAIRS = 4  # of places at every distance
_STARTS = 2  # of the sum: the large product's negative, zero


def halved(known: Formats, cut: int, large: Labels, little: Labels, k: int) -> Batch:
    """Problem i, columns j: 2^high at `large[i]`, and a negative product that ends below the cut at `little[j]`; once beside
    c = -2^high, once beside none."""
    a, b, out = known.a, known.b, known.out
    high = min(a.emax + b.emax, out.emax) - 1
    low = max(_lowest(known), min(high - 1, high - cut - 1))
    (a_high, b_high), (a_low, b_low) = factors(known, high), factors(known, low)
    rows, columns = np.arange(large.size), np.arange(little.size)
    left, right = np.zeros((large.size, 1, k), a.storage), np.zeros((large.size, k, _STARTS * little.size), b.storage)
    left[:] = codes_at(a, a_low, _least(a), not b.signed)
    for start in range(_STARTS):
        right[:, little, columns + start * little.size] = codes_at(b, b_low, _least(b), b.signed)
    left[rows, 0, large] = codes_at(a, a_high, 0, False)
    right[rows, large] = codes_at(b, b_high, 0, False)
    c = np.zeros((large.size, 1, _STARTS * little.size), out.storage)
    c[:, :, : little.size] = codes_at(out, high, 0, True)
    return Batch("halves", left, right, c)


def apart_by(rng: Rng, known: Formats, size: int, k: int) -> tuple[Batch, Labels]:
    """Single outputs of two of the first `size` products, a negative one at every distance below 2^high, once beside c = -2^high, once
    beside none; and the places of both, (outputs, 2)."""
    a, b, out = known.a, known.b, known.out
    high = min(a.emax + b.emax, out.emax) - 1
    least = max(_lowest(known), high - most_fraction_bits(known) - 1)
    little = np.repeat(np.arange(high - 1, least - 1, -1), _PAIRS * _STARTS)
    places = np.argsort(rng.random((little.size, size)), axis=1)[:, :2]
    rows = np.arange(little.size)
    left, right = np.zeros((little.size, 1, k), a.storage), np.zeros((little.size, k, 1), b.storage)
    (a_high, b_high), at = factors(known, high), [factors(known, int(e)) for e in little]
    left[rows, 0, places[:, 0]], right[rows, places[:, 0], 0] = codes_at(a, a_high, 0, False), codes_at(b, b_high, 0, False)
    left[rows, 0, places[:, 1]] = codes_at(a, np.array([x for x, _ in at]), _least(a), not b.signed)
    right[rows, places[:, 1], 0] = codes_at(b, np.array([y for _, y in at]), _least(b), b.signed)
    c = np.where(rows % _STARTS == 0, codes_at(out, high, 0, True), 0).astype(out.storage)
    return Batch("distances", left, right, c[:, None, None]), places


def _lowest(known: Formats) -> int:
    """The exponent of the least product, of subnormal factors."""
    return sum(fmt.emin - fmt.mantissa_bits for fmt in (known.a, known.b))


def _least(fmt: Format) -> int:
    return 1 if fmt.mantissa_bits else 0


class Halves:
    """What a black box was asked about halves, by the cut and the number of products that it was asked for."""

    def __init__(self, box: Box, judge: Judge) -> None:
        self.box, self.judge = box, judge
        self._asked: dict[tuple[int, int], Batch | None] = {}
        self._distances: dict[int, tuple[Batch | None, Labels]] = {}

    def cuts(self, rng: Rng, parts: Parts) -> list[Parts]:
        """With the deepest and the highest cut under which most sums of two products are answered as if those shared a half or as if they
        did not: whichever do, so that no order need be known. Several may be alike in that."""
        size, cuts = parts["block_size"], range(1, most_fraction_bits(self.box.formats) + 1)
        if size < _FEWEST or self.box.formats.a.integer:
            return []
        if size not in self._distances:
            batch, places = apart_by(rng, self.box.formats, size, self.box.whole(size))
            self._distances[size] = self.box.more(batch), places
        asked, places = self._distances[size]
        if asked is None:
            return []
        both = [_moved(asked, places, np.array(to), size) for to in ((0, 2), (0, 1))]
        fits = {bits: self._fitting(parts, bits, asked, both) for bits in cuts[::_COARSE]}
        for best in _ends(fits):  # fewer are explained the further a cut is from the right one
            near = range(best - _COARSE, best + _COARSE + 1)
            fits |= {bits: self._fitting(parts, bits, asked, both) for bits in near if bits in cuts and bits not in fits}
        return [{**parts, "fraction_bits": bits, "k_order": None} for bits in dict.fromkeys(_ends(fits))]

    def _fitting(self, parts: Parts, bits: int, asked: Batch, both: list[Batch]) -> int:
        """How many sums a cut explains with their two products either way."""
        unit = self.judge.unit({**parts, "fraction_bits": bits, "k_order": None})
        if unit is None:
            return 0
        self.judge.begin()
        self.judge.work += 2 * asked.size * both[0].a.shape[2] * cost_of(unit)
        answers = [simulated(unit, batch, seed=self.judge.seed) for batch in both]
        return int(np.count_nonzero((answers[0] == asked.d) | (answers[1] == asked.d)))

    def ordered(self, parts: Parts, blocks: list[Labels], worth: Worth = always) -> list[Labels] | None:
        """Each block's k in an order under which they share halves as the black box says, of whole blocks and of ones cut short, those
        asked where an order of whole blocks is `worth` it; None where that does not show."""
        size, length = parts["block_size"], sum(map(len, blocks))
        if not parts["parity_split"] or size < _FEWEST:
            return None
        whole = self._same(parts, blocks, length)
        if whole is None or any(2 * int(same[0].sum()) != size for same in whole):
            return None
        told: list[dict[int, Same]] = [{size: same} for same in whole]
        members = [np.sort(block) for block in blocks]
        orders = [block[_in_turn(same)] for block, same in zip(blocks, whole, strict=True)]
        if not worth(orders):
            return orders
        lengths = {int(k) + 1: i for i, block in enumerate(members) for k in block[2:-1]}
        for count, i in lengths.items() if self.box.k_step == 1 else ():
            left = members[i][: np.searchsorted(members[i], count)]
            short = self._same(parts, [left], count)
            if short is not None:
                told[i][left.size] = short[0]
        found = [_insertions(size, _by_rank(x, block, says)) for x, block, says in zip(members, blocks, told, strict=True)]
        if any(order is None for order in found):
            return None
        return [x[np.array(order)] for x, order in zip(members, found, strict=True)]

    def upwards(self, parts: Parts, longest: int, worth: Worth = always) -> list[Labels] | None:
        """The same of a unit that takes blocks upwards, of as many as it takes until halves repeat."""
        size = parts["block_size"]
        blocks = [np.arange(start, start + size) for start in range(0, longest - size + 1, size)]
        same = self._same(parts, blocks, len(blocks) * size) if blocks and parts["parity_split"] and size >= _FEWEST else None
        if same is None:
            return None
        period = next(n for n in range(1, len(same) + 1) if all((x == same[i % n]).all() for i, x in enumerate(same)))
        return self.ordered(parts, blocks[:period], worth)

    def _same(self, parts: Parts, blocks: list[Labels], count: int) -> list[Same] | None:
        """Which of every block's products share a half where so many products are asked."""
        known, cut, size = self.box.formats, parts["fraction_bits"], parts["block_size"]
        unit = unit_of_parts(known, {**parts, "k_order": None})
        if (cut, count) not in self._asked:
            at = np.arange(count)
            self._asked[cut, count] = self.box.more(halved(known, cut, at, at, self.box.whole(count)))
        asked = self._asked[cut, count]
        if asked is None or unit is None:
            return None
        small = halved(known, cut, np.arange(3), np.arange(3), size)
        self.judge.begin()
        wanted, seen = _by_start(replace(small, d=simulated(unit, small, seed=self.judge.seed))), _by_start(asked)
        for start in range(_STARTS):
            together, apart = wanted[start, 0, 2], wanted[start, 0, 1]
            found = [seen[start][np.ix_(block, block)] == together for block in blocks]
            if together != apart and all(_two_classes(same) for same in found):
                return found
        return None


def _ends(fits: dict[int, int]) -> tuple[int, int]:
    """The highest and the lowest key of the largest value."""
    best = [bits for bits, count in fits.items() if count == max(fits.values())]
    return max(best), min(best)


def _moved(batch: Batch, places: Labels, to: Labels, size: int) -> Batch:
    """The batch with its two products elsewhere in one block."""
    rows = np.arange(batch.size)[:, None]
    a, b = np.zeros((batch.size, 1, size), batch.a.dtype), np.zeros((batch.size, size, 1), batch.b.dtype)
    a[rows, 0, to], b[rows, to, 0] = batch.a[rows, 0, places], batch.b[rows, places, 0]
    return Batch("moved", a, b, batch.c)


def _by_start(batch: Batch) -> npt.NDArray[np.uint64]:
    """Answers (start, large, little)."""
    assert batch.d is not None
    return batch.d[:, 0].astype(np.uint64).reshape(len(batch.d), _STARTS, -1).swapaxes(0, 1)


def _in_turn(same: Same) -> Labels:
    """One half at even places, the other at odd ones."""
    return np.stack([np.flatnonzero(same[0]), np.flatnonzero(~same[0])], axis=1).ravel()


def _two_classes(same: Same) -> bool:
    np.fill_diagonal(same, True)
    return bool((same == (same[0][:, None] == same[0][None])).all())


def _by_rank(members: Labels, block: Labels, told: dict[int, Same]) -> dict[int, Same]:
    """What whole blocks answer, in ascending k as what shorter ones do."""
    rank = np.argsort(block)
    return {count: same[np.ix_(rank, rank)] if count == members.size else same for count, same in told.items()}


def _insertions(size: int, told: dict[int, Same]) -> list[int] | None:
    """An order of so many k of which the first few, wherever that was told, share halves as told: even places, and odd ones."""
    steps = 0

    def extended(order: list[int]) -> list[int] | None:
        nonlocal steps
        count, steps = len(order), steps + 1
        if count in told:
            parity = np.empty(count, np.int64)
            parity[order] = np.arange(count) % 2
            if not ((parity[:, None] == parity[None]) == told[count]).all():
                return None
        if count == size or steps > _STEPS:
            return order if count == size else None
        for place in range(count, -1, -1):
            found = extended([*order[:place], count, *order[place:]])
            if found is not None:
                return found
        return None

    return extended([0])
