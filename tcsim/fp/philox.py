"""Philox4x32-10, the counter-based generator behind every stochastic rounding.

Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011. The same seed and counter give the
same bits on every backend, so a result does not depend on threads, tiles or order.
"""

from __future__ import annotations

M0, M1 = 0xD2511F53, 0xCD9E8D57
W0, W1 = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
_MASK = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four 32-bit words of the block `counter` under `key`."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + W0) & _MASK, (k1 + W1) & _MASK
    return c0, c1, c2, c3


def word(seed: int, element: int, step: int, operation: int = 0) -> int:
    """The 32 random bits for rounding number `step` of output `element`.

    `operation` tells apart the roundings inside one step of a unit that rounds every operation.
    The counter is (element low, element high, step // 4, operation), the key the two halves of the seed.
    """
    counter = (element & _MASK, element >> 32, step >> 2, operation)
    return philox(counter, (seed & _MASK, (seed >> 32) & _MASK))[step & 3]
