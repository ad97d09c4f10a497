"""AMD RDNA3 (gfx1100, gfx1151) and RDNA4 (gfx1201) wave matrix units: WMMA of float16 and bfloat16 into float32.

Both are dot units with 24 bits below the largest product and 26 below c. RDNA3 takes two products a step, subtracts in one's
complement and flushes what float32 calls subnormal; RDNA4 takes four, in pairs, and floors. An instruction of 16 products is eight
or four such steps; RDNA4's takes k = 0-3, 8-11, 4-7, 12-15 where a wave has 32 threads, and in ascending order where it has 64.
"""

from tcsim.hardware.parts import Output, Specials, Walk
from tcsim.hardware.rows import FP16_BF16, rows
from tcsim.hardware.sums import Paired

_FP32 = Output("float32", "rne")
_FACTOR_NAN, _NAN = 0xFFC00A3D, 0xFFC00000
_WAVE32 = (0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15)
_RDNA3 = (Paired(24, 26, None, "complement", _FACTOR_NAN), Specials("flush", "positive", _NAN, "operand"))
_RDNA4 = (Paired(24, 26, -126, "pairs", _FACTOR_NAN), Specials("keep", "positive", _NAN, "operand"))
_SOURCE = "ROCm/rocm-systems issue 12056 and pull request 12120 (rocjitsu), hardware results on {}"
_ON_RDNA3 = _SOURCE.format("Radeon Pro W7900 (gfx1100) and Ryzen AI Max (gfx1151)")
_ON_RDNA4 = _SOURCE.format("Radeon AI Pro R9700 (gfx1201)")

UNITS = (
    *rows(["rdna3"], "wmma", FP16_BF16, _FP32, 2, *_RDNA3, evidence="S", source=_ON_RDNA3),
    *rows(["rdna4"], "wmma", FP16_BF16, _FP32, Walk(4, _WAVE32), *_RDNA4, evidence="S", source=_ON_RDNA4),
    *rows(["rdna4"], "wmma_w64", FP16_BF16, _FP32, 4, *_RDNA4, evidence="S", source=_ON_RDNA4),
)
