"""AMD CDNA1 (MI100), CDNA2 (MI210, MI250) and CDNA3 (MI300X) matrix cores.

Which NaN a matrix core returns is unknown (`nan_known`): no vector here and no source tells; the patterns are those that the
source's simulator prints.
"""

from tcsim.hardware.parts import Output, Specials
from tcsim.hardware.rows import EXACT, FP16, FP16_BF16, MMA_SIM, TF32, ieee_fma, int8_dot, rows
from tcsim.hardware.sums import Rounded, TwoStage

_NAN32, _NAN64 = 0xFFC00000, 0xFFF8000000000000
_CDNA1 = Specials("keep", "ieee", _NAN32, nan_known=False)
_CDNA2 = Specials("flush", "ieee", _NAN32, nan_known=False)
_CDNA3 = Specials("keep", "ieee", nan_known=False)
_MI200 = ("mi210", "mi250")
_BF16 = ("bfloat16",)
_FNUZ = ("float8_e4m3fnuz", "float8_e5m2fnuz")
_FNUZ_PAIRS = tuple((a, b) for a in _FNUZ for b in _FNUZ)
_FP32 = Output("float32", "rne")

UNITS = (
    *rows(["mi100"], "mfma", FP16, _FP32, 4, EXACT, _CDNA1, evidence="S", source=MMA_SIM),
    *rows(["mi100"], "mfma", _BF16, _FP32, 2, EXACT, _CDNA1, evidence="S", source=MMA_SIM),
    *rows(_MI200, "mfma", FP16, _FP32, 4, Rounded(), _CDNA2, evidence="S", source=MMA_SIM),
    *rows(_MI200, "mfma", _BF16, _FP32, 2, Rounded(), _CDNA2, evidence="S", source=MMA_SIM),
    *rows(_MI200, "mfma_1k", _BF16, _FP32, 4, Rounded(), _CDNA2, evidence="S", source=MMA_SIM),
    *rows(["mi300x"], "mfma", FP16_BF16, _FP32, 8, TwoStage(24, 31), _CDNA3, evidence="S", source=MMA_SIM),
    *rows(["mi300x"], "mfma", TF32, _FP32, 4, TwoStage(24, 31), _CDNA3, evidence="S", source=MMA_SIM),
    *rows(
        ["mi300x"], "mfma", _FNUZ_PAIRS, _FP32, 16, TwoStage(24, 31, parity_split=True), _CDNA3, evidence="S", source=MMA_SIM
    ),
    *ieee_fma(["mi100", *_MI200, "mi300x"], "mfma", "float32", nan_code=_NAN32, nan_known=False, source=MMA_SIM),
    *ieee_fma([*_MI200, "mi300x"], "mfma", "float64", nan_code=_NAN64, nan_known=False, source=MMA_SIM),
    *int8_dot(["mi100", *_MI200], "mfma", 16, source=MMA_SIM),
    *int8_dot(["mi300x"], "mfma", 32, source=MMA_SIM),
)
