"""NVIDIA Hopper (H100, H200): mma.sync and wgmma."""

from tcsim.hardware.parts import LateC, Output, Specials, Walk
from tcsim.hardware.rows import (
    EXACT,
    FP8_PAIRS,
    FP16,
    FP16_BF16,
    H200,
    KHATTAK,
    PTX,
    TF32,
    TO_E8M13,
    TO_FP16,
    TO_FP32,
    Cut,
    ieee_fma,
    int8_dot,
    rows,
)  # fmt: skip

_GPUS = ("h100", "h200")
_EVIDENCE = {"h100": "V", "h200": "H"}
_MEASURED = {"h100": "S", "h200": "H"}
_SOURCE = f"{KHATTAK}; {H200}"

# mma.sync fp8 is compiled into two fp16 block FMAs of operands converted to fp16, the k with (k // 2) even before the k with
# (k // 2) odd; then c is added.
EMULATED_FP8 = Walk(16, tuple(k for odd in (0, 1) for k in range(32) if k // 2 % 2 == odd))
EMULATED_FP8_C = LateC(chain=2)

UNITS = (
    *(
        row
        for instruction in ("wgmma", "mma")
        for row in (
            *rows(_GPUS, instruction, FP16_BF16, TO_FP32, 16, Cut(25, below=7), evidence=_EVIDENCE, source=_SOURCE),
            *rows(_GPUS, instruction, TF32, TO_FP32, 8, Cut(25, below=7), evidence=_EVIDENCE, source=_SOURCE),
            *rows(_GPUS, instruction, FP16, TO_FP16, 16, Cut(25, below=7), evidence=_EVIDENCE, source=_SOURCE),
            *int8_dot(_GPUS, instruction, 32, evidence=_MEASURED, source=f"{PTX}; {H200}"),
        )
    ),
    *rows(_GPUS, "wgmma", FP8_PAIRS, TO_E8M13, 32, Cut(13, below=7), evidence=_EVIDENCE, source=_SOURCE),
    *rows(_GPUS, "wgmma", FP8_PAIRS, TO_FP16, 32, Cut(13, below=7), evidence=_MEASURED, source=_SOURCE),
    *rows(_GPUS, "mma", FP8_PAIRS, TO_FP32, EMULATED_FP8, Cut(25, below=7), EMULATED_FP8_C, operand_format="float16",
          evidence=_MEASURED, source=H200),
    *rows(_GPUS, "mma", FP8_PAIRS, TO_FP16, EMULATED_FP8, Cut(25, below=7), EMULATED_FP8_C, operand_format="float16",
          evidence=_EVIDENCE, source=_SOURCE),
    # m8n8k4 is no tensor-core instruction here: fused multiply-adds from zero, then c; to fp16, pairs of products in fp32.
    *rows(["h200"], "mma.m8n8k4", FP16, Output("float32", "rne"), 1, EXACT, LateC(chain=4), evidence="H", source=H200),
    *rows(["h200"], "mma.m8n8k4", FP16, TO_FP16, 1, EXACT, LateC(chain=2, sum_format="float32", chains=2),
          Specials(zero_sign="ieee"), evidence="H", source=H200),
    *ieee_fma(_GPUS, "mma", "float64", nan_code=0xFFF8000000000000, nan_from="operand", evidence=_MEASURED,
              source=f"{PTX}; {H200}"),
)  # fmt: skip
