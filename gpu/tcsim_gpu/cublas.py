"""The vendor's GEMM: cublasGemmEx, and cublasLt for fp8, with the compute type and the kernels that ran on record."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim.fp.formats import format_named
from tcsim_gpu import device
from tcsim_gpu.launch import on_device

# cudaDataType_t and cublasComputeType_t of library_types.h and cublas_api.h.
DATA_TYPES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "int8": 3,
    "int32": 10,
    "bfloat16": 14,
    "float8_e4m3fn": 28,
    "float8_e5m2": 29,
}
COMPUTE_TYPES = {"16f": 64, "32f": 68, "32f_pedantic": 69, "64f": 70, "32i": 72, "32f_fast_tf32": 77}
# (input, output) -> the compute type that runs on tensor cores; float32 in keeps its precision unless tf32 is asked for.
_DEFAULTS = {
    ("float16", "float32"): "32f", ("float16", "float16"): "16f", ("bfloat16", "float32"): "32f",
    ("tfloat32", "float32"): "32f_fast_tf32", ("float32", "float32"): "32f_pedantic", ("float64", "float64"): "64f",
    ("int8", "int32"): "32i", ("float8_e4m3fn", "float32"): "32f", ("float8_e5m2", "float32"): "32f",
}  # fmt: skip


@dataclass(frozen=True)
class Gemm:
    """What a vendor GEMM gave: codes (m, n) on the device, the compute type asked for, and the kernels that ran."""

    codes: Any
    compute: str
    kernels: tuple[str, ...]


def cublas_gemm(
    a: Any,
    b: Any,
    fmt: str,
    b_fmt: str | None = None,
    out: str = "float32",
    *,
    c: Any = None,
    compute: str | None = None,
    names: bool = True,
    fast_accumulation: bool = False,
) -> Gemm:
    """A·B by cuBLAS from codes a (m, k) and b (k, n); with `c`, codes (m, n) of the output, beta = 1 and c is overwritten.

    `fmt` and `b_fmt` are input formats, `out` the output's. ValueError for formats cuBLAS does not have. Kernel names come
    from PyTorch's profiler where PyTorch is installed and `names` is true; otherwise the tuple is empty.

    `fast_accumulation` is cublasLt's flag for fp8. Seen on an H200, every bit of five shapes from 256 x 256 x 4096 to
    4096 x 4096 x 4096 (kernels nvjet_sm90_qqsss_*): with it a GEMM is Sequential() on the wgmma unit; without it (*_algo2_*)
    the tensor core's sum is added to a float32 one every 128 products, which is Blocked(128, sum="float32"). Where the
    heuristic splits k (*_splitK_*, six ways for 128 x 128 x 16384) it is SplitK(6, 128) with the flag, and without it each
    part is Blocked(128) and the parts are added in ascending order.
    """
    cp = device.cupy()
    fa, fb, fo = (format_named(f).name for f in (fmt, b_fmt or fmt, out))
    eight = "float8" in fa
    key = (fa, fo)
    if compute is None:
        if key not in _DEFAULTS:
            raise unknown("cuBLAS input -> output", f"{fa} -> {fo}", [f"{i} -> {o}" for i, o in _DEFAULTS])
        compute = _DEFAULTS[key]
    if compute not in COMPUTE_TYPES:
        raise unknown("compute type", compute, COMPUTE_TYPES)
    a, b = cp.ascontiguousarray(on_device(a)), cp.ascontiguousarray(on_device(b))
    d = cp.empty((a.shape[0], b.shape[1]), format_named(fo).storage) if c is None else on_device(c)
    if c is not None:
        names = False

    def call() -> None:
        if eight:
            _matmul_fp8(a, cp.ascontiguousarray(b.T), d, (fa, fb), fast_accumulation)
        else:
            _gemm_ex(a, b, d, (fa, fb, fo, compute), beta=int(c is not None))

    kernels = _kernel_names(call) if names else ()
    if not kernels:
        call()
    return Gemm(d, compute, kernels)


def _code(fmt: str) -> int:
    return DATA_TYPES["float32" if fmt == "tfloat32" else fmt]


def _gemm_ex(a: Any, b: Any, d: Any, kinds: tuple[str, str, str, str], beta: int) -> None:
    """Row-major C = A·B is column-major Cᵀ = Bᵀ·Aᵀ."""
    cp = device.cupy()
    from cupy.cuda import cublas

    fa, fb, fo, compute = kinds
    (m, k), n = a.shape, b.shape[1]
    scalar = {"16f": np.float16, "64f": np.float64, "32i": np.int32}.get(compute, np.float32)
    one, factor = np.array(1, scalar), np.array(beta, scalar)
    handle = cp.cuda.device.get_cublas_handle()
    mode = cublas.getPointerMode(handle)
    cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
    try:
        cublas.gemmEx(
            handle, 0, 0, n, m, k, one.ctypes.data, b.data.ptr, _code(fb), n, a.data.ptr, _code(fa), k, factor.ctypes.data,
            d.data.ptr, _code(fo), n, COMPUTE_TYPES[compute], -1,
        )  # fmt: skip
    finally:
        cublas.setPointerMode(handle, mode)


def _kernel_names(call: Any) -> tuple[str, ...]:
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return ()
    cp = device.cupy()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call()
        cp.cuda.Device().synchronize()
    on_gpu = [e for e in seen.events() if "CUDA" in str(e.device_type) and not e.name.startswith(("Mem", "Activity"))]
    return tuple(e.name for e in sorted(on_gpu, key=lambda e: e.time_range.start))


class _Heuristic(ctypes.Structure):
    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


def _lt() -> ctypes.CDLL:
    for version in ("13", "12"):
        try:
            return ctypes.CDLL(f"libcublasLt.so.{version}")
        except OSError:
            continue
    raise device.NoGPU("fp8 GEMM needs libcublasLt, which was not found: install the CUDA toolkit or nvidia-cublas")


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what} failed with cublas status {status}")


def _matmul_fp8(a: Any, b_t: Any, d: Any, formats: tuple[str, str], fast: bool) -> None:
    """cublasLt: column-major Dᵀ (n, m) = (B stored n-major along k)ᵀ · A, the one layout that fp8 has."""
    cp = device.cupy()
    fa, fb = formats
    lt, ptr = _lt(), ctypes.c_void_p
    (m, k), n = a.shape, b_t.shape[0]
    handle, desc, pref = ptr(), ptr(), ptr()
    _check(lt.cublasLtCreate(ctypes.byref(handle)), "cublasLtCreate")
    _check(
        lt.cublasLtMatmulDescCreate(ctypes.byref(desc), COMPUTE_TYPES["32f"], DATA_TYPES["float32"]), "cublasLtMatmulDescCreate"
    )
    transposed = ctypes.c_int(1)
    mode = ctypes.c_int8(fast)
    for attribute, value, size in ((3, transposed, 4), (25, mode, 1)):  # CUBLASLT_MATMUL_DESC_TRANSA, _FAST_ACCUM
        status = lt.cublasLtMatmulDescSetAttribute(desc, attribute, ctypes.byref(value), ctypes.c_size_t(size))
        _check(status, "cublasLtMatmulDescSetAttribute")
    layouts = []
    for fmt, rows, columns, leading in ((fb, k, n, k), (fa, k, m, k), ("float32", n, m, n)):
        layout = ptr()
        args = (ctypes.byref(layout), DATA_TYPES[fmt], ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(leading))
        _check(lt.cublasLtMatrixLayoutCreate(*args), "cublasLtMatrixLayoutCreate")
        layouts.append(layout)
    _check(lt.cublasLtMatmulPreferenceCreate(ctypes.byref(pref)), "cublasLtMatmulPreferenceCreate")
    space = cp.empty(32 << 20, cp.uint8)
    workspace = ctypes.c_size_t(space.nbytes)
    lt.cublasLtMatmulPreferenceSetAttribute(pref, 1, ctypes.byref(workspace), 8)  # MAX_WORKSPACE_BYTES
    found, count = _Heuristic(), ctypes.c_int()
    lb, la, ld = layouts
    status = lt.cublasLtMatmulAlgoGetHeuristic(handle, desc, lb, la, ld, ld, pref, 1, ctypes.byref(found), ctypes.byref(count))
    _check(status, "cublasLtMatmulAlgoGetHeuristic")
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    status = lt.cublasLtMatmul(
        handle, desc, ctypes.byref(one), ptr(b_t.data.ptr), lb, ptr(a.data.ptr), la, ctypes.byref(zero), ptr(d.data.ptr), ld,
        ptr(d.data.ptr), ld, ctypes.byref(found.algorithm), ptr(space.data.ptr), ctypes.c_size_t(space.nbytes),
        ptr(cp.cuda.get_current_stream().ptr),
    )  # fmt: skip
    _check(status, "cublasLtMatmul")
    cp.cuda.get_current_stream().synchronize()
    for layout in layouts:
        lt.cublasLtMatrixLayoutDestroy(layout)
    lt.cublasLtMatmulPreferenceDestroy(pref)
    lt.cublasLtMatmulDescDestroy(desc)
    lt.cublasLtDestroy(handle)
