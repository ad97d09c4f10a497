"""Tides: the blocks before a late c, and their order, from what they lose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.recovery import black_box

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.probing.answers.tides import Tides
from tcsim.probing.box import Box, Formats
from tcsim.probing.search.candidates import parts_of

SHAPES = {
    "two of sixteen": {"block_size": 16, "chain": 2},
    "five of two": {"block_size": 2, "chain": 5, "rounding": "ru"},
    "three of four in few bits": {"block_size": 4, "chain": 3, "out_precision": 9, "rounding": "rne"},
    "random words": {"block_size": 8, "chain": 2, "rounding": "sr"},
}


def _told(unit: Unit) -> list[dict[str, Any]]:
    """What tides tell of a candidate that has one block of every product before c."""
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    tides = Tides(Box(black_box(unit), known), np.random.default_rng(1))
    begun = {**parts_of(unit), "k_order": None, "block_size": unit.instruction_k, "chain": 1}
    return [{key: parts[key] for key in ("block_size", "chain", "k_order")} for parts in tides.ordered(begun)]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("upwards", [False, True])
def test_tides_tell_the_blocks_before_a_late_c(name: str, upwards: bool) -> None:
    shape = SHAPES[name]
    size, count = int(shape["block_size"]), int(shape["block_size"]) * int(shape["chain"])
    order = np.arange(count) if upwards else np.random.default_rng(2).permutation(count)
    blocks = np.sort(order.reshape(-1, size), axis=1).ravel()  # within a block no rounding of its sum shows places
    k_order = None if upwards else tuple(int(k) for k in blocks)
    unit = tcsim.unit("h200", "float16").replace(c_enters="after", k_order=k_order, **shape)
    assert {"block_size": size, "chain": shape["chain"], "k_order": k_order} in _told(unit)


def test_tides_tell_nothing_of_one_block() -> None:
    unit = tcsim.unit("h200", "float16").replace(c_enters="after", block_size=8, chain=1)
    assert {"block_size": 8, "chain": 1, "k_order": None} not in _told(unit)
    assert all(told["block_size"] >= 8 for told in _told(unit))
