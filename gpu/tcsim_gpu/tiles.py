"""What products on Hopper's tensor cores share: tiles of 128 bytes of k in shared memory, the copy engine's descriptions, launches."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from math import ceil
from typing import Any

import numpy as np

from tcsim_gpu import device
from tcsim_gpu.launch import compiled_kernel

BM, ROW_BYTES = 128, 128
SHARED_BYTES = 227 << 10


class Map(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint8 * 128),)


class ProductArguments(ctypes.Structure):
    _fields_ = (
        ("a", Map * 3),
        ("b", Map * 3),
        ("c", ctypes.c_uint64),
        ("d", ctypes.c_uint64),
        ("m", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("phases", ctypes.c_int32),
        ("which_a", ctypes.c_int32 * 6),
        ("which_b", ctypes.c_int32 * 6),
        ("shift", ctypes.c_int32),
        ("largest", ctypes.c_uint64),
        ("pad", ctypes.c_uint8 * 24),
    )


_BY_VALUE = np.dtype((np.void, ctypes.sizeof(ProductArguments)))


def mma_text(n: int, k: int, a: str, b: str, transposed: str) -> str:
    """The function mma(d, a, b, keep): one instruction on top of d, or in its place."""
    count = n // 2
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    registers = ", ".join(f"%{i}" for i in range(count))
    return (
        f"__device__ __forceinline__ void mma(float (&d)[{count}], unsigned long long a, unsigned long long b, int keep) {{\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'  "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{a}.{b} {{{registers}}}, %{count}, %{count + 1}, p, 1, 1{transposed};'
        f'\\n}}" : {outs} : "l"(a), "l"(b), "r"(keep));\n}}\n'
    )


def stages(lines: int) -> int:
    """How many stages shared memory holds, so many rows and columns each."""
    return SHARED_BYTES // (lines * ROW_BYTES + 16)


def shared_bytes(lines: int) -> int:
    return stages(lines) * (lines * ROW_BYTES + 16)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def tensor_map(matrix: Any, rows: int, kind: int) -> Map:
    """The copy engine's description of a (rows of the matrix, k) array, k contiguous: boxes of 128 bytes of k by `rows`."""
    return map_at(matrix.data.ptr, matrix.shape, pitch_of(matrix), matrix.itemsize, rows, kind)


def pitch_of(matrix: Any) -> int:
    """Bytes from line to line; a lone line may have any stride."""
    return int(matrix.strides[0] if matrix.shape[0] > 1 else matrix.shape[1] * matrix.itemsize)


@lru_cache(maxsize=256)
def map_at(address: int, shape: tuple[int, int], pitch: int, itemsize: int, rows: int, kind: int) -> Map:
    out = Map()
    aligned = (ctypes.c_uint8 * 192)()
    base = ctypes.addressof(aligned)
    place = base + (-base) % 64
    sizes = (ctypes.c_uint64 * 2)(shape[1], shape[0])
    strides = (ctypes.c_uint64 * 1)(pitch)
    box, step = (ctypes.c_uint32 * 2)(ROW_BYTES // itemsize, rows), (ctypes.c_uint32 * 2)(1, 1)
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(place), kind, 2, ctypes.c_void_p(address), sizes, strides, box, step, 0, 3, 2, 0
    )
    if status:
        raise RuntimeError(f"cuTensorMapEncodeTiled failed with status {status}")
    ctypes.memmove(ctypes.addressof(out), place, 128)
    return out


def lies_along_n(matrix: Any) -> bool:
    """Whether a chain takes an operand (n, k) as it lies along n: codes of 16 or 32 bits, lines of whole 16 bytes. FABsum takes 16."""
    size, lines = matrix.itemsize, matrix.strides[1]
    return bool(size in (2, 4) and size == matrix.strides[0] != lines and lines % 16 == matrix.data.ptr % 16 == 0)


def map_of_b(matrix: Any, columns: int, kind: int, along_n: bool) -> Map:
    """The description of b (n, k): boxes of `columns` along k, or of 128 bytes along n by as many k as there are codes in them."""
    return tensor_map(matrix.T, ROW_BYTES // matrix.itemsize, kind) if along_n else tensor_map(matrix, columns, kind)


def k_contiguous(matrix: Any) -> Any:
    """(rows, k) with k contiguous and padded by zeros to whole 16 bytes, at a multiple of 16."""
    cp = device.cupy()
    rows, k = matrix.shape
    padded = -(-k // (16 // matrix.itemsize)) * (16 // matrix.itemsize)
    if padded == k:
        out = cp.ascontiguousarray(matrix)
        return out.copy() if out.data.ptr % 16 else out
    out = cp.zeros((rows, padded), matrix.dtype)
    out[:, :k] = matrix
    return out


def tile_kernel(name: str, source: str, rows: int, columns: int) -> Any:
    kernel = compiled_kernel(source, name, ("-arch=sm_90a",))
    kernel.max_dynamic_shared_size_bytes = shared_bytes(rows + columns)
    return kernel


def launch(kernel: Any, args: ProductArguments, rows: int, columns: int) -> None:
    by_value = np.frombuffer(bytes(args), dtype=_BY_VALUE)[0]
    kernel((ceil(args.m / rows) * ceil(args.n / columns),), (384,), (by_value,), shared_mem=shared_bytes(rows + columns))
