"""CUDA's float32 functions, bit for bit: expf, sinf, cosf, powf, and silu as PyTorch's kernel makes it of them.

Their steps are those of the code that nvcc 13.0 makes for them (each fma rounded once, the special-function unit's ex2 and rcp from
`tcsim.torch.special`); `tcsim_gpu.function_calls` recorded what they give on an H200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.torch.special import ex2_approx, rcp_approx

Floats = npt.NDArray[np.float32]
_CHUNK = 1 << 16


def _constant(code: int) -> np.float32:
    return np.uint32(code).view(np.float32)


def fma_float32(a: Any, b: Any, c: Any) -> Floats:
    """a·b + c of float32, rounded once: the product is exact in float64, the sum is rounded to odd there."""
    p, t = np.float64(a) * np.float64(b), np.float64(c)
    s = np.asarray(p + t)
    back = s - p
    error = (p - (s - back)) + (t - back)
    bits = s.view(np.int64)
    inexact = (bits & 1 == 0) & (error != 0) & np.isfinite(s)
    moved = bits + np.where((error > 0) == (s > 0), 1, -1)
    return np.where(inexact, moved, bits).view(np.float64).astype(np.float32)


def _in_chunks(function: Callable[[Floats], Floats]) -> Callable[[Any], Floats]:
    """The function of an array of any shape, a piece at a time that stays in the cache."""

    def whole(x: Any) -> Floats:
        x = np.ascontiguousarray(x, np.float32)
        flat, out = x.reshape(-1), np.empty(x.size, np.float32)
        with np.errstate(all="ignore"):
            for i in range(0, x.size, _CHUNK):
                out[i : i + _CHUNK] = function(flat[i : i + _CHUNK])
        return out.reshape(x.shape)

    whole.__doc__ = function.__doc__
    return whole


_LOG2E, _LOG2E_LOW = _constant(0x3FB8AA3B), _constant(0x32A57060)


def _exp(x: Floats) -> Floats:
    """expf: with j = ⌊252·sat(x·log2(e)/252 + 1/2)⌋ - 126, ex2(x·log2(e) - j)·2^j."""
    part = np.clip(fma_float32(x, _constant(0x3BBB989D), np.float32(0.5)), 0, 1)
    n = np.floor(252 * np.nan_to_num(part).astype(np.float64)).astype(np.int32)
    rest = fma_float32(x, _LOG2E, -(n - np.float32(126)))
    rest = fma_float32(x, _LOG2E_LOW, rest)
    return ex2_approx(rest) * ((n + 1) << 23).view(np.float32)


exp_cuda = _in_chunks(_exp)


def _silu(x: Floats) -> Floats:
    """x / (1 + exp(-x))."""
    return x / (np.float32(1) + _exp(-x))


silu_cuda = _in_chunks(_silu)
_PI_HALF = (_constant(0xBFC90FDA), _constant(0xB3A22168), _constant(0xA7C234C5))  # -π/2 in three parts
_LARGE = _constant(0x47CE4780)  # 105615: beyond it π/2 is taken away by integers
_TWO_OVER_PI = sum(w << 32 * i for i, w in enumerate((0x3C439041, 0xDB629599, 0xF534DDC0, 0xFC2757D1, 0x4E441529, 0xA2F9836E)))
_WORDS = (1 << 64) - 1
_QUARTER = float(np.uint64(0x3BF921FB54442D19).view(np.float64))  # π/2·2^-64


def _reduced(x: Floats) -> tuple[npt.NDArray[np.int32], Floats]:
    """(quarter turns, what is left of the angle)."""
    n = np.rint(x * _constant(0x3F22F983))
    rest = x
    for part in _PI_HALF:
        rest = fma_float32(n, part, rest)
    n = np.where(np.abs(x) < _LARGE, n, 0).astype(np.int32)
    for i in np.flatnonzero(~(np.abs(x) < _LARGE)):
        n[i], rest[i] = _reduced_large(float(x[i]))
    return n, rest


def _reduced_large(x: float) -> tuple[int, np.float32]:
    """The same from 192 bits of 2/π, 64 of the product's kept."""
    if not np.isfinite(x):
        return 0, np.float32(np.nan)
    code = int(np.float32(abs(x)).view(np.uint32))
    e = (code >> 23) - 128
    whole = ((code & 0x7FFFFF) | 0x800000) * 256 * _TWO_OVER_PI  # 7 words; the binary point stands e + 2 bits from their top
    top = whole >> 32 * (4 - (e >> 5)) << (e & 31) >> 32 & _WORDS
    turns, left = top >> 62, top << 2 & _WORDS
    past = bool(left >> 63)  # more than half a quarter: back from the next
    if past:
        turns, left = turns + 1, ~left & _WORDS
    rest = np.float32(float(left) * _QUARTER)
    below = x < 0
    return (-turns if below else turns), (-rest if below != past else rest)


