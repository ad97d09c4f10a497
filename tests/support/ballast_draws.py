"""Units that have ballast on Hopper, and problems for them, at random."""

import numpy as np
from tcsim_gpu import what_ifs

import tcsim
from tcsim.fp.formats import format_named
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

FLOAT16, FLOAT32 = format_named("float16"), format_named("float32")
A100, V100, BF16 = tcsim.unit("a100", "float16"), tcsim.unit("v100", "float16"), tcsim.unit("a100", "bfloat16")


def drawn_unit(draw: what_ifs.Draw) -> Unit:
    """A100's or V100's fp16, A100's bf16, or a what-if of them that the gate takes."""
    base = draw.of((A100, V100, BF16))
    size = draw.between(1, 8)
    changes = {
        "gpu": "any",
        "block_size": size,
        "fraction_bits": draw.of((23, 24)),
        "min_exponent": draw.of((None, -126, -133, -200)),
        "k_order": tuple(int(k) for k in draw.rng.permutation(size * draw.between(1, 3))),
    }
    return (
        base
        if draw.chance(0.5)
        else base.replace(**{k: v for k, v in changes.items() if draw.chance(0.6) or k == "block_size"})
    )


def drawn_problem(draw: what_ifs.Draw, unit: Unit, most: int = 3) -> Problem:
    """Operands without specials; c of any size, zeros of both signs and specials among it."""
    m, n, k = draw.between(1, most), draw.between(1, most), draw.between(1, 40)
    kind = draw.of(("mid", "any", "zeros", "close", "tiny", "huge", "cancel"))
    fmt = unit.a_format
    a, b = what_ifs.codes_of_kind(draw, fmt, (1, m, k), kind), what_ifs.codes_of_kind(draw, fmt, (1, k, n), kind)
    if draw.chance(0.3):
        a, b = a & 0x7FFF, b & 0x7FFF
    if kind == "cancel" and k > 1:
        half = k // 2 * 2
        a[:, :, 1:half:2] = a[:, :, 0:half:2] ^ 0x8000
        b[:, 1:half:2] = b[:, 0:half:2]
    field = np.clip(127 + draw.between(-36, 36) + draw.rng.integers(-5, 6, (1, m, n)), 0, 255).astype(np.uint32)
    bits = draw.rng.integers(0, 2**32, (1, m, n), dtype=np.uint32)
    c = np.where(draw.rng.random((1, m, n)) < 0.15, bits & 0x80000000, bits & 0x807FFFFF | field << 23)
    if draw.chance(0.2):
        c = what_ifs.codes_of_kind(draw, FLOAT32, (1, m, n), draw.of(("any", "special", "tiny", "huge")))
    x, y = Operand(a, fmt), Operand(b, fmt)
    return Problem(unit, Sequential().plan(k), x, y, None if draw.chance(0.2) else c.astype(np.uint32))
