"""FABsum and multiword products fused in one tensor-core kernel (Hopper): Algorithms 4.2, 4.3 and 4.4 of Fasi, Higham,
Lopez, Mary and Mikaitis.

`fabsum_gemm(a, b, block, sum)` equals ``tcsim.matmul(a, b, unit=<the GPU's wgmma unit>, schedule=Blocked(block, sum))`` bit
for bit. `multiword_gemm` splits float32 matrices into words and chains the small products before it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim_gpu import device
from tcsim_gpu.launch import compiled_kernel, on_device
from tcsim_gpu.source import kernel_text
from tcsim_gpu.tiles import (
    BM,
    ProductArguments,
    k_contiguous,
    launch,
    lies_along_n,
    map_of_b,
    mma_text,
    stages,
    tensor_map,
    tile_kernel,
)

_TENSOR = {"float16": ("f16", 6), "bfloat16": ("bf16", 9)}  # PTX type, CUtensorMapDataType
LARGEST_TURN = 128  # float sums of blocks up to this size let the two warpgroups take turns
CONVERTED = 4  # of so many double sums one takes its block through the conversion unit
SHIFT = 1 << 29  # of a float's bits, to a double's


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
            f"#define STAGES {stages(BM + n)}\n#define CHAINED 0\n#define B_ALONG_N {int(along_n)}\n",
            f'#define TURNS {int(sum_format == "float32" and block <= LARGEST_TURN)}\n#define ADD "add.{rounding}.f32"\n',
            f"#define CONVERTED {CONVERTED}\n",
            f'#define VALUE_OF "cvt.f32.{_TENSOR[fmt][0]}"\n',
            mma_text(n, 16, _TENSOR[fmt][0], _TENSOR[fmt][0], f", 0, {int(along_n)}"),
            kernel_text("fabsum_sums.cuh", "fabsum.cuh"),
        ]
    )


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
    a_words = [k_contiguous(w) for w in words[0]]
    b_words = [w if transposed else w.T for w in words[1]]
    along_n = all(lies_along_n(w) for w in b_words)
    b_words = b_words if along_n else [k_contiguous(w) for w in b_words]
    (m, k), n = words[0][0].shape, b_words[0].shape[0]
    out = cp.empty((m, n), cp.float32) if out is None else out
    if c is not None:
        c = cp.ascontiguousarray(c, cp.float32)
    if not k or not out.size:
        out[...] = 0 if c is None else c
        return out
    columns = tile_columns(sum)
    args = ProductArguments(c=0 if c is None else c.data.ptr, d=out.data.ptr, m=m, n=n, k=k, phases=len(pairs))
    for i, w in enumerate(a_words):
        args.a[i] = tensor_map(w, BM, _TENSOR[fmt][1])
    for i, w in enumerate(b_words):
        args.b[i] = map_of_b(w, columns, _TENSOR[fmt][1], along_n)
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
    kernel = tile_kernel("fabsum", fabsum_source(block, sum, fmt, rounding, along_n), BM, columns)
    launch(kernel, args, BM, columns)
    return out


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
