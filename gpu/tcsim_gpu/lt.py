"""cublasLt through ctypes: what its heuristic says of a call, and the call with its epilogue."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from tcsim_gpu import device
from tcsim_gpu.cublas import COMPUTE_TYPES, DATA_TYPES
from tcsim_gpu.survey import ATTRIBUTES, KINDS, SCALARS, WORKSPACE

TRANSPOSED, EPILOGUE, BIAS_POINTER, FAST = (3, 4), 7, 8, 25  # cublasLtMatmulDescAttributes_t
BATCH_COUNT, BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
EPILOGUES = {(False, False): 1, (False, True): 2, (True, False): 4, (True, True): 6}  # bias, relu


@cache
def shared_lt() -> Lt:
    return Lt()


class Lt:
    """A handle of cublasLt. Calls have the fields of `library_calls.LibraryCall`."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcublasLt.so.13")
        self.handle = ctypes.c_void_p()
        self.lib.cublasLtCreate(ctypes.byref(self.handle))
        self.lib.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = int(self.lib.cublasLtGetVersion())

    def heuristic(self, call: Any) -> dict[str, int]:
        """The numbers of the first algorithm that cublasLt offers."""
        with _Described(self.lib, self.handle, call, 1 << 20) as made:  # a bias nobody reads
            return made.numbers

    def run(self, call: Any, a: Any, b: Any, c: Any, d: Any, bias: Any) -> None:
        """D (m, n) row-major of the call, in place of `d`."""
        cp, ptr = device.cupy(), ctypes.c_void_p
        space = cp.empty(WORKSPACE, cp.uint8)
        scalar = SCALARS.get(KINDS[call.kind][2], np.float32)
        alpha, beta = np.array(call.alpha, scalar), np.array(call.beta, scalar)
        with _Described(self.lib, self.handle, call, 0 if bias is None else bias.data.ptr) as made:
            if made.numbers["status"] or not made.numbers["count"]:
                raise RuntimeError(f"cublasLt has no algorithm: {made.numbers}")
            third = d.data.ptr if c is None else c.data.ptr
            status = self.lib.cublasLtMatmul(
                self.handle, made.desc, ptr(alpha.ctypes.data), ptr(b.data.ptr), made.layouts[0], ptr(a.data.ptr), made.layouts[1],
                ptr(beta.ctypes.data), ptr(third), made.layouts[2], ptr(d.data.ptr), made.layouts[2], ctypes.byref(made.found),
                ptr(space.data.ptr), ctypes.c_size_t(WORKSPACE), ptr(cp.cuda.get_current_stream().ptr),
            )  # fmt: skip
            cp.cuda.get_current_stream().synchronize()
        if status:
            raise RuntimeError(f"cublasLtMatmul failed with status {status}")


class _Described:
    """Descriptors of a call, and the heuristic's answer: row-major D = A·B is column-major Dᵀ = Bᵀ·Aᵀ."""

    def __init__(self, lib: ctypes.CDLL, handle: Any, call: Any, bias: int = 0) -> None:
        ptr, by = ctypes.c_void_p, ctypes.byref
        self.lib = lib
        fmt, out, compute = KINDS[call.kind]
        a_t, b_t = (letter == "t" for letter in call.layout)
        self.desc, self.pref = ptr(), ptr()
        lib.cublasLtMatmulDescCreate(
            by(self.desc), COMPUTE_TYPES[compute], DATA_TYPES[np.dtype(SCALARS.get(compute, np.float32)).name]
        )
        self._attribute(FAST, ctypes.c_int8(call.kind.endswith("fast")))
        for attribute, on in zip(TRANSPOSED, (b_t, a_t), strict=True):
            self._attribute(attribute, ctypes.c_int(int(on)))
        with_bias, relu = getattr(call, "bias", False), getattr(call, "relu", False)
        if with_bias or relu:
            self._attribute(EPILOGUE, ctypes.c_int(EPILOGUES[with_bias, relu]))
        if with_bias:
            self._attribute(BIAS_POINTER, ctypes.c_uint64(bias))
        n, m, k, batch = call.n, call.m, call.k, getattr(call, "batch", 1)
        self.layouts = [
            self._layout(fmt, (k, n) if b_t else (n, k), batch, n * k),
            self._layout(fmt, (m, k) if a_t else (k, m), batch, m * k),
            self._layout(out, (n, m), batch, m * n),
        ]
        lib.cublasLtMatmulPreferenceCreate(by(self.pref))
        space = ctypes.c_size_t(WORKSPACE)
        lib.cublasLtMatmulPreferenceSetAttribute(self.pref, 1, by(space), ctypes.c_size_t(8))
        self.found, count = (ctypes.c_uint64 * 32)(), ctypes.c_int()
        first, second, third = self.layouts
        status = lib.cublasLtMatmulAlgoGetHeuristic(
            handle, self.desc, first, second, third, third, self.pref, 1, by(self.found), by(count)
        )
        self.numbers = {"status": int(status), "count": count.value}
        if status == 0 and count.value:
            for name, attribute in ATTRIBUTES.items():
                value, written = ctypes.c_uint32(), ctypes.c_size_t()
                lib.cublasLtMatmulAlgoConfigGetAttribute(by(self.found), attribute, by(value), ctypes.c_size_t(4), by(written))
                self.numbers[name] = value.value
            self.numbers["workspace"] = int(self.found[8])

    def _attribute(self, attribute: int, value: Any) -> None:
        self.lib.cublasLtMatmulDescSetAttribute(
            self.desc, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
        )

    def _layout(self, fmt: str, shape: tuple[int, int], batch: int, stride: int) -> Any:
        layout = ctypes.c_void_p()
        code = DATA_TYPES["float32" if fmt == "tfloat32" else fmt]
        rows, columns = shape
        self.lib.cublasLtMatrixLayoutCreate(
            ctypes.byref(layout), code, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        )
        if batch > 1:
            for attribute, value in ((BATCH_COUNT, ctypes.c_int32(batch)), (BATCH_STRIDE, ctypes.c_int64(stride))):
                self.lib.cublasLtMatrixLayoutSetAttribute(
                    layout, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
                )
        return layout

    def __enter__(self) -> _Described:
        return self

    def __exit__(self, *error: object) -> None:
        for layout in self.layouts:
            self.lib.cublasLtMatrixLayoutDestroy(layout)
        self.lib.cublasLtMatmulPreferenceDestroy(self.pref)
        self.lib.cublasLtMatmulDescDestroy(self.desc)
