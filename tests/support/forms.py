"""Formats of every kind: of the table, without a sign, without a zero, wider than any exponent of float32."""

import tcsim

FORMS = [
    "float16", "bfloat16", "tfloat32", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float4_e2m1fn",
    "float8_e4m3fnuz", "float8_ue4m3fn", "float8_e8m0fnu", tcsim.Format(exponent_bits=4, mantissa_bits=3, signed=False, infinities=True),
    tcsim.Format(exponent_bits=5, mantissa_bits=2, zero=False, infinities=False, nan="none"), tcsim.Format(exponent_bits=11, mantissa_bits=3),
]  # fmt: skip
