"""Two-stage sums (CDNA3) on the fast path: the products' sum and c meet in float64, floored, then rounded once.

T, the sum of the truncated products, counts 2^(e - F) where e is their largest exponent, F = 24. With emax = max(e, exponent
of c): T is floored to a multiple of 2^(emax - 32), which cuts only where emax - e > 8; c to one of 2^(emax - 24). Their sum is an
integer of less than 40 bits times 2^(emax - 32), exact in float64; it is floored to 32 significant bits on its pattern (what is
cut from a negative number is added to its magnitude) and converted to float32, to nearest-even.

Where even and odd products are summed apart, the sum of the lower exponent is floored to the other's grid first, and a c below
2^(emax - 25) counts as zero.
"""

from __future__ import annotations

from tcsim.codegen.vector_ops import F32, F64, I32, I64, Emitted

FRACTION, LATE = 24, 31
_BELOW = (1 << 21) - 1  # the bits of a float64 below its first 32


def _shift(x: Emitted, by: Emitted) -> Emitted:
    """x·2^-by rounded down, by from 0 on."""
    return Emitted(x.b, x.b.ashr(x.v, by.call("smin", 31).v))


def joined_stages(even: Emitted, e_even: Emitted, odd: Emitted, e_odd: Emitted) -> tuple[Emitted, Emitted]:
    """The two sums floored to the larger exponent's grid and added, and that exponent."""
    e = e_even.call("smax", e_odd)
    return _shift(even, e - e_even) + _shift(odd, e - e_odd), e


def with_c(total: Emitted, e: Emitted, c: Emitted, drops: bool) -> tuple[Emitted, Emitted]:
    """The new accumulators from T, its exponent as a number (0: no nonzero product), and c; and the exponent of the block."""
    b = total.b
    e_c = (c.bits_as(I32) << 1) >> 24
    emax = e.call("smax", e_c)
    c_floor = (c * (((emax * -1 + (254 + FRACTION)) << 23).bits_as(F32))).call("floor")
    below = c.bits_as(I32).compare("u>", -(1 << 31))  # a negative c is at most -1, also where c times the scale underflows to 0
    c_floor = below.where(c_floor.call("minnum", -1.0), c_floor) * 256.0
    if drops:
        kept = e_c.compare(">=", emax - (FRACTION + 1))
        c_floor = kept.where(c_floor, 0.0)
    behind = emax - e
    cut = _shift(total, (behind - 8).call("smax", 0))
    factor = ((behind.call("smin", 8) * -1 + (127 + 8)) << 23).bits_as(F32)
    wide = cut.cast(F64, "sitofp").call("fma", factor.cast(F64, "fpext"), c_floor.cast(F64, "fpext"))
    pattern = wide.bits_as(I64)
    negative = Emitted(b, b.ashr(pattern.v, pattern.like(63).v))
    floored = ((pattern + (negative & _BELOW)) & ~_BELOW).bits_as(F64)
    unscale = ((emax - (LATE + 1)).call("smax", 0) << 23).bits_as(F32)  # 0 where c and all products are
    return floored.cast(F32, "fptrunc") * unscale, emax << 23
