"""Tensors against tcsim.matmul: values as numpy arrays, and what is expected of aten's products, written out in numpy."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import torch

import tcsim

NUMPY = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


def numpy_of(t: Any) -> Any:
    """The tensor's values, in ml_dtypes where numpy has no such dtype."""
    name = str(t.dtype).removeprefix("torch.")
    t = t.detach().contiguous()
    if name not in NUMPY:
        return t.numpy()
    return t.view({1: torch.uint8, 2: torch.int16}[t.element_size()]).numpy().view(NUMPY[name])


def same_bits(t: Any, expected: Any) -> bool:
    """Whether a tensor has an array's shape, dtype and bits."""
    x = numpy_of(t)
    word = f"u{x.dtype.itemsize}"
    return bool(
        x.shape == expected.shape
        and x.dtype == expected.dtype
        and np.array_equal(x.view(word), np.array(expected, order="C").view(word))
    )


def stored(x: Any, dtype: Any) -> Any:
    """float32 values in the dtype of an array, rounded once to nearest-even by tcsim.round_to."""
    name = np.dtype(dtype).name
    if name in ("float32", "float64"):
        return x.astype(dtype)
    codes = tcsim.encode(tcsim.round_to(x, name), name)
    codes = np.where(np.isnan(x), codes.dtype.type(0x7FFF), codes) if codes.dtype == np.uint16 else codes
    return codes.view(np.dtype(dtype))


def nearest(x: Fraction) -> np.float32:
    """The float32 nearest to a rational, ties to even."""
    first = np.float32(float(x))
    near = [np.nextafter(first, np.float32(-np.inf)), first, np.nextafter(first, np.float32(np.inf))]
    return min(near, key=lambda y: (abs(Fraction(float(y)) - x), int(y.view(np.uint32)) & 1))


def fma(alpha: float, acc: Any, term: Any) -> Any:
    """fl(alpha·acc + term) element by element, by rational numbers."""
    exact = Fraction(float(np.float32(alpha)))
    flat = [nearest(exact * Fraction(float(x)) + Fraction(float(t))) for x, t in zip(acc.ravel(), term.ravel(), strict=True)]
    return np.array(flat, np.float32).reshape(acc.shape)
