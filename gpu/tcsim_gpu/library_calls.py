"""Calls of cuBLAS, cublasLt and PyTorch on operands that are hashes of their places: drawn, described and run.

A call is D = act(alpha·A·B + beta·C + bias) for each element of a batch; the operands of element z have the seed `seed_of(call, z)`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.fp.formats import format_named
from tcsim.probing.libraries.gemm_kernels import GemmKind
from tcsim_gpu import device, lt
from tcsim_gpu.cublas import COMPUTE_TYPES
from tcsim_gpu.survey import KINDS, _call, _code, _matrix

SAMPLED = 4096  # outputs of each call, where it has as many
STORAGE = {"float64": np.uint64, "float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16}


@dataclass(frozen=True)
class LibraryCall:
    """One call of a library. `op` is "gemmEx", "lt", "batched", or a PyTorch function of `call_draws.TORCH_OPS` after "torch "."""

    op: str
    kind: str
    m: int
    n: int
    k: int
    layout: str
    seed: int
    alpha: float = 1.0
    beta: float = 0.0
    bias: bool = False
    relu: bool = False
    batch: int = 1
    whole: bool = False  # every output is kept, not a sample

    @property
    def formats(self) -> tuple[str, str, str]:
        """Input, output and compute type."""
        return KINDS[self.kind]


def gemm_kind(name: str) -> GemmKind:
    """The formats behind a name of `KINDS`."""
    fmt, out, compute = KINDS[name]
    return GemmKind(fmt, out, {"16f": "float16", "64f": "float64"}.get(compute, "float32"), name.endswith("fast"))


def value_patterns(d: np.ndarray[Any, Any], fmt: str) -> np.ndarray[Any, Any]:
    """The patterns of an output's values, NaN as it is."""
    if fmt == "bfloat16":
        return (np.ascontiguousarray(d, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(d).view(format_named(fmt).storage)


def seed_of(call: LibraryCall, z: int) -> int:
    return (call.seed + z * 0x9E3779B1) & 0xFFFFFFFF


def kept_places(call: LibraryCall) -> tuple[Any, Any]:
    """The rows and columns whose outputs are looked at, ascending: all, or so many that SAMPLED places are."""
    if call.whole:
        return np.arange(call.m), np.arange(call.n)
    rng = np.random.default_rng(call.seed)
    rows = min(call.m, 64)
    columns = min(call.n, -(-SAMPLED // rows))
    rows = min(call.m, -(-SAMPLED // columns))
    return np.sort(rng.permutation(call.m)[:rows]), np.sort(rng.permutation(call.n)[:columns])


def kept_elements(call: LibraryCall) -> list[int]:
    """The elements of the batch that are looked at."""
    return sorted({0, call.batch // 2, call.batch - 1})


launched = [0]  # how many kernels have made hashes: where a call begins in a trace


def _made(*arguments: Any) -> Any:
    launched[0] += 1
    return _matrix(*arguments)


class CallOperands:
    """A call's matrices on the device."""

    def __init__(self, call: LibraryCall) -> None:
        cp = device.cupy()
        fmt, out, _ = call.formats
        a_t, b_t = (letter == "t" for letter in call.layout)
        self.a = self._stack(call, call.m, call.k, fmt, "a", not a_t)
        self.b = self._stack(call, call.n, call.k, fmt, "b", b_t)
        self.c = self._stack(call, call.m, call.n, out, "c", True) if call.beta else None
        self.bias = self._stack(call, 1, call.n, out, "bias", True) if call.bias else None
        self.d = cp.empty((call.batch, call.m, call.n), STORAGE[out]) if self.c is None else _codes_of(self.c, out)
        self.d = self.d.reshape(call.batch, call.m, call.n)

    def _stack(self, call: LibraryCall, lines: int, k: int, fmt: str, side: str, along: bool) -> Any:
        parts = [_made(lines, k, fmt, side, seed_of(call, z), along) for z in range(call.batch)]
        return parts[0] if len(parts) == 1 else device.cupy().concatenate(parts)


class GivenOperands:
    """A call's matrices on the device: a and b given as they are stored, c and the bias zero."""

    def __init__(self, call: LibraryCall, a: Any, b: Any) -> None:
        cp = device.cupy()
        _, out, _ = call.formats
        stored = np.uint16 if out == "bfloat16" else np.dtype(out)
        self.a, self.b = a, b
        self.c = cp.zeros(call.batch * call.m * call.n, stored) if call.beta else None
        self.bias = cp.zeros(call.batch * call.n, stored) if call.bias else None
        self.d = cp.zeros((call.batch, call.m, call.n), STORAGE[out])


def _codes_of(x: Any, fmt: str) -> Any:
    return x.view(STORAGE[fmt])


def run_library(call: LibraryCall, x: CallOperands | GivenOperands) -> Any:
    """The call's D, codes (batch, m, n) on the device."""
    if call.op == "lt":
        lt.shared_lt().run(call, x.a, x.b, x.c, x.d, x.bias)
    elif call.op == "batched" or call.alpha != 1 or call.beta:
        _gemm_ex(call, x)
    else:
        _call(call, x.a, x.b, x.d[0])  # type: ignore[arg-type]
    return x.d


def _gemm_ex(call: LibraryCall, x: CallOperands | GivenOperands) -> None:
    """cublasGemmStridedBatchedEx, and cublasGemmEx for one product, by ctypes."""
    cp = device.cupy()
    fmt, out, compute = call.formats
    blas = ctypes.CDLL("libcublas.so.13")
    handle = ctypes.c_void_p(cp.cuda.device.get_cublas_handle())
    scalar = np.float16 if compute == "16f" else np.float32
    alpha, beta = np.array(call.alpha, scalar), np.array(call.beta, scalar)
    a_t, b_t = (letter == "t" for letter in call.layout)
    ptr, size = ctypes.c_void_p, ctypes.c_longlong
    blas.cublasSetPointerMode_v2(handle, 0)
    lead = (call.k if b_t else call.n, call.m if a_t else call.k, call.n)
    first = (ptr(x.b.data.ptr), _code(fmt), lead[0])
    second = (ptr(x.a.data.ptr), _code(fmt), lead[1])
    third = (ptr(x.d.data.ptr), _code(out), lead[2])
    sizes = (handle, int(b_t), int(a_t), call.n, call.m, call.k, ptr(alpha.ctypes.data))
    if call.op == "batched":
        status = blas.cublasGemmStridedBatchedEx(
            *sizes, *first, size(call.n * call.k), *second, size(call.m * call.k), ptr(beta.ctypes.data), *third,
            size(call.m * call.n), call.batch, COMPUTE_TYPES[compute], -1,
        )  # fmt: skip
    else:
        status = blas.cublasGemmEx(*sizes, *first, *second, ptr(beta.ctypes.data), *third, COMPUTE_TYPES[compute], -1)
    if status:
        raise RuntimeError(f"cuBLAS failed with status {status}")


def run_torch(call: LibraryCall, x: CallOperands | GivenOperands) -> Any:
    """The call's D by PyTorch, codes (batch, m, n) on the device."""
    import torch

    cp = device.cupy()
    out = torch_result(call, *(None if t is None else _tensor(t, call.formats[0]) for t in (x.a, x.b, x.c, x.bias)))
    torch.cuda.synchronize()
    codes = out.detach().contiguous().view({4: torch.int32, 2: torch.int16}[out.element_size()])
    return cp.from_dlpack(codes).view(STORAGE[call.formats[1]]).reshape(call.batch, call.m, call.n)


def _tensor(x: Any, fmt: str) -> Any:
    import torch

    if fmt == "bfloat16":
        return torch.from_dlpack(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_dlpack(x)


def torch_result(call: LibraryCall, a: Any, b: Any, c: Any, bias: Any) -> Any:
    """What PyTorch gives for flat operands stored as the call's layout says."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = call.kind.startswith("tfloat32")
    op, z, (m, n, k) = call.op.removeprefix("torch "), call.batch, (call.m, call.n, call.k)
    a = a.reshape(z, k, m).mT if call.layout[0] == "t" else a.reshape(z, m, k)
    b = b.reshape(z, n, k).mT if call.layout[1] == "t" else b.reshape(z, k, n)
    c = None if c is None else c.reshape(z, m, n)
    if op == "bmm":
        return torch.bmm(a, b)
    if op == "baddbmm":
        return torch.baddbmm(c, a, b)
    a, b = a[0], b[0]
    if op == "mm":
        return torch.mm(a, b)
    if op == "addmm":
        return torch.addmm(bias, a, b)
    if op == "addmm c":
        return torch.addmm(c[0], a, b)
    if op.startswith("linear"):
        return torch.nn.functional.linear(a, b.t(), bias)
    if op == "dx":  # the gradient a of y = x·bᵀ, b (k, n) the weight: dx = a·b
        x = torch.zeros((m, n), dtype=a.dtype, device=a.device, requires_grad=True)
        return torch.autograd.grad(_forward(x, b), x, a)[0]
    # "dw": the weight's gradient aᵀ-stored (m, k) times the input b (k, n)
    w = torch.zeros((m, n), dtype=a.dtype, device=a.device, requires_grad=True)
    return torch.autograd.grad(_forward(b, w), w, a.t())[0]


def _forward(x: Any, w: Any) -> Any:
    """x·wᵀ, and a mark in the trace after it."""
    import torch

    y = torch.nn.functional.linear(x, w)
    if y.is_cuda:
        _made(1, 1, "float32", "a", 0, True)
    return y
