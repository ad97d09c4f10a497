"""The GPU's own chain along all of k in one tensor-core kernel (Hopper): what its wgmma unit makes of two matrices."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from tcsim_gpu import device
from tcsim_gpu.source import kernel_text
from tcsim_gpu.tiles import (
    BM,
    ROW_BYTES,
    ProductArguments,
    k_contiguous,
    launch,
    lies_along_n,
    map_at,
    mma_text,
    pitch_of,
    stages,
    tile_kernel,
)

# PTX type, CUtensorMapDataType (of plain integers), bytes of a code: what a chain alone can be made of.
CHAINED = {
    "float16": ("f16", 1, 2), "bfloat16": ("bf16", 1, 2), "tfloat32": ("tf32", 2, 4), "float8_e4m3fn": ("e4m3", 0, 1),
    "float8_e5m2": ("e5m2", 0, 1),
}  # fmt: skip
CHAIN_COLUMNS = 256  # of a tile: all registers are the accumulator's
TURNED = (256, 128)  # rows and columns of a tile of 32-bit codes of b that lie along n


@cache
def wgmma_chain_source(a: str, b: str, columns: int = CHAIN_COLUMNS, along_n: bool = False) -> str:
    """The kernel without an outer sum: the unit's own chain along all of k, from c on, for input formats a and b; codes of b of
    16 bits may lie along n."""
    n, size = columns, CHAINED[a][2]
    return "".join(
        [
            f"#define BM {BM}\n#define BN {n}\n#define BK {ROW_BYTES // size}\n#define B {ROW_BYTES // size}\n#define WIDE_SUM 0\n",
            f'#define STAGES {stages(BM + n)}\n#define CHAINED 1\n#define TURNS 0\n#define ADD "add.rn.f32"\n#define CONVERTED 1\n',
            f"#define B_ALONG_N {int(along_n)}\n",
            mma_text(n, 32 // size, CHAINED[a][0], CHAINED[b][0], f", 0, {int(along_n)}" if size == 2 else ""),
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
            f"#define BM {rows}\n#define BN {columns}\n#define BK {ROW_BYTES // size}\n#define STAGES {stages(rows + columns)}\n",
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


class Chain:
    """The chain of the GPU's wgmma unit for a pair of input formats and matrices a (m, k) and b (n, k) that lie so, k > 0.

    k is filled up to whole instructions with zeros, b's to a's too. pitches: bytes from line to line of a along m, and of b along n, or
    along k where it lies `along_n`; whole 16 bytes, as are addresses.
    """

    def __init__(
        self,
        formats: tuple[str, str],
        shapes: tuple[tuple[int, int], tuple[int, int]],
        pitches: tuple[int, int],
        along_n: bool,
        columns: int,
    ) -> None:
        (m, k), (n, depth) = shapes
        self.shape = m, n, k
        turned = along_n and CHAINED[formats[1]][2] == 4
        rows, columns = TURNED if turned else (BM, columns)
        source = turned_chain_source(*formats) if turned else wgmma_chain_source(*formats, columns, along_n)
        name, self.tile = "turned" if turned else "fabsum", (rows, columns)
        self.kernel = tile_kernel(name, source, rows, columns)
        (_, kind_a, size_a), (_, kind_b, size_b) = (CHAINED[fmt] for fmt in formats)
        self.a = (m, k), pitches[0], size_a, rows, kind_a
        self.b = (
            ((depth, n), pitches[1], size_b, ROW_BYTES // size_b, kind_b)
            if along_n
            else ((n, depth), pitches[1], size_b, columns, kind_b)
        )

    def run(self, a: int, b: int, out: int, c: int = 0) -> None:
        """The product of matrices at addresses into out (m, n) of float32, from c (0: none) on, on CuPy's current stream."""
        m, n, k = self.shape
        args = ProductArguments(c=c, d=out, m=m, n=n, k=k, phases=1)
        args.a[0], args.b[0] = map_at(a, *self.a), map_at(b, *self.b)
        launch(self.kernel, args, *self.tile)


@lru_cache(maxsize=1024)
def chain_of(
    formats: tuple[str, str],
    shapes: tuple[tuple[int, int], tuple[int, int]],
    pitches: tuple[int, int],
    along_n: bool,
    columns: int,
    gpu: int,
) -> Chain:
    """`Chain` on GPU number `gpu`, the present one."""
    return Chain(formats, shapes, pitches, along_n, columns)


def chain_into(a: Any, b: Any, c: Any, formats: tuple[str, str], out: Any, columns: int = CHAIN_COLUMNS) -> None:
    """`Chain` of CuPy arrays of codes a (m, k) and b (n, k), from c (m, n) float32 or None on, into out (m, n)."""
    along_n = lies_along_n(b)
    a, b = k_contiguous(a), b if along_n else k_contiguous(b)
    pitches = pitch_of(a), pitch_of(b.T if along_n else b)
    chain = chain_of(formats, (a.shape, b.shape), pitches, along_n, columns, int(device.cupy().cuda.Device().id))
    chain.run(a.data.ptr, b.data.ptr, out.data.ptr, 0 if c is None else c.data.ptr)
