"""One block opened up, against a sum done by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import tcsim

V100 = tcsim.unit("v100", "float16")


def test_a_block_by_hand() -> None:
    """1.5·1.25 + 1·2^-14·(1 + 2^-10) + 3·2 - 0.25·1 on a V100: emax 2 (from 3·2 = 1.5·2^1 · 1·2^1), cut at 2^-21."""
    small = (1 + 2**-10) * 2**-14
    block = tcsim.trace([1.5, 1.0, 3.0, -0.25], [1.25, small, 2.0, 1.0], 2.0**-9 + 2.0**-23, unit=V100)
    assert (block.emax, block.quantum) == (2, 2 - 23)
    assert [t.shift for t in block.terms] == [2, 16, 0, 4, 11]
    assert [t.exponent for t in block.terms] == [0, -14, 2, -2, -9]
    assert [t.dropped for t in block.terms] == [0, Fraction(1, 2**24), 0, 0, Fraction(1, 2**23)]
    exact = Fraction(15, 8) + Fraction(small) + 6 - Fraction(1, 4) + Fraction(1, 2**9) + Fraction(1, 2**23)
    assert block.exact == exact
    assert block.sum == exact - Fraction(1, 2**24) - Fraction(1, 2**23)
    assert block.result == float(
        tcsim.matmul(
            np.array([1.5, 1.0, 3.0, -0.25]), np.array([1.25, small, 2.0, 1.0]), np.float32(2.0**-9 + 2.0**-23), unit=V100
        )
    )
    assert block.error == Fraction(block.result) - exact
    assert block.rounding_error == Fraction(block.result) - block.sum


@pytest.mark.parametrize(
    "unit", [u for u in tcsim.units() if u.scale is None and not u.a_format.integer], ids=lambda u: u.label
)
def test_result_is_the_units(unit: tcsim.Unit) -> None:
    n = min(unit.block_size, 3)
    a, b = np.array([1.0, -0.5, 2.0][:n]), np.array([0.5, 1.5, -1.0][:n])
    block = tcsim.trace(a, b, 0.25, unit=unit)
    assert block.result == float(a @ b + 0.25)
    inside = unit if unit.sum_format is None else unit.wide  # a block is rounded to the format of the sum
    assert block.code == int(np.asarray(tcsim.matmul(a, b, 0.25, unit=inside)).view(inside.out_format.storage))
    for text in (str(block), block._repr_html_()):
        assert "a[0]*b[0]" in text
        assert unit.gpu in text


def test_scaled_groups_and_specials() -> None:
    nv = tcsim.unit("b200", "nvfp4")
    block = tcsim.trace(np.ones(64), np.ones(64), unit=nv, scale_a=np.full(4, 2.0), scale_b=np.ones(4))
    assert block.result == 128.0
    assert [t.name for t in block.terms] == ["group 0", "group 1", "group 2", "group 3", "c"]
    special = tcsim.trace([np.inf], [1.0], 1.0, unit=V100)
    assert special.result == np.inf
    assert special.sum is None
    assert "not finite" in str(special)


def test_more_than_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="at most block_size = 4; got shapes"):
        tcsim.trace(np.ones(5), np.ones(5), unit=V100)
