"""Equal parts of a block exchanged: two lanes, two branches of a tree, which sums of whole blocks do not tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations

import numpy as np
import numpy.typing as npt

from tcsim.probing.search.candidates import Parts

_SMALL = 8  # places of a tree of which any two are exchanged
Labels = npt.NDArray[np.int64]
Change = Callable[[tuple[int, ...]], tuple[int, ...]]


def exchanges(parts: Parts) -> Iterator[Change]:
    """Changes of an order that a whole block does not show in any number: two of its lanes, or two equal branches of its tree,
    exchanged. Which NaN a lane's sum keeps shows them, and a block of which only some products are left."""
    size, lanes = parts["block_size"], parts["lanes"]
    order = parts["k_order"] or tuple(range(size))
    inner: list[tuple[list[int], list[int]]] = []
    if parts["arithmetic"] == "fused":
        inner = [(list(range(i, size, lanes)), list(range(j, size, lanes))) for i in range(lanes) for j in range(i)]
    elif parts["arithmetic"] == "rounded":
        inner = [(x, y) for x, y in branches(size) if len(x) == len(y)]
        inner += [([i], [j]) for i in range(size) for j in range(i) if size <= _SMALL]  # what marks left open
    elif parts["parity_split"]:
        inner = [([i], [j]) for i in range(size) for j in range(i)]
    for start in range(0, len(order), size):
        for x, y in inner:
            places = np.arange(len(order))
            places[start + np.array(x)], places[start + np.array(y)] = start + np.array(y), start + np.array(x)
            yield partial(_moved, places)


def branches_moved(size: int) -> Iterator[Labels]:
    """The places of a block with any two branches of its tree exchanged that have as many places, of two at least."""
    nodes = {tuple(side) for sides in branches(size) for side in sides if len(side) > 1}
    for x, y in combinations(sorted(nodes), 2):
        if len(x) == len(y):
            places = np.arange(size)
            places[list(x)], places[list(y)] = y, x
            yield places


def _moved(places: Labels, order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order[place] for place in places)


def branches(size: int) -> list[tuple[list[int], list[int]]]:
    """The places on either side of every sum of a balanced tree, from its leaves."""
    found: list[tuple[list[int], list[int]]] = []
    level = [[place] for place in range(size)]
    while len(level) > 1:
        odd = level[-1:] if len(level) % 2 else []
        both = list(zip(level[::2], level[1::2], strict=False))
        found += both
        level = [x + y for x, y in both] + odd
    return found
