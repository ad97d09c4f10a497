"""Rungs: every distance between two terms in turn, so that a cut is read off where the lower one stops counting.

Where all but the lower term cancel, the answer is what was kept of it. Where nothing cancels, it is what tips the rounding: half a
last place above it, or none.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from tcsim.fp.codes import decode
from tcsim.fp.formats import Format
from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions.codes import Ints, Rng, exponents
from tcsim.probing.questions.edges import FAR, sums_at
from tcsim.probing.questions.half_way import half_way
from tcsim.probing.questions.signs import cancel, without_signs
from tcsim.problem import Codes

_DEEPEST = 300
_LIKELY = 4
_LIFTED = 0.4  # of the outputs of c and a lower product: c as far above all products as the output reaches
_BESIDE, _AMONG = 6, 10  # outputs at every distance of one product and c, and of several


def rungs(rng: Rng, known: Formats, k: int) -> Batch:
    """Single outputs of at most two of k products and c, of the greatest height that the formats have, or near it: of one product and
    c for k = 1."""
    a, b, out = known.a, known.b, known.out
    low, high = a.emin + b.emin - a.mantissa_bits - b.mantissa_bits, min(a.emax + b.emax, out.emax - 1)
    last = out.emin - out.mantissa_bits
    deepest = min(max(high - min(low, last), 0) + 2, _DEEPEST)
    down = np.repeat(np.arange(deepest + 1), _BESIDE if k == 1 else _AMONG)
    count = down.size
    rows = np.arange(count)
    top = high - np.where(rng.random(count) < 0.8, 0, rng.integers(0, 4, count))
    one, other = _places(rng, k, count)
    c = np.full(count, k)
    exponent, minus = np.full((count, k + 1), FAR), rng.random((count, k + 1)) < 0.5
    free = np.zeros((count, k + 1), bool)
    kind = rng.integers(0, 3 if k == 1 else 9, count)
    # what is highest, the little one, and what cancels the highest or is half its last place
    highest = np.choose(kind, [one, c, one, one, c, one, one, one, one])
    little = np.choose(kind, [c, one, c, other, other, other, c, other, other])
    third = np.choose(kind, [c, one, other, c, one, c, other, c, c])
    above = (kind == 4) & (rng.random(count) < 0.5)  # so far that half its last place is the highest product
    top = np.where(above, np.minimum(top + out.precision, out.emax - 1), top)
    half = top - out.precision + rng.integers(-1, 1, count) * (rng.random(count) < 0.3)
    three, cancels = (kind >= 2) & (kind < 7) & (k > 1), (kind == 2) | (kind == 3)
    exponent[rows[three], third[three]] = np.where(cancels, top, half)[three]
    both = kind == 8  # little, of which the sign of the sum says whether both are cut
    top = np.where(both, high - down * (high - low) // deepest, top)
    exponent[rows, little] = top - np.where(both, rng.integers(0, 2, count), down)
    lift = np.where((kind == 1) & (rng.random(count) < _LIFTED), max(out.emax - 1 - high, 0), 0)
    exponent[rows, highest] = top + lift
    free[rows, little] = rng.random(count) < 0.4
    batch = sums_at(rng, known, exponent, free, minus, "rungs")
    alone = kind == (2 if k == 1 else 7)  # one product half-way between two results
    half_way(rng, batch, known, out.precision, rows[alone], one[alone])
    without_signs(batch, known, (alone & (k == 1) | (kind == 6)) & (rng.random(count) < 0.75))
    pairs, beside_c = rows[(kind == 2) & (k > 1)], rows[kind == 3]
    cancel(batch, known, pairs, one[pairs], other[pairs])
    negative = _negative(batch.a[beside_c, 0, one[beside_c]], a) ^ _negative(batch.b[beside_c, one[beside_c], 0], b)
    sign = batch.c.dtype.type(out.sign_bit)
    magnitude = batch.c[beside_c, 0, 0] & ~sign
    batch.c[beside_c, 0, 0] = np.where(negative, magnitude, magnitude | sign)
    return batch


def likely_cuts(asked: Batch, known: Formats) -> tuple[int, ...]:
    """How far below their highest term answers are most often, other than beside it: where a negative term is floored to."""
    assert asked.d is not None
    products = exponents(asked.a[:, 0], known.a) + exponents(asked.b[:, :, 0], known.b)
    there = (decode(asked.a[:, 0], known.a) != 0) & (decode(asked.b[:, :, 0], known.b) != 0)
    top = np.maximum(np.where(there, products, FAR).max(axis=1), exponents(asked.c[:, 0, 0], known.out))
    value = decode(asked.d[:, 0, 0], known.out)
    down = (top - exponents(asked.d[:, 0, 0], known.out))[np.isfinite(value) & (value != 0)]
    most = Counter(down[down > 1].tolist()).most_common(_LIKELY)
    return tuple(dict.fromkeys(n for depth, _ in most for n in (depth, depth - 1)))


def _negative(x: Codes, fmt: Format) -> npt.NDArray[np.bool_]:
    return (x & x.dtype.type(fmt.sign_bit if fmt.signed else 0)) > 0


def _places(rng: Rng, k: int, count: int) -> tuple[Ints, Ints]:
    """Two places, mostly the first two or the first and the third."""
    if k == 1:
        return np.zeros(count, np.int64), np.zeros(count, np.int64)
    drawn = np.argsort(rng.random((count, k)), axis=1)[:, :2]
    usual = rng.random(count)
    drawn[usual < 0.5] = (0, 1)
    drawn[usual > 0.75] = (0, min(2, k - 1))
    swapped = rng.random(count) < 0.5
    drawn[swapped] = drawn[swapped, ::-1]
    return drawn[:, 0], drawn[:, 1]
