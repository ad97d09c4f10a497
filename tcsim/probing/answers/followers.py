"""Which pair of a paired sum follows which in its block: whole blocks show two products that are one pair, and blocks without some of their
products show the pairs that are then made of neighbours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.fp.codes import encode
from tcsim.fp.formats import Format
from tcsim.fp.round_to import round_to
from tcsim.probing.box import Batch, Box, simulated
from tcsim.probing.questions.codes import Rng
from tcsim.probing.search.candidates import Parts
from tcsim.probing.search.elimination import Judge
from tcsim.problem import Codes

_DRAWN, _TELLING, _DEEP = 3000, 3, 40  # sums drawn, those of them that are asked, binades that c is above products
Partners: TypeAlias = dict[int, int]
_Drawn: TypeAlias = tuple[Codes, Codes, Codes]  # a and b of two products, (2, many), and c


class Followers:
    """Questions about two products of a block, all others being zero: whether they are one pair, whose sum is floored, not each."""

    def __init__(self, box: Box, rng: Rng, judge: Judge, parts: Parts) -> None:
        self.box, self.judge, self.size = box, judge, parts["block_size"]
        self.order = parts["k_order"] or tuple(range(self.size))
        self.unit = judge.unit({**parts, "k_order": None})
        self.drawn = self._telling(rng) if self.unit is not None and self.size >= 4 and box.k_step == 1 else None

    def found(self) -> tuple[int, ...] | None:
        """The order of k with the pairs of each block as they follow on one another; None where it shows nothing, or no order explains it."""
        moved: list[int] = []
        for start in range(0, len(self.order) if self.drawn is not None else 0, self.size):
            block = followed(self.order[start : start + self.size], partial(self._pairs, start))
            if block is None:
                return None
            moved += block
        return tuple(moved) or None

    def _telling(self, rng: Rng) -> _Drawn | None:
        """Two products and a c for which it matters whether the products are one pair, a few."""
        known = self.box.formats
        a, b = (np.stack([_about(rng, fmt, np.zeros(_DRAWN)) for _ in range(2)]) for fmt in (known.a, known.b))
        drawn = a, b, _about(rng, known.out, rng.integers(0, _DEEP, _DRAWN))
        told = np.flatnonzero(self._answers((0, 1), self.size, drawn) != self._answers((0, 2), self.size, drawn))
        return _some(drawn, rng.choice(told, _TELLING)) if told.size else None

    def _answers(self, at: tuple[int, int], length: int, drawn: _Drawn) -> Codes:
        """What the unit gives with its products upwards."""
        assert self.unit is not None
        return simulated(self.unit, self._asked([at], length, drawn), seed=self.judge.seed).ravel()

    def _asked(self, places: list[tuple[int, int]], length: int, drawn: _Drawn) -> Batch:
        """Each of what was drawn with its products at each of these places, an output each."""
        known, (a, b, c) = self.box.formats, drawn
        at, each = np.repeat(np.array(places), len(c), axis=0), np.tile(np.arange(len(c)), len(places))
        rows = np.arange(len(at))
        left, right = np.zeros((len(at), 1, length), known.a.storage), np.zeros((len(at), length, 1), known.b.storage)
        for side in range(2):
            left[rows, 0, at[:, side]], right[rows, at[:, side], 0] = a[side, each], b[side, each]
        return Batch("two products", left, right, c[each][:, None, None])

    def _pairs(self, start: int, length: int) -> Partners | None:
        """Which of a block's products make pairs where there are `length` products in all; None where an answer is neither."""
        assert self.drawn is not None
        places = list(combinations([k for k in self.order[start : start + self.size] if k < length], 2))
        if not places:
            return {}
        ends = [self._answers((start, start + apart), len(self.order), self.drawn) for apart in (1, 2)]
        asked = self.box.more(self._asked(places, length, self.drawn))
        if asked is None or asked.d is None:
            return None
        is_pair, is_none = ((asked.d.reshape(len(places), -1) == end).all(axis=1) for end in ends)
        if not (is_pair | is_none).all():
            return None
        pairs = [place for place, yes in zip(places, is_pair, strict=True) if yes]
        partners = {x: y for i, j in pairs for x, y in ((i, j), (j, i))}
        return partners if len(partners) == 2 * len(pairs) else None


def _some(drawn: _Drawn, at: npt.NDArray[np.int64]) -> _Drawn:
    a, b, c = drawn
    return a[:, at], b[:, at], c[at]


def _about(rng: Rng, fmt: Format, exponents: npt.NDArray[Any]) -> Codes:
    """Numbers of either sign, of one to two times these powers of two."""
    x = rng.uniform(1.0, 2.0, len(exponents)) * rng.choice([-1.0, 1.0], len(exponents)) * np.exp2(exponents)
    return encode(round_to(x, fmt, rounding="rne", overflow="saturate"), fmt)


def followed(block: tuple[int, ...], pairs: Callable[[int], Partners | None]) -> tuple[int, ...] | None:
    """A block's products with its pairs in their order; `pairs(length)`: the partners where only products below `length` are there.

    Without one product, pairs are those that were behind it, shifted by one: its partner and the first of the next pair, the second of that and the
    first of the one after, to the block's end. So one product after another is left out, always the last in k of which it is not known.
    """
    whole = pairs(max(block) + 1)
    if whole is None:
        return None
    left = set(whole)
    behind: list[tuple[int, ...]] = [(k,) for k in block if k not in whole]
    while len(left) > 2:
        absent = max(left)
        partners = pairs(absent)
        if partners is None:
            return None
        chain: list[tuple[int, ...]] = []
        x: int | None = absent
        while x is not None and x in left:
            chain.append((x, whole[x]))
            left -= {x, whole[x]}
            x = partners.get(whole[x])
        behind = [*chain, *behind]
    found = (*sorted(left), *(k for pair in behind for k in pair))
    return found if sorted(found) == sorted(block) else None
