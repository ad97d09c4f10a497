"""float32 results as float16 and bfloat16: numpy's and ml_dtypes' rounding, and every NaN 0x7FFF."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tcsim.fp.compiled.halves import CHUNK, to_bfloat16, to_float16

Patterns = npt.NDArray[np.uint32]
HALVES = pytest.mark.parametrize(
    ("rounded", "dtype"), [(to_float16, np.float16), (to_bfloat16, ml_dtypes.bfloat16)], ids=["float16", "bfloat16"]
)


def expected(patterns: Patterns, dtype: Any) -> npt.NDArray[np.uint16]:
    x = patterns.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        codes = x.astype(dtype).view(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), codes)


def of(rounded: Callable[..., None], patterns: Patterns) -> npt.NDArray[np.uint16]:
    out = np.full(patterns.size, 0xBAD, np.uint16)
    rounded(0, -(-patterns.size // CHUNK), patterns, out)
    return out


@HALVES
def test_around_every_value_and_tie(rounded: Callable[..., None], dtype: Any) -> None:
    """Every code's value, what lies half-way to the next, and the patterns beside both; of either sign."""
    codes = np.arange(1 << 15, dtype=np.uint16).view(dtype).astype(np.float32).view(np.uint32)
    half = {np.float16: 12, ml_dtypes.bfloat16: 15}[dtype]
    near = np.concatenate([codes + np.uint32(step) for step in (0, 1, (1 << half) - 1, 1 << half, (1 << half) + 1)])
    subnormal = ((np.arange(1 << 11) + 0.5) * 2.0**-25).astype(np.float32).view(np.uint32)  # ties between float16's subnormals
    near = np.concatenate([near, near - np.uint32(1), subnormal - np.uint32(1), subnormal, subnormal + np.uint32(1)])
    patterns = np.concatenate([near, near | np.uint32(1 << 31)])
    np.testing.assert_array_equal(of(rounded, patterns), expected(patterns, dtype))


@HALVES
def test_any_patterns(rounded: Callable[..., None], dtype: Any, fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    for size in (0, 1, 7, CHUNK, 3 * CHUNK + 5):
        patterns = rng.integers(0, 1 << 32, size, dtype=np.uint32)
        np.testing.assert_array_equal(of(rounded, patterns), expected(patterns, dtype))


@HALVES
def test_a_chunk_alone(rounded: Callable[..., None], dtype: Any) -> None:
    patterns, out = np.full(3 * CHUNK, 0x3F800000, np.uint32), np.zeros(3 * CHUNK, np.uint16)
    rounded(1, 2, patterns, out)
    one = np.ones(1, dtype).view(np.uint16)[0]
    np.testing.assert_array_equal(out.reshape(3, CHUNK), np.uint16([[0], [one], [0]]) * np.ones(CHUNK, np.uint16))
