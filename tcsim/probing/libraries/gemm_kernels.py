"""What a GEMM library's kernels do with k, from what they are called and how they were launched.

The rules were found on an NVIDIA H200 (cuBLAS 13.1.1) and hold for every call of `tests/golden/gemm_schedules`, shapes rounded
to nothing. The walk of CUTLASS kernels is that of its public sources: the remainder of a slice by the tile comes first, and
a slice of split k is a multiple of 16 bytes. Trees of vector kernels were found by masking, as FPRev does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tcsim.hardware.unit import Unit
from tcsim.schedule import Hybrid, Lanes, Schedule, Tiled

IN_PLACE, IN_COMPUTE_TYPE, IN_OUTPUT_TYPE = 1, 2, 4  # cublasLtReductionScheme_t
_LARGE_K = 512
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
        inside = "" if self.accumulate == "float32" or self.fmt == "float64" else f" in {self.accumulate}"
        return f"{self.fmt}>{self.out}{inside}{' fast' if self.fast else ''}"


@dataclass(frozen=True)
class Launch:
    """A library's kernel as it ran: its name, grid and block, whether a second kernel added partial sums, whether both
    operands lie along k, and what cublasLt says of the call: `splits`, `reduction`, `custom`, bytes of `workspace`.

    shape is the product's (m, n), where a rule needs it, batch the products of the call, and regions the places of the output
    (first row, end of rows, first column, end of columns) that were seen to be cut along k, in so many `pieces`."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    reduced: bool
    contiguous: bool = True
    splits: int = 1
    reduction: int = 0
    custom: int = 0
    workspace: int = 0
    shape: tuple[int, int] | None = None
    batch: int = 1
    regions: tuple[tuple[int, int, int, int], ...] = ()
    pieces: int = 1

    @property
    def layers(self) -> int:
        """Thread blocks along z that are one product's."""
        return self.grid[2] // self.batch if self.grid[2] % self.batch == 0 else 1

    @property
    def in_place(self) -> bool:
        """Whether slices of k are added to the output, or to each other, by the kernel itself."""
        return not self.reduced and (self.reduction == IN_PLACE or self.layers > 1)

    @classmethod
    def of(
        cls,
        kernels: Sequence[Mapping[str, Any]],
        heuristic: Mapping[str, int],
        contiguous: bool = True,
        **more: Any,
    ) -> Launch:
        """From a trace's kernels (name, grid, block) and cublasLt's numbers; a scaling of the output before them is passed over."""
        kernels = [
            kernel for kernel in kernels if not kernel["name"].startswith(("void scal_kernel", "void scal_64addr"))
        ] or kernels
        first = kernels[0]
        return cls(
            short(first["name"]), tuple(first["grid"]), tuple(first["block"]), len(kernels) > 1, contiguous,
            heuristic.get("splits", 1), heuristic.get("reduction", 0), heuristic.get("custom", 0), heuristic.get("workspace", 0),
            **more,
        )  # fmt: skip


def short(name: str) -> str:
    """A kernel's name without what says nothing of its arithmetic."""
    name = re.sub(r"^void |internal::|cutlass::Kernel2<|std::enable_if<.*?>::type |std::enable_if<.*?void>::type ", "", name)
    name = re.sub(r"\(.*|, cublasGemv.*|, cublasDot.*", "", name)
    return name.replace("__nv_bfloat16", "bf16").replace("__half", "half").rstrip(">")


def kernel_family(name: str) -> str:
    """The kernels of one rule: a kernel's name as far as its sizes; nvjet's, xmma's and vector kernels' as far as their types."""
    found = re.match(
        r"nvjet_sm90_[a-z]+|sm\d+_xmma_gemm_\w+?_(?=[nt][nt]_)|[\w:]+?_kernel(?=[<_])|gemvx::kernel|cutlass_\w+?gemm", name
    )
    cut = (
        "_segment_k_on"
        if "_segment_k_on_" in name
        else "_ffma"
        if "_ffma_" in name
        else "_splitK"
        if "_splitK_" in name
        else ""
    )
    return (found[0].rstrip("_") if found else re.sub(r"[_<]\d.*|<.*", "", name)) + cut


