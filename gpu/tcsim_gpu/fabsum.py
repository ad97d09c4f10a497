"""FABsum and multiword products fused in one tensor-core kernel (Hopper): Algorithms 4.2, 4.3 and 4.4 of Fasi, Higham,
Lopez, Mary and Mikaitis.

`fabsum_gemm(a, b, block, sum)` equals ``tcsim.matmul(a, b, unit=<the GPU's wgmma unit>, schedule=Blocked(block, sum))`` bit
for bit. `multiword_gemm` splits float32 matrices into words and chains the small products before it.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from math import ceil
from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim_gpu import device
from tcsim_gpu.launch import compiled_kernel, on_device
from tcsim_gpu.source import kernel_text

BM, ROW_BYTES = 128, 128
_TENSOR = {"float16": ("f16", 6), "bfloat16": ("bf16", 9)}  # PTX type, CUtensorMapDataType
# PTX type, CUtensorMapDataType (of plain integers), bytes of a code: what a chain alone can be made of.
CHAINED = {
    "float16": ("f16", 1, 2), "bfloat16": ("bf16", 1, 2), "tfloat32": ("tf32", 2, 4), "float8_e4m3fn": ("e4m3", 0, 1),
    "float8_e5m2": ("e5m2", 0, 1),
}  # fmt: skip
CHAIN_COLUMNS = 256  # of a tile: all registers are the accumulator's
TURNED = (256, 128)  # rows and columns of a tile of 32-bit codes of b that lie along n
SHARED_BYTES = 227 << 10
LARGEST_TURN = 128  # float sums of blocks up to this size let the two warpgroups take turns
CONVERTED = 4  # of so many double sums one takes its block through the conversion unit
SHIFT = 1 << 29  # of a float's bits, to a double's


class _Map(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint8 * 128),)


class _Product(ctypes.Structure):
    _fields_ = (
        ("a", _Map * 3),
        ("b", _Map * 3),
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


def tile_columns(sum_format: str) -> int:
    """Columns of a thread block's tile: accumulator and sum share 232 registers a thread."""
    return 192 if sum_format == "float32" else 128


@cache
def fabsum_source(block: int, sum_format: str, fmt: str, rounding: str = "rn", along_n: bool = False) -> str:
    """The kernel for a block size, a format of the outer sum ("float32": v1, "float64": v2), an input format, how PTX names
    the rounding of float32's outer additions, and whether b lies along n."""
    n = tile_columns(sum_format)
    return "".join(
        [
            f"#define BM {BM}\n#define BN {n}\n#define BK 64\n#define B {block}\n#define WIDE_SUM {int(sum_format == 'float64')}\n",
            f"#define STAGES {_stages(BM + n)}\n#define CHAINED 0\n#define B_ALONG_N {int(along_n)}\n",
            f'#define TURNS {int(sum_format == "float32" and block <= LARGEST_TURN)}\n#define ADD "add.{rounding}.f32"\n',
            f"#define CONVERTED {CONVERTED}\n",
            f'#define VALUE_OF "cvt.f32.{_TENSOR[fmt][0]}"\n',
            _mma(n, 16, _TENSOR[fmt][0], _TENSOR[fmt][0], f", 0, {int(along_n)}"),
            kernel_text("fabsum_sums.cuh", "fabsum.cuh"),
        ]
    )


