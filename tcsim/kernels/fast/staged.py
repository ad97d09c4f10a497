"""Two-stage sums (CDNA3) on the fast path: the products' sum and c meet in 32 bits, of which the last stands for all below.

T, the sum of the truncated products, counts 2^(e - F) where e is their largest exponent, F = 24; ec is c's exponent, E the larger
of the two. The unit floors T to multiples of 2^(E - 32), c to ones of 2^(E - 24), their sum to 32 significant bits, and rounds
that to nearest-even.

Here everything counts u = 2^(max(e, ec - D) - F), D = 5; |T| <= MOST < 0.9·2^30 (`special`). q = max(ec - D - e, 0).
    q = 0: T is not cut (E - 32 <= e - 24), c is where the unit cuts it (exact for E = ec). |c| < 2^30 u, so the sum is an integer
        of 32 bits, none of which the unit cuts: converting it to float32 rounds it.
    q > 0: 2^29 u <= |c| < 2^30 u, exact, and |T| < 0.45·2^30 u: the sum's magnitude is above 2^25 u, so half a last place of the
        result is 2 u or more, and bits below u only tell ties apart: n, the sum rounded down, is made odd where some of them are
        set. Those are 1/2, 1/4, 1/8 u, for the unit floors T at u/8. It also floors the sum to 32 bits: for |sum| >= 2^29 u
        1/8 is lost, from 2^30 u on 1/4 as well; the first three bits of n tell which (`_KEPT`), as |n| < 1.5·2^30.

Where even and odd products are summed apart, the sum of the lower exponent is floored to the other's grid first, and a c below
2^(e - 25) counts as zero.
"""

from __future__ import annotations

from tcsim.codegen.directed import by_first_bits, floor_to_int, shifted_off, shifted_to_floor
from tcsim.codegen.vector_ops import F32, I32, Emitted
from tcsim.kernels.fast.round import FIELD, Par, Rounding

FRACTION, LATE = 24, 31
D = 5  # binades that c may be above the products with all bits of both in 32
MOST = 0.9 * 2**30  # of a sum of products
_KEPT = [x << 29 for x in (7, 6, 4, 4, 4, 4, 6, 7)]  # which of 1/2, 1/4 and 1/8 are, by n's first three bits
_PLACE = 23  # of an exponent in float32
_FAR = 60  # a c so many binades below is no further: its scaling must not underflow


def joined_stages(even: Emitted, e_even: Emitted, odd: Emitted, e_odd: Emitted) -> tuple[Emitted, Emitted]:
    """The two sums floored to the larger exponent's grid and added, and that exponent; exponents are fields in place."""
    e = e_even.call("smax", e_odd)
    return shifted_to_floor(even, (e - e_even) >> _PLACE) + shifted_to_floor(odd, (e - e_odd) >> _PLACE), e


def with_c(rounding: Rounding, total: Emitted, e: Emitted, c: Emitted, drops: bool, words: bool) -> Emitted:
    """The new accumulators from T, its exponent field in place (words: 0 without a nonzero product), and c."""
    scale, unscale = rounding.number(Par.SCALE), rounding.number(Par.UNSCALE)
    ec = c.bits_as(I32) & FIELD
    base = e.call("smax", ec - (D << _PLACE))
    scale = scale - base
    if words:
        scale = scale.call("smax", ec * -1 + ((254 + FRACTION - _FAR) << _PLACE))
    c_floor = floor_to_int(c * scale.bits_as(F32))
    if drops:
        c_floor = ec.compare(">=", e - ((FRACTION + 1) << _PLACE)).where(c_floor, 0)
    q = (base - e) >> _PLACE
    n = c_floor + shifted_to_floor(total, q)
    lost = shifted_off(total, q) & by_first_bits(_KEPT, n)  # of no effect from q = 30 on, where n is c or c - 1
    odd = lost.compare("!=", 0).where(n | rounding.number(Par.ONE), n)
    place = base - unscale
    if words:
        place = place.call("smax", 0)  # without products and c
    return odd.cast(F32, "sitofp") * place.bits_as(F32)