def schedule_of_kernel(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    """The schedule of a kernel for k products of a unit with accumulators of `kind`; None where no rule is known."""
    for family in (_cutlass, _simt, _nvjet, _xmma, _gemvx, _gemv):
        schedule = family(launch, kind, unit, k)
        if schedule is not None:
            return schedule
    return None


def _kept(launch: Launch, kind: GemmKind) -> dict[str, Any]:
    """How partial results and their sum are kept."""
    if kind.accumulate == "float16":
        return {"partial": "float16", "reduce": "float16", "c_joins_first": launch.in_place}
    if kind.out == "float64":
        return {"c_joins_first": launch.in_place}
    if launch.in_place:
        return {"partial": "float32", "reduce": kind.out, "c_joins_first": True}
    narrow = launch.reduction == IN_OUTPUT_TYPE or re.search(r"_tensorop_b?f16_s\d", launch.name) is not None
    return {"partial": kind.out if narrow else "float32", "reduce": "float32"}


def _cutlass(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    found = re.match(
        r"cutlass_\d+_(?:wmma_)?tensorop_(?:\w+?_)?[shd](\d+)gemm(?:_(?:bf16|f16))?_\d+x\d+_(?:(\d+)x\d+_)?", launch.name
    )
    if found is None or found[1] not in _INSTRUCTION_K:
        return None
    splits = launch.layers if launch.reduced or launch.in_place else 1
    tile = int(found[2] or 32)
    instruction = min(_INSTRUCTION_K[found[1]], unit.block_size)
    if splits < 2:
        return Tiled(tile_k=tile, instruction_k=instruction)
    return Tiled(_slice(k, launch, kind), tile, instruction, **_kept(launch, kind))


def _slice(k: int, launch: Launch, kind: GemmKind) -> int:
    """Products of a slice: a multiple of 128 bytes where k is one, an operand lies along k (not "nt", column-major) and the
    grid agrees; else of 16 bytes. cublasLt's number of slices where the grid agrees, else the grid's."""
    grain = {"tfloat32": 4, "float32": 4, "float64": 2}.get(kind.fmt, 8)
    for splits in (launch.splits, launch.layers):
        coarse, fine = (_up(-(-k // max(splits, 1)), step) for step in (8 * grain, grain))
        if k % (8 * grain) == 0 and "_nt_" not in launch.name and -(-k // coarse) == launch.layers:
            return coarse
        if -(-k // fine) == launch.layers:
            return fine
    return fine


def _simt(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    """On the CUDA cores: chains of fused multiply-adds, cut as the tensor cores' are; sgemm_largek's into multiples of 8."""
    if launch.name.startswith("sgemm_largek_lds64"):
        step = _large_k_slice(k, launch)
        return None if step is None else Lanes(slice_k=step, **_kept(launch, kind)) if launch.layers > 1 else Lanes()
    if not launch.name.startswith(("cutlass_80_simt_sgemm", "cutlass_80_simt_dgemm", "magma_sgemmEx_kernel")):
        return None
    return Lanes(slice_k=_slice(k, launch, kind), **_kept(launch, kind)) if launch.layers > 1 else Lanes()


def _large_k_slice(k: int, launch: Launch) -> int | None:
    """Of s slices, k // s up to a multiple of 8, which may leave one more: s is cublasLt's number where the grid agrees, else what
    the grid leaves possible, None where that is two numbers. Where cublasLt says 0, slices are of 512."""
    sizes = {splits: _up(k // splits, 8) for splits in (launch.splits, launch.layers, launch.layers - 1) if 0 < splits <= k}
    sizes |= {0: _LARGE_K} if launch.splits == 0 else {}
    possible = {splits: size for splits, size in sizes.items() if -(-k // size) == launch.layers}
    if launch.splits in possible:
        return possible[launch.splits]
    return next(iter(possible.values())) if len(set(possible.values())) == 1 else None


def _nvjet(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    if not launch.name.startswith("nvjet_sm90"):
        return None
    eight = kind.fmt.startswith("float8")
    promote = 128 if eight and not kind.fast else None
    if not launch.reduced:
        return Tiled(promote_k=promote)
    tile = 128 if eight else 64
    splits, whole, rest = _nvjet_splits(launch), k // tile, k % tile
    # A defect, seen on every call of this kind: the slices are shares of the whole tiles, and nobody computes the rest.
    forgotten = rest if whole and whole % splits == 0 and splits > rest else 0
    tiles = whole if forgotten else -(-k // tile)
    return Tiled(-(-tiles // splits) * tile, promote_k=promote, forgotten=forgotten, **_kept(launch, kind))


def _nvjet_splits(launch: Launch) -> int:
    """Slices of k: cublasLt's number, or, with a bias, for which PyTorch may take another, that of the grid's blocks to a layer
    of tiles."""
    found = re.match(r"nvjet_sm90_\w+?_(\d+)x(\d+)_\d+x\d+_(\d+)x(\d+)_\w+_bias_", launch.name)
    if found is None or launch.shape is None or launch.batch > 1:
        return launch.splits
    across, down, step_across, step_down = map(int, found.groups())
    m, n = launch.shape
    layer = _up(-(-n // across), step_across) * _up(-(-m // down), step_down)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    return blocks // layer if blocks % layer == 0 and blocks > layer else launch.splits


def _xmma(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    found = re.search(r"_xmma_gemm_\w+_tilesize(\d+)x(\d+)x(\d+)_", launch.name)
    if found is None:
        return None
    across, down, tile = map(int, found.groups())
    fused = "_ffma_" in launch.name
    if "_segment_k_on_" in launch.name and launch.workspace > _FLAGS:
        return _segments(launch, kind, tile)
    if launch.layers < 2:
        return Lanes() if fused else Tiled()
    kept = {key: value for key, value in _kept(launch, kind).items() if key != "c_joins_first"}
    numbers = across * down * math.prod(launch.grid) // launch.layers  # of a slice's result
    places = launch.workspace // (numbers * (8 if kind.out == "float64" else 4))
    # With half as many places as slices these meet in pairs; with one place, asked for or all there was room for, in turn, as
    # where PyTorch took another number of slices than cublasLt names.
    one = (places == 1 and launch.layers > 2) or launch.splits != launch.layers
    order = "halves" if launch.custom == 1 and not launch.reduced and not one else "ascending"
    if fused:
        return Lanes(tile=tile, turns=launch.layers, parts=order, **kept)
    return Tiled(tile_k=tile, turns=launch.layers, tree=order, **kept)


def _segments(launch: Launch, kind: GemmKind, tile: int) -> Schedule | None:
    """Tiles of the output that would leave thread blocks idle at the end are cut along k into even shares, whose sums are
    added in pairs; which tiles, the kernel does not say: a call with marked inputs shows it (`regions`, `pieces`)."""
    if launch.pieces < 2:
        return None
    kept = "float16" if kind.accumulate == "float16" else "float32"
    cut = Tiled(tile_k=tile, shares=launch.pieces, tree="pairs", partial=kept, reduce=kept)
    return Hybrid(Tiled(), cut, launch.regions) if launch.regions else Tiled()


def _gemvx(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    found = re.match(
        r"gemvx::kernel<\w+, \w+, \w+, \w+, \w+, \w+, (?:true|false), true, (true|false), false, \d+, false", launch.name
    )
    if found is None:
        return None
    slice_k = -(-k // launch.layers) if launch.layers > 1 else None
    lanes = launch.block[0] if found[1] == "true" else launch.block[1]
    most = 32 if kind.fmt == "float64" else 64
    chunk = 1 if launch.custom % 2 else min(-(-(slice_k or k) // lanes), most)
    return Lanes(lanes, chunk, slice_k=slice_k, **_kept(launch, kind))


def _gemv(launch: Launch, kind: GemmKind, unit: Unit, k: int) -> Schedule | None:
    slice_k = -(-k // launch.layers) if launch.layers > 1 else None
    kept = _kept(launch, kind)
    name = launch.name
    if re.match(r"gemvNSP_kernel<\w+, \w+, \w+, \w+, 1, (16|32), 4, ", name):
        return Lanes(launch.block[1], 4, slice_k=slice_k, **kept)
    if name.startswith("gemmk1_kernel") and k == 1:
        return Lanes()
    columns = re.match(r"gemv2N_kernel<\w+, \w+, \w+, \w+, \w+, \w+, 128, (\d+), ", name)
    if columns is not None and slice_k is None:
        return Lanes(int(columns[1]), None)
    rows = re.match(r"gemv2T_kernel_val<\w+, \w+, \w+, \w+, \w+, \w+, 128, 16, (\d+), ", name)
    if rows is not None:
        return Lanes(16, 1, tile=8 * int(rows[1]), tree="ascending", slice_k=slice_k, **kept)
    if name.startswith(("dot_kernel<float, 128", "dot_kernel<double, 128")):
        blocks = launch.grid[0]
        if launch.contiguous and "double" not in name:
            return Lanes(256 * blocks, 1, tree="pairs in blocks of 128")
        return Lanes(128 * blocks, 1, tree="blocks of 128")
    thin = re.match(r"gemmSN_(NN|TN)_kernel<(?:float|double), \d+, (\d+), ", name)
    if thin is not None and slice_k is None:
        if thin[1] == "NN":
            return Lanes(int(thin[2]), None, tile=512 // int(thin[2]), tree="ascending")
        return Lanes(16, 1, tile=16, tree="ascending")
    return None


def _up(x: int, step: int) -> int:
    return -(-x // step) * step
