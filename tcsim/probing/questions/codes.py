"""Codes built from exponents and fractions: what a probe needs to put a number where a field of a record shows."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.codes import decode
from tcsim.fp.formats import Format
from tcsim.problem import Codes

Rng = np.random.Generator
Ints = npt.NDArray[np.int64]
_NEARLY_ALL = 0.995
_EDGES = 0.45  # of fractions are one of a few


def between(rng: Rng, low: Any, high: Any, shape: Any) -> Ints:
    """Whole numbers from low to high, both included, fewer than 2^53 of them: of few, a quarter of the time that `integers` takes."""
    return np.asarray(low + (rng.random(shape) * (high - low + 1)).astype(np.int64))


def some_of(rng: Rng, values: npt.NDArray[Any], shape: Any) -> npt.NDArray[Any]:
    """Some of these values, drawn like `between`."""
    return np.asarray(values[(rng.random(shape) * values.size).astype(np.int64)])


def codes_at(fmt: Format, exponent: Any, fraction: Any, negative: Any) -> Codes:
    """Codes of ±2^exponent·(1 + fraction·2^-mantissa_bits), the exponents brought into the format's range.

    Below the smallest normal number the leading bit stays at 2^exponent and the fraction loses its low bits. Unsigned formats
    drop the sign.
    """
    bits = fmt.mantissa_bits
    lead = 1 << bits if fmt.zero else 0
    place = np.asarray(exponent, np.int64) - fmt.emin
    place = np.minimum(np.maximum(place, -bits if fmt.zero else 0), fmt.emax - fmt.emin)
    up = np.maximum(place, 0)
    magnitude = (up << bits) + ((np.asarray(fraction, np.int64) & ((1 << bits) - 1) | lead) >> (up - place))
    magnitude = np.minimum(magnitude, fmt.max_code >> fmt.padding).astype(np.uint64) << np.uint64(fmt.padding)
    return np.asarray(magnitude | np.asarray(negative, bool) * np.uint64(fmt.sign_bit), fmt.storage)


def fractions(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Ints:
    """Fractions at which roundings differ, mixed with uniform ones: none, the last bit, half, all ones but a bit."""
    drawn = between(rng, 0, (1 << fmt.mantissa_bits) - 1, shape)
    share = rng.random(shape)
    edges = _edges(fmt.mantissa_bits)
    return np.where(share < _EDGES, edges.take((share * (edges.size / _EDGES)).astype(np.int64), mode="clip"), drawn)


@lru_cache(maxsize=64)
def _edges(bits: int) -> Ints:
    return np.array([0, 0, 1, (1 << bits) - 1, 1 << max(bits - 1, 0), (1 << bits) - 2], np.int64) & ((1 << bits) - 1)


def codes_between(rng: Rng, fmt: Format, shape: tuple[int, ...], low: Any, high: Any) -> Codes:
    """Numbers of either sign with exponents from low to high, both included."""
    if fmt.integer:
        return integers(rng, fmt, shape)
    exponent = between(rng, low, high, shape)
    return codes_at(fmt, exponent, fractions(rng, fmt, shape), rng.random(shape) < 0.5)


def integers(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    """Uniform two's complement codes, a third of them at the ends of the range."""
    drawn = rng.integers(0, 1 << fmt.width, shape, dtype=np.uint64)
    ends = np.array([(1 << fmt.width - 1) - 1, 1 << fmt.width - 1, 0, 1, (1 << fmt.width) - 1], np.uint64)
    return np.where(rng.random(shape) < 0.33, rng.choice(ends, shape), drawn).astype(fmt.storage)


