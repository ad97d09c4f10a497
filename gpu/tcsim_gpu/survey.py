"""Calls of the vendor's GEMM on random shapes, with their kernels and a sample of their outputs: what predictions are judged by.

A call's operands are hashes of their places (`tcsim.probing.libraries.hashed`), so that the sample can be recomputed on any machine
from the record alone.
"""

from __future__ import annotations

import ctypes
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.probing.libraries import hashed
from tcsim_gpu import device
from tcsim_gpu.cublas import COMPUTE_TYPES, DATA_TYPES, _matmul_fp8
from tcsim_gpu.launch import compiled_kernel

SAMPLE = 64  # rows and columns of which outputs are kept
WORKSPACE = 32 << 20  # cuBLAS's own on Hopper
# name -> input, output, compute type, scalar type
KINDS: dict[str, tuple[str, str, str]] = {
    "float16>float32": ("float16", "float32", "32f"),
    "bfloat16>float32": ("bfloat16", "float32", "32f"),
    "tfloat32>float32": ("tfloat32", "float32", "32f_fast_tf32"),
    "float16>float16": ("float16", "float16", "32f"),
    "bfloat16>bfloat16": ("bfloat16", "bfloat16", "32f"),
    "float16>float16 in float16": ("float16", "float16", "16f"),
    "float32>float32": ("float32", "float32", "32f"),
    "float64>float64": ("float64", "float64", "64f"),
    "float8_e4m3fn>float32": ("float8_e4m3fn", "float32", "32f"),
    "float8_e4m3fn>float32 fast": ("float8_e4m3fn", "float32", "32f"),
}
SCALARS = {"16f": np.float16, "64f": np.float64}  # of alpha and beta by compute type; float32 else
LAYOUTS = ("nn", "nt", "tn", "tt")  # row-major operands: "t" for the one that is stored transposed
ATTRIBUTES = {"algorithm": 0, "tile": 1, "splits": 2, "reduction": 3, "swizzle": 4, "custom": 5, "stages": 6, "cluster": 8}


@dataclass(frozen=True)
class GemmCall:
    """One GEMM: D (m, n) = A (m, k) · B (k, n), row-major."""

    kind: str
    m: int
    n: int
    k: int
    layout: str
    seed: int


def log_uniform_size(rng: np.random.Generator, low: int, high: int) -> int:
    return int(np.floor(np.exp(rng.uniform(np.log(low), np.log(high + 1)))))


