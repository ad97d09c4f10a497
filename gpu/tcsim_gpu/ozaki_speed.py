"""Throughput of the Ozaki schemes and of Ootomo's on the GPU present: splitting, products and sums, all on the device.

fp16 slices in DP mode (Mukunoki et al. 2020), INT8 slices (Ootomo, Ozaki and Yokota 2024), fp16 words (Ootomo and Yokota 2022),
beside cuBLAS' own DGEMM and SGEMM, on (rand - 0.5)·exp(φ·randn). Everything that an n x n product needs is timed, from float64 (or
float32) matrices to the result; B is kept by columns, as the tensor cores' kernels like it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim.schemes.ozaki import slice_bits as half_bits
from tcsim.schemes.ozaki_int8 import int8_slice_bits as int8_bits
from tcsim_gpu import bench, cublas, device, fabsum

METHODS = ("float64", "float32", "fp16", "int8", "ozaki-dp", "ozaki-int8 s=8", "ozaki-int8 s=9", "ootomo", "ootomo outside 16")
SIDES = (1024, 2048, 4096, 8192)
PHIS = (0.1, 1.0, 2.0)


def float64_inputs(n: int, phi: float, seed: int) -> tuple[Any, Any]:
    """A and the transpose of B, n x n float64."""
    cp = device.cupy()
    generator = cp.random.Generator(cp.random.XORWOW(seed))

    def draw() -> Any:
        x = generator.random((n, n), dtype=cp.float64) - 0.5
        return x * cp.exp(phi * generator.standard_normal((n, n), dtype=cp.float64))

    return draw(), draw()


def _gemm(a: Any, b_t: Any, kind: str, c: Any = None) -> Any:
    """A·B (+ c) by cublasGemmEx for row-major A (m, k) and the transpose of B (n, k), of int8 (kind "int8") or fp16."""
    cp = device.cupy()
    from cupy.cuda import cublas as api

    (m, k), n = a.shape, b_t.shape[0]
    eight = kind == "int8"
    scalar = np.int32 if eight else np.float32
    one, factor = np.array(1, scalar), np.array(c is not None, scalar)
    d = cp.empty((m, n), cp.int32 if eight else cp.float32) if c is None else c
    narrow, wide = (cublas.DATA_TYPES[x] for x in (("int8", "int32") if eight else ("float16", "float32")))
    compute = cublas.COMPUTE_TYPES["32i" if eight else "32f"]
    handle = cp.cuda.device.get_cublas_handle()
    mode = api.getPointerMode(handle)
    api.setPointerMode(handle, api.CUBLAS_POINTER_MODE_HOST)
    try:
        api.gemmEx(
            handle, api.CUBLAS_OP_T, api.CUBLAS_OP_N, n, m, k, one.ctypes.data, b_t.data.ptr, narrow, k, a.data.ptr, narrow, k,
            factor.ctypes.data, d.data.ptr, wide, n, compute, -1,
        )  # fmt: skip
    finally:
        api.setPointerMode(handle, mode)
    return d


def _kernels() -> dict[str, Any]:
    """The elementwise steps: a slice and what it leaves, and the sum of a product of slices."""
    cp = device.cupy()
    return {
        "half": cp.ElementwiseKernel(
            "float64 x, int32 tau, float64 sigma", "float16 part, float64 rest",
            "double s = scalbn(x, -tau); double p = (s + sigma) - sigma; part = (float)p; rest = x - scalbn(p, tau)", "half_slice",
        ),
        "int8": cp.ElementwiseKernel(
            "float64 x, int32 e, int32 shift", "int8 part, float64 rest",
            "double p = trunc(scalbn(x, shift - e)); part = (signed char)p; rest = x - scalbn(p, e - shift)", "int8_slice",
        ),
        "add": cp.ElementwiseKernel("T p, int32 e, int32 f, float64 before", "float64 c", "c = before + scalbn((double)p, e + f)", "add_product"),
        "words": cp.ElementwiseKernel(
            "float32 x", "float16 high, float16 low", "high = x; low = (x - (float)high) * 2048.0f", "words"
        ),
        "merge": cp.ElementwiseKernel("float32 first, float32 rest", "float32 c", "c = first + rest * (1.0f / 2048.0f)", "merge"),
    }  # fmt: skip


def half_slices(x: Any, bits: int, count: int, kernels: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Algorithm 1 of Mukunoki et al. 2020 by rows: `count` fp16 slices and their exponents."""
    cp = device.cupy()
    parts, exponents = [], []
    left = x
    sigma = float(2.0 ** (53 - bits))
    for _ in range(count):
        fraction, place = cp.frexp(cp.abs(left).max(axis=1))
        tau = (place - (fraction == 0.5)).astype(cp.int32)
        part, left = kernels["half"](left, tau[:, None], sigma)
        parts.append(part)
        exponents.append(tau)
    return parts, exponents


