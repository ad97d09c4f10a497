"""NVIDIA Blackwell: B200 (tcgen05 and mma.sync) and RTX Blackwell (mma.sync of sm_120)."""

from tcsim.hardware.hopper import EMULATED_FP8, EMULATED_FP8_C
from tcsim.hardware.parts import Scaling
from tcsim.hardware.rows import (
    FP8_PAIRS,
    FP16,
    FP16_BF16,
    FP864_PAIRS,
    KHATTAK,
    MMA_SIM,
    PTX,
    TF32,
    TO_FP16,
    TO_FP32,
    Cut,
    ieee_fma,
    int8_dot,
    rows,
)  # fmt: skip

# (gpu, instruction) -> evidence for the formats that the public B200 vectors cover.
_PLAIN = {("b200", "tcgen05"): ("S", MMA_SIM), ("b200", "mma"): ("V", KHATTAK), ("rtx-blackwell", "mma"): ("S", MMA_SIM)}
_F8F6F4 = (("b200", "tcgen05"), ("rtx-blackwell", "mma"))

# mxf8f6f4 aligns every product, mxf4 and nvf4 exact groups of 16.
_MX = Scaling("float8_e8m0fnu", 32)
_MXF8 = {"float8_e4m3fn": "mxfp8_e4m3", "float8_e5m2": "mxfp8_e5m2", "float6_e2m3fn": "mxfp6_e2m3",
         "float6_e3m2fn": "mxfp6_e3m2", "float4_e2m1fn": "mxfp4_e2m1_k32"}  # fmt: skip
_FP4 = {
    "mxfp4": Scaling("float8_e8m0fnu", 32, group_size=16),
    "mxfp4_block16": Scaling("float8_e8m0fnu", 16, group_size=16),
    "nvfp4": Scaling("float8_ue4m3fn", 16, group_size=16),
}


def _mx_name(a: str, b: str) -> str:
    return _MXF8[a] if a == b else f"{_MXF8[a]} x {_MXF8[b]}"


UNITS = (
    *(
        row
        for (gpu, instruction), (evidence, source) in _PLAIN.items()
        for row in (
            *rows([gpu], instruction, FP16_BF16, TO_FP32, 16, Cut(25, below=7), evidence=evidence, source=source),
            *rows([gpu], instruction, TF32, TO_FP32, 8, Cut(25, below=7), evidence=evidence, source=source),
            *rows([gpu], instruction, FP16, TO_FP16, 16, Cut(25, below=7), evidence=evidence, source=source),
            *int8_dot([gpu], instruction, 32, source=PTX),
        )
    ),
    *rows(["b200"], "mma", FP8_PAIRS, TO_FP32, EMULATED_FP8, Cut(25, below=7), EMULATED_FP8_C, operand_format="float16",
          evidence="V", source=KHATTAK),
    *rows(["b200"], "mma", FP8_PAIRS, TO_FP16, EMULATED_FP8, Cut(25, below=7), EMULATED_FP8_C, operand_format="float16",
          evidence="V", source=KHATTAK),
    *(
        row
        for gpu, instruction in _F8F6F4
        for row in (
            *rows([gpu], instruction, FP864_PAIRS, TO_FP32, 32, Cut(25, below=7), evidence="S", source=MMA_SIM),
            *rows([gpu], instruction, FP864_PAIRS, TO_FP16, 32, Cut(25, below=7), evidence="S", source=MMA_SIM),
            *rows([gpu], instruction, FP864_PAIRS, TO_FP32, 32, Cut(25, below=7), _MX, name=_mx_name, evidence="S",
                  source=MMA_SIM),
            *(
                unit
                for name, scaling in _FP4.items()
                for unit in rows([gpu], instruction, ["float4_e2m1fn"], TO_FP32, 64, Cut(35, below=13), scaling, name=name,
                                 evidence="S", source=MMA_SIM)
            ),
        )
    ),
    *ieee_fma(["b200"], "mma", "float64", nan_known=False, source=PTX),
)  # fmt: skip
