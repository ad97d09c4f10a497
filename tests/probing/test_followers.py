"""Which pair of a paired sum follows which: from the pairs that blocks without some of their products have, and of whole boxes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fresh import seeds
from support.recovery import agrees, recovered

import tcsim
from tcsim.probing.answers.followers import Partners, followed


def pairs_of(order: tuple[int, ...], length: int) -> Partners:
    """The products that a pair has each, of those below `length`."""
    left = [k for k in order if k < length]
    pairs = list(pairwise(left))[::2]
    return {x: y for i, j in pairs for x, y in ((i, j), (j, i))}


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 40).flatmap(lambda n: st.permutations(range(n))))
def test_pairs_at_every_length_are_explained(order: list[int]) -> None:
    """Two orders may have the same pairs wherever k ends: that of the two that are left last, of a product and its partner behind it."""
    truth = tuple(order)
    asked: list[int] = []

    def pairs(length: int) -> Partners:
        asked.append(length)
        return pairs_of(truth, length)

    found = followed(tuple(sorted(truth, key=lambda k: (pairs_of(truth, len(truth)).get(k, 99), k))), pairs)
    assert found is not None
    assert [pairs_of(found, n) for n in range(len(truth) + 1)] == [pairs_of(truth, n) for n in range(len(truth) + 1)]
    assert len(asked) <= len(truth) // 2 + 2


SEEDS = seeds(20261127)


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_long_orders_of_paired_sums(seed: int) -> None:
    for number in range(4):
        rng = np.random.default_rng([seed, number])
        size = int(rng.integers(4, 30))
        changes = {
            "block_size": size, "k_order": tuple(map(int, rng.permutation(size * int(rng.integers(1, 3))))), "fraction_bits": int(rng.integers(2, 24)),
        }  # fmt: skip
        unit = tcsim.unit("rdna3", "float16", instruction="wmma").replace(gpu="random", **changes)
        found = recovered(unit, calls=150)
        assert found.unit is not None, (number, unit)
        assert agrees(found.unit, unit, seed)
