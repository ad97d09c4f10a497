"""Groups of scaled products told by pairs that share a scale, blocks cut short, and numbers asked along all their values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.recovery import black_box

from tcsim.hardware.unit import Unit
from tcsim.probing.answers.groups import size_told
from tcsim.probing.box import Box, Formats, simulated
from tcsim.probing.questions import families
from tcsim.probing.search.candidates import parts_of, unit_of_parts
from tcsim.probing.search.challenge import missed_along, moved
from tcsim.probing.search.elimination import Judge, cut_short


def _unit(**changes: Any) -> Unit:
    return Unit("random", "mma", "float8_e4m3fn", "float8_e4m3fn", "float32", rounding="rz", align_rounding="rz", **changes)


def _scaled(block: int, group: int, **changes: Any) -> Unit:
    numbers = {"fraction_bits": 35, "scale": "float8_e8m0fnu", "scale_block": 32, **changes}
    return _unit(block_size=block, group_size=group, **numbers)


def _known(unit: Unit) -> Formats:
    return Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block)


@pytest.mark.parametrize(
    ("unit", "size"),
    [
        (_scaled(64, 16), 16),
        (_scaled(64, 1), 1),
        (_scaled(96, 8, c_enters="after"), 8),
        (_scaled(64, 4, min_exponent=-100), 4),
        (_scaled(32, 16), None),  # what shares a scale is all that shares a block
        (_scaled(64, 32), None),  # a whole scale, or the sum of an earlier block
        (_scaled(64, 16).replace(align_rounding="sr", fraction_bits=20), None),  # words, not groups, say what is left
    ],
    ids=str,
)
def test_pairs_of_a_scale_tell_the_size_of_groups(unit: Unit, size: int | None) -> None:
    assert size_told(Box(black_box(unit), _known(unit))) == size


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize(
    "unit",
    [
        _unit(block_size=8, fraction_bits=20, min_exponent=-20),
        _unit(block_size=2, chain=4, c_enters="after", fraction_bits=20),
        _unit(block_size=8, fraction_bits=20).replace(rounding="sr", align_rounding="sr"),
        _scaled(64, 4),
    ],
    ids=str,
)
def test_blocks_are_computed_no_longer_than_they_are_filled(unit: Unit, k: int) -> None:
    known = _known(unit)
    short = unit_of_parts(known, cut_short(parts_of(unit), k))
    assert short is not None
    assert (short.block_size, short.chain) != (unit.block_size, unit.chain)
    batch = families.sum_batches(np.random.default_rng(k), known, k)
    assert np.array_equal(simulated(short, batch, seed=1), simulated(unit, batch, seed=1))


def test_a_number_that_moves_is_asked_along_its_values() -> None:
    unit = _unit(block_size=4, fraction_bits=20)
    known = _known(unit)
    near = {**parts_of(unit), "fraction_bits": 40}
    assert moved(known, {**near, "fraction_bits": 43}, near) == [("fraction_bits", -1)]
    assert not moved(known, {**near, "fraction_bits": 43, "block_size": 2}, near)
    box, rng, judge = Box(black_box(unit), known), np.random.default_rng(1), Judge(known)
    product = families.one_product(rng, known, 2)
    seen = [box.ask(replace(product, c=np.zeros_like(product.c)))]  # which every cut explains
    asked = missed_along(box, rng, judge, near, "fraction_bits", -1, seen)
    assert asked
    assert all(judge.missed(near, batch).any() for batch in asked)
