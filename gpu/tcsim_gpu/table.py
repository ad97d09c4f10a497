"""Every matrix instruction of PTX that this package can run, as rows: shape, formats, first architecture.

Those of Hopper ran on an H200; those for sm_100a (tcgen05) and sm_120a compile and have never run on hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcsim.fp.formats import Format, format_named
from tcsim.hardware.gpus import GPUS
from tcsim.hardware.rows import FP8_PAIRS, FP864_PAIRS
from tcsim.hardware.unit import Unit

PTX_TYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "tfloat32": "tf32",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float6_e2m3fn": "e2m3",
    "float6_e3m2fn": "e3m2",
    "float4_e2m1fn": "e2m1",
    "int8": "s8",
    "int32": "s32",
    "float8_e8m0fnu": "ue8m0",
    "float8_ue4m3fn": "ue4m3",
}

# Compute capability of each GPU of the unit table that has matrix instructions in PTX.
CAPABILITY = {gpu.name: gpu.capability for gpu in GPUS if gpu.capability is not None}


@dataclass(frozen=True)
class GpuInstruction:
    """One matrix instruction: D = C + A·B for an m x k by k x n tile.

    `family` is "mma", "wgmma" or "tcgen05". `first` is the first compute capability that has it; `only` the architecture-specific
    target that it needs ("sm_90a"), if any. `kind` is PTX's .kind qualifier; `scale` and `scale_block` those of a
    block-scaled instruction.
    """

    family: str
    m: int
    n: int
    k: int
    a: str
    b: str
    out: str
    first: int
    only: str | None = None
    kind: str = ""
    scale: str = ""
    scale_block: int = 0

    @property
    def shape(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def target(self) -> str:
        """The architecture to compile for when the GPU is not here."""
        return self.only or f"sm_{self.first}"

    @property
    def name(self) -> str:
        """A name for tables and file keys: family, shape, formats."""
        kind = f".{self.kind}" if self.kind else ""
        scale = f".{PTX_TYPES[self.scale]}x{self.scale_block}" if self.scale else ""
        return f"{self.family}{kind}.{self.shape}.{PTX_TYPES[self.a]}.{PTX_TYPES[self.b]}.{PTX_TYPES[self.out]}{scale}"

    @property
    def formats(self) -> tuple[Format, Format, Format]:
        return format_named(self.a), format_named(self.b), format_named(self.out)


def _rows(
    shapes: str, pairs: tuple[tuple[str, str], ...], outs: str, first: int, family: str = "mma", **more: object
) -> list[GpuInstruction]:
    found = []
    for shape in shapes.split():
        m, rest = shape[1:].split("n")
        n, k = rest.split("k")
        for a, b in pairs:
            for out in outs.split():
                found.append(GpuInstruction(family, int(m), int(n), int(k), a, b, out, first, **more))  # type: ignore[arg-type]
    return found


def _same(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((n, n) for n in names)


_F4, _E8M0, _UE4M3 = "float4_e2m1fn", "float8_e8m0fnu", "float8_ue4m3fn"
_BLOCK_SCALED = (
    ("mxf8f6f4", 32, FP864_PAIRS, _E8M0, 32),
    ("mxf4", 64, _same(_F4), _E8M0, 32),
    ("mxf4nvf4", 64, _same(_F4), _E8M0, 32),
    ("mxf4nvf4", 64, _same(_F4), _E8M0, 16),
    ("mxf4nvf4", 64, _same(_F4), _UE4M3, 16),
)
INSTRUCTIONS: tuple[GpuInstruction, ...] = (
    *_rows("m8n8k4", _same("float16"), "float32 float16", 70),
    *_rows("m16n8k8", _same("float16"), "float32 float16", 75),
    *_rows("m16n8k16", _same("float16"), "float32 float16", 80),
    *_rows("m16n8k8 m16n8k16", _same("bfloat16"), "float32", 80),
    *_rows("m16n8k4 m16n8k8", _same("tfloat32"), "float32", 80),
    *_rows("m8n8k4", _same("float64"), "float64", 80),
    *_rows("m16n8k4 m16n8k8 m16n8k16", _same("float64"), "float64", 90),
    *_rows("m8n8k16", _same("int8"), "int32", 75),
    *_rows("m16n8k16 m16n8k32", _same("int8"), "int32", 80),
    *_rows("m16n8k16 m16n8k32", FP8_PAIRS, "float32 float16", 89),
    *_rows("m64n8k16", _same("float16"), "float32 float16", 90, "wgmma", only="sm_90a"),
    *_rows("m64n8k16", _same("bfloat16"), "float32", 90, "wgmma", only="sm_90a"),
    *_rows("m64n8k8", _same("tfloat32"), "float32", 90, "wgmma", only="sm_90a"),
    *_rows("m64n8k32", FP8_PAIRS, "float32 float16", 90, "wgmma", only="sm_90a"),
    *_rows("m64n8k32", _same("int8"), "int32", 90, "wgmma", only="sm_90a"),
    *_rows("m128n16k16", _same("float16"), "float32 float16", 100, "tcgen05", only="sm_100a", kind="f16"),
    *_rows("m128n16k16", _same("bfloat16"), "float32", 100, "tcgen05", only="sm_100a", kind="f16"),
    *_rows("m128n16k8", _same("tfloat32"), "float32", 100, "tcgen05", only="sm_100a", kind="tf32"),
    *_rows("m128n16k32", _same("int8"), "int32", 100, "tcgen05", only="sm_100a", kind="i8"),
    *_rows("m128n16k32", FP864_PAIRS, "float32 float16", 100, "tcgen05", only="sm_100a", kind="f8f6f4"),
    *(
        row
        for family, shape, first in (("tcgen05", "m128n16", 100), ("mma", "m16n8", 120))
        for kind, k, pairs, scale, block in _BLOCK_SCALED
        if family == "tcgen05"
        or (kind, scale, block) != ("mxf4nvf4", _E8M0, 16)  # mma.sync pairs blocks of 16 with ue4m3 alone
        for row in _rows(
            f"{shape}k{k}", pairs, "float32", first, family, only=f"sm_{first}a", kind=kind, scale=scale, scale_block=block
        )
    ),
    *_rows("m16n8k32", FP864_PAIRS, "float32 float16", 120, only="sm_120a", kind="f8f6f4"),
)


def instructions_of(unit: Unit) -> list[GpuInstruction]:
    """The instructions of a unit's GPU that compute what it computes, the default first."""
    capability = CAPABILITY.get(unit.gpu)
    if capability is None:
        return []
    family, _, shape = unit.instruction.partition(".")
    found = [
        row
        for row in INSTRUCTIONS
        if (row.family, row.a, row.b, row.out) == (family, unit.a, unit.b, unit.out)
        and (row.scale or None, row.scale_block) == (unit.scale, unit.scale_block)
        and (unit.group_size > 1) == row.kind.startswith("mxf4")
        and row.first <= capability
        and (row.only is None or row.only == f"sm_{capability}a")
        and row.shape.endswith(shape)
        and not (row.m == 8 and row.n == 8 and row.a == "float16" and capability > 70 and not shape)
    ]
    kinds = any(row.kind for row in found)  # where PTX has .kind::f8f6f4 it is what runs natively
    kept = [row for row in found if bool(row.kind) == kinds]
    return sorted(kept, key=lambda row: -row.k * row.m)
