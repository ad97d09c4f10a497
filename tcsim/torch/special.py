"""What GPUs' special-function units give: ex2, rcp and rsqrt (.approx, float32) of every float32, from tables captured on an H200.

ex2: the unit cuts |x| to 23 fraction bits. Below zero, where the fraction f is not zero, it takes the complement 1 - 2^-23 - f in place of
1 - f. The table holds 2^f for the 2^23 fractions, as differences from the correctly rounded values: -1, 0 or 1 unit in the last place.
rcp and rsqrt: a table of the 2^23 significands, for rsqrt of those of [1, 4), the exponent apart.
`tcsim_gpu.special_functions` captures them and counts exceptions to the rules over all float32.
"""

from __future__ import annotations

import hashlib
import lzma
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

_DIGEST = "b2a42c4a626469c986e33e43f16f41bde9d84de94347cd9ceaa1bd68d36bcdf0"
_MASK = (1 << 23) - 1


@cache
def ex2_table() -> npt.NDArray[np.uint32]:
    """Codes of ex2(f / 2^23) for f below 2^23. RuntimeError where this machine's numpy does not give the table back."""
    off = _differences("ex2")
    near = np.exp2(np.arange(1 << 23) / 2.0**23).astype(np.float32).view(np.uint32)
    codes = (near + off.astype(np.int64)).astype(np.uint32)
    if hashlib.sha256(codes.tobytes()).hexdigest() != _DIGEST:
        raise RuntimeError("the table of ex2 is not what was captured: numpy's exp2 rounds otherwise here; please report it")
    return codes


@cache
def _differences(name: str) -> npt.NDArray[np.int8]:
    """A table: units in the last place from the correctly rounded value."""
    return np.frombuffer(lzma.decompress((Path(__file__).parent / "tables" / f"{name}.xz").read_bytes()), np.int8)


def ex2_approx(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """2^x as the GPU's ex2.approx.ftz.f32 gives it; 0 below the least normal number, infinity above the largest, NaN for NaN."""
    size = np.minimum(np.abs(x, dtype=np.float64), 1024.0)
    nan = np.isnan(size)
    cut = (np.where(nan, 0, size) * 2.0**23).astype(np.int64)
    whole, part = cut >> 23, cut & _MASK
    below = np.signbit(x)
    turned = below & (part != 0)
    whole = np.where(below, -whole - turned, whole)
    code = ex2_table()[np.where(turned, _MASK - part, part)]
    exponent = (code >> np.uint32(23)).astype(np.int64) + whole
    scaled = (code & np.uint32(_MASK)) | (np.clip(exponent, 0, 255) << 23).astype(np.uint32)
    scaled = np.where(exponent <= 0, np.uint32(0), np.where(exponent >= 255, np.uint32(0x7F800000), scaled))
    return np.where(nan, np.uint32(0x7FFFFFFF), scaled).astype(np.uint32).view(np.float32)


def rsqrt_approx(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """1/√x as rsqrt.approx.f32 gives it: infinity with x's sign for zeros, 0 for infinity, NaN below zero.

    A subnormal x is taken times 2^24 and its result times 2^12.
    """
    small = np.abs(x) < np.float32(2.0**-126)
    bits = (x * np.where(small, np.float32(2.0**24), np.float32(1))).view(np.uint32)
    exponent = (bits >> 23 & 255).astype(np.int64) - 127
    odd = exponent & 1
    place = bits & np.uint32(_MASK)
    table = (place | np.uint32(127 << 23)).view(np.float32).astype(np.float64) * (1 + odd)
    near = (1.0 / np.sqrt(table)).astype(np.float32).view(np.uint32).astype(np.int64)
    codes = near + _differences("rsqrt")[place + (odd << 23)] - ((exponent - odd) // 2 << 23)
    y = codes.astype(np.uint32).view(np.float32)
    y = np.where(small, y * np.float32(2.0**12), y)
    y = np.where(np.isnan(x) | (x < 0), np.float32(np.nan), np.where(np.isposinf(x), np.float32(0), y))
    return np.where(x == 0, np.copysign(np.float32(np.inf), x), y)


def rcp_approx(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """1/x as rcp.approx.ftz.f32 gives it: subnormal numbers, given or to be returned, count as zeros."""
    bits = x.view(np.uint32)
    field, place = (bits >> 23 & 255).astype(np.int64), bits & np.uint32(_MASK)
    table = (place | np.uint32(127 << 23)).view(np.float32).astype(np.float64)
    near = (1.0 / table).astype(np.float32).view(np.uint32).astype(np.int64) + _differences("rcp")[place]
    exponent = (near >> 23) + 127 - field
    y = np.where(exponent <= 0, 0, (near & _MASK) | (exponent << 23)).astype(np.uint32).view(np.float32)
    y = np.where(field == 0, np.float32(np.inf), np.where(np.isinf(x), np.float32(0), y))
    return np.where(np.isnan(x), np.float32(np.nan), np.copysign(y, x))
