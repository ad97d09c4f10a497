"""Sums of the highest and the least products: of formats so narrow that others are exact, these are rounded on the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions import families
from tcsim.probing.questions.codes import Rng
from tcsim.probing.questions.edges import FAR, sums_at

_MANY = 0.4  # the power of a uniform share that is the share of highest products
_AGAINST = 0.02  # products of the other sign
_NONE = 0.1  # products of zero
_ALONE = 0.8  # sums beside no c


def heaps(rng: Rng, known: Formats, k: int, count: int) -> Batch:
    """`count` single outputs of k products, codes: of each output many are of the greatest height, mostly of one sign, the others of
    the least, c zero or of any height between."""
    a, b, out = known.a, known.b, known.out
    high = min(a.emax + b.emax, out.emax)
    low = min(a.emin + b.emin - a.mantissa_bits - b.mantissa_bits, high)
    highest = rng.random((count, k)) < rng.random((count, 1)) ** _MANY
    exponent = np.full((count, k + 1), FAR)
    exponent[:, :k] = np.where(rng.random((count, k)) < _NONE, FAR, np.where(highest, high, low))
    top = min(high + k.bit_length(), out.emax)
    exponent[:, k] = np.where(rng.random(count) < _ALONE, FAR, rng.integers(min(low, top), top + 1, count))
    minus = (rng.random((count, 1)) < 0.5) ^ (rng.random((count, k + 1)) < _AGAINST)
    batch = sums_at(rng, known, exponent, np.ones((count, k + 1), bool), minus, "heaps")
    scale_a, scale_b = known.scales(rng, count, 1, 1, k, families.scale)
    return replace(batch, scale_a=scale_a, scale_b=scale_b)
