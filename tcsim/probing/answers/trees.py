"""Which products meet before which in a block that is added as a tree, from one question for every number of products.

Of two large products that cancel, whatever met either of them before is lost, and a little product that did not is left. So for
every two places the answers say which others are below the sum at which they meet: the tree, up to equal branches exchanged. A
block of which only some products are left is another tree of the same places, and shows those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from tcsim.probing.box import Batch, Box, Formats
from tcsim.probing.questions.codes import Rng, codes_at
from tcsim.probing.questions.contests import factors
from tcsim.probing.search.candidates import Parts
from tcsim.probing.search.exchanges import branches

Labels = npt.NDArray[np.int64]
Clusters = frozenset[frozenset[int]]
Worth = Callable[[list[Labels]], bool]
_MOST = 3e7  # elements of what is asked at once
_SHORTER = 24  # numbers of products at which blocks are cut short
_SPARE = 22  # calls left for what comes after
_RESTARTS, _SWEEPS = 40, 6
_SURE = 8  # places of a tree


def always(orders: list[Labels]) -> bool:
    """Of any order."""
    return True


def heights(known: Formats, parts: Parts) -> tuple[int, int] | None:
    """Exponents of the large products and of the little one, which a sum with either loses; None where there are none."""
    a, b, out = known.a, known.b, known.out
    kept = parts["out_precision"] or out.precision
    high = min(a.emax + b.emax, out.emax)
    far = kept if a.mantissa_bits or b.mantissa_bits else kept + 1
    flushed = parts["subnormals"] == "flush"
    for down in (
        (0,) if flushed else (0, a.mantissa_bits + b.mantissa_bits)
    ):  # subnormal factors where others are not far enough
        low = max(a.emin + b.emin - down, out.emin - (0 if flushed else kept - 1))
        if high - low >= far and (a.signed or b.signed):
            return high, low
    return None


def cancelling(known: Formats, high: int, low: int, blocks: list[Labels], k: int) -> Batch:
    """For every two places of every block, one after the other: large products at both that cancel, and in column l a little one at
    the block's place l. Large ones are no powers of two where a format has others: below one of those there is a bit more."""
    a, b, out = known.a, known.b, known.out
    columns = max(map(len, blocks))
    pairs = [(block, i, j) for block in blocks for i in range(len(block)) for j in range(i)]
    left, right = np.zeros((len(pairs), 1, k), a.storage), np.zeros((len(pairs), k, columns), b.storage)
    (a_high, b_high), (a_low, b_low) = factors(known, high), factors(known, low)
    little_a, little_b = codes_at(a, a_low, 0, False), codes_at(b, b_low, 0, False)
    half_a, half_b = 1 << a.mantissa_bits >> 1, 0 if a.mantissa_bits else 1 << b.mantissa_bits >> 1
    for at, (block, i, j) in enumerate(pairs):
        left[at, 0, block] = little_a
        right[at, block, np.arange(len(block))] = little_b
        left[at, 0, block[[i, j]]] = codes_at(a, a_high, half_a, [False, not b.signed])
        right[at, block[[i, j]]] = codes_at(b, b_high, half_b, [False, b.signed])[:, None]
    return Batch("trees", left, right, np.zeros((len(pairs), 1, columns), out.storage))


