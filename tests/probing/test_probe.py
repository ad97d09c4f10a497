"""Black boxes recovered blind: a unit behind a function, found again from its answers."""

from __future__ import annotations

import pytest

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.probing.box import simulator


def recovered(unit: Unit, **options: object) -> tcsim.probing.result.Result:
    return tcsim.probe(
        simulator(unit), unit.a, unit.out, b_format=unit.b, scale=unit.scale, scale_block=unit.scale_block, **options
    )


@pytest.mark.parametrize("gpu", ["v100", "a100", "h200"])
def test_fp16_units_are_told_apart(gpu: str) -> None:
    unit = tcsim.unit(gpu, "float16")
    found = recovered(unit)
    assert found.unit is not None
    assert found.confirmed >= 100_000
    same = ("block_size", "fraction_bits", "align_rounding", "rounding", "out_precision", "zero_sign", "subnormals", "c_enters")
    assert {key: getattr(found.unit, key) for key in same} == {key: getattr(unit, key) for key in same}
