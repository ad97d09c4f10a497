"""Lanes are told by the NaNs that they keep, as no number tells them: (9290, 458) of the random what-ifs was named with twelve exchanged."""

from __future__ import annotations

import numpy as np
import pytest
from support import fresh
from support.recovery import black_box

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Box, Formats, simulated
from tcsim.probing.questions.lanes import nans_in_lanes
from tcsim.probing.search.candidates import parts_of
from tcsim.probing.search.challenge import refuted_by
from tcsim.probing.search.elimination import Judge
from tcsim.probing.search.exchanges import exchanges

TILE = tcsim.unit("x86", "bfloat16", instruction="tdpbf16ps")


def drawn(seed: int, i: int) -> Unit:
    """Two to four lanes of one or two products each, in an order of a few blocks."""
    rng = np.random.default_rng([seed, i])
    lanes = int(rng.integers(2, 5))
    size = lanes * int(rng.integers(1, 3))
    order = rng.permutation(size * int(rng.integers(2, 6)))
    return TILE.replace(block_size=size, lanes=lanes, k_order=tuple(int(k) for k in order))


@pytest.mark.parametrize("i", range(8))
@pytest.mark.parametrize("seed", fresh.seeds(1).values(), ids=fresh.seeds(1))
def test_every_two_lanes_are_told_apart(seed: int, i: int) -> None:
    unit = drawn(seed, i)
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    asked = nans_in_lanes(np.random.default_rng([seed, i]), known, unit)
    assert asked is not None
    answers, order = simulated(unit, asked), unit.k_order
    assert order is not None
    changed = [unit.replace(k_order=change(order)) for change in exchanges(parts_of(unit))]
    assert changed
    assert all((simulated(other, asked) != answers).any() for other in changed)


def test_a_record_with_lanes_exchanged_is_refuted() -> None:
    unit = drawn(2, 0)
    assert unit.k_order is not None
    other = unit.replace(k_order=next(exchanges(parts_of(unit)))(unit.k_order))
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    rng, judge = np.random.default_rng(0), Judge(known, 0)
    assert refuted_by(Box(black_box(unit), known), rng, judge, other, []) is not None
    assert refuted_by(Box(black_box(unit), known), rng, judge, unit, []) is None


@pytest.mark.parametrize("unit", [TILE.replace(lanes=1), tcsim.unit("h200", "bfloat16")], ids=["one lane", "no lanes"])
def test_without_lanes_nothing_is_asked(unit: Unit) -> None:
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    assert nans_in_lanes(np.random.default_rng(0), known, unit) is None
