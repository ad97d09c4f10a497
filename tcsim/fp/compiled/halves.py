"""float32 patterns rounded to float16 or bfloat16 as a GPU's conversion does: to nearest-even, every NaN 0x7FFF."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.codegen.jit import inline, kernel, variant
from tcsim.codegen.unsigned import add, both, differ, either, less, more, pick, shr, sub
from tcsim.codegen.vector_memory import bits_of_float, float_of_bits

CHUNK = 1 << 15  # elements of one task
_SIGN, _INFINITY, _NAN = np.uint32(1 << 31), np.uint32(0x7F800000), np.uint32(0x7FFF)
_ONE, _HALF = np.uint32(1), np.float32(0.5)
_BITS16, _TIE16, _BIAS16, _MOST16 = np.uint32(13), np.uint32(0xFFF), np.uint32(112 << 10), np.uint32(0x7C00)
_NORMAL16, _OVER16 = np.uint32(113 << 23), np.uint32(143 << 23)  # 2^-14 and 2^16
_BITS_BF, _TIE_BF = np.uint32(16), np.uint32(0x7FFF)


@inline
def _nearest(a, bits, tie):
    """a / 2^bits, to nearest-even."""
    return shr(add(add(a, tie), both(shr(a, bits), _ONE)), bits)


@inline
def _float16(pattern):
    sign = both(pattern, _SIGN)
    a = differ(pattern, sign)
    code = sub(_nearest(a, _BITS16, _TIE16), _BIAS16)
    counted = sub(bits_of_float(np.float32(float_of_bits(a) + _HALF)), bits_of_float(_HALF))  # the last place of 0.5 is 2^-24
    code = pick(less(a, _NORMAL16), counted, pick(less(a, _OVER16), code, _MOST16))
    return pick(more(a, _INFINITY), _NAN, either(code, shr(sign, _BITS_BF)))


@inline
def _bfloat16(pattern):
    a = both(pattern, sub(_SIGN, _ONE))
    return pick(more(a, _INFINITY), _NAN, _nearest(pattern, _BITS_BF, _TIE_BF))


def _of_chunks(code: Any) -> Any:
    """The kernel that writes code(x) of every float32 pattern of chunks [first, last)."""

    def to_half(first, last, x, out):
        start = first * CHUNK
        x, out = x[start : last * CHUNK], out[start : last * CHUNK]
        for i in range(x.size):
            out[i] = code(x[i])

    return kernel(variant(code.__name__)(to_half))


to_float16, to_bfloat16 = _of_chunks(_float16), _of_chunks(_bfloat16)