def slices_needed_on_gpu(a: Any, b_t: Any, bits: int, kernels: dict[str, Any]) -> int:
    """d of Algorithm 3: the first slice whose weight is below the rounding error of float64."""
    cp = device.cupy()
    k = a.shape[1]
    weights = cp.abs(b_t).sum(axis=0)
    s = 2.0 * np.sqrt(k) * 2.0**-53 * (cp.abs(a) @ weights)
    parts, exponents = half_slices(a, bits, 20, kernels)
    for d in range(2, 21):
        part = cp.ldexp(cp.abs(parts[d - 1]).astype(cp.float64), exponents[d - 1][:, None])
        if bool((s > (d + 1) * (part @ weights)).all()):
            return d
    return 20


def ozaki_dp(a: Any, b_t: Any, d: int, kernels: dict[str, Any]) -> Any:
    """DP mode with d slices: the products p + q <= d + 1, added in float64, q outer and p inner."""
    cp = device.cupy()
    bits = half_bits(a.shape[1])
    (left, e), (right, f) = (half_slices(x, bits, d, kernels) for x in (a, b_t))
    c = cp.zeros((a.shape[0], b_t.shape[0]))
    for q in range(d):
        for p in range(d - q):
            kernels["add"](_gemm(left[p], right[q], "fp16"), e[p][:, None], f[q][None, :], c, c)
    return c


def ozaki_int8_product(a: Any, b_t: Any, s: int, kernels: dict[str, Any]) -> Any:
    """OOY: s cut slices a side, the products p + q <= s + 1, one float64 addition each."""
    cp = device.cupy()
    bits = int8_bits(a.shape[1])

    def slices(x: Any) -> tuple[list[Any], Any]:
        exponent = cp.frexp(cp.abs(x).max(axis=1))[1].astype(cp.int32)
        parts = []
        for t in range(1, s + 1):
            part, x = kernels["int8"](x, exponent[:, None], np.int32(bits * t))
            parts.append(part)
        return parts, exponent

    (left, e), (right, f) = slices(a), slices(b_t)
    c = cp.zeros((a.shape[0], b_t.shape[0]))
    for level in range(2, s + 2):
        shift = cp.int32(-bits * level)
        for p in range(1, level):
            kernels["add"](_gemm(left[p - 1], right[level - p - 1], "int8"), e[:, None], f[None, :] + shift, c, c)
    return c


def ootomo_product(a: Any, b_t: Any, outside: bool, kernels: dict[str, Any]) -> Any:
    """Three fp16 products of words scaled by 2^11; A·B by cuBLAS in one chain, or `outside` every 16 of k."""
    (high, low), (b_high, b_low) = kernels["words"](a), kernels["words"](b_t)
    rest = _gemm(high, b_low, "fp16", _gemm(low, b_high, "fp16"))
    if outside:
        cp = device.cupy()
        pair = ([high.view(cp.uint16)], [b_high.view(cp.uint16)])
        first = fabsum.chained_words(pair, [(0, 0)], block=16, sum="float32", fmt="float16", transposed=True)
    else:
        first = _gemm(high, b_high, "fp16")
    return kernels["merge"](first, rest)


