"""NVIDIA Blackwell: B200 (tcgen05 and mma.sync) and RTX Blackwell (mma.sync of sm_120)."""

from tcsim.hardware.hopper import EMULATED_FP8_ORDER
from tcsim.hardware.rows import FP8_PAIRS, FP864_PAIRS, KHATTAK, MMA_SIM, PTX, ieee_fma, int8_dot, rows

# (gpu, instruction) -> evidence for the formats that the public B200 vectors cover.
_PLAIN = {("b200", "tcgen05"): ("S", MMA_SIM), ("b200", "mma"): ("V", KHATTAK), ("rtx-blackwell", "mma"): ("S", MMA_SIM)}
_F8F6F4 = (("b200", "tcgen05"), ("rtx-blackwell", "mma"))

# name -> the pair of element formats and the scales. mxf8f6f4 aligns every product, mxf4 and nvf4 exact groups of 16.
_MXF8 = {"float8_e4m3fn": "mxfp8_e4m3", "float8_e5m2": "mxfp8_e5m2", "float6_e2m3fn": "mxfp6_e2m3",
         "float6_e3m2fn": "mxfp6_e3m2", "float4_e2m1fn": "mxfp4_e2m1_k32"}  # fmt: skip
_FP4 = {
    "mxfp4": {"scale": "float8_e8m0fnu", "scale_block": 32},
    "mxfp4_block16": {"scale": "float8_e8m0fnu", "scale_block": 16},
    "nvfp4": {"scale": "float8_ue4m3fn", "scale_block": 16},
}

UNITS = (
    *(
        row
        for (gpu, instruction), (evidence, source) in _PLAIN.items()
        for row in (
            *rows([gpu], instruction, ["float16", "bfloat16"], "float32", block_size=16, fraction_bits=25, rounding="rz",
                  min_exponent=-133, evidence=evidence, source=source),
            *rows([gpu], instruction, ["tfloat32"], "float32", block_size=8, fraction_bits=25, rounding="rz",
                  min_exponent=-133, evidence=evidence, source=source),
            *rows([gpu], instruction, ["float16"], "float16", block_size=16, fraction_bits=25, rounding="rne",
                  min_exponent=-21, evidence=evidence, source=source),
            *int8_dot([gpu], instruction, 32, source=PTX),
        )
    ),
    *rows(["b200"], "mma", FP8_PAIRS, "float32", block_size=16, fraction_bits=25, rounding="rz", min_exponent=-133,
          k_order=EMULATED_FP8_ORDER, chain=2, c_enters="after", operand_format="float16", evidence="V", source=KHATTAK),
    *rows(["b200"], "mma", FP8_PAIRS, "float16", block_size=16, fraction_bits=25, rounding="rne", min_exponent=-21,
          k_order=EMULATED_FP8_ORDER, chain=2, c_enters="after", operand_format="float16", evidence="V", source=KHATTAK),
    *(
        row
        for gpu, instruction in _F8F6F4
        for row in (
            *rows([gpu], instruction, FP864_PAIRS, "float32", block_size=32, fraction_bits=25, rounding="rz",
                  min_exponent=-133, evidence="S", source=MMA_SIM),
            *rows([gpu], instruction, FP864_PAIRS, "float16", block_size=32, fraction_bits=25, rounding="rne",
                  min_exponent=-21, evidence="S", source=MMA_SIM),
            *(
                unit
                for a, b in FP864_PAIRS
                for unit in rows([gpu], instruction, [(a, b)], "float32", block_size=32, fraction_bits=25, rounding="rz",
                                 min_exponent=-133, scale="float8_e8m0fnu", scale_block=32,
                                 name=_MXF8[a] if a == b else f"{_MXF8[a]} x {_MXF8[b]}", evidence="S", source=MMA_SIM)
            ),
            *(
                unit
                for name, scales in _FP4.items()
                for unit in rows([gpu], instruction, ["float4_e2m1fn"], "float32", block_size=64, group_size=16,
                                 fraction_bits=35, rounding="rz", min_exponent=-139, name=name, evidence="S",
                                 source=MMA_SIM, **scales)
            ),
        )
    ),
    *ieee_fma(["b200"], "mma", "float64", nan_known=False, source=PTX),
)  # fmt: skip