def uniform_codes(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    """Uniform bit patterns, NaN and infinities among them."""
    drawn = rng.integers(0, 1 << (fmt.width - fmt.padding), shape, dtype=np.uint64)
    return np.asarray(drawn << np.uint64(fmt.padding), fmt.storage)


def corners(fmt: Format) -> Codes:
    """Zeros, the ends of the subnormals, one, the largest values, infinities and NaN of both signs."""
    if fmt.integer:
        top = 1 << fmt.width - 1
        return np.array([0, 1, 2, top - 1, top, top + 1, 2 * top - 1], np.uint64).astype(fmt.storage)
    low, one = 1 << fmt.mantissa_bits, max(fmt.bias, 0) << fmt.mantissa_bits
    largest = fmt.max_code >> fmt.padding
    found = [m << fmt.padding for m in (0, 1, low - 1, low, low + 1, one, one + 1, largest - 1, largest)]
    found = [code for code in found if 0 <= code <= fmt.max_code]
    if fmt.inf_code is not None:
        found.append(fmt.inf_code)
        if fmt.nan == "ieee":
            found += [fmt.inf_code | 1 << fmt.padding, fmt.inf_code | 1 << (fmt.mantissa_bits - 1 + fmt.padding)]
    found += [code | fmt.sign_bit for code in found]
    if fmt.nan_code is not None:
        found.append(fmt.nan_code)
    return np.unique(np.array(found, np.uint64)).astype(fmt.storage)


def doubles(codes: Codes, fmt: Format) -> npt.NDArray[np.float64]:
    """The values of codes of a format that float64 holds, signalling NaNs among them."""
    with np.errstate(invalid="ignore"):
        return np.asarray(decode(codes, fmt).astype(np.float64))


def exponents(codes: Codes, fmt: Format) -> Ints:
    """floor(log2 |x|) of every code; that of zero and of what is no number is the format's least."""
    least = fmt.emin - fmt.mantissa_bits
    if fmt.integer:
        return np.where(codes == 0, least, np.frexp(doubles(codes, fmt))[1] - 1).astype(np.int64)
    magnitude = (magnitude_codes(codes, fmt) >> codes.dtype.type(fmt.padding)).astype(np.int64)
    field = magnitude >> fmt.mantissa_bits
    normal = field + (fmt.emin - 1 if fmt.zero else fmt.emin)
    below = np.frexp(magnitude.astype(np.float64))[1] + (least - 1)
    found = np.where(field > 0, normal, np.where(magnitude > 0, below, least)) if fmt.zero else normal
    return np.where(magnitude > fmt.max_code >> fmt.padding, least, found)


def last_bits(codes: Codes, fmt: Format) -> Ints:
    """The exponents of the last set bits of the codes that are finite and not zero, flat."""
    values = doubles(codes, fmt).ravel()
    fraction, exponent = np.frexp(values[np.isfinite(values) & (values != 0)])
    digits = np.abs(fraction * 2.0**53).astype(np.int64)
    return np.asarray(exponent - 53 + np.log2(digits & -digits), np.int64)


def negated(codes: Codes, fmt: Format) -> Codes:
    """Numbers of the other sign, as far as the format has one: a zero whose negative is the NaN stays."""
    return np.where(_own_negative(codes, fmt), codes, codes ^ codes.dtype.type(fmt.sign_bit))


def unsigned(codes: Codes, fmt: Format) -> Codes:
    """Numbers without their signs; a NaN that is the negative zero stays."""
    return np.where(_own_negative(codes, fmt), codes, magnitude_codes(codes, fmt))


def _own_negative(codes: Codes, fmt: Format) -> npt.NDArray[np.bool_]:
    return np.equal(magnitude_codes(codes, fmt), 0) & (fmt.nan == "negative-zero")


def magnitude_codes(codes: Codes, fmt: Format) -> Codes:
    """Codes without their sign bits."""
    return codes & codes.dtype.type(~fmt.sign_bit & ((1 << fmt.width) - 1))


def kept_bits(codes: Codes, fmt: Format) -> int:
    """How many significant bits nearly all normal numbers among codes have at most; those of the largest number are of no rounding."""
    magnitude = magnitude_codes(codes, fmt).ravel()
    normal = (exponents(codes, fmt).ravel() >= fmt.emin) & (magnitude < fmt.max_code) & np.isfinite(decode(codes, fmt).ravel())
    if fmt.integer or not normal.any():
        return fmt.precision
    mantissa = (magnitude[normal].astype(np.int64) >> fmt.padding) | (1 << fmt.mantissa_bits)
    ends = np.log2((mantissa & -mantissa).astype(np.float64)).astype(np.int64)
    return fmt.mantissa_bits + 1 - int(np.quantile(ends, 1 - _NEARLY_ALL, method="lower"))


def nan_codes(codes: Codes, fmt: Format) -> Codes:
    """The NaN patterns among codes of an IEEE-like format."""
    if fmt.integer or fmt.inf_code is None:
        return codes[:0]
    magnitude = codes & codes.dtype.type((1 << (fmt.width - 1)) - 1)
    return codes[magnitude > codes.dtype.type(fmt.inf_code)]