class Trees:
    """What a black box was asked about the trees of its blocks."""

    def __init__(self, box: Box, rng: Rng) -> None:
        self.box, self.rng = box, rng
        self._asked: dict[tuple[object, ...], list[Clusters] | None] = {}

    def ordered(self, parts: Parts, blocks: list[Labels], worth: Worth = always) -> list[Labels] | None:
        """Each block's k at places under which they meet as the black box says, blocks that are cut short asked where an order of whole
        ones is `worth` it, or where the tree is too large to be one by chance; None where that does not show."""
        length, size = sum(map(len, blocks)), parts["block_size"]
        if parts["arithmetic"] != "rounded" or size < 3:
            return None
        members = [np.sort(block) for block in blocks]
        whole = self._clusters(parts, members, length)
        begun = [None if whole is None else at_places(told, branches(size)) for told in whole or [frozenset()]]
        if whole is None or any(order is None for order in begun):
            return None
        orders = [x[np.array(order)] for x, order in zip(members, begun, strict=True)]
        if size < _SURE and not worth(orders):
            return orders
        shorter: list[tuple[int, list[Clusters]]] = []
        lengths = [n for n in range(length - 1, 2, -1) if self.box.k_step == 1]
        for i in np.unique(np.linspace(0, len(lengths) - 1, min(_SHORTER, len(lengths))).astype(int)) if lengths else ():
            if self.box.calls > self.box.most_calls - _SPARE:
                break
            told = self._clusters(parts, [x[x < lengths[i]] for x in members], lengths[i])
            if told is not None:
                shorter.append((lengths[i], told))
        found = []
        for at, (x, order) in enumerate(zip(members, begun, strict=True)):
            told_here = [(int(np.count_nonzero(x < count)), told[at]) for count, told in shorter]
            found.append(x[self._climbed(list(order or ()), told_here)])
        return found

    def _clusters(self, parts: Parts, blocks: list[Labels], count: int) -> list[Clusters] | None:
        """The places, numbered in ascending k, below every sum of every block where so many products are asked."""
        ends = heights(self.box.formats, parts)
        key = (count, ends, *map(tuple, blocks))
        if key not in self._asked:
            self._asked[key] = None
            there = [block for block in blocks if len(block) > 2]
            elements = sum(len(block) ** 2 / 2 for block in there) * count * max(map(len, there), default=0)
            asked = None
            if ends is not None and there and elements < _MOST:
                asked = self.box.more(cancelling(self.box.formats, *ends, there, self.box.whole(count)))
            if asked is not None and asked.d is not None and ends is not None:
                left = asked.d[:, 0] == codes_at(self.box.formats.out, ends[1], 0, False)
                rows = iter(left)
                self._asked[key] = [_below(len(block), rows) if len(block) > 2 else frozenset() for block in blocks]
        return self._asked[key]

    def _climbed(self, order: list[int], told: list[tuple[int, Clusters]]) -> list[int]:
        """Equal branches exchanged until blocks that are cut short are the trees that were told, or as nearly as is found."""
        equal = [(x, y) for x, y in branches(len(order)) if len(x) == len(y)]
        made = {count: branches(count) for count, _ in told}

        def score(order: list[int]) -> int:
            return sum(len(clusters_of([k for k in order if k < n], made[n]) & clusters) for n, clusters in told if n > 2)

        wanted, best = sum(len(clusters) for n, clusters in told if n > 2), (score(order), order)
        for _ in range(_RESTARTS):
            now = (score(order), order)
            for _ in range(_SWEEPS):
                before = now[0]
                for x, y in reversed(equal):
                    changed = list(now[1])
                    for i, j in zip(x, y, strict=True):
                        changed[i], changed[j] = changed[j], changed[i]
                    now = max(now, (score(changed), changed), key=lambda pair: pair[0])
                if now[0] == before:
                    break
            best = max(best, now, key=lambda pair: pair[0])
            if best[0] == wanted:
                break
            order = list(best[1])
            for x, y in equal:
                if self.rng.random() < 0.3:
                    for i, j in zip(x, y, strict=True):
                        order[i], order[j] = order[j], order[i]
        return best[1]


def _below(size: int, rows: Iterable[npt.NDArray[np.bool_]]) -> Clusters:
    """The places below the sum at which each two meet, from which little products were left."""
    found, answers = set(), iter(rows)
    for i in range(size):
        for j in range(i):
            left = next(answers)[:size]
            found.add(frozenset({i, j, *np.flatnonzero(~left).tolist()}))
    return frozenset(found)


def clusters_of(order: list[int], tree: list[tuple[list[int], list[int]]]) -> Clusters:
    """What is below every sum of a tree whose places hold these."""
    return frozenset(frozenset(order[place] for place in (*x, *y)) for x, y in tree)


def at_places(told: Clusters, tree: list[tuple[list[int], list[int]]]) -> list[int] | None:
    """What is at every place of a balanced tree; None where the clusters are those of another."""
    size = len(tree) + 1
    order = [-1] * size
    inner = {frozenset((*x, *y)): (x, y) for x, y in tree}

    def put(cluster: frozenset[int], places: frozenset[int]) -> bool:
        if len(places) == 1:
            order[next(iter(places))] = next(iter(cluster))
            return True
        if cluster not in told:
            return False
        x, y = (frozenset(side) for side in inner[places])
        within = max((c for c in told if c < cluster), key=len, default=frozenset({min(cluster)}))
        rest = cluster - within
        if {len(within), len(rest)} != {len(x), len(y)}:
            return False
        if len(within) != len(x):
            within, rest = rest, within
        return put(within, x) and put(rest, y)

    return order if len(told) == size - 1 and put(frozenset(range(size)), frozenset(range(size))) else None
