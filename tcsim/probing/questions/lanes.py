"""Which lane is which: their sums are added, and of two numbers no sum tells the first."""

from __future__ import annotations

from itertools import product

import numpy as np

from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions.codes import Ints, Rng, codes_at

IN_LANES = "NaNs in lanes"


def nans_in_lanes(rng: Rng, known: Formats, unit: Unit) -> Batch | None:
    """NaNs of either sign in two neighbouring lanes of every block, both ways round, ones elsewhere: the first lane's is kept. None of a
    record without lanes, and of formats in which a NaN has no sign."""
    if unit.arithmetic != "fused" or unit.lanes == 1 or known.a.nan != "ieee":
        return None
    order: Ints = np.array(unit.k_order or range(unit.block_size)).reshape(-1, unit.block_size)
    pairs = [
        (rng.choice(order[block, lane :: unit.lanes]), rng.choice(order[block, lane + 1 :: unit.lanes]))
        for block, lane in product(range(len(order)), range(unit.lanes - 1))
    ]
    pairs += [(y, x) for x, y in pairs]
    count, k = len(pairs), order.size
    a = np.full((count, 1, k), codes_at(known.a, 0, 0, False))
    b = np.full((count, k, 1), codes_at(known.b, 0, 0, False))
    assert known.a.inf_code is not None
    for side, sign in enumerate((0, known.a.sign_bit)):
        fractions = rng.integers(1, 1 << known.a.mantissa_bits, count, dtype=np.uint64) << np.uint64(known.a.padding)
        a[range(count), 0, [pair[side] for pair in pairs]] = (fractions | np.uint64(known.a.inf_code | sign)).astype(a.dtype)
    return Batch(IN_LANES, a, b, np.zeros((count, 1, 1), known.out.storage))
