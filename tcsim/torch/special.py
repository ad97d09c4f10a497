"""What GPUs' special-function units give: ex2.approx.ftz.f32 of every float32, from a table captured on an H200.

The unit cuts |x| to 23 fraction bits. Below zero, where the fraction f is not zero, it takes the complement 1 - 2^-23 - f in place of
1 - f. The table holds 2^f for the 2^23 fractions, as differences from the correctly rounded values: -1, 0 or 1 unit in the last place.
`tcsim_gpu.special_functions` captures it and counts exceptions to the rule over all float32.
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
    packed = (Path(__file__).parent / "tables" / "ex2.xz").read_bytes()
    off = np.frombuffer(lzma.decompress(packed), np.int8)
    near = np.exp2(np.arange(1 << 23) / 2.0**23).astype(np.float32).view(np.uint32)
    codes = (near + off.astype(np.int64)).astype(np.uint32)
    if hashlib.sha256(codes.tobytes()).hexdigest() != _DIGEST:
        raise RuntimeError("the table of ex2 is not what was captured: numpy's exp2 rounds otherwise here; please report it")
    return codes


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