def prepared_float64(method: str, n: int, phi: float, seed: int) -> tuple[Any, Any, int, dict[str, Any]]:
    """The call that is timed, the exact-as-float64 product of four rows to check it, its number of narrow products."""
    cp = device.cupy()
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    kernels = _kernels()
    a, b_t = float64_inputs(n, phi, seed)
    count = 1
    if method == "ozaki-dp":
        d = slices_needed_on_gpu(a, b_t, half_bits(n), kernels)
        count = d * (d + 1) // 2
        call = lambda: ozaki_dp(a, b_t, d, kernels)  # noqa: E731
    elif method.startswith("ozaki-int8"):
        s = int(method.partition("=")[2])
        count = s * (s + 1) // 2
        call = lambda: ozaki_int8_product(a, b_t, s, kernels)  # noqa: E731
    elif method == "int8":
        x, y = ((z / cp.abs(z).max() * 127).astype(cp.int8) for z in (a, b_t))
        return lambda: _gemm(x, y, "int8"), (x.astype(cp.float64), y.astype(cp.float64)), 1, kernels
    elif method == "fp16":
        x, y = a.astype(cp.float16), b_t.astype(cp.float16)
        return lambda: _gemm(x, y, "fp16"), (x.astype(cp.float64), y.astype(cp.float64)), 1, kernels
    elif method == "float64":
        call = lambda: a @ b_t.T  # noqa: E731
    else:
        x, y = a.astype(cp.float32), b_t.astype(cp.float32)
        count = 1 if method == "float32" else 3
        if method == "float32":
            return lambda: x @ y.T, (x.astype(cp.float64), y.astype(cp.float64)), 1, kernels
        outside = method != "ootomo"
        return lambda: ootomo_product(x, y, outside, kernels), (x.astype(cp.float64), y.astype(cp.float64)), count, kernels
    return call, (a, b_t), count, kernels


def measured(method: str, n: int, phi: float, seed: int = 0) -> dict[str, float]:
    """Effective TFLOP/s (2n³ over the mean time of three), products, and the largest |E|/(|A||B|) of four rows."""
    cp = device.cupy()
    call, (a, b_t), count, _ = prepared_float64(method, n, phi, seed)
    got = call()[:4].astype(cp.float64)
    error = float((cp.abs(got - a[:4] @ b_t.T) / (cp.abs(a[:4]) @ cp.abs(b_t).T)).max())
    rate = 2 * n**3 / bench.seconds(call, repeats=3) * 1e-12
    cp.get_default_memory_pool().free_all_blocks()
    return {"tflops": rate, "products": float(count), "error": error}


def record_speeds(path: str | Path, seed: int = 0, budget: float = 420.0) -> dict[str, Any]:
    """Measure everything, smallest sizes first, for at most `budget` seconds, and write it as JSON with the machine and the date.

    A method that a GPU cannot run is left out with its reason.
    """
    from itertools import product

    document: dict[str, Any] = {
        "machine": device.describe(), "date": time.strftime("%Y-%m-%d", time.gmtime()), "seed": seed, "measured": {}, "left_out": {},
    }  # fmt: skip
    started = time.monotonic()
    for n, method, phi in product(SIDES, METHODS, PHIS):
        key = f"{method}|{n}|{phi:g}"
        if phi != PHIS[0] and method != "ozaki-dp":
            continue  # their time does not depend on the data
        if time.monotonic() - started > budget:
            document["left_out"][key] = f"beyond {budget:g} s"
            continue
        try:
            document["measured"][key] = measured(method, n, phi, seed)
            print(key, document["measured"][key], flush=True)
        except Exception as problem:  # what one method cannot do must not cost the others
            document["left_out"][key] = f"{type(problem).__name__}: {problem}"
            print(key, document["left_out"][key], flush=True)
    Path(path).write_text(json.dumps(document, indent=1) + "\n")
    return document


if __name__ == "__main__":
    import sys

    record_speeds(sys.argv[1] if len(sys.argv) > 1 else "gpu_ozaki_h200.json")
