"""Numbers half-way between two results, which whatever little is beside them tips."""

from __future__ import annotations

import numpy as np

from tcsim.fp.formats import Format
from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions.codes import Ints, Rng
from tcsim.problem import Codes

_HALVES = 64  # products half-way between two results, drawn


def half_way(rng: Rng, batch: Batch, known: Formats, precision: int, rows: Ints, places: Ints) -> None:
    """The products at these places with fractions of factors of which each is half-way between two numbers of a precision, where the
    formats have such: odd multiples of 2^-precision."""
    a, b = known.a.precision, known.b.precision
    least, most, pairs = max(precision + 1 - a, 1), min(b, precision + 1), []
    for _ in range(_HALVES if least <= most and rows.size and not known.a.integer else 0):
        y = int(rng.integers(1 << (width := int(rng.integers(least, most + 1))) - 1, 1 << width)) | 1
        x = int(rng.integers(-(-(1 << precision) // y), (1 << (precision + 1)) // y + 1)) | 1
        if (x * y).bit_length() == precision + 1 and x.bit_length() <= a:
            pairs.append(((x << (a - x.bit_length())) - (1 << (a - 1)), (y << (b - y.bit_length())) - (1 << (b - 1))))
    if not pairs:
        return
    chosen = np.array(pairs, np.uint64)[rng.integers(0, len(pairs), rows.size)]
    for i, (codes, fmt) in enumerate(((batch.a[:, 0], known.a), (batch.b[:, :, 0], known.b))):
        kept = codes.dtype.type(((1 << fmt.width) - 1) & ~(((1 << fmt.mantissa_bits) - 1) << fmt.padding))
        codes[rows, places] = (codes[rows, places] & kept) | (chosen[:, i] << np.uint64(fmt.padding)).astype(codes.dtype)


def half_way_codes(codes: Codes, fmt: Format, precision: int) -> Codes:
    """Codes whose numbers are half-way between two of fewer bits."""
    half = 1 << (fmt.mantissa_bits - precision + fmt.padding)
    return (codes & codes.dtype.type(~(2 * half - 1) & ((1 << fmt.width) - 1))) | codes.dtype.type(half)
