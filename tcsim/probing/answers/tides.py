"""Blocks before a late c, in the order in which they are added: what is little is lost with large products that later ones cancel.

Of an instruction's products some are large, of random signs that cancel in the end, one is little, the rest are zero. Where the sum
so far is large after the little one's block, it is lost; else it is left. So of two places of which one question loses the first
and keeps the second, the first is in an earlier block; questions of many signs tell all blocks apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import format_named
from tcsim.probing.box import Batch, Box, Formats
from tcsim.probing.questions.codes import Ints, Rng, codes_at
from tcsim.probing.questions.contests import factors
from tcsim.probing.search.candidates import Parts

Before = npt.NDArray[np.bool_]
_FEWEST, _LONGEST = 4, 130  # products before c
_SIGNS = 96  # questions of each depth
_DEPTHS = range(-4, 3)  # of what is little below the large ones, from where it is lost beside one of them
_ONES = 3  # bits of a factor that is nearly a power of two
_ROOM = 4  # binades for sums of large products
_MULTIPLES = (1, 2, 3)  # of the products that a candidate takes before c


class Tides:
    """What a black box was asked about late blocks, by the number of products before c."""

    def __init__(self, box: Box, rng: Rng) -> None:
        self.box, self.rng = box, rng
        self._asked: dict[tuple[int, int, bool], list[Before]] = {}

    def ordered(self, parts: Parts, lengths: Iterable[int] = ()) -> Iterator[Parts]:
        """The candidate with the blocks that show, in their order: of so many products before c, the first few, or of multiples of
        its own."""
        known, whole = self.box.formats, parts["block_size"] * parts["chain"] * parts["chains"]
        if parts["c_enters"] != "after" or known.scale is not None or not (known.a.signed or known.b.signed):
            return
        likely = [count for count in lengths if count >= _FEWEST][: len(_MULTIPLES)]
        for count in likely or [whole * n for n in _MULTIPLES]:
            if _FEWEST <= count <= _LONGEST and self.box.whole(count) == count:
                for before in self._before(parts, count):
                    blocks = blocks_behind(before)
                    if blocks is not None:
                        order = tuple(int(k) for k in np.concatenate(blocks))
                        shape = {"block_size": len(blocks[0]), "chain": len(blocks), "chains": 1}
                        yield {**parts, **shape, "k_order": None if order == tuple(range(count)) else order}
                        break

    def _before(self, parts: Parts, count: int) -> list[Before]:
        """Which places were seen in earlier blocks than others, by all depths together and by each."""
        known = self.box.formats
        inner = known.out if parts["sum_format"] is None else format_named(parts["sum_format"])
        kept, flushed = parts["out_precision"] or inner.precision, parts["subnormals"] == "flush"
        key = (count, kept, flushed)
        if key not in self._asked:
            self._asked[key] = []
            heights = depths(known, kept, flushed=flushed)
            places = [self.rng.permutation(count) for _ in range(len(heights) * _SIGNS)]
            asked = self.box.more(tides(known, heights, kept, np.array(places))) if heights else None
            if asked is not None:
                found = [lost_before(asked, known, e, np.array(places), i) for i, (_, e) in enumerate(heights)]
                far = [x for x, (top, little) in zip(found, heights, strict=True) if top - little >= kept]
                self._asked[key] = [np.logical_or.reduce(some) for some in (far, found) if some] + found
        return self._asked[key]


def depths(known: Formats, kept: int, *, flushed: bool) -> list[tuple[int, int]]:
    """Exponents of large products and of what is little, as far apart as formats have them around the bits that sums keep."""
    a, b, out = known.a, known.b, known.out
    top = min(a.emax + b.emax, out.emax - _ROOM)
    low = a.emin + b.emin - (0 if flushed else a.mantissa_bits + b.mantissa_bits)
    low = max(low, out.emin - (0 if flushed else min(kept, out.precision) - 1))
    return [(top, top - kept - n) for n in _DEPTHS if low <= top - kept - n < top]


def tides(known: Formats, heights: list[tuple[int, int]], kept: int, places: Ints) -> Batch:
    """_SIGNS problems of every depth. Of the places of each, in its own order, the first third is that of what is little, one in every
    column; of the rest every second one is negative. What is not as far above as the bits that are kept has ones behind its highest
    bit, so that sums of a few are."""
    a, b, out = known.a, known.b, known.out
    problems, count = places.shape
    few = little_ones(count)
    rows = np.arange(problems)[:, None]
    large, little = (np.repeat([pair[i] for pair in heights], _SIGNS)[:, None] for i in range(2))
    wide = np.where(large - little < kept, (1 << _ONES) - 1, 0)
    minus = np.arange(count - few) % 2 == 1
    left, right = np.zeros((problems, 1, count), a.storage), np.zeros((problems, count, few), b.storage)
    for exponent, at, negative, ones in ((little, places[:, :few], False, 0), (large, places[:, few:], minus, wide)):
        first, second = factors(known, exponent)
        left[rows, 0, at] = codes_at(a, first, ones << a.mantissa_bits >> _ONES, np.logical_and(negative, a.signed))
        factor = codes_at(b, second, ones << b.mantissa_bits >> _ONES, np.logical_and(negative, not a.signed))
        factor = np.broadcast_to(factor, at.shape)
        if at.shape[1] == few and exponent is little:
            right[rows, at, np.arange(few)] = factor
        else:
            right[rows, at] = factor[:, :, None]
    return Batch("tides", left, right, np.zeros((problems, 1, few), out.storage))


def little_ones(count: int) -> int:
    """How many places of a problem are those of what is little: about a third, so that the rest is even."""
    few = max(count // 3, 2)
    return few + (count - few) % 2


def lost_before(asked: Batch, known: Formats, little: int, places: Ints, depth: int) -> Before:
    """For every two places whether a problem of this depth lost the first and kept the second."""
    assert asked.d is not None
    here = slice(depth * _SIGNS, (depth + 1) * _SIGNS)
    kept = asked.d[here, 0] == codes_at(known.out, little, 0, False)
    found = np.zeros((places.shape[1],) * 2, bool)
    for at, left in zip(places[here, : kept.shape[1]], kept, strict=True):
        found[np.ix_(at[~left], at[left])] = True
    return found


def blocks_behind(before: Before) -> list[Ints] | None:
    """Blocks of one size, each place in the first that is behind all that was seen before it; None where there are none."""
    block = np.zeros(len(before), np.int64)
    for _ in range(len(before)):
        later = np.where(before, block[:, None] + 1, 0).max(axis=0)
        if (later == block).all():
            break
        block = later
    counts = np.bincount(block)
    if counts.size < 2 or counts.min() != counts.max() or (before & ~(block[:, None] < block[None])).any():
        return None
    return [np.flatnonzero(block == at) for at in range(counts.size)]
