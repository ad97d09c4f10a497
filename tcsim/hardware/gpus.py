"""Every GPU as one record: its names, what CUDA calls its devices, its compute capability, what it prefers, its peak rates.

To add a GPU: one record here, its rows in the file of its generation, its vectors. Look-up (`tcsim.hardware.names`), device
detection, what can be validated and the README's table follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tcsim.errors import unknown
from tcsim.fp.formats import format_named


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a family of GPUs of one arithmetic; or of CPUs, in the same words."""

    name: str
    capability: int | None = None
    """CUDA's compute capability as one number, 90 for 9.0; None for AMD."""
    devices: tuple[str, ...] = ()
    """Regular expressions for whole words of the names that CUDA reports for it, at this capability; `tcsim.unit` takes the
    same names ("RTX 4090", "rtx-4090")."""
    aliases: tuple[str, ...] = ()
    """Other names that `tcsim.unit` takes."""
    instruction: str = "mma"
    """What the vendor's GEMM runs, where it has the format."""
    cpu: bool = False
    """Whether it is a family of CPUs, whose instructions this machine's own processor may have."""
    peak_rates: Mapping[str, float] = field(default_factory=dict, hash=False)
    """TFLOP/s (TOP/s for int8), dense, at boost clock, with float32 (int32) accumulation, from the vendor's data sheet; the
    faster of CUDA and tensor cores for float64 and float32. A format that is missing has no unit."""


def _rates(float64: float, float32: float, float16: float, **others: float) -> dict[str, float]:
    return {"float64": float64, "float32": float32, "float16": float16, **others}


# V100's and A100's rates are Fasi et al. 2022's Table 4.1.
GPUS: tuple[Gpu, ...] = (
    Gpu("v100", 70, (r"V100[A-Z]*", r"Quadro GV100", r"TITAN V"), ("volta",), peak_rates=_rates(7.8, 15.7, 125.0)),
    Gpu("t4", 75, (r"T4G?", r"Quadro RTX [34568]000", r"RTX 20[678]0", r"TITAN RTX"), ("turing", "quadro-rtx"),
        peak_rates=_rates(0.25, 8.1, 65.0, int8=130.0)),
    Gpu("a100", 80, (r"A100X?", r"A800"), ("ampere",),
        peak_rates=_rates(19.5, 19.5, 312.0, tfloat32=156.0, bfloat16=312.0, int8=624.0)),
    Gpu("a2", 86, (r"A2", r"A16"), peak_rates=_rates(0.07, 4.5, 18.0, tfloat32=9.0, bfloat16=18.0, int8=36.0)),
    Gpu("a30", 80, (r"A30X?",), peak_rates=_rates(10.3, 10.3, 165.0, tfloat32=82.0, bfloat16=165.0, int8=330.0)),
    Gpu("a40", 86, (r"A40", r"A10[GM]?", r"RTX 30[5-9]0", r"(?:RTX )?A\d{4}", r"RTX A500"),
        peak_rates=_rates(0.58, 37.4, 149.7, tfloat32=74.8, bfloat16=149.7, int8=299.3)),
    Gpu("l40s", 89, (r"L40S", r"L40"), peak_rates=_rates(1.4, 91.6, 362.0, tfloat32=183.0, bfloat16=362.0, float8=733.0, int8=733.0)),
    Gpu("ada", 89, (r"L4", r"L20", r"RTX 40[5-9]0", r"RTX [2-6]\d00 (?:SFF )?Ada", r"RTX 500 Ada", r"RTX 1000 Ada"), ("rtx-ada", "ada-lovelace"),
        peak_rates=_rates(1.4, 91.1, 364.2, tfloat32=182.1, bfloat16=364.2, float8=728.5, int8=728.5)),
    Gpu("h100", 90, (r"H100", r"H800", r"H20"), ("hopper",), instruction="wgmma",
        peak_rates=_rates(67.0, 67.0, 989.4, tfloat32=494.7, bfloat16=989.4, float8=1978.9, int8=1978.9)),
    Gpu("h200", 90, (r"H200", r"GH200"), instruction="wgmma",
        peak_rates=_rates(67.0, 67.0, 989.4, tfloat32=494.7, bfloat16=989.4, float8=1978.9, int8=1978.9)),
    Gpu("b200", 100, (r"B200", r"GB200"), ("blackwell",), instruction="tcgen05",
        peak_rates=_rates(37.0, 75.0, 2250.0, tfloat32=1125.0, bfloat16=2250.0, float8=4500.0, int8=4500.0)),
    Gpu("rtx-blackwell", 120, (r"RTX 50[5-9]0", r"RTX PRO \d+"), ("blackwell",),
        peak_rates=_rates(1.6, 104.8, 209.5, tfloat32=104.8, bfloat16=209.5, float8=419.0, int8=838.0)),
    Gpu("mi100", aliases=("gfx908", "cdna1", "cdna"), instruction="mfma", peak_rates=_rates(11.5, 46.1, 184.6, bfloat16=92.3, int8=184.6)),
    Gpu("mi210", instruction="mfma", peak_rates=_rates(45.3, 45.3, 181.0, bfloat16=181.0, int8=181.0)),
    Gpu("mi250", aliases=("mi250x", "gfx90a", "cdna2"), instruction="mfma", peak_rates=_rates(90.5, 90.5, 362.1, bfloat16=362.1, int8=362.1)),
    Gpu("mi300x", aliases=("mi300", "mi300a", "mi325x", "gfx942", "cdna3"), instruction="mfma",
        peak_rates=_rates(163.4, 163.4, 1307.4, tfloat32=653.7, bfloat16=1307.4, float8=2614.9, int8=2614.9)),
    Gpu("rdna3", devices=(r"RX 7900(?: XTX?| GRE)?", r"(?:PRO )?W7900", r"8060S"), aliases=("gfx11", "gfx1100", "gfx1151", "ryzen-ai-max", "strix-halo"),
        instruction="wmma"),
    Gpu("rdna4", devices=(r"RX 9070(?: XT| GRE)?", r"(?:(?:AI )?PRO )?R9700"), aliases=("gfx12", "gfx1201"), instruction="wmma"),
    Gpu("x86", aliases=("amx", "sapphire-rapids"), instruction="tdpbf16ps", cpu=True),
)  # fmt: skip

# GPUs that papers compare with and whose units the table lacks: Precision Boosting's, and Mukunoki et al. 2020's.
COMPARED = (
    Gpu("rtx-4080-super", peak_rates=_rates(0.8, 52.2, 208.9)),
    Gpu("titan-rtx", peak_rates=_rates(0.51, 16.3, 130.5)),
)

PEAKS: dict[str, Mapping[str, float]] = {gpu.name: gpu.peak_rates for gpu in (*GPUS, *COMPARED) if gpu.peak_rates}
CPUS = tuple(gpu.name for gpu in GPUS if gpu.cpu)


def peak(gpu: str, fmt: str) -> float | None:
    """TFLOP/s of a GPU for products of a format; None where it has no unit for it. All fp8 formats run at one rate.

    ValueError names the nearest GPU for an unknown one.
    """
    if gpu not in PEAKS:
        raise unknown("GPU with a known peak rate", gpu, PEAKS)
    name = "float8" if fmt == "float8" else format_named(fmt).name
    return PEAKS[gpu].get("float8" if name.startswith("float8") else name)
