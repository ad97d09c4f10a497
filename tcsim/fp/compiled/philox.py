"""Philox4x32-10 for kernels: the words of tcsim/philox.py, on uint64 that hold 32 bits each.

Every argument must be a uint64: mixing in a signed integer makes Numba go to float64. The counter is
(element low, element high, group, operation) with group = step // 4, and step % 4 picks one of the four words.
The ten rounds are straight-line code, so a loop over elements vectorises (two 32x32 -> 64 multiplications a round)
and what does not depend on the element leaves the loop.
"""

from __future__ import annotations

import numpy as np

from tcsim.codegen.jit import inline
from tcsim.fp import philox as definition

_M0, _M1 = np.uint64(definition.M0), np.uint64(definition.M1)
_W0, _W1 = np.uint64(definition.W0), np.uint64(definition.W1)
_MASK = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)
_TWO, _THREE = np.uint64(2), np.uint64(3)


@inline
def _round(c0, c1, c2, c3, k0, k1):
    p0 = _M0 * (c0 & _MASK)  # a multiplication takes the low halves, and what stands above them is cut off at the end
    p1 = _M1 * (c2 & _MASK)
    return (p1 >> _HIGH) ^ c1 ^ k0, p1, (p0 >> _HIGH) ^ c3 ^ k1, p0


@inline
def ten_rounds(c0, c1, c2, c3, k0, k1):
    """The four words of the block with counter c0 … c3 under key k0, k1, all below 2^32."""
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    return c0 & _MASK, c1 & _MASK, c2 & _MASK, c3 & _MASK


@inline
def words(seed, element, group, operation):
    """The four 32-bit words for roundings 4·group … 4·group + 3 of output `element`, as a tuple of uint64."""
    return ten_rounds(element & _MASK, element >> _HIGH, group & _MASK, operation & _MASK, seed & _MASK, seed >> _HIGH)


@inline
def random_word(seed, element, step, operation):
    """The 32 random bits of tcsim.philox.word, as a uint64: `words` of step // 4, entry step % 4."""
    w0, w1, w2, w3 = words(seed, element, step >> _TWO, operation)
    low = step & _THREE
    pair0 = w0 if low & np.uint64(1) == np.uint64(0) else w1
    pair1 = w2 if low & np.uint64(1) == np.uint64(0) else w3
    return pair0 if low < _TWO else pair1
