"""Signs of zero, flushing, floors and a late c: the rules of Specials and LateC, each with numbers worked out by hand."""

from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.hardware.unit import Unit

MI250, MI210 = tcsim.unit("mi250", "float16"), tcsim.unit("mi210", "bfloat16")
LATE = tcsim.unit("h200", "bfloat16").replace(c_enters="after", block_size=4, min_exponent=None)
M8N8K4 = tcsim.unit("h200", "float16", out="float16", instruction="mma.m8n8k4")
NVFP4 = tcsim.unit("b200", "nvfp4")


def everywhere(unit: Unit, a: Any, b: Any, c: Any = None, **scales: Any) -> float:
    """One output, alike on the reference and on the cpu."""
    expected = tcsim.matmul(a, b, c, unit=unit, backend="reference", **scales)
    got = tcsim.matmul(a, b, c, unit=unit, **scales)
    assert got.tobytes() == expected.tobytes()
    return float(expected)


def sign(x: float) -> str:
    assert x == 0
    return "-0" if np.signbit(x) else "+0"


@pytest.mark.parametrize("unit", [MI250, MI250.replace(rounding="rz"), MI210, MI250.replace(arithmetic="aligned")], ids=str)
def test_operands_and_the_first_c_of_a_flushing_unit_lose_the_sign_of_zero(unit: Unit) -> None:
    """MMA-Sim's CDNA2: what is below the smallest normal number becomes +0, and -0 is below it."""
    k = unit.block_size
    assert sign(everywhere(unit, [-0.0] * k, [1.0] * k)) == "+0"
    assert sign(everywhere(unit, [-0.0] * k, [-1.0] * k, -0.0)) == "+0"  # every product is +0 · -1 = -0, c is +0
    assert sign(everywhere(unit, [-1.0] * k, [0.0] * k, -0.0)) == "+0"
    kept = unit.replace(subnormals="keep")
    assert sign(everywhere(kept, [-1.0] * k, [0.0] * k, -0.0)) == "-0"
    assert sign(everywhere(kept, [-0.0] * k, [-1.0] * k, -0.0)) == "+0"


def test_a_flushed_result_keeps_its_sign_where_zeros_are_signed() -> None:
    unit = MI250.replace(a="bfloat16", b="bfloat16")
    a, b, c = [2.0**-100], [-(2.0**-26) * 1.5], 2.0**-126
    assert sign(everywhere(unit, a, b, c)) == "-0"
    assert sign(everywhere(unit.replace(zero_sign="positive"), a, b, c)) == "+0"
    assert everywhere(unit.replace(subnormals="keep"), a, b, c) == -(2.0**-127)


def test_the_addition_of_a_late_c_flushes() -> None:
    a, b, c = [2.0**-100], [-(2.0**-26) * 1.5], 2.0**-126
    assert everywhere(LATE, a, b, c) == -(2.0**-127)
    assert sign(everywhere(LATE.replace(subnormals="flush"), a, b, c)) == "+0"
    assert sign(everywhere(LATE.replace(subnormals="flush", zero_sign="ieee"), a, b, c)) == "-0"
    assert everywhere(LATE.replace(subnormals="flush"), [1.0], [2.0**-126], 2.0**-127) == 2.0**-126  # c is an operand


def test_a_late_c_meets_a_sum_of_negative_zeros() -> None:
    signed = LATE.replace(zero_sign="ieee")
    assert sign(everywhere(signed, [-0.0] * 4, [1.0] * 4, -0.0)) == "-0"
    assert sign(everywhere(signed, [-0.0] * 4, [1.0] * 4, 0.0)) == "+0"
    assert sign(everywhere(LATE, [-0.0] * 4, [1.0] * 4, -0.0)) == "+0"


def test_a_sum_that_is_narrowed_to_zero() -> None:
    """-2^-24 + 1.5·2^-25 is a quarter of float16's least number below zero."""
    a, b, c = [2.0**-12], [2.0**-13 * 1.5], -(2.0**-24)
    assert sign(everywhere(M8N8K4, a, b, c)) == "-0"
    assert sign(everywhere(M8N8K4.replace(zero_sign="positive"), a, b, c)) == "+0"


def test_a_zero_group_raises_the_floor_and_a_zero_element_does_not() -> None:
    """Hardware facts 1.2: e_zero applies when all 16 products are zero or a scale is zero. With F = 35 and a floor of 50, 1 is lost."""
    unit, one = NVFP4.replace(min_exponent=50), np.ones(4, np.float32)
    full, c = np.ones(64, np.float32), np.float32(1.0)
    holes = full.copy()
    holes[::2] = 0
    empty = full.copy()
    empty[16:32] = 0
    cancels = np.tile(np.array([1, -1], np.float32), 32)
    for b, scale, expected in (
        (full, one, 65.0),
        (holes, one, 33.0),
        (cancels, one, 1.0),
        (empty, one, 0.0),
        (full, np.array([1, 1, 0, 1], np.float32), 0.0),
    ):
        assert everywhere(unit, full, b, c, scale_a=scale, scale_b=one[:, None]) == expected
    assert everywhere(unit, full, full, None, scale_a=one, scale_b=one[:, None]) == 0.0  # c is a zero term


def test_the_identity_is_no_order() -> None:
    unit = tcsim.unit("h200", "float16")
    assert unit.replace(k_order=range(16)) == unit
    late = unit.replace(c_enters="after", block_size=4)
    assert late.replace(k_order=range(8)) == late
    with pytest.raises(ValueError, match=r"c is added after .* = 4 products"):
        late.replace(k_order=(1, 0, 2, 3, 4, 5, 6, 7))
