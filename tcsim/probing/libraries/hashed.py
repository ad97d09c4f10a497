"""Matrices whose elements are a hash of their place, so that a few rows of a large one can be made alone, anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

# Input format -> significand bits, and how many bits of the hash are the exponent.
BITS = {
    "float16": (11, 3), "bfloat16": (8, 3), "tfloat32": (11, 3), "float32": (24, 3), "float64": (24, 3), "float8_e4m3fn": (4, 2), "float8_e5m2": (3, 3),
}  # fmt: skip
SIDES = {"a": 0x243F6A88, "b": 0x85A308D3, "c": 0x13198A2E, "bias": 0x03707344}


def mixed(h: Any) -> Any:
    """The finaliser of MurmurHash3 on arrays of uint32."""
    h = h ^ (h >> np.uint32(16))
    h = h * np.uint32(0x85EBCA6B)
    h = h ^ (h >> np.uint32(13))
    h = h * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def values(lines: Any, k: int, fmt: str, side: str, seed: int) -> np.ndarray[Any, Any]:
    """Values (len(lines), k), float32: element (i, h) depends on i, h, the side ("a" or "b") and the seed alone.

    With p the format's significand bits, s = hash mod 2^p - 2^(p-1) and e = the hash's two or three highest bits, it is
    s·2^(1 - p - e): exact in the format, of both signs, in [-1, 1), and spread enough that sums are rounded.
    """
    p, high = BITS[fmt]
    i = np.asarray(lines, dtype=np.uint32)[:, np.newaxis] * np.uint32(0x9E3779B1)
    j = np.arange(k, dtype=np.uint32)[np.newaxis, :] * np.uint32(0x85EBCA77)
    h = mixed(mixed(i ^ np.uint32((seed ^ SIDES[side]) & 0xFFFFFFFF)) + j)
    significand = (h & np.uint32((1 << p) - 1)).astype(np.int32) - np.int32(1 << (p - 1))
    exponent = (h >> np.uint32(32 - high)).astype(np.int32)
    made: np.ndarray[Any, Any] = np.ldexp(significand.astype(np.float32), 1 - p - exponent)
    return made


CUDA = r"""
__device__ unsigned mixed(unsigned h) {
    h ^= h >> 16; h *= 0x85EBCA6Bu; h ^= h >> 13; h *= 0xC2B2AE35u; return h ^ (h >> 16);
}
extern "C" __global__ void hashed(float* out, long long lines, long long k, int p, int high, unsigned key, int k_contiguous) {
    for (long long x = blockIdx.x * (long long)blockDim.x + threadIdx.x; x < lines * k; x += gridDim.x * (long long)blockDim.x) {
        unsigned i = k_contiguous ? x / k : x % lines, j = k_contiguous ? x % k : x / lines;
        unsigned h = mixed(mixed((i * 0x9E3779B1u) ^ key) + j * 0x85EBCA77u);
        int s = (int)(h & ((1u << p) - 1)) - (1 << (p - 1));
        out[x] = ldexpf((float)s, 1 - p - (int)(h >> (32 - high)));
    }
}
"""
