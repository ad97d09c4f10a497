"""What a GEMM library's kernels do with k, from what they are called and how they were launched.

The rules were found on an NVIDIA H200 (cuBLAS 13.1.1) and hold for every call of `tests/golden/gemm_schedules`, shapes rounded
to nothing. The walk of CUTLASS kernels is that of its public sources: the remainder of a slice by the tile comes first, and
a slice of split k is a multiple of 16 bytes. Trees of vector kernels were found by masking, as FPRev does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tcsim.hardware.unit import Unit
from tcsim.schedule import Lanes, Schedule, Tiled

IN_PLACE, IN_COMPUTE_TYPE, IN_OUTPUT_TYPE = 1, 2, 4  # cublasLtReductionScheme_t
_FLAGS = 4096  # bytes: a workspace of flags alone, none for partial sums
_INSTRUCTION_K = {"1688": 8, "16816": 16, "161616": 16, "884": 4}


@dataclass(frozen=True)
class GemmKind:
    """Formats of a call: inputs, output, the type in which it accumulates; for fp8 cublasLt's flag of fast accumulation."""

    fmt: str
    out: str
    accumulate: str = "float32"
    fast: bool = False

    @property
    def name(self) -> str:
        inside = "" if self.accumulate == "float32" else f" in {self.accumulate}"
        return f"{self.fmt}>{self.out}{inside}{' fast' if self.fast else ''}"


@dataclass(frozen=True)
class Launch:
    """A library's kernel as it ran: its name, grid and block, whether a second kernel added partial sums, whether both
    operands lie along k, and what cublasLt says of the call: `splits`, `reduction`, `custom`, bytes of `workspace`."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    reduced: bool
    contiguous: bool = True
    splits: int = 1
    reduction: int = 0
    custom: int = 0
    workspace: int = 0

    @classmethod
    def of(cls, kernels: Sequence[Mapping[str, Any]], heuristic: Mapping[str, int], contiguous: bool = True) -> Launch:
        """From a trace's kernels (name, grid, block) and cublasLt's numbers."""
        first = kernels[0]
        return cls(
            short(first["name"]), tuple(first["grid"]), tuple(first["block"]), len(kernels) > 1, contiguous,
            *(heuristic.get(key, default) for key, default in (("splits", 1), ("reduction", 0), ("custom", 0), ("workspace", 0))),
        )  # fmt: skip


def short(name: str) -> str:
    """A kernel's name without what says nothing of its arithmetic."""
    name = re.sub(r"^void |internal::|cutlass::Kernel2<|std::enable_if<.*?>::type |std::enable_if<.*?void>::type ", "", name)
    name = re.sub(r"\(.*|, cublasGemv.*|, cublasDot.*", "", name)
    return name.replace("__nv_bfloat16", "bf16").replace("__half", "half").rstrip(">")


def schedule_of_kernel(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    """The schedule of a kernel for k products of a unit with accumulators of `kind`; None where no rule is known."""
    for family in (_cutlass, _nvjet, _xmma, _gemvx, _gemv):
        schedule = family(launch, kind, unit, k)
        if schedule is not None:
            return schedule
    return None


def _kept(launch: Launch, kind: GemmKind) -> dict[str, Any]:
    """How partial results and their sum are kept."""
    if kind.accumulate == "float16":
        return {"partial": "float16", "reduce": "float16"}
    if launch.reduction == IN_PLACE:
        return {"partial": "float32", "reduce": kind.out}
    return {"partial": kind.out if launch.reduction == IN_OUTPUT_TYPE else "float32", "reduce": "float32"}


def _cutlass(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    found = re.match(
        r"cutlass_\d+_(?:wmma_)?tensorop_(?:\w+?_)?[sh](\d+)gemm(?:_(?:bf16|f16))?_\d+x\d+_(?:(\d+)x\d+_)?", launch.name
    )
    if found is None or found[1] not in _INSTRUCTION_K:
        return None
    splits = launch.splits if launch.reduced or launch.reduction == IN_PLACE else 1
    tile = int(found[2] or 32)
    instruction = min(_INSTRUCTION_K[found[1]], unit.block_size)
    if splits < 2:
        return Tiled(tile_k=tile, instruction_k=instruction)
    return Tiled(_slice(k, splits, launch, kind), tile, instruction, **_kept(launch, kind))


def _slice(k: int, splits: int, launch: Launch, kind: GemmKind) -> int:
    """Products of a slice: a multiple of 128 bytes where k is one, an operand lies along k (not "nt", column-major) and the
    grid agrees; else of 16 bytes."""
    grain = 4 if kind.fmt == "tfloat32" else 8
    coarse = _up(-(-k // splits), 8 * grain)
    if k % (8 * grain) == 0 and "_nt_" not in launch.name and -(-k // coarse) == launch.grid[2]:
        return coarse
    return _up(-(-k // splits), grain)


def _nvjet(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    if not launch.name.startswith("nvjet_sm90"):
        return None
    eight = kind.fmt.startswith("float8")
    promote = 128 if eight and not kind.fast else None
    if not launch.reduced:
        return Tiled(promote_k=promote)
    tile = 128 if eight else 64
    tiles = -(-k // tile)
    return Tiled(-(-tiles // launch.splits) * tile, promote_k=promote, **_kept(launch, kind))


def _xmma(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    found = re.search(r"_xmma_gemm_\w+_tilesize\d+x\d+x(\d+)_", launch.name)
    if found is None or ("_segment_k_" in launch.name and launch.workspace > _FLAGS):
        return None  # some tiles of the output in segments of k, by several thread blocks: which is not known
    if launch.reduced:
        return Tiled(tile_k=int(found[1]), turns=launch.splits, **_kept(launch, kind))
    return Lanes() if "_ffma_" in launch.name else Tiled()


def _gemvx(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    found = re.match(
        r"gemvx::kernel<\w+, \w+, \w+, \w+, \w+, \w+, (?:true|false), true, (true|false), false, \d+, false", launch.name
    )
    if found is None:
        return None
    slice_k = -(-k // launch.grid[2]) if launch.grid[2] > 1 else None
    lanes = launch.block[0] if found[1] == "true" else launch.block[1]
    chunk = 1 if launch.custom % 2 else min(-(-(slice_k or k) // lanes), 64)
    return Lanes(lanes, chunk, slice_k=slice_k, **_kept(launch, kind))


def _gemv(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    slice_k = -(-k // launch.grid[2]) if launch.grid[2] > 1 else None
    kept = _kept(launch, kind)
    name = launch.name
    if name.startswith("gemvNSP_kernel"):
        return Lanes(32, 4, slice_k=slice_k, **kept)
    if name.startswith("gemv2N_kernel") and slice_k is None:
        return Lanes()
    if name.startswith("gemv2T_kernel"):
        return Lanes(16, 1, tile=32, tree="ascending", slice_k=slice_k, **kept)
    if name.startswith("dot_kernel<float, 128"):
        blocks = launch.grid[0]
        if launch.contiguous:
            return Lanes(256 * blocks, 1, tree="pairs in blocks of 128")
        return Lanes(128 * blocks, 1, tree="blocks of 128")
    thin = re.match(r"gemmSN_(NN|TN)_kernel<float, \d+, (\d+), ", name)
    if thin is not None and slice_k is None:
        if thin[1] == "NN":
            return Lanes(int(thin[2]), None, tile=128, tree="ascending")
        return Lanes(16, 1, tile=16, tree="ascending")
    return None


def _up(x: int, step: int) -> int:
    return -(-x // step) * step