def draw_gemms(count: int, seed: int, kinds: tuple[str, ...] = tuple(KINDS), step: int = 1) -> list[GemmCall]:
    """Two thirds of the shapes log-uniform (m, n 1...8192, k 16...65536), one third uniform 1...4096; rounded up to
    multiples of `step`, fp8's to multiples of 16, which it needs, as it does the layout "nt"."""
    rng = np.random.default_rng(seed)
    calls = []
    for i in range(count):
        if i % 3 < 2:
            m, n, k = log_uniform_size(rng, 1, 8192), log_uniform_size(rng, 1, 8192), log_uniform_size(rng, 16, 65536)
        else:
            m, n, k = (int(v) for v in rng.integers(1, 4097, 3))
        kind, layout = kinds[i % len(kinds)], LAYOUTS[int(rng.integers(4))]
        eight = kind.startswith("float8")
        m, n, k = (-(-size // by) * by for size, by in zip((m, n, k), (16, 16, 16) if eight else (step,) * 3, strict=True))
        calls.append(GemmCall(kind, m, n, k, "nt" if eight else layout, int(rng.integers(1 << 32))))
    return calls


def sampled(call: GemmCall) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The rows and columns of the sample, ascending."""
    rng = np.random.default_rng(call.seed)
    return tuple(np.sort(rng.permutation(size)[:SAMPLE]) for size in (call.m, call.n))  # type: ignore[return-value]


def _matrix(lines: int, k: int, fmt: str, side: str, seed: int, k_contiguous: bool) -> Any:
    cp = device.cupy()
    out = cp.empty(lines * k, cp.float32)
    key = (seed ^ hashed.SIDES[side]) & 0xFFFFFFFF
    compiled_kernel(hashed.CUDA, "hashed")(
        (4096,), (256,),
        (out, np.int64(lines), np.int64(k), *(np.int32(b) for b in hashed.BITS[fmt]), np.uint32(key), np.int32(k_contiguous)),
    )  # fmt: skip
    if fmt == "float16":
        return out.astype(cp.float16)
    if fmt == "bfloat16":
        return (out.view(cp.uint32) >> 16).astype(cp.uint16)
    if fmt == "float64":
        return out.astype(cp.float64)
    if fmt == "float8_e4m3fn":
        import torch

        return cp.from_dlpack(torch.from_dlpack(out).to(torch.float8_e4m3fn).view(torch.uint8))
    return out


def _code(fmt: str) -> int:
    return DATA_TYPES["float32" if fmt == "tfloat32" else fmt]


def _call(call: GemmCall, a: Any, b: Any, d: Any) -> None:
    from cupy.cuda import cublas

    cp = device.cupy()
    fmt, out, compute = KINDS[call.kind]
    if fmt.startswith("float8"):
        shaped = a.reshape(call.m, call.k), b.reshape(call.n, call.k)
        _matmul_fp8(*shaped, d, (fmt, fmt), call.kind.endswith("fast"))
        return
    scalar = SCALARS.get(compute, np.float32)
    one, zero = np.array(1, scalar), np.array(0, scalar)
    handle = cp.cuda.device.get_cublas_handle()
    mode = cublas.getPointerMode(handle)
    cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
    a_t, b_t = (letter == "t" for letter in call.layout)
    cublas.gemmEx(
        handle, int(b_t), int(a_t), call.n, call.m, call.k, one.ctypes.data, b.data.ptr, _code(fmt), call.k if b_t else call.n,
        a.data.ptr, _code(fmt), call.m if a_t else call.k, zero.ctypes.data, d.data.ptr, _code(out), call.n,
        COMPUTE_TYPES[compute], -1,
    )  # fmt: skip
    cublas.setPointerMode(handle, mode)


class Heuristic:
    """What cublasLt would choose for the same call, as numbers."""

    def __init__(self) -> None:
        self.lt = ctypes.CDLL("libcublasLt.so.13")
        self.handle = ctypes.c_void_p()
        self.lt.cublasLtCreate(ctypes.byref(self.handle))
        self.lt.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = int(self.lt.cublasLtGetVersion())

    def __call__(self, call: GemmCall) -> dict[str, int]:
        lt, ptr = self.lt, ctypes.c_void_p
        fmt, out, compute = KINDS[call.kind]
        a_t, b_t = (letter == "t" for letter in call.layout)
        desc, pref, first, second, third = ptr(), ptr(), ptr(), ptr(), ptr()
        lt.cublasLtMatmulDescCreate(
            ctypes.byref(desc), COMPUTE_TYPES[compute], DATA_TYPES[np.dtype(SCALARS.get(compute, np.float32)).name]
        )
        fast = ctypes.c_int8(call.kind.endswith("fast"))
        lt.cublasLtMatmulDescSetAttribute(desc, 25, ctypes.byref(fast), ctypes.c_size_t(1))  # CUBLASLT_MATMUL_DESC_FAST_ACCUM
        for attribute, on in ((3, b_t), (4, a_t)):
            value = ctypes.c_int(int(on))
            lt.cublasLtMatmulDescSetAttribute(desc, attribute, ctypes.byref(value), ctypes.c_size_t(4))
        n, m, k = call.n, call.m, call.k
        for layout, kind, rows, columns in (
            (first, fmt, k if b_t else n, n if b_t else k), (second, fmt, m if a_t else k, k if a_t else m), (third, out, n, m)
        ):  # fmt: skip
            lt.cublasLtMatrixLayoutCreate(
                ctypes.byref(layout), _code(kind), ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
            )
        lt.cublasLtMatmulPreferenceCreate(ctypes.byref(pref))
        space = ctypes.c_size_t(WORKSPACE)
        lt.cublasLtMatmulPreferenceSetAttribute(pref, 1, ctypes.byref(space), ctypes.c_size_t(8))
        found, count = (ctypes.c_uint64 * 32)(), ctypes.c_int()
        status = lt.cublasLtMatmulAlgoGetHeuristic(
            self.handle, desc, first, second, third, third, pref, 1, ctypes.byref(found), ctypes.byref(count)
        )
        numbers = {"status": int(status), "count": count.value}
        if status == 0 and count.value:
            for name, attribute in ATTRIBUTES.items():
                value32, written = ctypes.c_uint32(), ctypes.c_size_t()
                lt.cublasLtMatmulAlgoConfigGetAttribute(
                    ctypes.byref(found), attribute, ctypes.byref(value32), ctypes.c_size_t(4), ctypes.byref(written)
                )
                numbers[name] = value32.value
            numbers["workspace"] = int(found[8])
        for layout in (first, second, third):
            lt.cublasLtMatrixLayoutDestroy(layout)
        lt.cublasLtMatmulPreferenceDestroy(pref)
        lt.cublasLtMatmulDescDestroy(desc)
        return numbers


def _traced(work: Any) -> list[dict[str, Any]]:
    """The kernels that `work` launched, in order: name, grid and block."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        device.cupy().cuda.Device().synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])
    return [{"name": e["name"], "grid": e["args"]["grid"], "block": e["args"]["block"]} for e in kernels]


def survey(calls: list[GemmCall], minutes: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Each call's record, and outputs sampled, in groups that are traced together, until the minutes are over."""
    cp = device.cupy()
    import torch  # noqa: F401  the profiler's, initialised before the first call

    heuristic, started = Heuristic(), time.monotonic()
    records: list[dict[str, Any]] = []
    outputs: dict[str, Any] = {}
    for first in range(0, len(calls), 40):
        if time.monotonic() - started > 60 * minutes:
            break
        group = calls[first : first + 40]

        def work(group: list[GemmCall] = group, first: int = first) -> None:
            for i, call in enumerate(group, first):
                fmt, out, _ = KINDS[call.kind]
                a_t, b_t = (letter == "t" for letter in call.layout)
                a = _matrix(call.m, call.k, fmt, "a", call.seed, not a_t)
                b = _matrix(call.n, call.k, fmt, "b", call.seed, b_t)
                storage = {"float64": cp.uint64, "float32": cp.uint32, "float16": cp.uint16, "bfloat16": cp.uint16}[out]
                d = cp.empty((call.m, call.n), storage)
                _call(call, a, b, d)
                rows, columns = sampled(call)
                outputs[f"d{i}"] = cp.asnumpy(d[cp.asarray(rows)][:, cp.asarray(columns)])
                del a, b, d

        kernels = _traced(work)
        runs: list[list[dict[str, Any]]] = []
        hashes = 0
        for event in kernels:
            if event["name"].startswith("hashed"):
                hashes += 1
                if hashes % 2:
                    runs.append([])
            elif "cupy" not in event["name"] and "at::native" not in event["name"] and not event["name"].startswith("Mem"):
                runs[-1].append(event)
        for i, call in enumerate(group, first):
            records.append({**asdict(call), "kernels": runs[i - first], "lt": heuristic(call)})
        cp.get_default_memory_pool().free_all_blocks()
    return records, outputs


def index_pairs(k: int, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Pairs (i, j) of places along k: all where they fit, else those with the first and the last, neighbours, and random ones."""
    if k * (k - 1) // 2 <= count:
        return np.stack(np.triu_indices(k, 1), axis=1)
    rng = np.random.default_rng(seed)
    near = np.arange(k - 1)[: count // 4] if k - 1 <= count // 4 else np.sort(rng.choice(k - 1, count // 4, replace=False))
    some = np.arange(1, k) if k - 1 <= count // 4 else np.sort(rng.choice(np.arange(1, k), count // 4, replace=False))
    listed = [np.stack([near, near + 1], axis=1), np.stack([np.zeros_like(some), some], axis=1)]
    rest = count - sum(len(x) for x in listed)
    left = rng.integers(0, k, rest)
    right = (left + rng.integers(1, k, rest)) % k
    return np.concatenate([*listed, np.stack([np.minimum(left, right), np.maximum(left, right)], axis=1)])


def tree(call: GemmCall, count: int = 4096) -> tuple[np.ndarray[Any, Any], list[dict[str, Any]]]:
    """How many terms are added after a pair has met, for pairs (i, j) of `pairs_of`: the summation tree, as FPRev finds it.

    A large term at i and its negative at j swallow what is added before they meet; the others are equal and small.
    """
    cp = device.cupy()
    fmt, out, _ = KINDS[call.kind]
    a_t, b_t = (letter == "t" for letter in call.layout)
    large, small, other = (2.0**15, 2.0**-24, 2.0**8) if fmt == "float16" else (2.0**60, 2.0**-60, 1.0)
    pairs = index_pairs(call.k, count, call.seed)
    by_column = call.n >= call.m
    lines = call.n if by_column else call.m
    found = np.zeros(len(pairs), np.float64)

    def stored(x: Any, k_contiguous: bool) -> Any:
        x = cp.ascontiguousarray(x if k_contiguous else x.T)
        if fmt == "float16":
            return x.astype(cp.float16)
        return (x.view(cp.uint32) >> 16).astype(cp.uint16) if fmt == "bfloat16" else x

    d = cp.empty(
        (call.m, call.n), {"float64": cp.uint64, "float32": cp.uint32, "float16": cp.uint16, "bfloat16": cp.uint16}[out]
    )
    plain = cp.full((call.m if by_column else call.n, call.k), other, cp.float32)
    for first in range(0, len(pairs), lines):
        some = pairs[first : first + lines]
        masks = cp.full((lines, call.k), small, cp.float32)
        rows = cp.arange(len(some))
        masks[rows, cp.asarray(some[:, 0])], masks[rows, cp.asarray(some[:, 1])] = large, -large
        a, b = (plain, masks) if by_column else (masks, plain)
        _call(call, stored(a, not a_t), stored(b, b_t), d)
        got = cp.asnumpy(d[0] if by_column else d[:, 0])[: len(some)]
        wide = {
            "float32": lambda x: x.view(np.float32),
            "float16": lambda x: x.view(np.float16),
            "bfloat16": lambda x: (x.astype(np.uint32) << 16).view(np.float32),
        }[out](got)
        found[first : first + len(some)] = wide.astype(np.float64) / (small * other)
    kernels = _traced(
        lambda: _call(call, stored(plain if by_column else masks, not a_t), stored(masks if by_column else plain, b_t), d)
    )
    return found, [e for e in kernels if "cupy" not in e["name"]]


def trees(calls: list[GemmCall], minutes: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """`tree` of each call, until the minutes are over."""
    import torch  # noqa: F401

    records, outputs, started = [], {}, time.monotonic()
    for i, call in enumerate(calls):
        if time.monotonic() - started > 60 * minutes:
            break
        found, kernels = tree(call)
        outputs[f"t{i}"] = found.astype(np.float32)
        records.append({**asdict(call), "kernels": kernels})
    return records, outputs


def main(out: str, count: str, seed: str, minutes: str, step: str, *kinds: str) -> None:
    records, outputs = survey(draw_gemms(int(count), int(seed), kinds or tuple(KINDS), int(step)), float(minutes))
    meta = {**device.describe(), "cublasLt": Heuristic().version, "seed": int(seed), "sample": SAMPLE}
    np.savez_compressed(out, records=json.dumps({"meta": meta, "calls": records}), **outputs)
    print(len(records), "calls", meta)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
