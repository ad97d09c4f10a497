"""NVIDIA Ampere (A100; GA10x: A2, A30, A40) and Ada (L40S, RTX Ada).

The A2 and L40S share every row of the public vectors' A100 and Ada files; A30 and A40 are stated by the source.
"""

from tcsim.hardware.rows import FP8_PAIRS, KHATTAK, PTX, ieee_fma, int8_dot, rows

_AMPERE = ("a100", "a2", "a30", "a40")
_ADA = ("l40s", "ada")
_BOTH = (*_AMPERE, *_ADA)
_EVIDENCE = {gpu: "S" if gpu in ("a30", "a40") else "V" for gpu in _BOTH}

UNITS = (
    *rows(_BOTH, "mma", ["float16", "bfloat16"], "float32", block_size=8, fraction_bits=24, rounding="rz",
          min_exponent=-132, evidence=_EVIDENCE, source=KHATTAK),
    *rows(_BOTH, "mma", ["tfloat32"], "float32", block_size=4, fraction_bits=24, rounding="rz", min_exponent=-132,
          evidence=_EVIDENCE, source=KHATTAK),
    *rows(_BOTH, "mma", ["float16"], "float16", block_size=8, fraction_bits=24, rounding="rne", min_exponent=-20,
          evidence=_EVIDENCE, source=KHATTAK),
    *rows(_ADA, "mma", FP8_PAIRS, "float32", block_size=16, fraction_bits=13, rounding="rz", out_precision=14,
          min_exponent=-132, evidence="V", source=KHATTAK),
    *rows(_ADA, "mma", FP8_PAIRS, "float16", block_size=16, fraction_bits=13, rounding="rne", min_exponent=-20,
          evidence="V", source=KHATTAK),
    *ieee_fma(["a100", "a30"], "mma", "float64", nan_known=False, source=PTX),
    *int8_dot(_BOTH, "mma", 32, source=PTX),
)  # fmt: skip
