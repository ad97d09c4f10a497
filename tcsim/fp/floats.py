"""Arrays taken in as floats: exactly, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import arguments

Array = npt.NDArray[Any]


def as_floats(x: npt.ArrayLike) -> Array:
    """x as a float16, float32 or float64 array with the same values, untouched if it is one already.

    Integers become float64, ml_dtypes float32. ValueError for what is neither, for floats wider than float64 and,
    naming its index, for an integer that float64 cannot hold.
    """
    array = arguments.array(x)
    name, kind = array.dtype.name, array.dtype.kind
    if name in ("float16", "float32", "float64"):
        return array
    if kind in "iu":
        return _integers(array)
    if kind == "V" and name.startswith(("float", "bfloat")):
        return array.astype(np.float32)
    if kind == "f":
        raise ValueError(f"values are float16, float32, float64 or ml_dtypes arrays; {name} is wider than float64")
    raise ValueError(f"values are float16, float32, float64, ml_dtypes or integer arrays; got {array.dtype}")


def _integers(array: Array) -> Array:
    floats = array.astype(np.float64)
    if array.dtype.itemsize > 4 and array.size:
        limit = 1 << 53
        large = (array > limit) | (array < -limit) if array.dtype.kind == "i" else array > limit
        for index in np.argwhere(large):
            place = tuple(int(i) for i in index)
            if int(floats[place]) != int(array[place]):
                raise ValueError(f"x{list(place)} = {array[place]} is not exact in float64")
    return floats


def widen(array: Array) -> Array:
    """float32 to float64 with every NaN's sign and payload kept, signalling ones included."""
    native = array.astype(array.dtype.newbyteorder("="))
    with np.errstate(invalid="ignore"):
        wide = np.asarray(native.astype(np.float64))
    nan = np.isnan(native)
    if nan.any():
        bits = native.view(np.uint32)[nan].astype(np.uint64)
        wide.view(np.uint64)[nan] = (bits >> 31 << 63) | (0x7FF << 52) | ((bits & 0x7FFFFF) << 29)
    return wide
