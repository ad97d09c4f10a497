"""Integers that stop at the ends of their range: which products are summed together, and in which order, from one question.

Every other kind of arithmetic shows its blocks by what it rounds away; here all that shows is where a sum stops.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tcsim.probing.box import Batch, Formats
from tcsim.probing.search.candidates import Parts

_LONGEST = 130  # the longest order of k looked for


def contests(known: Formats, k: int) -> Batch:
    """Problem i, column j: c is the largest integer, the product at i is 1 and that at j is -2. The sum is the largest integer
    less 2 where 1 is added, and lost, in a block before; less 1 otherwise."""
    fa, fb, out = known.a, known.b, known.out
    b = np.zeros((k, k, k), fb.storage)
    at = np.arange(k)
    b[at, at] = 1
    b[:, at, at] = (1 << fb.width) - 2
    c = np.full((k, 1, k), (1 << out.width - 1) - 1, out.storage)
    return Batch("contests", np.ones((k, 1, k), fa.storage), b, c)


def taken(asked: Batch, known: Formats) -> Iterator[Parts]:
    """Block sizes and orders of k that the answers to `contests` allow, the shortest order first."""
    assert asked.d is not None
    before = asked.d[:, 0] == (1 << known.out.width - 1) - 3
    rank = before.sum(axis=0)  # how many products are in the blocks before
    order = np.lexsort((np.arange(rank.size), rank))
    size = int(np.count_nonzero(rank == rank[order[0]]))
    for length in range(size, min(rank.size, _LONGEST) + 1, size):
        if order[:length].max() < length:
            yield {"block_size": size, "k_order": tuple(int(k) for k in order[:length])}
