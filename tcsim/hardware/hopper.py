"""NVIDIA Hopper (H100, H200): mma.sync and wgmma."""

from tcsim.hardware.rows import FP8_PAIRS, H200, KHATTAK, PTX, ieee_fma, int8_dot, rows

_GPUS = ("h100", "h200")
_EVIDENCE = {"h100": "V", "h200": "H"}
_MEASURED = {"h100": "S", "h200": "H"}
_SOURCE = f"{KHATTAK}; {H200}"

# mma.sync fp8 is compiled into two fp16 block FMAs of operands converted to fp16, the k with (k // 2) even before the k with (k // 2) odd.
EMULATED_FP8_ORDER = tuple(k for odd in (0, 1) for k in range(32) if k // 2 % 2 == odd)

UNITS = (
    *(
        row
        for instruction in ("wgmma", "mma")
        for row in (
            *rows(_GPUS, instruction, ["float16", "bfloat16"], "float32", block_size=16, fraction_bits=25, rounding="rz",
                  min_exponent=-133, evidence=_EVIDENCE, source=_SOURCE),
            *rows(_GPUS, instruction, ["tfloat32"], "float32", block_size=8, fraction_bits=25, rounding="rz",
                  min_exponent=-133, evidence=_EVIDENCE, source=_SOURCE),
            *rows(_GPUS, instruction, ["float16"], "float16", block_size=16, fraction_bits=25, rounding="rne",
                  min_exponent=-21, evidence=_EVIDENCE, source=_SOURCE),
            *int8_dot(_GPUS, instruction, 32, evidence=_MEASURED, source=f"{PTX}; {H200}"),
        )
    ),
    *rows(_GPUS, "wgmma", FP8_PAIRS, "float32", block_size=32, fraction_bits=13, rounding="rz", out_precision=14,
          min_exponent=-133, evidence=_EVIDENCE, source=_SOURCE),
    *rows(_GPUS, "wgmma", FP8_PAIRS, "float16", block_size=32, fraction_bits=13, rounding="rne", min_exponent=-21,
          evidence=_MEASURED, source=_SOURCE),
    *rows(_GPUS, "mma", FP8_PAIRS, "float32", block_size=16, fraction_bits=25, rounding="rz", min_exponent=-133,
          k_order=EMULATED_FP8_ORDER, chain=2, c_enters="after", operand_format="float16", evidence=_MEASURED, source=H200),
    *rows(_GPUS, "mma", FP8_PAIRS, "float16", block_size=16, fraction_bits=25, rounding="rne", min_exponent=-21,
          k_order=EMULATED_FP8_ORDER, chain=2, c_enters="after", operand_format="float16", evidence=_EVIDENCE, source=_SOURCE),
    # m8n8k4 is no tensor-core instruction here: fused multiply-adds from zero, then c; to fp16, pairs of products in fp32.
    *rows(["h200"], "mma.m8n8k4", ["float16"], "float32", block_size=1, align_rounding="exact", rounding="rne", chain=4,
          c_enters="after", evidence="H", source=H200),
    *rows(["h200"], "mma.m8n8k4", ["float16"], "float16", block_size=1, align_rounding="exact", rounding="rne", chain=2,
          chains=2, sum_format="float32", c_enters="after", zero_sign="ieee", evidence="H", source=H200),
    *ieee_fma(_GPUS, "mma", "float64", nan_code=0xFFF8000000000000, nan_from="operand", evidence=_MEASURED,
              source=f"{PTX}; {H200}"),
)  # fmt: skip
