"""Schedules against their definitions, written out with plain products."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim

RNG = np.random.default_rng(3)
A, B = RNG.random((3, 200)).astype(np.float16), RNG.random((200, 4)).astype(np.float16)
C = RNG.random((3, 4)).astype(np.float32)
UNITS = [
    tcsim.unit("v100", "float16"),
    tcsim.unit("h200", "float16"),
    tcsim.unit("h200", "float16").replace(align_rounding="rd"),
]


def same(x: np.ndarray, y: np.ndarray) -> bool:
    return np.array_equal(x.view(np.uint32), y.view(np.uint32))


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.label)
@pytest.mark.parametrize("c", [None, C], ids=["from zero", "from c"])
@pytest.mark.parametrize("sum_format", ["float32", "float64"])
def test_blocked_adds_blocks_outside(unit: tcsim.Unit, c: np.ndarray | None, sum_format: str) -> None:
    total = np.zeros((3, 4), sum_format) if c is None else c.astype(sum_format)
    for k in range(0, 200, 48):
        total = total + tcsim.matmul(A[:, k : k + 48], B[k : k + 48], unit=unit).astype(sum_format)
    got = tcsim.matmul(A, B, c, unit=unit, schedule=tcsim.Blocked(48, sum=sum_format))
    assert same(got, total.astype(np.float32))


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.label)
@pytest.mark.parametrize("c", [None, C], ids=["from zero", "from c"])
def test_split_k_is_the_vendors(unit: tcsim.Unit, c: np.ndarray | None) -> None:
    """Facts, section 4: T tiles of 64, every split takes ceil(T / S) consecutive tiles, partials added ascending, c last."""
    tiles, splits = -(-200 // 64), 3
    step = -(-tiles // splits) * 64
    parts = [tcsim.matmul(A[:, k : k + step], B[k : k + step], unit=unit) for k in range(0, 200, step)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    expected = total if c is None else total + c
    assert same(tcsim.matmul(A, B, c, unit=unit, schedule=tcsim.SplitK(splits, tile_k=64)), expected)


def test_sequential_is_a_chain_of_products() -> None:
    unit = UNITS[1]
    d = tcsim.matmul(A[:, :96], B[:96], C, unit=unit)
    assert same(tcsim.matmul(A[:, 96:], B[96:], d, unit=unit), tcsim.matmul(A, B, C, unit=unit))
    one = tcsim.SplitK(1, tile_k=64)
    assert same(tcsim.matmul(A, B, unit=unit, schedule=one), tcsim.matmul(A, B, unit=unit))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tcsim.SplitK(0), "SplitK: splits must be an integer of at least 1; got 0"),
        (lambda: tcsim.SplitK(2, tile_k=-64), "tile_k must be an integer"),
        (lambda: tcsim.Blocked(2.5), "b must be an integer"),
        (lambda: tcsim.Blocked(16, sum="float23"), "nearest: 'float32'"),
        (lambda: tcsim.Blocked(16, sum="bfloat16"), "unknown format for adding partial sums 'bfloat16'"),
    ],
)
def test_bad_schedules(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
