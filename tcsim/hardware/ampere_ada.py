"""NVIDIA Ampere (A100; GA10x: A2, A30, A40) and Ada (L40S, RTX Ada).

The A2 and L40S share every row of the public vectors' A100 and Ada files; A30 and A40 are stated by the source.
"""

from tcsim.hardware.rows import (
    FP8_PAIRS,
    FP16,
    FP16_BF16,
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

_AMPERE = ("a100", "a2", "a30", "a40")
_ADA = ("l40s", "ada")
_BOTH = (*_AMPERE, *_ADA)
_EVIDENCE = {gpu: "S" if gpu in ("a30", "a40") else "V" for gpu in _BOTH}

UNITS = (
    *rows(_BOTH, "mma", FP16_BF16, TO_FP32, 8, Cut(24, below=6), evidence=_EVIDENCE, source=KHATTAK),
    *rows(_BOTH, "mma", TF32, TO_FP32, 4, Cut(24, below=6), evidence=_EVIDENCE, source=KHATTAK),
    *rows(_BOTH, "mma", FP16, TO_FP16, 8, Cut(24, below=6), evidence=_EVIDENCE, source=KHATTAK),
    *rows(_ADA, "mma", FP8_PAIRS, TO_E8M13, 16, Cut(13, below=6), evidence="V", source=KHATTAK),
    *rows(_ADA, "mma", FP8_PAIRS, TO_FP16, 16, Cut(13, below=6), evidence="V", source=KHATTAK),
    *ieee_fma(["a100", "a30"], "mma", "float64", nan_known=False, source=PTX),
    *int8_dot(_BOTH, "mma", 32, source=PTX),
)
