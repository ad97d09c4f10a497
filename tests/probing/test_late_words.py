"""The order within blocks before a late c whose terms are cut by random words: (9401, 192) and (9304, 189) of the random what-ifs were not found."""

from __future__ import annotations

import numpy as np
import pytest
from support import fresh
from support.recovery import black_box

from tcsim.hardware.unit import Unit
from tcsim.probing.answers.orders import Orders
from tcsim.probing.box import Box, Formats
from tcsim.probing.search.candidates import Parts, parts_of
from tcsim.probing.search.elimination import Judge


def drawn(seed: int, i: int) -> Unit:
    """One to three blocks of three products or more, in any order within each."""
    rng = np.random.default_rng([seed, i])
    size, chain = int(rng.integers(3, 20)), int(rng.integers(1, 4))
    places = rng.permutation(size * chain).reshape(chain, size)
    a, b = (["float16", "bfloat16", "tfloat32"][int(rng.integers(3))] for _ in range(2))
    out = ["float16", "float32"][int(rng.integers(2))]
    return Unit("random", "mma", a, b, out, size, int(rng.integers(12, 24)), align_rounding="sr", rounding="rne", c_enters="after",
                chain=chain, k_order=tuple(places.ravel().tolist()))  # fmt: skip


def asked(unit: Unit, change: Parts) -> list[Parts]:
    box = Box(black_box(unit), Formats(unit.a_format, unit.b_format, unit.out_format))
    orders = Orders(box, np.random.default_rng(1), Judge(box.formats), [])
    return list(orders.of_terms({**parts_of(unit), **change}))


@pytest.mark.parametrize("i", range(8))
@pytest.mark.parametrize("seed", fresh.seeds(1).values(), ids=fresh.seeds(1))
def test_places_are_told_by_the_words_that_cut_terms(seed: int, i: int) -> None:
    unit = drawn(seed, i)
    assert unit.k_order is not None
    blocks = np.array(unit.k_order).reshape(unit.chain, -1)
    known = tuple(np.sort(blocks, axis=1).ravel().tolist())  # which are in a block, as other questions show
    (found,) = asked(unit, {"align_rounding": "rne", "k_order": known})
    assert found["k_order"] == unit.k_order
    assert found["align_rounding"] == "sr"


@pytest.mark.parametrize("way", ["rne", "rz"])
def test_terms_that_are_cut_by_no_words_tell_no_order(way: str) -> None:
    unit = drawn(2, 0).replace(align_rounding=way)
    assert unit.k_order is not None
    assert asked(unit, {"k_order": tuple(sorted(unit.k_order))}) == []