def _sine(quarters: npt.NDArray[np.int32], r: Floats) -> Floats:
    """sin(r + quarters·π/2) by a polynomial in r² for sine or cosine."""
    odd = quarters & 1 != 0
    square = r * r
    first = np.where(odd, np.float32(1), r)
    poly = np.where(odd, fma_float32(_constant(0x37CBAC00), square, _constant(0xBAB607ED)), _constant(0xB94D4153))
    poly = fma_float32(poly, square, np.where(odd, _constant(0x3D2AAABB), _constant(0x3C0885E4)))
    poly = fma_float32(poly, square, np.where(odd, _constant(0xBEFFFFFF), _constant(0xBE2AAAA8)))
    value = fma_float32(poly, fma_float32(square, first, np.float32(0)), first)
    return np.where(quarters & 2 != 0, fma_float32(value, np.float32(-1), np.float32(0)), value)


def _sin(x: Floats) -> Floats:
    """sinf."""
    return _sine(*_reduced(x))


def _cos(x: Floats) -> Floats:
    """cosf."""
    n, rest = _reduced(x)
    return _sine(n + 1, rest)


sin_cuda, cos_cuda = _in_chunks(_sin), _in_chunks(_cos)


def power_cuda(base: float, y: Any) -> Floats:
    """powf(base, y) for a positive normal base and finite y: log2(base) as a sum of two float32, then 2^(y·log2(base))."""
    b = np.float32(base)
    if not (np.isfinite(b) and b >= np.float32(2.0**-126)):
        raise NotImplementedError(f"pow of base {base!r}: CUDA's powf is known here for positive normal bases")
    y = np.asarray(y, np.float32)
    with np.errstate(all="ignore"):
        high, low = _log2(b)
        p = high * y
        q = fma_float32(low, y, fma_float32(high, y, -p))
        n = np.rint(p)
        f = q + (p - n)
        value: Any = _constant(0x391FCB8E)
        for c in (0x3AAF85ED, 0x3C1D9856, 0x3D6357BB, 0x3E75FDEC, 0x3F317218, 0x3F800000):
            value = fma_float32(value, f, _constant(c))
        whole = np.nan_to_num(np.clip(n, -400, 400)).astype(np.int64)
        step = np.where(n > 0, 0, -2097152000)  # the scale in two factors, lest it overflow
        scales = [(part & 0xFFFFFFFF).astype(np.uint32).view(np.float32) for part in (step + 2130706432, (whole << 23) - step)]
        value = value * scales[0] * scales[1]
        value = np.where(np.abs(p) > 152, np.where(p < 0, np.float32(0), np.float32(np.inf)), value)
        value = np.where((y == 0) | (b == 1), np.float32(1), value)
        return np.where(np.isnan(y), np.float32(np.nan), value).astype(np.float32)


def _log2(b: np.float32) -> tuple[np.float32, np.float32]:
    code = int(b.view(np.uint32))
    shift = (code - 1060439283) & ~0x7FFFFF
    shift = shift if shift < 1 << 31 else shift - (1 << 32)
    m = np.uint32(code - shift).view(np.float32)
    e = np.float32(shift) * np.float32(2.0**-23)
    below, above = m - np.float32(1), m + np.float32(1)
    r = rcp_approx(np.asarray([above], np.float32))[0]
    u = (below + below) * r
    square = u * u
    rest = below - u
    v = r * fma_float32(-u, below, rest + rest)
    series: Any = _constant(0x3A2C32E4)
    for c in (0x3B52E7DB, 0x3C93BB73, 0x3DF6384F):
        series = fma_float32(series, square, _constant(c))
    series = series * square
    high: Any = fma_float32(u, _LOG2E, e)
    low = fma_float32(u, _LOG2E, e - high)
    low = fma_float32(v, _LOG2E, low)
    low = fma_float32(u, _constant(0x32A55E34), low)
    low = fma_float32(series * np.float32(3), v, low)
    low = fma_float32(series, u, low)
    total = np.float32(high + low)
    return total, np.float32(low + (high - total))
