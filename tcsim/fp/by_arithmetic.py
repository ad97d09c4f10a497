"""Codes of values by arithmetic on whole arrays: for what a process encodes first, a kernel would take longer to compile or to load."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format

Array = npt.NDArray[Any]

_PATIENCE = 1 << 20  # values of a process that are encoded so: a tenth of a second
_CALL = 1 << 14  # values that take as long as a call
_DONE = [0]  # so many are


def in_few(size: int) -> bool:
    """Whether so many values should be encoded here, by how many already were."""
    _DONE[0] += max(size, _CALL)
    return _DONE[0] <= _PATIENCE


@np.errstate(all="ignore")  # NaN are looked at too
def exact_codes(values: Array, fmt: Format) -> Array | None:
    """The codes of float32 or float64 values, as `encode` has them, in C order; None where some are not finite or not of the format.

    |x| = s·2^(e - M) with M mantissa bits and e = max(floor(log2 |x|), emin): the format holds x where s is an integer and x is not
    beyond its largest number, and s carries into the exponent field that counts from emin: the code is (e - emin)·2^M + s.
    """
    values = np.asarray(values, np.float64)
    negative = np.signbit(values)
    magnitude = np.abs(values)
    if not (magnitude <= fmt.max_finite).all() or (not fmt.signed and (negative & (magnitude > 0)).any()):
        return None
    e = np.where(magnitude > 0, np.maximum(np.frexp(magnitude)[1].astype(np.int64) - 1, fmt.emin), fmt.emin)
    s = np.ldexp(magnitude, fmt.mantissa_bits - e)
    if not ((s == np.rint(s)) & ((s > 0) == (magnitude > 0))).all():  # s underflows where all of a format is large
        return None
    codes = ((e - fmt.emin) << fmt.mantissa_bits) + s.astype(np.int64)
    if not fmt.zero:  # nor subnormal numbers
        codes -= 1 << fmt.mantissa_bits
        if (codes < 0).any():
            return None
    if fmt.signed:
        signed = negative if fmt.nan != "negative-zero" else negative & (magnitude > 0)
        codes |= signed.astype(np.int64) << (fmt.exponent_bits + fmt.mantissa_bits)
    return np.asarray(codes << fmt.padding).astype(fmt.storage, order="C")
