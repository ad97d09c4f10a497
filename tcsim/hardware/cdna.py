"""AMD CDNA1 (MI100), CDNA2 (MI210, MI250) and CDNA3 (MI300X) matrix cores.

Which NaN a matrix core returns is unknown (`nan_known`): no vector here and no source tells; the patterns are those that the
source's simulator prints.
"""

from tcsim.hardware.rows import MMA_SIM, ieee_fma, int8_dot, rows

_NAN32, _NAN64 = 0xFFC00000, 0xFFF8000000000000
_CDNA2 = ("mi210", "mi250")
_FNUZ = ("float8_e4m3fnuz", "float8_e5m2fnuz")
_FNUZ_PAIRS = tuple((a, b) for a in _FNUZ for b in _FNUZ)

UNITS = (
    *rows(["mi100"], "mfma", ["float16"], "float32", block_size=4, align_rounding="exact", rounding="rne",
          zero_sign="ieee", nan_code=_NAN32, nan_known=False, evidence="S", source=MMA_SIM),
    *rows(["mi100"], "mfma", ["bfloat16"], "float32", block_size=2, align_rounding="exact", rounding="rne",
          zero_sign="ieee", nan_code=_NAN32, nan_known=False, evidence="S", source=MMA_SIM),
    *rows(_CDNA2, "mfma", ["float16"], "float32", block_size=4, arithmetic="rounded", align_rounding="exact",
          rounding="rne", subnormals="flush", zero_sign="ieee", nan_code=_NAN32, nan_known=False, evidence="S",
          source=MMA_SIM),
    *rows(_CDNA2, "mfma", ["bfloat16"], "float32", block_size=2, arithmetic="rounded", align_rounding="exact",
          rounding="rne", subnormals="flush", zero_sign="ieee", nan_code=_NAN32, nan_known=False, evidence="S",
          source=MMA_SIM),
    *rows(_CDNA2, "mfma_1k", ["bfloat16"], "float32", block_size=4, arithmetic="rounded", align_rounding="exact",
          rounding="rne", subnormals="flush", zero_sign="ieee", nan_code=_NAN32, nan_known=False, evidence="S",
          source=MMA_SIM),
    *rows(["mi300x"], "mfma", ["float16", "bfloat16"], "float32", block_size=8, arithmetic="two-stage",
          fraction_bits=24, late_fraction_bits=31, rounding="rne", zero_sign="ieee", nan_known=False, evidence="S",
          source=MMA_SIM),
    *rows(["mi300x"], "mfma", ["tfloat32"], "float32", block_size=4, arithmetic="two-stage",
          fraction_bits=24, late_fraction_bits=31, rounding="rne", zero_sign="ieee", nan_known=False, evidence="S",
          source=MMA_SIM),
    *rows(["mi300x"], "mfma", _FNUZ_PAIRS, "float32", block_size=16, arithmetic="two-stage", fraction_bits=24,
          late_fraction_bits=31, parity_split=True, rounding="rne", zero_sign="ieee", nan_known=False, evidence="S",
          source=MMA_SIM),
    *ieee_fma(["mi100", *_CDNA2, "mi300x"], "mfma", "float32", nan_code=_NAN32, nan_known=False, source=MMA_SIM),
    *ieee_fma([*_CDNA2, "mi300x"], "mfma", "float64", nan_code=_NAN64, nan_known=False, source=MMA_SIM),
    *int8_dot(["mi100", *_CDNA2], "mfma", 16, source=MMA_SIM),
    *int8_dot(["mi300x"], "mfma", 32, source=MMA_SIM),
)  # fmt: skip
