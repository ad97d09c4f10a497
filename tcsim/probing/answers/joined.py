"""The places of a tree whose sums are rounded by random words: the word of a few products alone says at which of its sums they meet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np
import numpy.typing as npt

from tcsim.hardware.unit import Unit
from tcsim.probing.answers import words
from tcsim.probing.box import Batch, Box, of_problems, simulated
from tcsim.probing.questions.codes import Rng
from tcsim.probing.search import structure
from tcsim.probing.search.candidates import Parts
from tcsim.probing.search.elimination import Judge
from tcsim.probing.search.exchanges import branches

_FEW = {2: 2, 3: 4}  # places of which whole blocks show no order, by how many products it takes to have a sum rounded
_NEAR = 6  # places side by side
_LEAST = 3  # products of a block cut short that show anything
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Met:
    """Twos or threes of k of a block of which those below `length` are left, and the sums at which they met."""

    length: int
    block: int
    k: Labels
    node: Labels


def in_their_tree(judge: Judge, box: Box, rng: Rng, unit: Unit, parts: Parts, blocks: list[Labels]) -> list[Labels] | None:
    """The blocks in the order under which all their products meet as they do in a unit without an order; None where there is none."""
    size, length = parts["block_size"], len(blocks) * parts["block_size"]
    groups = np.array(list(combinations(range(size), words.meeting_together(box.formats, parts))))
    inner = words.meeting(rng, box.formats, parts, len(groups))
    wanted, found = _lowest(groups, _topmost(groups, size), size), []
    for start, block in zip(range(0, length, size), blocks, strict=True):
        asked = box.more(words.moved_to(inner, block[groups], length))
        met = None if asked is None else _met(judge, unit, replace(inner, d=asked.d), groups, start, length)
        order = None if met is None else structure.first_fits(_lowest(groups, met, size), wanted)
        if order is None:
            return None
        found.append(block[list(order)])
    return found if box.k_step > 1 else _cut_blocks(judge, box, rng, parts, found)


def _met(judge: Judge, unit: Unit, asked: Batch, groups: Labels, start: int, length: int) -> Labels | None:
    """The sum of a block's tree, one of those at which these places meet, at which the products of each problem met, from their random
    words; None where some fit nowhere."""
    tops = _topmost(groups, unit.block_size)
    met = np.full(len(asked.c), -1)
    for node in np.unique(tops)[::-1]:  # most meet near the root
        left = np.flatnonzero(met < 0)
        if not left.size:
            break
        places = np.broadcast_to(groups[tops == node][0] + start, (left.size, groups.shape[1]))
        moved = words.moved_to(of_problems(asked, left), places, length)
        judge.begin()
        judge.work += moved.size * length
        met[left[(simulated(unit, moved, seed=judge.seed) == moved.d).all(axis=(1, 2))]] = node
    return None if (met < 0).any() else met


def _cut_blocks(judge: Judge, box: Box, rng: Rng, parts: Parts, blocks: list[Labels]) -> list[Labels]:
    """The blocks with places that whole ones do not tell apart in the order that cut ones show: those of two products that are added first,
    or of four where no two are rounded together."""
    few, met, asked = _FEW[words.meeting_together(box.formats, parts)], list[_Met](), list[int]()
    while fresh := _telling(blocks, few, asked):  # another order may need others
        asked += fresh
        met += [x for k in fresh for x in _cut_short(judge, box, rng, parts, blocks, k)]
        _explain(met, blocks, few)
    return blocks


def _explain(met: list[_Met], blocks: list[Labels], few: int) -> None:
    """Every few places of the blocks in the order that explains most, as long as that explains more."""
    gained = 1
    while gained:
        gained = 0
        for i, block in enumerate(blocks):
            of_block = [seen for seen in met if seen.block == i]
            gained += sum(_best_order(of_block, blocks, block[start : start + few]) for start in range(0, len(block), few))


def _telling(blocks: list[Labels], few: int, asked: list[int]) -> list[int]:
    """Numbers of products, as few as are found beside those `asked`, of which a few places in any other order change who is added to whom,
    where any do."""
    lengths = range(_LEAST, sum(map(len, blocks)))
    told: dict[int, set[tuple[int, ...]]] = {k: set() for k in lengths}
    for i, block in enumerate(blocks):
        before = {k: _fews(block[block < k], few) for k in lengths}
        for start in range(0, len(block), few):
            for places in permutations(range(start, min(start + few, len(block)))):
                other = block.copy()
                other[start : start + few] = block[list(places)]
                for k in lengths:
                    if before[k] != _fews(other[other < k], few):
                        told[k].add((i, *places))
    chosen: list[int] = []
    seen = set[tuple[int, ...]]().union(*(told[k] for k in asked))
    while told and max(len(some - seen) for some in told.values()):
        chosen.append(max(told, key=lambda k: len(told[k] - seen)))
        seen |= told[chosen[-1]]
    return chosen


def _fews(places: Labels, few: int) -> list[frozenset[int]]:
    return [frozenset(places[i : i + few].tolist()) for i in range(0, len(places), few)]


def _best_order(met: list[_Met], blocks: list[Labels], few: Labels) -> int:
    """A few places, a view of a block, put into the order that explains most; how much more that is."""
    first = most = _explained(met, blocks)
    best = few.copy()
    for tried in permutations(best.tolist()):
        few[:] = tried
        if (explained := _explained(met, blocks)) > most:
            most, best = explained, few.copy()
    few[:] = best
    return most - first


def _cut_short(judge: Judge, box: Box, rng: Rng, parts: Parts, blocks: list[Labels], length: int) -> list[_Met]:
    """Where twos or threes of products near each other meet, in what so many products leave of blocks."""
    together = words.meeting_together(box.formats, parts)
    left = [(i, block[block < length]) for i, block in enumerate(blocks) if (block < length).any()]
    long_enough = [(step, i, block) for step, (i, block) in enumerate(left) if len(block) >= together]
    groups = [_near(len(block), together) for *_, block in long_enough]
    if not groups:
        return []
    k = np.concatenate([block[at] for (*_, block), at in zip(long_enough, groups, strict=True)])
    inner = words.meeting(rng, box.formats, parts, len(k))
    asked = box.more(words.moved_to(inner, k, length))
    if asked is None:
        return []
    ends, found = np.cumsum([len(at) for at in groups]), []
    for (step, i, block), at, end in zip(long_enough, groups, ends.tolist(), strict=True):
        short = judge.unit({**parts, "block_size": len(block), "chain": 1, "chains": 1, "k_order": None})
        answered = of_problems(replace(inner, d=asked.d), range(end - len(at), end))
        every = np.array(list(combinations(range(len(block)), together)))
        node = None if short is None else _met(judge, short, answered, every, step * len(block), (step + 1) * len(block))
        found += [] if node is None else [_Met(length, i, block[at], node)]
    return found


def _near(size: int, together: int) -> Labels:
    """Every two or three of a few places side by side."""
    others = list(combinations(range(1, _NEAR), together - 1))
    found = [(at, *(at + step for step in steps)) for at in range(size) for steps in others]
    return np.array([places for places in found if places[-1] < size])


def _explained(met: list[_Met], blocks: list[Labels]) -> int:
    """How many of them meet where an order says."""
    count, rank = 0, np.zeros(sum(map(len, blocks)), np.int64)
    for seen in met:
        left = blocks[seen.block][blocks[seen.block] < seen.length]
        rank[left] = np.arange(left.size)
        count += int(np.count_nonzero(_topmost(rank[seen.k], left.size) == seen.node))
    return count


def _topmost(groups: Labels, size: int) -> Labels:
    """The sum at which all places of each group have met."""
    meets = _tree(size)
    return np.asarray(np.max([meets[groups[:, i], groups[:, j]] for i, j in combinations(range(groups.shape[1]), 2)], axis=0))


def _lowest(groups: Labels, met: Labels, size: int) -> Labels:
    """Of every two places the lowest sum at which a group with both met; -1 of a place and itself."""
    found = np.full((size, size), size)
    for i, j in permutations(range(groups.shape[1]), 2):
        np.minimum.at(found, (groups[:, i], groups[:, j]), met)
    np.fill_diagonal(found, -1)
    return found


@lru_cache(maxsize=64)
def _tree(size: int) -> Labels:
    """Of every two places the sum at which they meet in a balanced tree, numbered from its leaves."""
    meets = np.full((size, size), -1)
    for node, (x, y) in enumerate(branches(size)):
        meets[np.ix_(x, y)] = meets[np.ix_(y, x)] = node
    return meets
