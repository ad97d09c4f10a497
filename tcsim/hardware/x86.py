"""Matrix units of x86 CPUs: AMX (TDPBF16PS, TDPBSSD) and AVX512-BF16 (VDPBF16PS)."""

from tcsim.hardware.parts import Output, Specials, Walk
from tcsim.hardware.rows import int8_dot, rows
from tcsim.hardware.sums import Fused

_BF16 = ("bfloat16",)
_FP32 = Output("float32", "rne")
_X86 = Specials("flush", "ieee", 0xFFC00000, "operand")
_SOURCE = "measured on an Intel Xeon with AMX (tests/golden/cpu)"

UNITS = (
    *rows(["x86"], "tdpbf16ps", _BF16, _FP32, 32, Fused(lanes=2), _X86, evidence="C", source=_SOURCE),
    # of two products the one of odd k comes first
    *rows(["x86"], "vdpbf16ps", _BF16, _FP32, Walk(2, (1, 0)), Fused(), _X86, evidence="C", source=_SOURCE),
    *int8_dot(["x86"], "tdpbssd", 64, evidence="C", source=_SOURCE),
)
