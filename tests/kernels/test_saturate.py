"""Integer sums that stop at the ends of int32, a block at a time: .satfinite."""

import numpy as np
import pytest

import tcsim
from tcsim.schedule import Schedule

UNIT = tcsim.unit("h200", "int8", instruction="mma").replace(overflow="saturate")
LEAST, LARGEST = -(2**31), 2**31 - 1


def drawn(k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((7, k), (k, 9)))
    near = rng.integers(0, 1 << 17, (7, 9))
    return a, b, np.where(rng.random((7, 9)) < 0.5, LARGEST - near, LEAST + near).astype(np.int32)


@pytest.mark.parametrize("schedule", [tcsim.Sequential(), tcsim.Blocked(48, "float64"), tcsim.SplitK(2, 16)], ids=str)
@pytest.mark.parametrize("block", [1, 16, 32])
def test_cpu_equals_reference(block: int, schedule: Schedule) -> None:
    a, b, c = drawn(100)
    unit = UNIT.replace(block_size=block)
    got = tcsim.matmul(a, b, c, unit=unit, schedule=schedule)
    np.testing.assert_array_equal(got, tcsim.matmul(a, b, c, unit=unit, schedule=schedule, backend="reference"))


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
@pytest.mark.parametrize("start", [True, False])
def test_many_small_problems_are_those_one_by_one(overflow: str, start: bool) -> None:
    """More than are computed together, of a width that no other kernel takes."""
    unit, rng = UNIT.replace(overflow=overflow, b="int32" if overflow == "wrap" else "int8"), np.random.default_rng(3)
    a = rng.integers(-128, 128, (200_000, 1, 5)).astype(np.int8)
    b = rng.integers(-128, 128, (200_000, 5, 1)).astype(unit.b)
    b[::7] *= 1 if overflow == "saturate" else 1 << 24
    c = rng.integers(LEAST, LARGEST, (200_000, 1, 1)).astype(np.int32) if start else None
    got = tcsim.matmul(a, b, c, unit=unit)
    sums = (a.astype(object) @ b.astype(object) + (0 if c is None else c.astype(object))).astype(np.int64)
    expected = np.clip(sums, LEAST, LARGEST) if overflow == "saturate" else sums.astype(np.uint32).view(np.int32)
    np.testing.assert_array_equal(got, expected)


def test_one_instruction_is_the_exact_sum_held_in_range() -> None:
    """16,777,216 outputs of mma.m16n8k32.satfinite on an H200 were so, 788,402 of them beyond the range."""
    a, b, c = drawn(32)
    exact = a.astype(np.int64) @ b.astype(np.int64) + c
    assert (exact > LARGEST).any()
    assert (exact < LEAST).any()
    np.testing.assert_array_equal(tcsim.matmul(a, b, c, unit=UNIT), np.clip(exact, LEAST, LARGEST))
    wrapped = tcsim.matmul(a, b, c, unit=UNIT.replace(overflow="wrap"))
    np.testing.assert_array_equal(wrapped, exact.astype(np.int32))


def test_what_is_lost_at_the_end_of_a_block_stays_lost() -> None:
    a = np.array([[127] * 32 + [-127] * 32], np.int8)
    b = np.full((64, 1), 127, np.int8)
    assert tcsim.matmul(a, b, [[LARGEST]], unit=UNIT) == LARGEST - 32 * 127 * 127
    assert tcsim.matmul(a, b, [[LARGEST]], unit=UNIT.replace(block_size=64)) == LARGEST


def test_the_record_says_so() -> None:
    assert "nearest value that int32 holds" in UNIT.explain()
    with pytest.raises(ValueError, match="only integer sums"):
        tcsim.unit("h200", "float16").replace(overflow="saturate")
    with pytest.raises(ValueError, match="only int8 inputs"):
        UNIT.replace(a="int32", b="int32")
