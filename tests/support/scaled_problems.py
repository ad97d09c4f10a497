"""Problems for units with block scales, drawn to tell two backends apart."""

import numpy as np
from tcsim_gpu import what_ifs

from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential


def scaled_problem(draw: what_ifs.Draw, unit: Unit) -> Problem:
    """Scales around a middle that may lie anywhere, some far off, and a c that may be as large or small as it likes."""
    m, n, k = draw.between(1, 3), draw.between(1, 3), draw.of((16, 48, 64, 96, 128, 192, 250))
    rng, fmt = draw.rng, unit.scale_format
    assert fmt is not None
    kinds = ("mid", "any", "zeros", "close", "special", "cancel", "huge")
    a = what_ifs.codes_of_kind(draw, unit.a_format, (1, m, k), draw.of(kinds))
    b = what_ifs.codes_of_kind(draw, unit.b_format, (1, k, n), draw.of(kinds))
    blocks, width = -(-k // unit.scale_block), fmt.mantissa_bits
    scales = []
    for shape in ((1, m, blocks), (1, blocks, n)):
        middle = draw.of((fmt.bias, fmt.bias, draw.between(0, (fmt.max_code >> width) - 1)))
        spread = draw.of((0, 1, 3, 6, 10, 14))
        field = np.clip(middle + rng.integers(-spread, spread + 1, shape), 0, fmt.max_code >> width)
        codes = np.minimum(field << width | rng.integers(0, 1 << width, shape), fmt.max_code)
        scales.append(np.where(rng.random(shape) < draw.of((0, 0, 0.1)), fmt.max_code + 1, codes).astype(np.uint8))
    c = None
    if draw.chance(0.7):
        field = np.clip(127 + draw.between(-40, 40) + rng.integers(-6, 7, (1, m, n)), 0, 255)
        if draw.chance(0.1):
            field[...] = draw.of((0, 254, 255))
        body = rng.integers(0, 1 << 23, (1, m, n)) & ~((1 << draw.of((0, 0, 8, 16, 23))) - 1)
        c = (rng.integers(0, 2, (1, m, n)) << 31 | field << 23 | np.where(rng.random((1, m, n)) < 0.2, 0, body)).astype(
            np.uint32
        )
        c = np.where(rng.random(c.shape) < 0.1, rng.integers(0, 2, c.shape, dtype=np.uint32) << np.uint32(31), c)
    return Problem(
        unit, Sequential().plan(k), Operand(a, unit.a_format), Operand(b, unit.b_format), c, scales[0], scales[1]
    )  # fmt: skip
