"""Codes of every sort of number, of formats with an exponent field."""

from __future__ import annotations

import numpy as np


def hard_codes(rng: np.random.Generator, shape: tuple[int, int], kind: str, exponent: int, width: int = 16) -> np.ndarray:
    """Codes whose exponent field is `exponent`: subnormal, finite, mostly finite, or any."""
    codes = rng.integers(0, 1 << width, shape, dtype=np.uint64)
    if kind == "subnormal":
        codes &= ~np.uint64(exponent)
    elif kind != "any":
        special = (codes & np.uint64(exponent)) == exponent
        special &= rng.random(shape) < (1 if kind == "finite" else 0.999)
        codes[special] ^= np.uint64(1 << (width - 2))
    return codes.astype(f"u{width // 8}")