@cache
def wgmma_chain_source(a: str, b: str, columns: int = CHAIN_COLUMNS, along_n: bool = False) -> str:
    """The kernel without an outer sum: the unit's own chain along all of k, from c on, for input formats a and b; codes of b of
    16 bits may lie along n."""
    n, size = columns, CHAINED[a][2]
    return "".join(
        [
            f"#define BM {BM}\n#define BN {n}\n#define BK {ROW_BYTES // size}\n#define B {ROW_BYTES // size}\n#define WIDE_SUM 0\n",
            f'#define STAGES {_stages(BM + n)}\n#define CHAINED 1\n#define TURNS 0\n#define ADD "add.rn.f32"\n#define CONVERTED 1\n',
            f"#define B_ALONG_N {int(along_n)}\n",
            _mma(n, 32 // size, CHAINED[a][0], CHAINED[b][0], f", 0, {int(along_n)}" if size == 2 else ""),
            kernel_text("fabsum_sums.cuh", "fabsum.cuh"),
        ]
    )


@cache
def turned_chain_source(a: str, b: str) -> str:
    """The kernel `turned` of the same chain where 32-bit codes of b lie along n."""
    rows, columns = TURNED
    size = CHAINED[b][2]
    return "".join(
        [
            f"#define BM {rows}\n#define BN {columns}\n#define BK {ROW_BYTES // size}\n#define STAGES {_stages(rows + columns)}\n",
            '#define WIDE_SUM 0\n#define TURNS 0\n#define ADD "add.rn.f32"\n#define CONVERTED 1\n#define B_ALONG_N 1\n',
            kernel_text("fabsum_sums.cuh"),
            _mma_of_registers(rows, 32 // size, CHAINED[a][0], CHAINED[b][0]),
            kernel_text("turned.cuh"),
        ]
    )


def _mma_of_registers(n: int, k: int, a: str, b: str) -> str:
    """The function mma(d, x, a): one instruction on top of d, its first operand b's codes x in registers."""
    count = n // 2
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    registers = ", ".join(f"%{i}" for i in range(count))
    codes = ", ".join(f"%{count + i}" for i in range(4))
    return (
        f"__device__ __forceinline__ void mma(float (&d)[{count}], const unsigned (&x)[4], unsigned long long a) {{\n"
        f'  asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{b}.{a} {{{registers}}}, {{{codes}}}, %{count + 4}, 1, 1, 1;"\n'
        f'  : {outs} : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(a));\n}}\n'
    )


def _mma(n: int, k: int, a: str, b: str, transposed: str) -> str:
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


def _stages(lines: int) -> int:
    """How many stages shared memory holds, so many rows and columns each."""
    return SHARED_BYTES // (lines * ROW_BYTES + 16)


def _shared(lines: int) -> int:
    return _stages(lines) * (lines * ROW_BYTES + 16)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _tensor_map(matrix: Any, rows: int, kind: int) -> _Map:
    """The copy engine's description of a (rows of the matrix, k) array, k contiguous: boxes of 128 bytes of k by `rows`."""
    pitch = matrix.strides[0] if matrix.shape[0] > 1 else matrix.shape[1] * matrix.itemsize  # a lone line may have any stride
    return _map_at(matrix.data.ptr, matrix.shape, pitch, matrix.itemsize, rows, kind)


@lru_cache(maxsize=256)
def _map_at(address: int, shape: tuple[int, int], pitch: int, itemsize: int, rows: int, kind: int) -> _Map:
    out = _Map()
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


def _map_of_b(matrix: Any, columns: int, kind: int, along_n: bool) -> _Map:
    """The description of b (n, k): boxes of `columns` along k, or of 128 bytes along n by as many k as there are codes in them."""
    return _tensor_map(matrix.T, ROW_BYTES // matrix.itemsize, kind) if along_n else _tensor_map(matrix, columns, kind)


def _k_contiguous(matrix: Any) -> Any:
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


def _check(a: Any, b: Any, block: int, sum_format: str, fmt: str) -> None:
    if fmt not in _TENSOR:
        raise unknown("FABsum input format", fmt, _TENSOR)
    if sum_format not in ("float32", "float64"):
        raise unknown("FABsum sum", sum_format, ("float32", "float64"))
    if block < 16 or block % 16:
        raise ValueError(f"FABsum's block must be a positive multiple of 16, the instruction's k; got {block}")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"FABsum multiplies (m, k) by (k, n); got {a.shape} and {b.shape}")
    if device.capability() != 90:
        raise ValueError(f"the fused FABsum kernel needs wgmma (sm_90a); the GPU here is sm_{device.capability()}")


def fabsum_gemm(a: Any, b: Any, c: Any = None, *, block: int = 256, sum: str = "float32", fmt: str = "float16") -> Any:
    """c + A·B in blocks of `block` along k, each from zero on the tensor core, added outside in `sum`.

    a (m, k) and b (k, n) are codes (uint16) of `fmt`, c (m, n) float32 or None; the result is float32 (m, n). numpy in,
    numpy out; CuPy in, CuPy out.
    """
    _check(a, b, block, sum, fmt)
    host = isinstance(a, np.ndarray)
    words = ([on_device(a)], [on_device(b)])
    out = chained_words(words, [(0, 0)], c=on_device(c), block=block, sum=sum, fmt=fmt)
    return device.cupy().asnumpy(out) if host else out


def chained_words(
    words: tuple[list[Any], list[Any]], pairs: list[tuple[int, int]], *, c: Any = None, block: int, sum: str, fmt: str,
    transposed: bool = False, rounding: str = "rn", out: Any = None,
) -> Any:  # fmt: skip
    """Products of word pairs: all but the last through one accumulator chain from c, the last by FABsum on top.

    `words` are the codes of a's words (m, k) and of b's (k, n), or (n, k) where `transposed`; `rounding` is PTX's name for that
    of float32's outer additions. The result goes to `out` where one is given, (m, n) of four bytes each.
    """
    cp = device.cupy()
    a_words = [_k_contiguous(w) for w in words[0]]
    b_words = [w if transposed else w.T for w in words[1]]
    along_n = all(lies_along_n(w) for w in b_words)
    b_words = b_words if along_n else [_k_contiguous(w) for w in b_words]
    (m, k), n = words[0][0].shape, b_words[0].shape[0]
    out = cp.empty((m, n), cp.float32) if out is None else out
    if c is not None:
        c = cp.ascontiguousarray(c, cp.float32)
    if not k or not out.size:
        out[...] = 0 if c is None else c
        return out
    columns = tile_columns(sum)
    args = _Product(c=0 if c is None else c.data.ptr, d=out.data.ptr, m=m, n=n, k=k, phases=len(pairs))
    for i, w in enumerate(a_words):
        args.a[i] = _tensor_map(w, BM, _TENSOR[fmt][1])
    for i, w in enumerate(b_words):
        args.b[i] = _map_of_b(w, columns, _TENSOR[fmt][1], along_n)
    for i, (x, y) in enumerate(pairs):
        args.which_a[i], args.which_b[i] = x, y
    last = a_words[pairs[-1][0]], b_words[pairs[-1][1]]
    largest = cp.zeros(2, cp.uint32)
    args.shift, args.largest = SHIFT, largest.data.ptr
    if sum == "float64":
        counts = (np.int64(w.size // 8) for w in last)
        compiled_kernel(fabsum_source(block, sum, fmt), "largest", ("-arch=sm_90a",))(
            (264, 2), (512,), (*last, *counts, largest)
        )
    _launch("fabsum", fabsum_source(block, sum, fmt, rounding, along_n), args, BM, columns)
    return out


def chain_into(a: Any, b: Any, c: Any, formats: tuple[str, str], out: Any, columns: int = CHAIN_COLUMNS) -> None:
    """The chain of the GPU's wgmma unit for a pair of input formats, from c (m, n) float32 or None on, into out (m, n).

    a (m, k) and b (n, k) are CuPy arrays of codes, k > 0; k is filled up to whole instructions with zeros.
    """
    along_n = lies_along_n(b)
    a, b = _k_contiguous(a), b if along_n else _k_contiguous(b)
    (m, k), n = a.shape, b.shape[0]
    args = _Product(c=0 if c is None else c.data.ptr, d=out.data.ptr, m=m, n=n, k=k, phases=1)
    turned = along_n and b.itemsize == 4
    rows, columns = TURNED if turned else (BM, columns)
    args.a[0] = _tensor_map(a, rows, CHAINED[formats[0]][1])
    args.b[0] = _map_of_b(b, columns, CHAINED[formats[1]][1], along_n)
    if turned:
        _launch("turned", turned_chain_source(*formats), args, rows, columns)
    else:
        _launch("fabsum", wgmma_chain_source(*formats, columns, along_n), args, rows, columns)


def _launch(name: str, source: str, args: _Product, rows: int, columns: int) -> None:
    launch, shared = compiled_kernel(source, name, ("-arch=sm_90a",)), _shared(rows + columns)
    launch.max_dynamic_shared_size_bytes = shared
    by_value = np.frombuffer(bytes(args), dtype=np.dtype((np.void, ctypes.sizeof(args))))[0]
    launch((ceil(args.m / rows) * ceil(args.n / columns),), (384,), (by_value,), shared_mem=shared)


def word_codes(x: Any, words: int, fmt: str) -> list[Any]:
    """x_1 = fl(x), x_2 = fl(x - x_1), …: the words of a float32 matrix as codes, rounded to nearest-even, unscaled."""
    cp = device.cupy()
    rest, found = x.astype(cp.float32), []
    for _ in range(words):
        if fmt == "float16":
            word = rest.astype(cp.float16)
            value, codes = word.astype(cp.float32), word.view(cp.uint16)
        else:
            bits = rest.view(cp.uint32)
            codes = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(cp.uint16)
            value = (codes.astype(cp.uint32) << 16).view(cp.float32)
        found.append(codes)
        rest = rest - value
    return found


def word_products(words: int) -> list[tuple[int, int]]:
    """Products A_i·B_j with i + j <= words + 1, smallest first, A_1·B_1 last (Algorithm 4.1's order)."""
    pairs = [(i, j) for i in range(words) for j in range(words) if i + j < words]
    return sorted(pairs, key=lambda p: (-(p[0] + p[1]), -p[0]))


def multiword_gemm(a: Any, b: Any, *, words: int = 2, fmt: str = "float16", block: int = 64, sum: str = "float64") -> Any:
    """A·B of float32 matrices in `words` words of `fmt` (Algorithm 4.4): double-fp16 by default, triple-bf16 with words=3.

    Every product but A_1·B_1 runs through one chain of the tensor core; A_1·B_1 is added on top by FABsum. float32 (m, n),
    numpy or CuPy as the inputs.
    """
    if not 1 <= words <= 3:
        raise ValueError(f"multiword products have 1 to 3 words; got {words}")
    _check(a, b, block, sum, fmt)
    host = isinstance(a, np.ndarray)
    a_words = word_codes(on_device(a), words, fmt)
    b_words = word_codes(device.cupy().ascontiguousarray(on_device(b).T), words, fmt)
    out = chained_words((a_words, b_words), word_products(words), block=block, sum=sum, fmt=fmt, transposed=True)
    return device.cupy().asnumpy(out) if host else out
